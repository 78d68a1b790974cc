"""The papers that released weights come from: what a citation needs, by arXiv id."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """Where to read it and how to cite it."""

    arxiv: str
    author: str = ""
    year: int = 0
    title: str = ""

    @property
    def url(self) -> str:
        return f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def bibtex(self) -> str | None:
        """An entry for a bibliography; None for a paper that is not in the table."""
        if not self.title:
            return None
        key = re.sub(r"[^a-z]", "", self.author.split(",")[0].lower().translate(str.maketrans("éèíó", "eeio")))
        return (
            f"@misc{{{key}{self.year}{self.title.split()[0].lower().strip(':?').replace('-', '')},\n"
            f"  author = {{{self.author} and others}},\n"
            f"  title = {{{{{self.title}}}}},\n"
            f"  year = {{{self.year}}},\n"
            f"  eprint = {{{self.arxiv}}},\n"
            "  archivePrefix = {arXiv}\n"
            "}"
        )


_ROWS = (
    (
        "2010.11929",
        "Dosovitskiy, Alexey",
        2020,
        "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
    ),
    (
        "2012.12877",
        "Touvron, Hugo",
        2020,
        "Training data-efficient image transformers & distillation through attention",
    ),
    ("2103.00020", "Radford, Alec", 2021, "Learning Transferable Visual Models From Natural Language Supervision"),
    ("2104.02057", "Chen, Xinlei", 2021, "An Empirical Study of Training Self-Supervised Vision Transformers"),
    ("2104.14294", "Caron, Mathilde", 2021, "Emerging Properties in Self-Supervised Vision Transformers"),
    ("2106.08254", "Bao, Hangbo", 2021, "BEiT: BERT Pre-Training of Image Transformers"),
    (
        "2106.10270",
        "Steiner, Andreas",
        2021,
        "How to train your ViT? Data, Augmentation, and Regularization in Vision Transformers",
    ),
    ("2111.06377", "He, Kaiming", 2021, "Masked Autoencoders Are Scalable Vision Learners"),
    ("2201.08371", "Singh, Mannat", 2022, "Revisiting Weakly Supervised Pre-Training of Visual Perception Models"),
    ("2204.07118", "Touvron, Hugo", 2022, "DeiT III: Revenge of the ViT"),
    ("2204.07141", "Assran, Mahmoud", 2022, "Masked Siamese Networks for Label-Efficient Learning"),
    ("2205.01580", "Beyer, Lucas", 2022, "Better plain ViT baselines for ImageNet-1k"),
    ("2211.07636", "Fang, Yuxin", 2022, "EVA: Exploring the Limits of Masked Visual Representation Learning at Scale"),
    ("2212.07143", "Cherti, Mehdi", 2022, "Reproducible scaling laws for contrastive language-image learning"),
    ("2212.08013", "Beyer, Lucas", 2022, "FlexiViT: One Model for All Patch Sizes"),
    (
        "2301.08243",
        "Assran, Mahmoud",
        2023,
        "Self-Supervised Learning from Images with a Joint-Embedding Predictive Architecture",
    ),
    ("2303.15343", "Zhai, Xiaohua", 2023, "Sigmoid Loss for Language Image Pre-Training"),
    ("2304.07193", "Oquab, Maxime", 2023, "DINOv2: Learning Robust Visual Features without Supervision"),
    ("2309.16588", "Darcet, Timothée", 2023, "Vision Transformers Need Registers"),
    (
        "2502.14786",
        "Tschannen, Michael",
        2025,
        "SigLIP 2: Multilingual Vision-Language Encoders with Improved Semantic Understanding, "
        "Localization, and Dense Features",
    ),
    ("2508.10104", "Siméoni, Oriane", 2025, "DINOv3"),
)
PAPERS = {row[0]: Paper(*row) for row in _ROWS}


def papers(ids: Iterable[str]) -> list[Paper]:
    """The papers that texts such as ``arXiv:2010.11929`` speak of, each once.

    Example:
        >>> papers(["arXiv:2010.11929"])[0].url
        'https://arxiv.org/abs/2010.11929'
    """
    found = dict.fromkeys(match for text in ids for match in re.findall(r"\d{4}\.\d{4,5}", text))
    return [PAPERS.get(arxiv, Paper(arxiv)) for arxiv in found]
