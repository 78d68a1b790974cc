"""The timm side: importing this package registers every preset with timm."""

from . import myvit, names, save

__all__ = ["myvit"]

names.install()
save.install()
