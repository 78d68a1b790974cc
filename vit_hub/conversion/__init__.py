"""Checkpoints of any library into our weights and back, with proof."""

from .translate import translate_state_dict

__all__ = ["translate_state_dict"]
