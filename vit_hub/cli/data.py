"""Commands that use a model on images."""

from __future__ import annotations

import argparse

from .values import Commands, add_settings, value_of


def add(commands: Commands) -> None:
    """Add this room's commands."""
    visualize = commands.add_parser("visualize", help="pictures: positions, filters, attention, rollout, features")
    visualize.add_argument("source", help="a file, a folder, or a Hub id")
    visualize.add_argument("--out", required=True, help="the folder for the PNG files")
    visualize.add_argument("--image", help="the image that attention, rollout and pca look at")
    visualize.add_argument(
        "--kinds", nargs="+", metavar="KIND", help="some of: positions filters attention rollout pca"
    )
    visualize.add_argument("--size", type=value_of, help="look at this image size; positions before and after")
    add_settings(visualize)
    visualize.set_defaults(run=_visualize)


def _visualize(options: argparse.Namespace) -> int:
    from ..tasks.visualize import visualize

    settings = dict(options.settings)
    for file in visualize(
        options.source, options.out, image=options.image, kinds=options.kinds, size=options.size, **settings
    ):
        print(file)
    return 0
