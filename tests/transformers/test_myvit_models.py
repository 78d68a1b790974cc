"""What the four classes compute: the network's own numbers, under transformers' contract."""

import pytest
import torch
import torch.nn.functional as F

from vit_hub import (
    MyViTBackbone,
    MyViTForImageClassification,
    MyViTForMaskedImageModeling,
    MyViTModel,
    VisionTransformer,
)

VARIANTS = {
    "plain": {},
    "registers": {"num_register_tokens": 3, "no_embed_reg": True},
    "distilled": {"dist_token": True, "dist_head": True},
    "map": {"class_token": False, "global_pool": "map", "representation_size": 12},
    "gap": {"global_pool": "avg", "fc_norm": True, "pool_include_prefix": True},
    "rope": {
        "pos_embed": "rope",
        "mlp_layer": "swiglu",
        "hidden_act": "silu",
        "qk_norm": True,
        "layerscale_value": 0.5,
    },
    "sincos": {"pos_embed": "sincos_xy", "global_pool": "token_avg"},
}
variants = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def plain(config, model):
    """The same network outside transformers."""
    network = VisionTransformer(config.network(type(model).__name__)).eval()
    network.load_state_dict(model.vit.state_dict())
    return network


@variants
def test_the_encoder_is_the_networks(variant, small, pixels):
    config = small(**VARIANTS[variant])
    model = MyViTModel(config).eval()
    network = plain(config, model)
    outputs = model(pixels, output_hidden_states=True)
    torch.testing.assert_close(outputs.last_hidden_state, network.forward_features(pixels))
    torch.testing.assert_close(outputs.pooler_output, network(pixels))
    assert len(outputs.hidden_states) == 3
    embedded, _ = network.embed(pixels)
    torch.testing.assert_close(outputs.hidden_states[0], embedded)
    torch.testing.assert_close(network.norm(outputs.hidden_states[-1]), outputs.last_hidden_state)
    assert not any("head" in name for name in model.state_dict())


@variants
def test_logits_are_the_networks_with_and_without_the_lean_block(variant, small, pixels):
    config = small(**VARIANTS[variant])
    model = MyViTForImageClassification(config).eval()
    lean = model(pixels)
    torch.testing.assert_close(lean.logits, plain(config, model)(pixels))
    assert lean.hidden_states is None
    whole = model(pixels, output_hidden_states=True)
    torch.testing.assert_close(whole.logits, lean.logits)
    assert [tuple(h.shape) for h in whole.hidden_states] == [(3, config.to_vit().num_tokens, 32)] * 3


def test_the_last_block_computes_only_what_the_head_needs(small, pixels):
    model = MyViTForImageClassification(small()).eval()
    shapes = []
    model.vit.blocks[1].mlp.register_forward_hook(lambda module, args, output: shapes.append(output.shape[1]))
    model(pixels)
    model(pixels, output_hidden_states=True)
    model(pixels, attention_mask=torch.ones(3, 17))
    model.vit.lean = False
    model(pixels)
    assert shapes == [1, 17, 17, 17]


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
@pytest.mark.parametrize("masked", [False, True])
# The test takes flex_attention's slow path, without the compiler, of which torch warns; and transformers still asks
# for masks by a deprecated flag.
@pytest.mark.filterwarnings("ignore:.*flex_attention called without torch.compile:UserWarning")
@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
def test_attention_implementations_agree(implementation, masked, small, pixels):
    config = small(attn_implementation="eager", num_register_tokens=1)
    model = MyViTForImageClassification(config).eval()
    mask = torch.ones(3, 18, dtype=torch.long) if masked else None
    if mask is not None:
        mask[0, 10:] = 0
        mask[1, 2:5] = 0
    expected = model(pixels, attention_mask=mask).logits
    model.set_attn_implementation(implementation)
    with torch.compiler.set_stance("force_eager"):
        torch.testing.assert_close(model(pixels, attention_mask=mask).logits, expected, atol=1e-5, rtol=0)


def test_masked_tokens_are_as_if_they_were_not_there(small, pixels):
    model = MyViTModel(small(attn_implementation="eager")).eval()
    mask = torch.ones(3, 17, dtype=torch.long)
    mask[:, -4:] = 0
    other = pixels.clone()
    other[:, :, 24:] += 1  # the last row of patches, which nobody may look at
    before = model(pixels, attention_mask=mask).pooler_output
    torch.testing.assert_close(model(other, attention_mask=mask).pooler_output, before)
    assert not torch.allclose(model(other).pooler_output, model(pixels).pooler_output)
    ready = mask.bool()[:, None, None, :].expand(3, 1, 17, 17)
    torch.testing.assert_close(model(pixels, attention_mask=ready).pooler_output, before)


def test_a_mask_of_another_length_is_refused(small, pixels):
    with pytest.raises(ValueError, match="over 16 tokens, but there are 17: 1 prefix tokens and 4x4 patches"):
        MyViTModel(small())(pixels, attention_mask=torch.ones(3, 16))


def test_attentions_are_rows_that_sum_to_one(small, pixels):
    model = MyViTForImageClassification(small(attn_implementation="eager")).eval()
    attentions = model(pixels, output_attentions=True).attentions
    assert [tuple(a.shape) for a in attentions] == [(3, 2, 17, 17)] * 2
    torch.testing.assert_close(attentions[1].sum(dim=-1), torch.ones(3, 2, 17))


def test_without_eager_there_are_no_attentions_and_a_word_about_it(small, pixels, caplog):
    import logging

    model = MyViTModel(small()).eval()
    assert model.config._attn_implementation == "sdpa"
    library = logging.getLogger("transformers")
    library.addHandler(caplog.handler)  # transformers does not pass its records on
    try:
        assert model(pixels, output_attentions=True).attentions == ()
    finally:
        library.removeHandler(caplog.handler)
    # The logger belongs to vit_hub where transformers' own is not its ancestor: either way the word is said once.
    assert "eager" in caplog.text


def test_flash_attention_is_dispatched_with_what_it_needs(small, pixels, monkeypatch):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    seen = {}

    def kernel(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **kwargs):
        seen.update(causal=is_causal, module_causal=module.is_causal, scaling=scaling, mask=attention_mask)
        return F.scaled_dot_product_attention(query, key, value, scale=scaling).transpose(1, 2), None

    ALL_ATTENTION_FUNCTIONS.register("flash_attention_probe", kernel)
    model = MyViTForImageClassification(small()).eval()
    expected = model(pixels).logits
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_probe")
    torch.testing.assert_close(model(pixels).logits, expected)
    assert seen == {"causal": False, "module_causal": False, "scaling": 16**-0.5, "mask": None}


def test_another_size_by_call_or_by_configuration(small, pixels):
    larger = torch.randn(2, 3, 48, 40)
    model = MyViTModel(small()).eval()
    with pytest.raises(ValueError, match="32x32"):
        model(larger)
    by_call = model(larger, interpolate_pos_encoding=True)
    dynamic = MyViTModel(small(dynamic_img_size=True)).eval()
    dynamic.load_state_dict(model.state_dict())
    torch.testing.assert_close(dynamic(larger).last_hidden_state, by_call.last_hidden_state)
    assert by_call.last_hidden_state.shape == (2, 31, 32)
    torch.testing.assert_close(model(pixels, interpolate_pos_encoding=True).pooler_output, model(pixels).pooler_output)


def test_masked_patches_need_a_mask_token(small, pixels):
    hidden = torch.zeros(3, 16, dtype=torch.bool)
    hidden[:, :5] = True
    with pytest.raises(ValueError, match="mask_token=True"):
        MyViTModel(small())(pixels, bool_masked_pos=hidden)
    model = MyViTModel(small(mask_token=True)).eval()
    other = pixels.clone()
    other[:, :, :8] += 1  # the first row of patches: four of the five that are hidden
    torch.testing.assert_close(model(other, hidden).pooler_output, model(pixels, hidden).pooler_output)


@pytest.mark.parametrize("size", [(32, 32), (16, 48)])
def test_masked_image_modelling_counts_hidden_pixels_only(size, small):
    model = MyViTForMaskedImageModeling(small(image_size=size, patch_size=(8, 16))).eval()
    pixels = torch.randn(2, 3, *size)
    rows, cols = model.vit.config.grid_size
    hidden = torch.rand(2, rows * cols) > 0.5
    outputs = model(pixels, hidden)
    assert outputs.reconstruction.shape == pixels.shape
    mask = hidden.reshape(2, 1, rows, cols).repeat_interleave(8, 2).repeat_interleave(16, 3).expand_as(pixels)
    expected = (pixels - outputs.reconstruction).abs()[mask].mean()
    torch.testing.assert_close(outputs.loss, expected, atol=1e-5, rtol=0)
    assert model(pixels).loss is None


def test_the_decoder_puts_pixels_where_they_belong(small):
    from transformers import ViTConfig, ViTForMaskedImageModeling

    stock = ViTForMaskedImageModeling(
        ViTConfig(
            image_size=32, patch_size=8, encoder_stride=8, hidden_size=32, num_hidden_layers=1, num_attention_heads=2
        )
    )
    ours = MyViTForMaskedImageModeling(small(encoder_stride=8))
    ours.decoder.load_state_dict(stock.decoder.state_dict())
    maps = torch.randn(1, 32, 4, 4)
    assert torch.equal(ours.decoder(maps), stock.decoder(maps))
    with pytest.raises(ValueError, match="encoder_stride=16"):
        MyViTForMaskedImageModeling(small(encoder_stride=16))


def test_reconstruction_of_padded_and_of_cut_images(small):
    padded = MyViTForMaskedImageModeling(small(dynamic_img_size=True, dynamic_img_pad=True))
    assert padded(torch.randn(1, 3, 30, 33), torch.ones(1, 20)).reconstruction.shape == (1, 3, 30, 33)
    cut = MyViTForMaskedImageModeling(small(image_size=35, drop_partial=True))
    outputs = cut(torch.randn(1, 3, 35, 35), torch.ones(1, 16))
    assert outputs.reconstruction.shape == (1, 3, 32, 32)
    assert torch.isfinite(outputs.loss)


@pytest.mark.parametrize("variant", ["plain", "registers", "map", "gap"])
def test_the_backbone_gives_maps_of_the_stages_asked_for(variant, small):
    config = small(**VARIANTS[variant], image_size=(32, 48), out_features=["stem", "stage2"], return_class_token=True)
    model = MyViTBackbone(config).eval()
    pixels = torch.randn(2, 3, 32, 48)
    outputs = model(pixels, output_hidden_states=True)
    assert [tuple(m.shape) for m in outputs.feature_maps] == [(2, 32, 4, 6)] * 2
    assert model.channels == [32, 32]
    last = model.vit.norm(outputs.hidden_states[-1])
    prefix = model.vit.num_prefix_tokens
    torch.testing.assert_close(outputs.feature_maps[-1].flatten(2).transpose(1, 2), last[:, prefix:])
    torch.testing.assert_close(outputs.cls_tokens[-1], last[:, 0])
    config.apply_layernorm, config.reshape_hidden_states, config.return_class_token = False, False, False
    outputs = model(pixels)
    assert outputs.cls_tokens is None
    assert outputs.hidden_states is None
    assert outputs.feature_maps[0].shape == (2, prefix + 24, 32)


def test_the_backbone_has_no_parameter_that_nobody_uses(small, pixels):
    for variant in VARIANTS.values():
        model = MyViTBackbone(small(**variant))
        with torch.enable_grad():
            sum(m.sum() for m in model(pixels).feature_maps).backward()
        assert not [name for name, p in model.named_parameters() if p.grad is None]


@variants
def test_every_weight_is_filled_with_sense(variant, small):
    for model_class in (MyViTModel, MyViTForImageClassification, MyViTForMaskedImageModeling, MyViTBackbone):
        model = model_class(small(**VARIANTS[variant]))
        for name, parameter in model.named_parameters():
            assert parameter.abs().max() <= 1.5, name  # memory as it was found would be anything
            if parameter.dim() > 1 and "mask_token" not in name:
                assert parameter.std() > 0, name
        assert not list(model.buffers())


def test_loss_types_and_tuples(small, pixels):
    model = MyViTForImageClassification(small()).eval()
    labels = torch.tensor([0, 1, 4])
    outputs = model(pixels, labels=labels)
    torch.testing.assert_close(outputs.loss, F.cross_entropy(outputs.logits, labels))
    loss, logits = model(pixels, labels=labels, return_dict=False)
    assert torch.equal(logits, outputs.logits)
    assert torch.equal(loss, outputs.loss)
    model.config.return_dict = False
    assert isinstance(model(pixels), tuple)
    assert MyViTForImageClassification(small(num_labels=0))(pixels).logits.shape == (3, 32)


def test_grey_images_and_other_dtypes(small):
    model = MyViTForImageClassification(small(num_channels=1)).to(torch.bfloat16).eval()
    assert model(torch.randn(1, 1, 32, 32)).logits.dtype == torch.bfloat16


def test_a_users_subclass_keeps_its_network(small, pixels):
    class Features(MyViTBackbone):
        pass

    assert Features(small(global_pool="map")).vit.attn_pool is None
