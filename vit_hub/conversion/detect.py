"""Which dialect is this? The one that claims every tensor, once the wrapping is off.

Checkpoints come wrapped: under ``model``, ``teacher`` or ``opt/target``, with ``module.`` or ``vit.`` in front,
beside optimiser states and text towers. A :class:`View` is one way to unwrap the names; what it leaves out is left
out with a reason. The first view that some dialect claims as a whole wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from ..errors import TranslationError, UnsupportedError
from .containers import Stored
from .dialects import DIALECTS
from .plan import Plan, plan, shapes
from .rules import Drop

# Beside the weights: what it is, and why it is left out. Only what is named here may be left out.
BESIDE = (
    *(
        Drop(f"{name}*", "optimiser state")
        for name in ("optimizer", "opt/state", "opt/", "optimizer_states", "scaler", "amp_scaler", "lr_scheduler")
    ),
    *(Drop(f"{name}*", "training state") for name in ("scheduler", "callbacks", "loops", "hyper_parameters")),
    *(Drop(f"{name}*", "training state") for name in ("fp16_scaler", "dino_loss", "ibot_loss", "koleo_loss")),
    Drop("student/*", "the student network; the teacher is the one to use"),
    Drop("teacher/*", "the teacher network beside the chosen one"),
    Drop("model_ema/*", "an average of the weights; choose it with --set weights=model_ema"),
    Drop("state_dict_ema/*", "an average of the weights; choose it with --set weights=state_dict_ema"),
    Drop("ema/*", "an average of the weights; choose it with --set weights=ema"),
    Drop("target_encoder/*", "the averaged encoder beside the chosen one"),
    Drop("encoder/*", "the encoder beside the averaged one"),
    Drop("predictor*", "the predictor of pre-training"),
    Drop("prototypes*", "the prototypes of pre-training"),
    Drop("momentum_encoder.*", "the averaged encoder beside the chosen one"),
    Drop("txt/*", "the text tower"),
    Drop("t", "the temperature of the two towers"),
    Drop("b", "the bias of the two towers"),
)

# Subtrees that hold the weights, in the order to try; a second name says what must lie beside them.
SUBTREES: tuple[tuple[str, str], ...] = (
    ("teacher/", ""),
    ("encoder/", "predictor/"),  # I-JEPA: its encoder is what timm and transformers publish
    ("target_encoder/", ""),
    ("model/", ""),
    ("state_dict/", ""),
    ("module/", ""),
    ("model_ema/", ""),
    ("state_dict_ema/", ""),
    ("ema/", ""),
    ("encoder/", ""),
    ("student/", ""),
    ("network/", ""),
    ("opt/target/", ""),
    ("params/", ""),
    ("img/", ""),
    ("base_encoder.", "momentum_encoder."),
)

# Prefixes that come off the names that have them; the others stay as they are.
PREFIXES = (
    "module.",
    "_orig_mod.",
    "backbone.",
    "base_encoder.",
    "model.",
    "net.",
    "network.",
    "vit.",
    "deit.",
    "dinov2.",
    "dinov2_with_registers.",
    "dinov3_vit.",
    "ijepa.",
    "beit.",
    "vision_model.",
    "encoder.",
    "layers/vi_t_backbone/",
)

CHUNKED = re.compile(r"^blocks\.\d+\.(\d+)\.")

REFUSALS = (
    ("*relative_position_bias_table", "relative position bias", "timm's beit models or transformers' BeitModel"),
    ("*rel_pos_bias*", "relative position bias", "timm's relpos models"),
    ("*inner_attn_ln*", "a norm inside attention", "timm's eva02 or beit3 models"),
    ("*ffn_ln*", "a norm inside the MLP", "timm's eva02 models"),
    ("*ffn_layernorm*", "a norm inside the MLP", "timm's beit3 models"),
    ("*rope.freqs_cos", "rotary embeddings of interleaved pairs", "timm's eva02 models"),
    ("to_patch_embedding.*weight", "a LayerNorm before the patch projection", "lucidrains' vit-pytorch itself"),
    ("*patch_embed.proj.0.*", "a convolutional stem", "the original MoCo v3 code"),
    ("*patch_embed.backbone.0.*", "a convolutional stem other than ResNetV2", "timm's hybrid models"),
    ("visual.attn_pool.*", "a pool of many queries (CoCa)", "open_clip"),
    ("*norm11.*", "parallel blocks", "timm's 18x2 models"),
    ("*attn.lambda_q1", "differential attention", "timm's dlittle, dwee and dpwee models"),
    ("visual.layer1.*", "a ResNet, not a ViT", "open_clip or timm's resnet models"),
    ("transformer.embeddings.hybrid_model.*", "a hybrid with symmetric padding", "Google's own npz of the model"),
    ("preprocessor.patchifier.*", "RMSNorm and bias-free layers (AIMv2)", "timm's aimv2 models"),
    (
        "positional_embedding.pos_embedding+pre_logits.weight",
        "a representation layer before the norm",
        "Google's own npz",
    ),
)


@dataclass(frozen=True)
class View:
    """One way to unwrap the names of a checkpoint."""

    names: Mapping[str, str]  # unwrapped name -> name in the file
    dropped: Mapping[str, str] = field(default_factory=dict)  # name in the file -> reason
    steps: tuple[str, ...] = ()

    def subtree(self, prefix: str) -> View | None:
        """Keep what lies below a prefix; what lies beside it must be known."""
        if not any(name.startswith(prefix) for name in self.names):
            return None
        kept, dropped = {}, dict(self.dropped)
        for name, original in self.names.items():
            if name.startswith(prefix):
                kept[name.removeprefix(prefix)] = original
            elif reason := next((drop.reason for drop in BESIDE if drop.matches(name)), None):
                dropped[original] = reason
            else:
                kept[name] = original
        return View(kept, dropped, (*self.steps, f"below {prefix}"))

    def without_prefix(self, prefix: str) -> View | None:
        """Take a prefix off the names that have it."""
        if not any(name.startswith(prefix) for name in self.names):
            return None
        stripped = {name.removeprefix(prefix): original for name, original in self.names.items()}
        if len(stripped) < len(self.names):
            return None  # two names would become one
        return View(stripped, self.dropped, (*self.steps, f"without {prefix}"))

    def unchunked(self) -> View | None:
        """DINOv2's training code groups blocks in chunks; the inner number already counts through all of them."""
        if not any(CHUNKED.match(name) for name in self.names):
            return None
        renamed = {CHUNKED.sub(r"blocks.\1.", name): original for name, original in self.names.items()}
        return View(renamed, self.dropped, (*self.steps, "chunked blocks")) if len(renamed) == len(self.names) else None


def views(tensors: Mapping[str, Stored], weights: str | None = None) -> Iterator[View]:
    """All ways to unwrap, the likeliest first. ``weights`` names the subtree to take."""
    start = View({name: name for name in tensors})
    queue = [start] if weights is None else [start.subtree(weights.rstrip("/.") + "/") or start]
    seen: set[frozenset[str]] = set()
    while queue:
        view = queue.pop(0)
        if (key := frozenset(view.names)) in seen:
            continue
        seen.add(key)
        yield view
        further = [
            view.subtree(prefix)
            for prefix, beside in SUBTREES
            if not beside or any(name.startswith(beside) for name in view.names)
        ]
        further += [view.without_prefix(prefix) for prefix in PREFIXES]
        further.append(view.unchunked())
        queue += [candidate for candidate in further if candidate is not None and len(candidate.steps) <= 5]


@dataclass(frozen=True)
class Match:
    """A checkpoint, recognised."""

    view: View
    plan: Plan
    tensors: Mapping[str, Stored]  # under their unwrapped names

    @property
    def how(self) -> str:
        """In a sentence."""
        steps = f" ({', '.join(self.view.steps)})" if self.view.steps else ""
        return f"{self.plan.dialect.name} claims all of {len(self.view.names)} tensors{steps}"


def detect(tensors: Mapping[str, Stored], axes: Mapping[str, int], weights: str | None = None) -> Match:
    """The view and dialect that claim every tensor.

    Raises:
        UnsupportedError: a tensor shows that a plain ViT cannot hold this network.
        TranslationError: no dialect claims everything; the nearest one's leftovers are listed.
    """
    refuse(tensors)
    unfit: TranslationError | None = None
    for view in views(tensors, weights):
        unwrapped = {name: tensors[original] for name, original in view.names.items()}
        for dialect in DIALECTS.values():
            if not all(name in unwrapped for name in dialect.required):
                continue
            candidate = plan(dialect, unwrapped)
            if not candidate.complete:
                continue
            misfit = _misfit(candidate, unwrapped, axes)
            if misfit is None:
                return Match(view, candidate, unwrapped)
            unfit = unfit or misfit  # right names, wrong axes: say that, unless another dialect fits
    raise unfit or _nearest(tensors, weights)


def _nearest(tensors: Mapping[str, Stored], weights: str | None) -> TranslationError:
    """What is left over or missing under the dialect that comes nearest."""
    best: tuple[int, Plan, list[str]] | None = None
    for view in islice(views(tensors, weights), 12):
        unwrapped = {name: tensors[original] for name, original in view.names.items()}
        for dialect in DIALECTS.values():
            absent = [name for name in dialect.required if name not in unwrapped]
            candidate = plan(dialect, unwrapped)
            leftovers = len(absent) + len(candidate.unclaimed) + len(candidate.incomplete) + len(candidate.twice)
            if candidate.moves and (best is None or leftovers < best[0]):
                best = (leftovers, candidate, absent)
    if best is None:
        advice = "no dialect knows these names; --set weights=KEY picks a subtree of the file"
        return TranslationError("nothing known", unexpected=sorted(tensors)[:40], advice=advice)
    _, found, absent = best
    return TranslationError(
        found.dialect.name,
        missing=(*absent, *found.incomplete),
        unexpected=found.unclaimed,
        mismatched=[f"{name}: several tensors would become this one" for name in found.twice],
    )


def refuse(tensors: Mapping[str, Stored]) -> None:
    """Say no, with the evidence, to what a plain ViT cannot hold."""
    for pattern, reason, instead in REFUSALS:
        needed = [Drop(part, "") for part in pattern.split("+")]
        found = [[name for name in tensors if drop.matches(name)] for drop in needed]
        if all(found):
            raise UnsupportedError(reason, sorted(name for names in found for name in names), instead)


def _misfit(candidate: Plan, tensors: Mapping[str, Stored], axes: Mapping[str, int]) -> TranslationError | None:
    """How the tensors' axes differ from those the dialect speaks of (NaFlex has flat patch kernels), or None."""
    try:
        ours = shapes(candidate, tensors, axes)
    except TranslationError as error:
        return error
    wrong = [
        f"{name}: {list(ours[name])}" for name, dims in _DIMENSIONS.items() if name in ours and len(ours[name]) != dims
    ]
    return TranslationError(candidate.dialect.name, mismatched=wrong) if wrong else None


_DIMENSIONS = {"patch_embed.proj.weight": 4, "cls_token": 3, "reg_token": 3, "mask_token": 3, "pos_embed": 3}
