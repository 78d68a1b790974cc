"""The Vision Transformer: image -> patches -> tokens -> blocks -> norm -> pool -> head.

Read :meth:`VisionTransformer.forward` first. The rest is what timm and people ask of a model:
intermediate features, another head, another size, parameter groups, initialisation.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .config import ConfigError, ViTConfig
from .features import Intermediates
from .init import MODES, init_module
from .layers import AttentionPool, Block, PatchDropout, PatchEmbed, Rope, _norm, rope_grid, sincos_grid
from .mixed import MixedSizes
from .resample import resample_grid, resample_patch_kernel, resample_positions
from .stem import Device, Dtype

# Functions of sizes: FX keeps the call instead of tracing through it.
torch.fx.wrap("resample_grid")
torch.fx.wrap("rope_grid")
torch.fx.wrap("sincos_grid")


class VisionTransformer(Intermediates, MixedSizes):
    """One network that holds nearly every released plain ViT; parameter names are timm's.

    Args:
        config: everything the arithmetic depends on.
        device, dtype: of the parameters. On the meta device nothing is allocated; ``load_state_dict`` then
            takes over the tensors it is given, without a copy.
        weight_init: one of ``""``, ``jax``, ``jax_nlhb``, ``moco``, or ``skip`` to leave the memory as it is.
        block: what to build the encoder from, for homes that need their own subclass.

    Example:
        >>> network = VisionTransformer(ViTConfig(embed_dim=192, depth=2, num_heads=3, num_classes=10))
        >>> network(torch.zeros(1, 3, 224, 224)).shape
        torch.Size([1, 10])
    """

    def __init__(
        self,
        config: ViTConfig,
        *,
        device: Device = None,
        dtype: Dtype = None,
        weight_init: str = "",
        block: type[Block] = Block,
    ) -> None:
        super().__init__()
        if weight_init not in (*MODES, "skip"):
            raise ConfigError([f"weight_init={weight_init!r} is not one of {', '.join(map(repr, MODES))} or 'skip'"])
        width = config.embed_dim
        meta: Any = {"device": "meta", "dtype": dtype}  # allocated once, below, when all parts are known

        self.config = config
        self._describe()
        self.grad_checkpointing = False
        self.distilled_training = False
        self._grids: dict[Any, Any] = {}  # resampled positions by size, for dynamic_img_size
        self.lean = True  # compute only what the head needs in the last block; False for those who hook it
        self.weight_init = "" if weight_init == "skip" else weight_init

        self.patch_embed = PatchEmbed(config, **meta)
        self.cls_token = nn.Parameter(torch.empty(1, 1, width, **meta)) if config.class_token else None
        self.dist_token = nn.Parameter(torch.empty(1, 1, width, **meta)) if config.dist_token else None
        self.reg_token = nn.Parameter(torch.empty(1, config.reg_tokens, width, **meta)) if config.reg_tokens else None
        self.mask_token = nn.Parameter(torch.empty(1, 1, width, **meta)) if config.mask_token else None
        positions = config.num_prefix_slots + self.patch_embed.num_patches
        self.pos_embed = nn.Parameter(torch.empty(1, positions, width, **meta)) if config.pos_embed == "learn" else None
        self.pos_drop = nn.Dropout(config.pos_drop_rate)
        self.patch_drop = PatchDropout(config.patch_drop_rate, config.num_prefix_tokens)
        self.norm_pre = _norm(config, width, **meta) if config.pre_norm else nn.Identity()

        last = max(config.depth - 1, 1)
        rates = [config.drop_path_rate * index / last for index in range(config.depth)]
        self.blocks = nn.Sequential(*[block(config, rate, **meta) for rate in rates])

        self.norm = _norm(config, width, **meta) if config.final_norm and not config.fc_norm else nn.Identity()
        self.attn_pool = AttentionPool(config, **meta) if config.global_pool == "map" else None
        pooled = 2 * width if config.global_pool == "token_avg" else width
        self.fc_norm = _norm(config, pooled, **meta) if config.final_norm and config.fc_norm else nn.Identity()
        self.pre_logits = (
            nn.Sequential(OrderedDict(fc=nn.Linear(pooled, config.representation_size, **meta), act=nn.Tanh()))
            if config.representation_size
            else nn.Identity()
        )
        self.head_drop = nn.Dropout(config.drop_rate)
        self.head, self.head_dist = self._heads("meta", dtype)

        device = torch.get_default_device() if device is None else torch.device(device)
        if device.type != "meta":
            self.to_empty(device=device)
            if weight_init != "skip":
                self.init_weights()

    # ---- the forward pass --------------------------------------------------------------------------------

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Images ``(batch, channels, height, width)`` to logits, or to pooled features without a head."""
        x = self.encode(x, attn_mask, is_causal, queries=self.needed_tokens())
        return self.forward_head(self.norm(x))

    def forward_features(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """All tokens after the final norm, ``(batch, tokens, width)``."""
        return self.norm(self.encode(x, attn_mask, is_causal))

    def encode(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        masked: Tensor | None = None,
        dynamic: bool = False,
        queries: int = 0,
    ) -> Tensor:
        """Images to tokens before the final norm; the first ``queries`` of them, or all for 0.

        ``masked`` (batch, patches) marks patches to hide behind the mask token; ``dynamic`` accepts another size
        for this call.
        """
        x, rope = self.embed(x, masked, dynamic)
        last = len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            x = block(x, attn_mask, is_causal, rope, queries if index == last else 0)
        return x

    def embed(self, x: Tensor, masked: Tensor | None = None, dynamic: bool = False) -> tuple[Tensor, Rope | None]:
        """Images to the encoder's input ``(batch, tokens, width)``, and the rotary angles where there are any."""
        x = self.patch_embed(x, dynamic)  # (batch, width, rows, cols)
        rows, cols = x.shape[2], x.shape[3]
        x = x.flatten(2).transpose(1, 2)  # (batch, patches, width)
        if masked is not None and self.mask_token is not None:
            x = torch.where(masked.to(torch.bool).unsqueeze(2), self.mask_token.to(x.dtype), x)

        prefix = self._prefix(x)
        slots = self.num_prefix_slots
        if self.pos_embed is not None:
            x = x + self._grid(rows, cols, dynamic)
            if slots > 0:
                # Tokens without a slot (DINOv2's registers) follow those with one.
                prefix = torch.cat([prefix[:, :slots] + self.pos_embed[:, :slots], prefix[:, slots:]], dim=1)
        elif self.sincos:
            x = x + sincos_grid(rows, cols, x.shape[2], self.pos_embed_kind, x)
        x = torch.cat([prefix.expand(x.shape[0], -1, -1).to(x.dtype), x], dim=1)

        rope: Rope | None = None
        if self.rope:
            rope = rope_grid(rows, cols, self.head_dim, self.rope_theta, x)
        x, kept = self.patch_drop(self.pos_drop(x))
        if kept is not None and rope is not None:
            rope = (rope[0][kept].unsqueeze(1), rope[1][kept].unsqueeze(1))  # (batch, 1, kept, head)
        return self.norm_pre(x), rope

    def _prefix(self, x: Tensor) -> Tensor:
        """Class, distillation and register tokens, ``(1, prefix, width)``; perhaps none of them."""
        tokens: list[Tensor] = []
        for token in (self.cls_token, self.dist_token, self.reg_token):
            if token is not None:
                tokens.append(token)
        if len(tokens) == 0:
            return x.new_zeros(1, 0, self.embed_dim)
        return torch.cat(tokens, dim=1)

    def _grid(self, rows: int, cols: int, dynamic: bool) -> Tensor:
        """The learned positions of the patches, resampled if the call may bring another size."""
        assert self.pos_embed is not None
        grid = self.pos_embed[:, self.num_prefix_slots :]
        if not (dynamic or self.dynamic_img_size):
            return grid
        if not torch.jit.is_scripting() and self._may_remember(rows, cols):
            return self._remembered_grid(rows, cols)
        old_rows, old_cols = self.patch_embed.grid_size
        return resample_grid(
            grid, old_rows, old_cols, rows, cols, self.mode, self.antialias, self.align_corners, self.offset
        )

    @torch.jit.unused
    def _may_remember(self, rows: int, cols: int) -> bool:
        """Whether a resampled grid may be kept: not while gradients or compilers want to see how it is made."""
        positions = self.pos_embed
        assert positions is not None
        plain = isinstance(rows, int) and isinstance(cols, int) and not torch.compiler.is_compiling()
        learning = torch.is_grad_enabled() and positions.requires_grad
        return plain and not learning and not positions.is_inference() and not positions.is_meta

    @torch.jit.unused
    def _remembered_grid(self, rows: int, cols: int) -> Tensor:
        """The positions for another grid; resampled once for each size, and again when they have changed."""
        positions, config = self.pos_embed, self.config
        assert positions is not None
        state = (
            id(positions),
            positions._version,
            positions.dtype,
            positions.device,
            config.resample,
            config.grid_size,
        )
        if self._grids.get("state") != state:
            self._grids = {"state": state}
        if (rows, cols) not in self._grids:
            if len(self._grids) > 16:
                self._grids = {"state": state}
            with torch.inference_mode(False), torch.no_grad():  # an inference tensor could not be used in training
                grid = resample_positions(
                    positions, config.grid_size, (rows, cols), config.resample, self.num_prefix_slots
                )
            self._grids[rows, cols] = grid[:, self.num_prefix_slots :].detach()
        remembered: Tensor = self._grids[rows, cols]
        return remembered

    def needed_tokens(self) -> int:
        """How many leading tokens the head looks at; 0 for all of them."""
        if self.lean and self.global_pool == "token":
            return 2 if self.dist_head else 1
        return 0

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        """Tokens to one vector an image (``""`` leaves them be)."""
        kind = self.global_pool if pool_type is None else pool_type
        if kind == "token":
            return (x[:, 0] + x[:, 1]) / 2 if self.dist_head else x[:, 0]
        if kind == "token_avg":
            return torch.cat([x[:, 0], x[:, self.num_prefix_tokens :].mean(dim=1)], dim=1)
        if kind == "":
            return x
        if not self.pool_include_prefix:
            x = x[:, self.num_prefix_tokens :]
        if self.attn_pool is not None:
            return self.attn_pool(x)
        if kind == "avg":
            return x.mean(dim=1)
        if kind == "max":
            return x.amax(dim=1)
        if kind == "avgmax":
            return (x.amax(dim=1) + x.mean(dim=1)) / 2
        raise ValueError(f"unknown pooling '{kind}'")

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Normed tokens to logits; ``pre_logits=True`` stops before the head."""
        if self.head_dist is not None and not pre_logits:
            return self._two_heads(x[:, 0], x[:, 1])
        x = self.head_drop(self.pre_logits(self.fc_norm(self.pool(x))))
        return x if pre_logits else self.head(x)

    def _two_heads(self, x: Tensor, distilled: Tensor) -> Tensor:
        assert self.head_dist is not None
        x = self.head(self.head_drop(self.pre_logits(self.fc_norm(x))))
        distilled = self.head_dist(self.head_drop(self.pre_logits(self.fc_norm(distilled))))
        if self.distilled_training and self.training and not torch.jit.is_scripting():
            return _both(x, distilled)
        return (x + distilled) / 2

    # ---- other shapes ------------------------------------------------------------------------------------

    @torch.jit.ignore
    def get_classifier(self) -> nn.Module | tuple[nn.Module, nn.Module]:
        return self.head if self.head_dist is None else (self.head, self.head_dist)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Another number of classes (0 for none), perhaps another pooling; new weights for the head."""
        changes: dict[str, Any] = {"num_classes": num_classes}
        if global_pool is not None:
            if global_pool == "map" and self.attn_pool is None:
                raise ConfigError(["global_pool='map' needs trained parameters: build the network with it"])
            changes["global_pool"] = global_pool
            changes["dist_head"] = self.config.dist_head and global_pool == "token"
            if global_pool != "map":
                self.attn_pool = None
        before = self.config.pooled_dim
        config = self.config.replace(**changes)
        if config.pooled_dim != before and (config.representation_size or config.fc_norm):
            raise ConfigError(
                [f"global_pool={global_pool!r} changes the width that the trained layers before the head take"]
            )
        self.config = config
        self._describe()
        weight = self.patch_embed.proj.weight
        self.head, self.head_dist = self._heads(weight.device, weight.dtype)
        for name in ("head", "head_dist"):
            head = getattr(self, name)
            if head is not None:
                head.train(self.training)
                if weight.device.type != "meta":
                    init_module(head, self.weight_init, name, num_classes)

    @torch.jit.ignore
    def set_distilled_training(self, enable: bool = True) -> None:
        """In training mode, return the logits of both heads as a pair."""
        self.distilled_training = enable

    def set_input_size(
        self, img_size: int | tuple[int, int] | None = None, patch_size: int | tuple[int, int] | None = None
    ) -> None:
        """Take images or patches of another size from now on, resampling positions and patch kernel in place.

        Resampling twice is not resampling once: from one size to several, start from the original each time.
        """
        old = self.config
        sizes: dict[str, Any] = {"img_size": img_size, "patch_size": patch_size}
        new = old.replace(**{name: size for name, size in sizes.items() if size is not None})
        _refuse_other_stem(old, new)
        self.config = new
        self._describe()
        embed, proj = self.patch_embed, self.patch_embed.proj
        embed.img_size, embed.patch_size, embed.grid_size = new.img_size, new.patch_size, new.grid_size
        with torch.no_grad():
            if new.patch_size != old.patch_size:
                proj.kernel_size = proj.stride = new.patch_size
                proj.weight = nn.Parameter(resize_tensor("patch_embed.proj.weight", proj.weight, old, new))
            if self.pos_embed is not None and new.grid_size != old.grid_size:
                self.pos_embed = nn.Parameter(resize_tensor("pos_embed", self.pos_embed, old, new))

    # ---- parameters and groups ---------------------------------------------------------------------------

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        return {"pos_embed", "cls_token", "dist_token", "reg_token", "mask_token"}

    @torch.jit.ignore
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Which layer a parameter belongs to, for layer-wise learning rates."""
        return {
            "stem": r"^cls_token|^dist_token|^reg_token|^mask_token|^pos_embed|^patch_embed|^norm_pre",
            "blocks": [(r"^blocks\.(\d+)", None), (r"^norm\.", (99999,))],
        }

    @torch.jit.ignore
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable
        for block in self.blocks:
            assert isinstance(block, Block)
            block.grad_checkpointing = enable

    @torch.jit.ignore
    def init_weights(self, mode: str = "", needs_reset: bool = True) -> None:
        """Fill every parameter; what was there before does not matter."""
        mode = mode or self.weight_init
        with torch.no_grad():
            for name, module in self.named_modules():
                init_module(module, mode, name, self.num_classes)
            self.init_tokens()

    def init_tokens(self) -> None:
        """Fill the parameters that belong to no part: tokens and positions."""
        for token in (self.cls_token, self.dist_token, self.reg_token):
            if token is not None:
                nn.init.normal_(token, std=1e-6)
        if self.mask_token is not None:
            nn.init.zeros_(self.mask_token)
        if self.pos_embed is not None:
            nn.init.trunc_normal_(self.pos_embed, std=0.02)

    @torch.jit.ignore
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As torch's; on the meta device the tensors are taken over instead of copied, in the network's dtype."""
        parameters = dict(self.named_parameters())
        if any(p.is_meta for p in parameters.values()):
            assign = True
            state_dict = {
                name: tensor.to(parameters[name].dtype) if name in parameters else tensor
                for name, tensor in state_dict.items()
            }
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def _heads(self, device: Device, dtype: Dtype) -> tuple[nn.Module, nn.Module | None]:
        config = self.config

        def head() -> nn.Module:
            if not config.num_classes:
                return nn.Identity()
            return nn.Linear(config.pooled_dim, config.num_classes, device=device, dtype=dtype)

        return head(), head() if config.dist_head and config.num_classes else None

    def _describe(self) -> None:
        """Mirror the configuration in the plain attributes that timm and TorchScript read."""
        config = self.config
        self.num_classes = config.num_classes
        self.embed_dim = self.num_features = config.embed_dim
        self.head_hidden_size = config.pooled_dim
        self.in_chans = config.in_chans
        self.global_pool = str(config.global_pool)
        self.pool_include_prefix = config.pool_include_prefix
        self.has_class_token = config.class_token
        self.no_embed_class = config.no_embed_class
        self.num_reg_tokens = config.reg_tokens
        self.num_prefix_tokens = config.num_prefix_tokens
        self.num_prefix_slots = config.num_prefix_slots
        self.dist_head = config.dist_head
        self.dynamic_img_size = config.dynamic_img_size
        self.head_dim = config.head_dim
        self.pos_embed_kind = str(config.pos_embed)
        self.sincos = config.pos_embed.startswith("sincos")
        self.rope = config.pos_embed == "rope"
        self.rope_theta = config.rope_theta
        self.mode = str(config.resample.mode)
        self.antialias = config.resample.antialias
        self.align_corners = config.resample.align_corners
        self.offset = config.resample.offset
        reduction = max(config.patch_size)
        self.feature_info = [
            {"module": f"blocks.{index}", "num_chs": config.embed_dim, "reduction": reduction}
            for index in range(config.depth)
        ]


def resize_tensor(name: str, tensor: Tensor, old: ViTConfig, new: ViTConfig) -> Tensor:
    """A tensor of a network of the old configuration, for the image and patch size of the new one.

    Only positions and patch kernel change; all else is returned as it is.

    Example:
        >>> small, large = ViTConfig(img_size=224), ViTConfig(img_size=384)
        >>> resize_tensor("pos_embed", torch.zeros(1, 197, 768), small, large).shape
        torch.Size([1, 577, 768])
    """
    if name == "pos_embed" and old.grid_size != new.grid_size:
        return resample_positions(tensor, old.grid_size, new.grid_size, new.resample, old.num_prefix_slots)
    if name == "patch_embed.proj.weight" and old.patch_size != new.patch_size:
        _refuse_other_stem(old, new)
        return resample_patch_kernel(tensor, new.patch_size, new.resample)
    return tensor


def _refuse_other_stem(old: ViTConfig, new: ViTConfig) -> None:
    if new.patch_size != old.patch_size and old.stem_layers is not None:
        raise ConfigError(["the patch size of a hybrid is tied to its stem and cannot be changed"])


def _both(x: Tensor, distilled: Tensor) -> Any:
    """A pair where one tensor is declared: timm's contract for distillation losses, and training only."""
    return x, distilled
