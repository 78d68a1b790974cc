"""big_vision: SigLIP, SigLIP 2, LiT, FlexiViT, Better plain ViT, and your own runs.

FlexiViT at another patch size: --set patch_size=16 --set img_size=240 --set resample=flexivit."""

from _run import main

main(__doc__, "big_vision")
