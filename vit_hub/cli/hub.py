"""push, card."""

from __future__ import annotations

import argparse
import sys

from .values import Commands


def add(commands: Commands) -> None:
    """Add this room's commands."""
    push = commands.add_parser("push", help="check a folder and publish it on the Hub in one commit")
    push.add_argument("folder")
    push.add_argument("repo", metavar="OWNER/NAME", help="made if it is not there")
    push.add_argument("--revision", help="the branch to push to, made if it is not there (default: main)")
    push.add_argument("--pr", action="store_true", help="propose the change as a pull request")
    push.add_argument("--private", action="store_true", default=None, help="make a new repository private")
    push.add_argument("--dry-run", action="store_true", help="only say what would be sent; writes nothing")
    push.add_argument("--token", help="default: that of `hf auth login`, or HF_TOKEN; never printed or stored")
    push.add_argument("--license", help="the Hub's id of the licence, where the source's is not known")
    push.add_argument("--message", help="of the commit")
    push.add_argument("--tag", help="a name for the commit")
    push.add_argument(
        "--as",
        dest="as_",
        default="vit_hub",
        choices=("vit_hub", "timm", "transformers"),
        help="publish a stock model that opens without vit_hub",
    )
    push.set_defaults(run=_push)

    card = commands.add_parser("card", help="the model card of a folder: print it, or write README.md")
    card.add_argument("folder")
    card.add_argument("--repo", metavar="OWNER/NAME", help="where it will be on the Hub: the snippets open it there")
    card.add_argument("--license", help="the Hub's id of the licence, where the source's is not known")
    card.add_argument("--write", action="store_true", help="write README.md; text of your own in it stays")
    card.set_defaults(run=_card)


def _card(options: argparse.Namespace) -> int:
    from ..hub.card import card, check_licence, write_card

    words = {"repo": options.repo, "license": options.license and check_licence(options.folder, options.license)}
    print(write_card(options.folder, **words) if options.write else card(options.folder, **words))
    return 0


def _push(options: argparse.Namespace) -> int:
    from ..conversion.publish import push

    result = push(
        options.folder,
        options.repo,
        revision=options.revision,
        create_pr=options.pr,
        private=options.private,
        dry_run=options.dry_run,
        token=options.token,
        license=options.license,
        message=options.message,
        tag=options.tag,
        as_=options.as_,
    )
    for file in result.files:
        print(f"  {file.state:9} {file.mode:7} {file.size:>13,}  {file.name}")
    if not result.changed:
        print(f"{result.url}: nothing changed, no commit")
    elif result.commit is None:
        print(f"{result.url}: nothing was sent (--dry-run)")
    else:
        print(f"{result.pr_url or result.url}: commit {result.commit}, checked on the Hub")
    for note in result.notes:
        print(f"NOTE: {note}", file=sys.stderr)
    return 0
