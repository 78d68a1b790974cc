"""Meta's own files: DeiT, DeiT III, DINO, DINOv2, DINOv3, MAE, MoCo v3, MSN, I-JEPA; iBOT, BEiT and EVA-01."""

from _run import main

main(__doc__, "timm", "deit", "dino", "ibot", "mae", "mocov3", "msn", "beit")
