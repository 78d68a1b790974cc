# Copyright 2026 The vit_hub authors. Apache-2.0.
# transformers annotates its own interface in part only, and outputs as FloatTensor:
# mypy: disable-error-code="no-untyped-call, untyped-decorator, no-any-return, override, arg-type, assignment"
"""The network at home in transformers: four classes around one :class:`VisionTransformer`.

In memory the parameters are ``vit.<timm's name>``, in files they have timm's bare names, so that one
model.safetensors serves both libraries. The arithmetic is all in ``vit.py``; what is here is transformers' contract:
attention implementations, recorded outputs, losses, loading and saving.
"""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.backbone_utils import BackboneMixin, filter_output_hidden_states
from transformers.core_model_loading import PrefixChange
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BackboneOutput,
    BaseModelOutput,
    BaseModelOutputWithPooling,
    ImageClassifierOutput,
    MaskedImageModelingOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils import logging
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .config import ViTConfig
from .configuration_myvit import MyViTConfig, words
from .init import init_module
from .layers import Block, add_mask
from .loading_myvit import is_resampling, refuse_foreign, resamplings
from .vit import VisionTransformer

logger = logging.get_logger(__name__)


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Attention written out: the one implementation that has an attention matrix to show."""
    scores = add_mask(query @ key.transpose(-2, -1) * scaling, attention_mask, False)
    weights = F.dropout(scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype), dropout, module.training)
    return (weights @ value).transpose(1, 2), weights


class MyViTAttention(nn.Module):
    """Attention proper, by whichever implementation the configuration names; in the place of ``ScaledDotProduct``."""

    is_causal = False  # transformers takes a silent module for a decoder's

    def __init__(self, config: MyViTConfig) -> None:
        super().__init__()
        self.config = config
        self.scaling = (config.hidden_size // config.num_attention_heads) ** -0.5
        self.dropout = config.attention_probs_dropout_prob

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """``(batch, heads, tokens, head)`` in, ``(batch, tokens, heads, head)`` and perhaps the weights out."""
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.dropout if self.training else 0.0
        return attend(self, q, k, v, attn_mask, dropout=dropout, scaling=self.scaling, is_causal=is_causal)


class MyViTLayer(GradientCheckpointingLayer, Block):
    """An encoder block that transformers can checkpoint and listen to."""


class MyViTEncoder(VisionTransformer):
    """The network, called for its tokens: whoever moves parameters about (accelerate, FSDP) acts on the call."""

    _tp_plan = _pp_plan = None  # transformers asks every base model

    def __init__(self, config: MyViTConfig, vit: ViTConfig) -> None:
        super().__init__(vit, weight_init="skip", block=MyViTLayer)  # transformers fills what no file does
        self.hf_config = config
        for block in self.blocks:
            cast(Block, block).attn.core = MyViTAttention(config)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """As :meth:`VisionTransformer.encode`."""
        return self.encode(*args, **kwargs)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Save the network without its head: what ``model.base_model.save_pretrained`` means in transformers."""
        bare = MyViTModel if self.config.global_pool else MyViTBackbone
        with torch.device("meta"):
            model = bare(copy.deepcopy(self.hf_config))
        names = set(model.state_dict())
        model.vit = self
        tensors = {name: tensor for name, tensor in model.state_dict().items() if name in names}
        model.save_pretrained(save_directory, state_dict=tensors, **kwargs)


class MyViTPreTrainedModel(PreTrainedModel):
    """What the four classes share: the network, the way through it, loading and saving."""

    config: MyViTConfig
    base_model_prefix = "vit"
    main_input_name = "pixel_values"
    input_modalities = ("image",)
    supports_gradient_checkpointing = True
    _no_split_modules = ("MyViTLayer", "PatchEmbed")
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _fsdp_plan = {"vit.blocks.*": "free_full_weight"}  # noqa: RUF012  # transformers copies both
    _can_record_outputs = {"hidden_states": MyViTLayer, "attentions": MyViTAttention}  # noqa: RUF012

    def __init__(self, config: MyViTConfig, use_mask_token: bool = False) -> None:
        super().__init__(config)
        vit = config.network(self._network())
        self.vit = MyViTEncoder(config, vit.replace(mask_token=vit.mask_token or use_mask_token))

    @classmethod
    def _network(cls) -> str:
        """The class of ours that a user's subclass descends from."""
        return next(base.__name__ for base in cls.__mro__ if base.__module__ == __name__)

    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)
    def _encode(
        self,
        pixel_values: Tensor,
        bool_masked_pos: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        attention_mask: Tensor | None = None,
        lean: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Tokens before the final norm; with ``lean`` perhaps only those the head looks at."""
        if bool_masked_pos is not None and self.vit.mask_token is None:
            raise ValueError("bool_masked_pos needs a mask token: load or build the model with mask_token=True")
        wanted = {
            name: kwargs.get(name, getattr(self.config, name, False))
            for name in ("output_hidden_states", "output_attentions")
        }
        if wanted["output_attentions"] and self.config._attn_implementation != "eager":
            logger.warning_once("only attn_implementation='eager' has attentions to return")
        # A recorded block, a mask in some implementation's own format, and weights that are elsewhere until their
        # layer is called (accelerate) all need the last block whole.
        offloaded = hasattr(cast(Block, self.vit.blocks[-1]).attn.qkv, "_hf_hook")
        lean = lean and attention_mask is None and not offloaded and not any(wanted.values())
        pixel_values = pixel_values.to(self.vit.patch_embed.proj.weight.dtype)
        tokens = self.vit(
            pixel_values,
            attn_mask=self._attention_mask(attention_mask, pixel_values),
            masked=bool_masked_pos,
            dynamic=bool(interpolate_pos_encoding),
            queries=self.vit.needed_tokens() if lean else 0,
        )
        return BaseModelOutput(last_hidden_state=tokens)

    def _attention_mask(self, mask: Tensor | None, pixel_values: Tensor) -> Any:
        """A mask over all tokens, prefix included, in the form that the attention implementation takes."""
        if mask is None:
            return None
        rows, cols = self._grid(pixel_values)
        tokens = self.vit.num_prefix_tokens + rows * cols
        if mask.shape[-1] != tokens:
            raise ValueError(
                f"attention_mask is over {mask.shape[-1]} tokens, but there are {tokens}: "
                f"{self.vit.num_prefix_tokens} prefix tokens and {rows}x{cols} patches"
            )
        like = pixel_values.new_empty(pixel_values.shape[0], tokens, 1)  # only its shape, dtype and device are read
        return create_bidirectional_mask(config=self.config, inputs_embeds=like, attention_mask=mask)

    def _grid(self, pixel_values: Tensor) -> tuple[int, int]:
        return self.vit.patch_embed.dynamic_feat_size((pixel_values.shape[2], pixel_values.shape[3]))

    def _maps(self, tokens: Tensor, pixel_values: Tensor) -> Tensor:
        """The patch tokens as maps ``(batch, width, rows, cols)``."""
        rows, cols = self._grid(pixel_values)
        patches = tokens[:, self.vit.num_prefix_tokens :]
        return patches.transpose(1, 2).reshape(tokens.shape[0], -1, rows, cols)

    def get_input_embeddings(self) -> nn.Module:
        """The layer that forms the tokens; PEFT and reentrant checkpointing start gradients there."""
        return self.vit.patch_embed.proj

    def set_input_size(self, image_size: int | tuple[int, int]) -> None:
        """Take images of another size from now on, resampling the positions in place."""
        self.vit.set_input_size(image_size)
        self.config.image_size = words()["img_size"].there(self.vit.config.img_size)

    # ---- weights and files -------------------------------------------------------------------------------

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        init_module(module)
        if isinstance(module, VisionTransformer):
            module.init_tokens()

    @property
    def _weight_conversions(self) -> list[Any]:
        """What saving undoes: first our prefix, then what the user's ``key_mapping`` did while loading."""
        return [*self.__dict__.get("_loaded_with", ()), PrefixChange(prefix_to_add=self.base_model_prefix)]

    @_weight_conversions.setter
    def _weight_conversions(self, used: list[Any]) -> None:
        self.__dict__["_loaded_with"] = [step for step in used if not is_resampling(step)]

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """As torch's, with the names of files as well as those in memory: the Trainer resumes this way."""
        own = self.state_dict()
        prefix = f"{self.base_model_prefix}."
        renamed = {prefix + name if prefix + name in own else name: tensor for name, tensor in state_dict.items()}
        return super().load_state_dict(renamed, *args, **kwargs)

    def save_pretrained(self, save_directory: Any, is_main_process: bool = True, **kwargs: Any) -> None:
        """As transformers', with the preprocessing that the configuration states: the folder is whole."""
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            self._save_preprocessing(save_directory)

    def _upload_modified_files(self, working_dir: Any, *args: Any, **kwargs: Any) -> Any:
        """As transformers', which has saved the model by now and pushes what is new in the folder."""
        self._save_preprocessing(working_dir)
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    def _save_preprocessing(self, folder: Any) -> None:
        """Write preprocessor_config.json, but for one that is there: a processor of the user's own."""
        from .image_processing_myvit import MyViTImageProcessor  # imports torchvision, which is slow

        if not Path(folder, "preprocessor_config.json").exists():
            MyViTImageProcessor.from_timm(self.config.to_dict()["pretrained_cfg"]).save_pretrained(folder)

    @staticmethod
    def _load_pretrained_model(
        model: Any, state_dict: Any, checkpoint_files: Any, load_config: Any, expected_keys: Any = None
    ) -> Any:
        """Load, with positions and patch kernel resampled where the file has them at another size."""
        steps = resamplings(model.vit.config, checkpoint_files) if state_dict is None else []
        load_config = replace(load_config, weight_mapping=[*(load_config.weight_mapping or []), *steps])
        return PreTrainedModel._load_pretrained_model(model, state_dict, checkpoint_files, load_config, expected_keys)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *model_args: Any, output_loading_info: bool = False, **kwargs: Any
    ) -> Any:
        """As transformers', but a damaged or foreign file is an error, where transformers would warn and go on.

        Whoever asks for the loading info, or brings the tensors (``state_dict``), judges for himself.
        """
        name = pretrained_model_name_or_path
        loaded: Any = super().from_pretrained(name, *model_args, output_loading_info=True, **kwargs)
        model, info = loaded
        if output_loading_info:
            return model, info
        if kwargs.get("state_dict") is None:
            refuse_foreign(f"{name} is no file of this {cls.__name__}", info)
        return model


class MyViTModel(MyViTPreTrainedModel):
    """The encoder: all tokens after the final norm, and the network's own pooled output.

    Example:
        >>> config = MyViTConfig(hidden_size=192, num_hidden_layers=2, num_attention_heads=3)
        >>> outputs = MyViTModel(config)(torch.zeros(1, 3, 224, 224))
        >>> outputs.last_hidden_state.shape, outputs.pooler_output.shape
        (torch.Size([1, 197, 192]), torch.Size([1, 192]))
    """

    def __init__(self, config: MyViTConfig, use_mask_token: bool = False) -> None:  # as transformers' ViTModel
        super().__init__(config, use_mask_token)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor,
        bool_masked_pos: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Images to tokens.

        Args:
            pixel_values: (batch, channels, height, width).
            bool_masked_pos: (batch, patches), True hides a patch behind the mask token.
            interpolate_pos_encoding: accept another image size in this call.
            attention_mask: (batch, tokens) over all tokens, prefix included, or a ready 4-D mask.
            **kwargs: ``output_hidden_states``, ``output_attentions``, ``return_dict``.
        """
        outputs = self._encode(
            pixel_values, bool_masked_pos, interpolate_pos_encoding, attention_mask, return_dict=True, **kwargs
        )
        tokens = self.vit.norm(outputs.last_hidden_state)
        return BaseModelOutputWithPooling(
            last_hidden_state=tokens,
            pooler_output=self.vit.forward_head(tokens, pre_logits=True),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class MyViTForImageClassification(MyViTPreTrainedModel):
    """The whole network with its head (two of them, averaged, where it was distilled).

    Example:
        >>> config = MyViTConfig(hidden_size=192, num_hidden_layers=2, num_attention_heads=3, num_labels=10)
        >>> MyViTForImageClassification(config)(torch.zeros(1, 3, 224, 224)).logits.shape
        torch.Size([1, 10])
    """

    def __init__(self, config: MyViTConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor,
        labels: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> ImageClassifierOutput:
        """Images to logits, and the loss where there are labels; the other arguments as in :class:`MyViTModel`."""
        outputs = self._encode(
            pixel_values, None, interpolate_pos_encoding, attention_mask, lean=True, return_dict=True, **kwargs
        )
        logits = self.vit.forward_head(self.vit.norm(outputs.last_hidden_state))
        return ImageClassifierOutput(
            loss=None if labels is None else self.loss_function(labels, logits, self.config, **kwargs),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class PixelShuffle(nn.Module):
    """Channels to pixels, ``(batch, chans * h * w, rows, cols)`` to ``(batch, chans, rows * h, cols * w)``."""

    def __init__(self, patch: tuple[int, int]) -> None:
        super().__init__()
        self.patch = patch

    def forward(self, x: Tensor) -> Tensor:
        """Each cell of the map becomes a patch."""
        batch, _, rows, cols = x.shape
        height, width = self.patch
        x = x.reshape(batch, -1, height, width, rows, cols).permute(0, 1, 4, 2, 5, 3)
        return x.reshape(batch, -1, rows * height, cols * width)


class MyViTForMaskedImageModeling(MyViTPreTrainedModel):
    """Masked image modelling as in SimMIM: predict the pixels of hidden patches with one linear layer.

    Example:
        >>> config = MyViTConfig(image_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
        >>> hidden = torch.tensor([[True, False, False, True]])
        >>> MyViTForMaskedImageModeling(config)(torch.zeros(1, 3, 32, 32), hidden).reconstruction.shape
        torch.Size([1, 3, 32, 32])
    """

    def __init__(self, config: MyViTConfig) -> None:
        super().__init__(config)
        patch, stride = self.vit.config.patch_size, config.encoder_stride
        if stride is not None and patch != ((stride, stride) if isinstance(stride, int) else tuple(stride)):
            raise ValueError(f"encoder_stride={stride} must be the patch size {patch}, or None")
        chans = patch[0] * patch[1] * config.num_channels
        self.decoder = nn.Sequential(nn.Conv2d(config.hidden_size, chans, kernel_size=1), PixelShuffle(patch))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: Tensor,
        bool_masked_pos: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedImageModelingOutput:
        """Images to reconstructed images, and the L1 loss over hidden pixels; arguments as in :class:`MyViTModel`."""
        outputs = self._encode(
            pixel_values, bool_masked_pos, interpolate_pos_encoding, attention_mask, return_dict=True, **kwargs
        )
        images = self.decoder(self._maps(self.vit.norm(outputs.last_hidden_state), pixel_values))
        height, width = pixel_values.shape[2], pixel_values.shape[3]
        loss = None
        if bool_masked_pos is not None:
            rows, cols = self._grid(pixel_values)
            mask = bool_masked_pos.reshape(-1, 1, rows, cols).to(images.dtype)
            mask = F.interpolate(mask, size=images.shape[2:], mode="nearest")[:, :, :height, :width]
            target = pixel_values[:, :, : images.shape[2], : images.shape[3]]  # drop_partial leaves a rim out
            missed = (target - images[:, :, :height, :width]).abs()  # dynamic_img_pad adds one
            loss = (missed * mask).sum() / (mask.sum() + 1e-5) / pixel_values.shape[1]
        return MaskedImageModelingOutput(
            loss=loss,
            reconstruction=images[:, :, :height, :width],
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


@dataclass
class MyViTBackboneOutput(BackboneOutput):
    """Feature maps, and the class token of each stage where ``config.return_class_token`` asks for it."""

    cls_tokens: tuple[Tensor, ...] | None = None


class MyViTBackbone(BackboneMixin, MyViTPreTrainedModel):
    """Feature maps of chosen blocks, for detection and segmentation heads.

    Example:
        >>> config = MyViTConfig(hidden_size=192, num_hidden_layers=2, num_attention_heads=3, out_indices=[1, 2])
        >>> [tuple(m.shape) for m in MyViTBackbone(config)(torch.zeros(1, 3, 224, 224)).feature_maps]
        [(1, 192, 14, 14), (1, 192, 14, 14)]
    """

    def __init__(self, config: MyViTConfig) -> None:
        super().__init__(config)
        self.num_features = [config.hidden_size] * (config.num_hidden_layers + 1)
        self.post_init()

    @can_return_tuple
    @filter_output_hidden_states
    def forward(
        self,
        pixel_values: Tensor,
        interpolate_pos_encoding: bool | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> MyViTBackboneOutput:
        """Images to feature maps; arguments as in :class:`MyViTModel`."""
        outputs = self._encode(pixel_values, None, interpolate_pos_encoding, attention_mask, return_dict=True, **kwargs)
        stages = [
            self.vit.norm(tokens) if self.config.apply_layernorm else tokens
            for stage, tokens in zip(self.stage_names, outputs.hidden_states, strict=True)
            if stage in self.out_features
        ]
        reshape = self.config.reshape_hidden_states
        return MyViTBackboneOutput(
            feature_maps=tuple(self._maps(tokens, pixel_values) if reshape else tokens for tokens in stages),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            cls_tokens=tuple(tokens[:, 0] for tokens in stages) if self.config.return_class_token else None,
        )
