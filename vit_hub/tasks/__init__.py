"""Use a model on data: predict, evaluate, extract features, fine-tune, look inside.

Functions first, commands second; each takes any source that ``convert`` takes, and any source of ``datasets``.
"""
