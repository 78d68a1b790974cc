"""The main job on data that ships with the repository: no network, a minute on a laptop.

A checkpoint in Google's format is recognised, converted and proved; the folder opens in timm and in transformers with
equal logits, classifies an image, and goes back to stock formats.
"""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import timm
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification, pipeline
from transformers.utils import logging

import vit_hub

logging.set_verbosity_error()
logging.disable_progress_bar()

ROOT = Path(__file__).parents[1]
CHECKPOINT = ROOT / "tests/golden/google_flax/tiny_token/checkpoint.npz"


def step(title: str) -> None:
    print(f"\n== {title}")


def main() -> None:
    work = Path(tempfile.mkdtemp(prefix="vit-hub-demo-"))

    step("build a network in timm")
    model = timm.create_model("myvit_ti16", num_classes=10)
    print(f"myvit_ti16: {sum(p.numel() for p in model.parameters()):,} parameters")

    step(f"inspect {CHECKPOINT.relative_to(ROOT)}")
    print("\n".join(str(vit_hub.inspect(CHECKPOINT)).splitlines()[:3]))

    step("convert it, with proof")
    result = vit_hub.convert(CHECKPOINT, work / "my-vit")
    check = result.proof["verification"]
    print(f"{result.proof['coverage']}; {result.proof['verdict']} against {check['reference']} {check['version']}")

    step("open the folder in both libraries")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (80, 100, 3), dtype=np.uint8))
    x = AutoImageProcessor.from_pretrained(result.path)(image, return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        by_timm = timm.create_model(f"local-dir:{result.path}", pretrained=True).eval()(x)
        by_transformers = AutoModelForImageClassification.from_pretrained(result.path).eval()(x).logits
    print(f"largest difference of the logits: {(by_timm - by_transformers).abs().max():.1e}")
    best = pipeline("image-classification", model=str(result.path))(image)[0]
    print(f"pipeline: {best['label']} {best['score']:.3f}")

    step("another resolution, and a look inside")
    large = vit_hub.resize(result.path, work / "my-vit-large", (96, 80))
    done = large.proof["resized"]
    print(f"grid {done['from']['grid']} -> {done['to']['grid']} under the policy {done['policy']!r}")
    for file in vit_hub.visualize(result.path, work / "pictures", image=image, size=(96, 80)):
        print(file)

    step("back to stock formats")
    for to in ("timm", "transformers", "google"):
        written = vit_hub.convert(result.path, work / to, to=to).proof["written"]
        print(f"{to:13} {written['class']}, difference {written['largest_difference']:.1e}")
    print(f"\neverything is in {work}")


if __name__ == "__main__":
    main()
