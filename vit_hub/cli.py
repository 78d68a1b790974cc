"""The command line: parse, one library call, print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from . import __version__

EXAMPLES = """examples:
  vit-hub inspect ViT-B_16.npz                        what is this file, and what does it not tell?
  vit-hub convert ViT-B_16.npz --out my-vit           one folder for timm and transformers, with proof
  vit-hub convert facebook/dinov2-base --out dino     from the Hub
  vit-hub convert dino_vitbase16_pretrain.pth --out d --set img_size=320x512
  vit-hub convert my-vit --out stock --to timm        a folder that opens without vit_hub
  vit-hub resize my-vit --size 384 --out my-vit-384
  vit-hub visualize my-vit --out pictures --size 384  position similarity before and after, and more
  vit-hub verify my-vit                               does it open in both libraries with equal logits?
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors of ours are one clear message and exit code 2."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("interrupted; nothing half-written was left", file=sys.stderr)
        return 130
    except Exception as error:
        from .errors import ConfigError, VitHubError

        if not isinstance(error, VitHubError | ConfigError) or options.debug:
            raise
        print(f"vit-hub: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "vit-hub",
        description="One Vision Transformer for timm and Hugging Face: convert, prove, open anywhere.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    convert = commands.add_parser("convert", help="any official checkpoint into one folder, with proof; or back")
    convert.add_argument("source", help="a file, a folder, or a Hub id: owner/name[@revision][:file]")
    convert.add_argument("--out", required=True, help="the folder to write; it appears whole or not at all")
    convert.add_argument("--to", default="vit_hub", help="vit_hub (default), timm, transformers, torchvision or google")
    convert.add_argument("--head", help="a separate file with a linear head (DINOv2)")
    convert.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), help="default: the source's widest")
    convert.add_argument("--no-verify", action="store_true", help="do not run a reference implementation")
    convert.add_argument("--force", action="store_true", help="replace the folder if it is there")
    _settings(convert)
    convert.set_defaults(run=_convert)

    inspect = commands.add_parser(
        "inspect", help="family, configuration with the origin of each field, what is missing"
    )
    inspect.add_argument("source", help="a file, a folder, or a Hub id")
    inspect.add_argument("--json", action="store_true", help="for machines")
    _settings(inspect)
    inspect.set_defaults(run=_inspect)

    resize = commands.add_parser("resize", help="a folder for images of another size")
    resize.add_argument("folder")
    resize.add_argument("--size", required=True, type=_value, help="384, or height x width: 320x512")
    resize.add_argument("--patch-size", type=_value, help="another patch size too (pseudo-inverse of FlexiViT)")
    resize.add_argument("--out", required=True, help="the folder to write")
    resize.add_argument("--force", action="store_true", help="replace the folder if it is there")
    resize.set_defaults(run=_resize)

    visualize = commands.add_parser("visualize", help="pictures: positions, filters, attention, rollout, features")
    visualize.add_argument("source", help="a file, a folder, or a Hub id")
    visualize.add_argument("--out", required=True, help="the folder for the PNG files")
    visualize.add_argument("--image", help="the image that attention, rollout and pca look at")
    visualize.add_argument(
        "--kinds", nargs="+", metavar="KIND", help="some of: positions filters attention rollout pca"
    )
    visualize.add_argument("--size", type=_value, help="look at this image size; positions before and after")
    _settings(visualize)
    visualize.set_defaults(run=_visualize)

    verify = commands.add_parser("verify", help="check a folder: checksum, both libraries, equal logits")
    verify.add_argument("folder")
    verify.set_defaults(run=_verify)
    return parser


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=setting,
        help="what the file cannot tell, in timm's words: num_heads=12, act_layer=gelu, img_size=320x512 (repeatable)",
    )


def setting(text: str) -> tuple[str, Any]:
    """``key=value`` with numbers, booleans and sizes read as such.

    Example:
        >>> setting("img_size=320x512")
        ('img_size', (320, 512))
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), _value(value.strip())


def _value(text: str) -> Any:
    height, by, width = text.partition("x")
    if by and height.isdigit() and width.isdigit():
        return int(height), int(width)
    named = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in named:
        return named[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _convert(options: argparse.Namespace) -> int:
    from .conversion.convert import convert

    result = convert(
        options.source,
        options.out,
        to=options.to,
        head=options.head,
        dtype=options.dtype,
        verify=not options.no_verify,
        force=options.force,
        **dict(options.settings),
    )
    proof = result.proof
    print(f"{options.out}: {proof['family']}, {proof['coverage']}")
    check = proof.get("verification")
    if check:
        who = f"{check['reference']} {check['version']} {check['how']}"
        print(f"{proof['verdict']}: {who}; worst error {check['worst']:.1e}")
    else:
        print(f"{proof['verdict']}: {proof['why']}")
    if proof["written"]:
        print(f"written for {proof['written']['format']}: {proof['written']['class']}")
    for note in result.notes:
        print(f"NOTE: {note}", file=sys.stderr)
    return 0


def _resize(options: argparse.Namespace) -> int:
    from .conversion.convert import resize

    result = resize(options.folder, options.out, options.size, patch_size=options.patch_size, force=options.force)
    done = result.proof["resized"]
    if done is None:
        print(f"{options.out}: the size is the same; copied")
    else:
        grids = f"grid {done['from']['grid']} -> {done['to']['grid']}"
        print(f"{options.out}: {grids}, positions {done['positions']} ({done['policy']})")
    for note in result.notes:
        print(f"NOTE: {note}", file=sys.stderr)
    return 0


def _visualize(options: argparse.Namespace) -> int:
    from .tasks.visualize import visualize

    settings = dict(options.settings)
    for file in visualize(
        options.source, options.out, image=options.image, kinds=options.kinds, size=options.size, **settings
    ):
        print(file)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from .conversion.inspect import inspect

    found = inspect(options.source, **dict(options.settings))
    print(json.dumps(found.to_json(), indent=1) if options.json else found)
    return 0 if found.problem is None else 1


def _verify(options: argparse.Namespace) -> int:
    from .conversion.verify import verify

    for check in verify(options.folder):
        print(f"{'ok ' if check.good else 'BAD'} {check.what:13} {check.detail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
