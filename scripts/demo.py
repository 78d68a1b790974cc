"""The main job on data that ships with scikit-learn: no network, a minute or two on a laptop.

An official checkpoint is converted and proved; then a small network learns handwritten digits, and goes the whole way:
an independent measurement, another resolution, stock formats and back, a card, pictures.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a network this small is slower on many threads

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from transformers import AutoImageProcessor, AutoModelForImageClassification, pipeline
from transformers.utils import logging

import vit_hub

logging.set_verbosity_error()
logging.disable_progress_bar()

ROOT = Path(__file__).parents[1]
CHECKPOINT = ROOT / "tests/golden/google_flax/tiny_token/checkpoint.npz"
RECIPE = {
    "from_scratch": True,
    "size": 16,
    "epochs": 20,
    "batch_size": 32,
    "lr": 3e-3,
    "weight_decay": 0.02,
    "warmup": 0.1,
    "crop_scale": 0.9,
    "crop_pct": 1.0,
    "ema": 0.98,
    "flip": False,  # a mirrored 2 is no 2
    "eval_split": "test",
    "evaluate_every": 225,
    "workers": 1,
}
LARGER = {"from_scratch": False, "size": None, "epochs": 3, "lr": 1e-3, "layer_decay": 1.0}
STATED = 0.95  # the accuracy on unseen digits that this demonstration promises


def step(title: str) -> None:
    print(f"\n== {title}", flush=True)


def convert(work: Path) -> None:
    step(f"convert {CHECKPOINT.relative_to(ROOT)}, with proof")
    result = vit_hub.convert(CHECKPOINT, work / "converted")
    check = result.proof["verification"]
    print(f"{result.proof['coverage']}; {result.proof['verdict']} against {check['reference']} {check['version']}")
    equal_logits(result.path)


def equal_logits(folder: Path) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (80, 100, 3), dtype=np.uint8))
    x = AutoImageProcessor.from_pretrained(folder)(image, return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        by_timm = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()(x)
        by_transformers = AutoModelForImageClassification.from_pretrained(folder).eval()(x).logits
    print(f"timm and transformers open it; their logits differ by {(by_timm - by_transformers).abs().max():.1e}")


def write_digits(folder: Path) -> list[Path]:
    """Save the digits as a folder a class; every fifth is held out. Returns the files held out."""
    digits = load_digits()
    held_out = []
    for index, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        file = folder / ("test" if index % 5 == 0 else "train") / str(label) / f"{index:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 255 / 16).astype(np.uint8)).save(file)
        if index % 5 == 0:
            held_out.append(file)
    return held_out


def measure(folder: Path, files: list[Path]) -> float:
    """The accuracy on these files by transformers' pipeline alone."""
    classify = pipeline("image-classification", model=str(folder), batch_size=32)
    answers = classify([str(file) for file in files])
    return float(np.mean([best[0]["label"] == file.parent.name for best, file in zip(answers, files, strict=True)]))


def stock_and_back(folder: Path, work: Path) -> None:
    own = load_file(folder / "model.safetensors")
    for to in ("timm", "transformers"):
        written = vit_hub.convert(folder, work / to, to=to).proof["written"]
        back = load_file(vit_hub.convert(work / to, work / f"{to}-back").path / "model.safetensors")
        same = own.keys() == back.keys() and all(torch.equal(own[name], back[name]) for name in own)
        print(f"{to:13} {written['class']}; back again, {'every bit is' if same else 'the bits are NOT'} the same")
        if not same:
            sys.exit(f"the weights changed on the way through {to}")


def main() -> None:
    work = Path(tempfile.mkdtemp(prefix="vit-hub-demo-"))
    convert(work)

    step("train a network from scratch on handwritten digits")
    files = write_digits(work / "digits")
    result = vit_hub.finetune(
        "myvit_test_token", work / "digits", work / "my-digits", recipe=RECIPE, settings={"patch_size": 4}
    )
    for point in result.history:
        if "eval_top1" in point:
            print(f"step {point['step']:4}: accuracy {point['eval_top1']:.3f}, loss {point['eval_loss']:.3f}")
    equal_logits(result.path)

    step('measure it independently, with pipeline("image-classification")')
    accuracy = measure(result.path, files)
    print(f"accuracy {accuracy:.4f} on {len(files)} digits it has not seen; stated: {STATED} or better")

    step("another resolution")
    large = vit_hub.resize(result.path, work / "my-digits-24", 24)
    done = large.proof["resized"]
    print(f"grid {done['from']['grid']} -> {done['to']['grid']} under the policy {done['policy']!r}")
    print(f"accuracy {measure(large.path, files):.4f}; then three more epochs at this size:")
    again = vit_hub.finetune(large.path, work / "digits", work / "my-digits-24-tuned", recipe=RECIPE | LARGER)
    print(f"accuracy {measure(again.path, files):.4f}; the head was {again.head}")

    step("to stock timm and transformers, and back")
    stock_and_back(result.path, work)

    step("a folder to publish (vit-hub push my-digits me/my-digits), with its card")
    card = (result.path / "README.md").read_text()
    print("\n".join(card[card.index("\n# ") + 1 :].splitlines()[:5]))

    step("a look inside")
    for picture in vit_hub.visualize(result.path, work / "pictures", image=files[3], size=24):
        print(picture)
    print(f"\neverything is in {work}")
    if accuracy < STATED:
        sys.exit(f"accuracy {accuracy:.4f} is below the {STATED} that was stated")


if __name__ == "__main__":
    main()
