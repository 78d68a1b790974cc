"""torchvision's vit_* and Meta's SWAG."""

from _run import main

main(__doc__, "torchvision", "swag")
