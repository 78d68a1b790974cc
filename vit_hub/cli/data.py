"""Commands that use a model on images: predict, eval, features, visualize."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from .values import Commands, add_settings, quiet_in_logs, value_of


def add(commands: Commands) -> None:
    """Add this room's commands."""
    predict = commands.add_parser("predict", help="the likeliest classes of images")
    predict.add_argument("model", help="a file, a folder, a preset or a Hub id")
    predict.add_argument("images", nargs="+", help="files, or folders with all folders in them")
    predict.add_argument("--top", type=_count, default=5, help="classes of each image (default 5)")
    predict.add_argument("--json", action="store_true", help="a line of JSON for each image")
    predict.add_argument("--labels", help="names for a model that has none: imagenet-1k ...")
    _add_running(predict)
    predict.add_argument("--dtype", default="float32", help="float32 (default); bfloat16 or float16 by autocast")
    predict.set_defaults(run=_predict)

    evaluate = commands.add_parser(
        "eval", help="accuracy, calibration and speed on a labelled data set; kept in the folder and its card"
    )
    evaluate.add_argument("model", help="a file, a folder, a preset or a Hub id")
    _add_data(evaluate)
    evaluate.add_argument(
        "--labels", help="where names do not align classes: by-position, imagenet-1k ..., or a JSON file {data: model}"
    )
    evaluate.add_argument(
        "--through", default="vit_hub", help="vit_hub (default), or run a folder by timm, transformers"
    )
    evaluate.add_argument("--knn", type=_count, nargs="?", const=20, metavar="K", help="K nearest neighbours (20)")
    evaluate.add_argument("--probe", action="store_true", help="a linear classifier on frozen features")
    evaluate.add_argument("--train-split", default="train", help="what --knn and --probe learn from (default train)")
    evaluate.add_argument(
        "--allow-constant", action="store_true", help="judge a head that says the same of every image"
    )
    evaluate.add_argument("--out", metavar="FILE", help="everything as JSON: per class, confusion, unreadable images")
    evaluate.add_argument("--json", action="store_true", help="the same on the terminal")
    evaluate.add_argument("--no-save", action="store_true", help="do not keep the result in the model's folder")
    evaluate.add_argument("--resume", metavar="FILE", help="keep finished batches here, and go on from them")
    _add_running(evaluate)
    evaluate.add_argument("--dtype", default="float32", help="float32 (default); bfloat16 or float16 by autocast")
    evaluate.set_defaults(run=_evaluate)

    features = commands.add_parser("features", help="what the network sees in every image, as parquet")
    features.add_argument("model", help="a file, a folder, a preset or a Hub id")
    _add_data(features)
    features.add_argument("--out", required=True, help="one file (.parquet), or a folder for numbered ones")
    features.add_argument(
        "--what", nargs="+", default=["pooled"], help="some of: class mean registers dense pooled (default) logits"
    )
    features.add_argument("--layers", nargs="+", type=int, help="blocks, negative from the end (default: the last)")
    features.add_argument("--no-norm", action="store_true", help="blocks as they are, not through the final norm")
    features.add_argument("--l2", action="store_true", help="vectors of length one")
    features.add_argument("--dtype", default="float32", help="of the numbers written: float32 (default) or float16")
    features.add_argument("--shard-rows", type=_count, help="rows of a shard (default: 10000, or what fills 256 MB)")
    features.add_argument("--force", action="store_true", help="replace what is there")
    _add_running(features)
    features.set_defaults(run=_features)

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


def _add_data(parser: argparse.ArgumentParser) -> None:
    """Where the images are."""
    parser.add_argument("data", help="a Hub id, a folder of images, a file of parquet, arrow, csv, json or tar")
    parser.add_argument("--split", help="may be left out where there is one; train[:100] takes a part")
    parser.add_argument("--config", help="of a data set on the Hub that has several")
    parser.add_argument("--revision", help="of a data set on the Hub")
    parser.add_argument("--image-column", help="where the types do not tell")
    parser.add_argument("--label-column", help="where the types do not tell")
    parser.add_argument("--streaming", action="store_true", help="read on the way instead of downloading first")
    parser.add_argument("--limit", type=_count, help="only so many rows")


def _add_running(parser: argparse.ArgumentParser) -> None:
    """How to run; many processes by ``torchrun`` or ``accelerate launch``."""
    parser.add_argument("--size", type=value_of, help="another image size: 384, or 320x512")
    parser.add_argument("--batch-size", type=_count, default=32, help="images at once in a process (default 32)")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode images (default: none beside)")
    parser.add_argument("--strict", action="store_true", help="unreadable images are an error; else they are reported")
    add_settings(parser)


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _predict(options: argparse.Namespace) -> int:
    from ..tasks.predict import predict

    found = predict(
        _model(options),
        options.images,
        top=options.top,
        batch_size=options.batch_size,
        labels=options.labels,
        dtype=options.dtype,
        workers=options.workers,
        strict=options.strict,
    )
    if not _main():
        return 0
    for one in found:
        if options.json:
            print(json.dumps(one.to_json()))
        elif one.problem is None:
            print(one.image)
            for guess in one.guesses:
                print(f"  {guess.score:7.2%}  {guess.label}")
    bad = [(one.image, one.problem) for one in found if one.problem is not None]
    _report(bad)
    return 1 if len(bad) == len(found) else 0


def _evaluate(options: argparse.Namespace) -> int:
    from ..tasks.evaluate import evaluate
    from ..tasks.probe import knn, linear_probe, open_splits
    from ..tasks.processes import open_shared
    from ..tasks.results import write_json

    running = {name: getattr(options, name) for name in ("batch_size", "limit", "workers", "strict")}
    running["save"] = not options.no_save
    data = open_shared(options.data, split=options.split, **_opening(options))
    if options.knn or options.probe:
        _refuse_unused(options)
        train = open_shared(options.data, split=options.train_split, **_opening(options))
        splits = open_splits(_model(options), train, data, **running)
        results = [knn(splits, k=options.knn)] if options.knn else []
        results += [linear_probe(splits)] if options.probe else []
    else:
        plain = options.through != "vit_hub" and options.size is None and not options.settings
        source = options.model if plain else _model(options)
        asked = {name: getattr(options, name) for name in ("labels", "through", "dtype", "allow_constant", "resume")}
        results = [evaluate(source, data, **asked, **running)]
    if not _main():
        return 0
    everything = [result.to_json() for result in results]
    if options.out:
        write_json(options.out, {"results": everything})
    if options.json:
        print(json.dumps({"results": everything}))
    for result in [] if options.json else results:
        print(result)
    _report([(bad.name, bad.reason) for bad in results[0].unreadable])
    return 0


def _refuse_unused(options: argparse.Namespace) -> None:
    """What would be ignored in silence."""
    from ..errors import VitHubError

    usual = {"through": "vit_hub", "dtype": "float32", "labels": None, "allow_constant": False, "resume": None}
    unused = [f"--{name.replace('_', '-')}" for name, value in usual.items() if getattr(options, name) != value]
    if unused:
        raise VitHubError(f"--knn and --probe do not go with {', '.join(unused)}: they are about the classifier")


def _features(options: argparse.Namespace) -> int:
    from ..tasks.features import features
    from ..tasks.processes import open_shared

    data = open_shared(options.data, split=options.split, **_opening(options))
    asked = "what layers l2 dtype batch_size shard_rows limit workers strict force".split()
    written = features(
        _model(options), data, options.out, norm=not options.no_norm, **{name: getattr(options, name) for name in asked}
    )
    if _main():
        print(f"{options.out}: {written.rows} rows in {len(written.files)} files")
        _report([(bad.name, bad.reason) for bad in written.unreadable])
    return 0


def _visualize(options: argparse.Namespace) -> int:
    from ..tasks.visualize import visualize

    settings = dict(options.settings)
    for file in visualize(
        options.source, options.out, image=options.image, kinds=options.kinds, size=options.size, **settings
    ):
        print(file)
    return 0


def _model(options: argparse.Namespace) -> Any:
    from ..tasks.models import open_model

    return open_model(options.model, size=options.size, **dict(options.settings))


def _opening(options: argparse.Namespace) -> dict[str, Any]:
    quiet_in_logs()
    words = "config revision image_column label_column streaming".split()
    return {word: getattr(options, word) for word in words}


def _main() -> bool:
    """Whether this process is the one that speaks."""
    from ..tasks.processes import processes

    return bool(processes().is_main_process)


def _report(bad: list[tuple[str, Any]], most: int = 20) -> None:
    """Say what was left out."""
    if bad:
        print(f"NOTE: {len(bad)} images could not be read and were left out:", file=sys.stderr)
    for name, reason in bad[:most]:
        print(f"    {name}: {reason}", file=sys.stderr)
    if len(bad) > most:
        print(f"    ... and {len(bad) - most} more", file=sys.stderr)
