"""Ratios, measured side by side: each round runs every contender once, so that a busy machine slows all of them alike.

python scripts/bench.py [rounds]
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import timm
import torch
from safetensors.torch import save_file

import vit_hub  # noqa: F401  registers


def compare(title: str, contenders: dict[str, Callable[[], object]], rounds: int) -> None:
    """Print the median of each contender's time over the first one's, round by round, and how far rounds differ."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):  # the first warms up
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if number:
                times[name].append(time.perf_counter() - start)
    first, *others = contenders
    print(f"{title} ({first}: {1e3 * statistics.median(times[first]):.0f} ms)")
    for name in others:
        ratios = [a / b for a, b in zip(times[name], times[first], strict=True)]
        print(f"  {name:28} {statistics.median(ratios):6.2f} times  ({min(ratios):.2f} to {max(ratios):.2f})")


def opening(folder: Path, rounds: int) -> None:
    file = folder / "large.safetensors"
    save_file(timm.create_model("vit_large_patch16_224").state_dict(), file)
    weights = {"pretrained": True, "pretrained_cfg_overlay": {"file": str(file), "custom_load": False}}
    compare(
        "open ViT-L/16 (1.2 GB)",
        {
            "myvit_l16": lambda: timm.create_model("myvit_l16", **weights),
            "vit_large_patch16_224": lambda: timm.create_model("vit_large_patch16_224", **weights),
        },
        rounds,
    )


def forward(rounds: int) -> None:
    x = torch.randn(4, 3, 224, 224)
    ours, theirs = timm.create_model("myvit_b16").eval(), timm.create_model("vit_base_patch16_224").eval()
    full = timm.create_model("myvit_b16", lean=False).eval()
    networks = {"myvit_b16": ours, "myvit_b16, lean=False": full, "vit_base_patch16_224": theirs}
    with torch.inference_mode():
        compare("classify 4 images, ViT-B/16", {name: lambda n=n: n(x) for name, n in networks.items()}, rounds)


def training(rounds: int) -> None:
    x = torch.randn(4, 3, 224, 224)

    def step(network: torch.nn.Module) -> None:
        network(x).sum().backward()
        network.zero_grad()

    networks = {name: timm.create_model(name) for name in ("myvit_s16", "vit_small_patch16_224")}
    compare("a training step, ViT-S/16", {name: lambda n=n: step(n) for name, n in networks.items()}, rounds)


def mixed(rounds: int) -> None:
    network = timm.create_model("myvit_s16").eval()
    for sizes in ([448, *[64] * 6], [224, 208, 240, 224]):
        images = [torch.randn(3, size, size) for size in sizes]
        with torch.inference_mode():
            compare(
                f"images of {sizes} px, ViT-S/16",
                {
                    "forward_images": lambda images=images: network.forward_images(images),
                    "one after the other": lambda images=images: [network.forward_images([one]) for one in images],
                },
                rounds,
            )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as folder:
        opening(Path(folder), rounds)
    forward(rounds)
    training(rounds)
    mixed(rounds)


if __name__ == "__main__":
    main()
