"""timm: a Hub id (timm/vit_base_patch16_224.augreg2_in21k_ft_in1k), a folder, or a state dict.

A bare state dict does not tell its heads and activation: --set num_heads=12 --set act_layer=gelu."""

from _run import main

main(__doc__, "timm")
