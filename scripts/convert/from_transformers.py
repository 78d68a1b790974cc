"""transformers: ViT, DeiT, ViT-MAE, DINOv2 (+ registers), DINOv3, MSN, I-JEPA, CLIP and SigLIP vision towers."""

from _run import main

main(__doc__, "transformers")
