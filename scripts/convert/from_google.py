"""Google's vision_transformer: the npz files below vit_models/ (imagenet21k, augreg, sam, gsam, lit).

Their code computes the tanh approximation of GELU; --set act_layer=gelu gives what timm and transformers compute."""

from _run import main

main(__doc__, "google")
