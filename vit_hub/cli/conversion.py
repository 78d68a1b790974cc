"""convert, inspect, resize, verify."""

from __future__ import annotations

import argparse
import json
import sys

from .values import Commands, add_settings, value_of


def add(commands: Commands) -> None:
    """Add this room's commands."""
    convert = commands.add_parser("convert", help="any official checkpoint into one folder, with proof; or back")
    convert.add_argument("source", help="a file, a folder, or a Hub id: owner/name[@revision][:file]")
    convert.add_argument("--out", required=True, help="the folder to write; it appears whole or not at all")
    convert.add_argument("--to", default="vit_hub", help="vit_hub (default), timm, transformers, torchvision or google")
    convert.add_argument("--head", help="a separate file with a linear head (DINOv2)")
    convert.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), help="default: the source's widest")
    convert.add_argument("--no-verify", action="store_true", help="do not run a reference implementation")
    convert.add_argument("--force", action="store_true", help="replace the folder if it is there")
    add_settings(convert)
    convert.set_defaults(run=_convert)

    inspect = commands.add_parser(
        "inspect", help="family, configuration with the origin of each field, what is missing"
    )
    inspect.add_argument("source", help="a file, a folder, or a Hub id")
    inspect.add_argument("--json", action="store_true", help="for machines")
    add_settings(inspect)
    inspect.set_defaults(run=_inspect)

    resize = commands.add_parser("resize", help="a folder for images of another size")
    resize.add_argument("folder")
    resize.add_argument("--size", required=True, type=value_of, help="384, or height x width: 320x512")
    resize.add_argument("--patch-size", type=value_of, help="another patch size too (pseudo-inverse of FlexiViT)")
    resize.add_argument("--out", required=True, help="the folder to write")
    resize.add_argument("--force", action="store_true", help="replace the folder if it is there")
    resize.set_defaults(run=_resize)

    verify = commands.add_parser("verify", help="check a folder: checksum, both libraries, equal logits")
    verify.add_argument("folder")
    verify.set_defaults(run=_verify)


def _convert(options: argparse.Namespace) -> int:
    from ..conversion.convert import convert

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
    from ..conversion.convert import resize

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


def _inspect(options: argparse.Namespace) -> int:
    from ..conversion.inspect import inspect

    found = inspect(options.source, **dict(options.settings))
    print(json.dumps(found.to_json(), indent=1) if options.json else found)
    return 0 if found.problem is None else 1


def _verify(options: argparse.Namespace) -> int:
    from ..conversion.verify import verify

    for check in verify(options.folder):
        print(f"{'ok ' if check.good else 'BAD'} {check.what:13} {check.detail}")
    return 0
