"""jeonsworld/ViT-pytorch and lukemelas/PyTorch-Pretrained-ViT."""

from _run import main

main(__doc__, "jeonsworld", "lukemelas")
