"""Make the README's picture: positions that a small network learns on handwritten digits, before and after a resize.

The digits ship with scikit-learn; training takes about a minute on a laptop's processor.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from sklearn.datasets import load_digits

import vit_hub

OUT = Path(__file__).parents[1] / "model_cards"


def main() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.from_numpy(digits.images.astype(np.float32)) / 8 - 1  # (1797, 8, 8), -1 ... 1
    images = F.interpolate(images[:, None], size=(32, 32), mode="bilinear").expand(-1, 3, -1, -1)
    labels = torch.from_numpy(digits.target)
    config = vit_hub.ViTConfig(img_size=32, patch_size=4, embed_dim=64, depth=4, num_heads=4, num_classes=10)
    network = vit_hub.VisionTransformer(config)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.05)
    steps = 1200
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, step / 100) * (1 - step / steps)
        batch = torch.randint(0, 1400, (64,))
        shift = torch.randint(-4, 5, (2,)).tolist()  # digits move, so places matter
        loss = F.cross_entropy(network(torch.roll(images[batch], shift, dims=(2, 3))), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.inference_mode():
        correct = (network.eval()(images[1400:]).argmax(1) == labels[1400:]).float().mean().item()
    print(f"held-out accuracy {correct:.3f}")
    with tempfile.TemporaryDirectory() as folder:
        save_file(network.state_dict(), Path(folder) / "digits.safetensors")
        (file,) = vit_hub.visualize(
            Path(folder) / "digits.safetensors", folder, kinds=["positions"], size=48, num_heads=4
        )
        file.rename(OUT / "positions.png")
    print(OUT / "positions.png")


if __name__ == "__main__":
    main()
