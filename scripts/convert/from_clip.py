"""OpenAI's CLIP and OpenCLIP.

OpenCLIP files do not tell the activation: exact GELU unless --set act_layer=quick_gelu."""

from _run import main

main(__doc__, "clip", "openclip")
