"""The timm side: importing this package registers every preset with timm."""

from . import myvit

__all__ = ["myvit"]
