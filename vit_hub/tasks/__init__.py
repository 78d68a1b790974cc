"""Use a model on data: look inside it, and whatever else needs images rather than checkpoints.

Functions first, commands second; each takes any source that ``convert`` takes.
"""
