"""``python -m vit_hub.cli``."""

import sys

from . import main

sys.exit(main())
