"""Google's vision_transformer (vit_jax) and big_vision: JAX layouts, kernels before biases, heads as an axis.

Both compute the tanh approximation of GELU. Submodules are numbered per block in old files (``pre-linen``) and per
class in new ones (``linen``); big_vision may stack all blocks on a leading axis (``scan``).
"""

from __future__ import annotations

from ..rules import Dialect, Rule, prefixed

JAX = {"act_layer": "gelu_tanh", "norm_eps": 1e-6, "resample": "jax", "stem_numerics": "jax"}

CONV = "h w i o -> o i h w"
DENSE = "i o -> o i"


def dense(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (Rule(f"{theirs}/kernel", f"{ours}.weight", DENSE), Rule(f"{theirs}/bias", f"{ours}.bias"))


def norm(theirs: str, ours: str, layout: str = "") -> tuple[Rule, ...]:
    return (Rule(f"{theirs}/scale", f"{ours}.weight", layout), Rule(f"{theirs}/bias", f"{ours}.bias", layout))


def out(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (
        Rule(f"{theirs}/out/kernel", f"{ours}.weight", "heads k d -> d (heads k)"),
        Rule(f"{theirs}/out/bias", f"{ours}.bias"),
    )


def block(norm1: str, attn: str, norm2: str, mlp: str) -> tuple[Rule, ...]:
    return (
        *norm(norm1, "norm1"),
        Rule(f"{attn}/{{query,key,value}}/kernel", "attn.qkv.weight", "n d heads k -> (n heads k) d"),
        Rule(f"{attn}/{{query,key,value}}/bias", "attn.qkv.bias", "n heads k -> (n heads k)"),
        *out(attn, "attn.proj"),
        *norm(norm2, "norm2"),
        *dense(f"{mlp}/Dense_0", "mlp.fc1"),
        *dense(f"{mlp}/Dense_1", "mlp.fc2"),
    )


PRE_LINEN = block("LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
LINEN = block("LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")

PATCH = (Rule("embedding/kernel", "patch_embed.proj.weight", CONV), Rule("embedding/bias", "patch_embed.proj.bias"))
ENDS = (
    Rule("cls", "cls_token"),
    *norm("Transformer/encoder_norm", "norm"),
    *dense("pre_logits", "pre_logits.fc"),
    *dense("head", "head"),
)


def blocks(rules: tuple[Rule, ...], scan: bool = False) -> tuple[Rule, ...]:
    theirs = "Transformer/encoderblock/" if scan else "Transformer/encoderblock_{i}/"
    return prefixed(theirs, "blocks.{i}.", rules)


def map_head(prefix: str) -> tuple[Rule, ...]:
    """Pooling by attention; old files have it at the top level."""
    attn = f"{prefix}MultiHeadDotProductAttention_0"
    return (
        Rule(f"{prefix}probe", "attn_pool.latent"),
        Rule(f"{attn}/query/kernel", "attn_pool.q.weight", "d heads k -> (heads k) d"),
        Rule(f"{attn}/query/bias", "attn_pool.q.bias", "heads k -> (heads k)"),
        Rule(f"{attn}/{{key,value}}/kernel", "attn_pool.kv.weight", "n d heads k -> (n heads k) d"),
        Rule(f"{attn}/{{key,value}}/bias", "attn_pool.kv.bias", "n heads k -> (n heads k)"),
        *out(attn, "attn_pool.proj"),
        *norm(f"{prefix}LayerNorm_0", "attn_pool.norm"),
        *dense(f"{prefix}MlpBlock_0/Dense_0", "attn_pool.mlp.fc1"),
        *dense(f"{prefix}MlpBlock_0/Dense_1", "attn_pool.mlp.fc2"),
    )


def root(ours: str, group_norm: str) -> tuple[Rule, ...]:
    return (Rule("conv_root/kernel", f"{ours}.conv.weight", CONV), *norm("gn_root", f"{ours}.norm", group_norm))


def stages(group_norm: str) -> tuple[Rule, ...]:
    units = []
    for theirs, ours in (("1", "{}1"), ("2", "{}2"), ("3", "{}3"), ("_proj", "downsample.{}")):
        units.append(Rule(f"conv{theirs}/kernel", f"{ours.format('conv')}.weight", CONV))
        units += norm(f"gn{theirs}", ours.format("norm"), group_norm)
    return prefixed("block{s+1}/unit{u+1}/", "patch_embed.backbone.stages.{s}.blocks.{u}.", units)


POSITIONS = "Transformer/posembed_input/pos_embedding"
ROOT, FIRST_UNIT = "conv_root/kernel", "block1/unit1/conv1/kernel"


def _google(name: str, rules: tuple[Rule, ...], group_norm: str) -> tuple[Dialect, ...]:
    common = (*PATCH, *ENDS, Rule(POSITIONS, "pos_embed"), *blocks(rules))
    rooted = (*common, *root("patch_embed.backbone", group_norm))
    staged = (*common, *root("patch_embed.backbone.stem", group_norm), *stages(group_norm))
    return (
        Dialect(f"google/{name}", common, defaults=JAX, required=(POSITIONS,)),
        Dialect(f"google/{name}-hybrid-root", rooted, defaults=JAX, required=(POSITIONS, ROOT)),
        Dialect(f"google/{name}-hybrid", staged, defaults=JAX, required=(POSITIONS, ROOT, FIRST_UNIT)),
    )


def _big_vision(name: str, *rules: Rule, required: tuple[str, ...] = (), **defaults: object) -> Dialect:
    return Dialect(f"big_vision/{name}", (*PATCH, *ENDS, *rules), defaults={**JAX, **defaults}, required=required)


_TOP = Rule("pos_embedding", "pos_embed")
_OLD = Rule("Transformer/pos_embedding", "pos_embed")
_NAFLEX_PATCH = (
    Rule("embedding/kernel", "patch_embed.proj.weight", "(p q c) d -> d c p q"),
    Rule("embedding/bias", "patch_embed.proj.bias"),
    Rule("pos_embedding", "pos_embed", "h w d -> 1 (h w) d"),
)
_NAFLEX = {**JAX, "resample": "flexivit"}
_MAP = map_head("MAPHead_0/")
_SCAN = "Transformer/encoderblock/LayerNorm_0/scale"

GOOGLE = (*_google("pre-linen", PRE_LINEN, "1 1 1 c -> c"), *_google("linen", LINEN, ""))
BIG_VISION = (
    _big_vision("blocks", _TOP, *blocks(LINEN), *_MAP, required=(_TOP.source, "Transformer/encoder_norm/scale")),
    _big_vision("scan", _TOP, *blocks(LINEN, scan=True), *_MAP, required=(_TOP.source, _SCAN)),
    _big_vision("old", _OLD, *blocks(LINEN), *_MAP, required=(_OLD.source,)),
    _big_vision("old-map", _OLD, *blocks(LINEN), *map_head(""), required=(_OLD.source, "probe")),
    _big_vision("top-map", _TOP, *blocks(LINEN), *map_head(""), required=(_TOP.source, "probe")),
    # "Better plain ViT" has no positions in its files: they are fixed.
    _big_vision("fixed-positions", *blocks(LINEN), required=("pre_logits/kernel",), pos_embed="sincos_bv"),
    *(
        Dialect(
            f"big_vision/naflex{suffix}",
            (*_NAFLEX_PATCH, *ENDS, *blocks(LINEN, scan=scan), *_MAP),
            defaults=_NAFLEX,
            required=("pos_embedding",),
        )
        for suffix, scan in (("", False), ("-scan", True))
    ),
)
