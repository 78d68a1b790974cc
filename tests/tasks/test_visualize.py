"""Looking inside: numbers against other implementations, pictures by their sizes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from PIL import Image

import vit_hub
from vit_hub.errors import UndecidedError, UnknownNameError, VitHubError
from vit_hub.modeling import attention
from vit_hub.modeling.config import ViTConfig
from vit_hub.modeling.layers import sincos_grid
from vit_hub.modeling.vit import VisionTransformer
from vit_hub.tasks import pixels
from vit_hub.tasks.models import open_model
from vit_hub.tasks.visualize import (
    KINDS,
    PictureError,
    attention_grid,
    attention_image,
    attention_maps,
    before_after,
    feature_pca,
    patch_filters,
    position_similarity,
    position_similarity_image,
    rollout,
    rollout_image,
    visualize,
)

from ..conftest import randomise

SMALL = ViTConfig(img_size=(32, 48), patch_size=8, embed_dim=32, depth=3, num_heads=4, mlp_dim=48, num_classes=5)

VARIANTS = {
    "plain": {},
    "registers": {"reg_tokens": 3, "no_embed_reg": True},
    "distilled": {"dist_token": True, "dist_head": True},
    "rope": {"pos_embed": "rope", "reg_tokens": 2},
    "qk_norm": {"qk_norm": True, "qkv_bias": False},
    "no_class": {"class_token": False, "global_pool": "avg"},
    "sincos": {"pos_embed": "sincos_xy", "pre_norm": True, "init_values": 0.1},
}


def network(**changes) -> VisionTransformer:
    return randomise(VisionTransformer(SMALL.replace(**changes)))


def images(batch: int = 2, height: int = 32, width: int = 48) -> torch.Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))


def photo(width: int = 70, height: int = 50, mode: str = "RGB") -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise).convert(mode)


# ---- attention ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_is_that_of_eager_transformers(variant: str) -> None:
    config = SMALL.replace(**VARIANTS[variant], num_classes=0)
    described = vit_hub.MyViTConfig.from_vit(config)
    model = randomise(vit_hub.MyViTModel._from_config(described, attn_implementation="eager"))
    reference = model(images(), output_attentions=True).attentions
    ours = VisionTransformer(config)
    ours.load_state_dict(model.vit.state_dict())
    maps = attention_maps(ours, images())
    assert list(maps) == [0, 1, 2]
    for index, expected in enumerate(reference):
        torch.testing.assert_close(maps[index], expected, atol=1e-5, rtol=0)


def stock(name: str) -> torch.nn.Module:
    import transformers

    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    }
    more = {"num_register_tokens": 3} if name in ("Dinov2WithRegisters", "DINOv3ViT") else {}
    config = getattr(transformers, f"{name}Config")(**sizes, **more, attn_implementation="eager")
    return randomise(getattr(transformers, f"{name}Model")(config))


@pytest.mark.parametrize("name", ["ViT", "DeiT", "Dinov2WithRegisters", "DINOv3ViT"])
def test_attention_is_that_of_other_peoples_networks(name: str, tmp_path) -> None:
    model = stock(name)
    model.save_pretrained(tmp_path)
    expected = model(images(2, 32, 32), output_attentions=True).attentions
    maps = attention_maps(vit_hub.load(tmp_path), images(2, 32, 32))
    assert len(maps) == len(expected) == 3
    for index, reference in enumerate(expected):
        torch.testing.assert_close(maps[index], reference, atol=1e-5, rtol=0)


def test_only_what_is_asked_for() -> None:
    model = network(reg_tokens=2)
    whole = attention_maps(model, images())
    assert whole[0].shape == (2, 4, 27, 27)
    torch.testing.assert_close(whole[2].sum(dim=-1), torch.ones(2, 4, 27))
    some = attention_maps(model, images(), layers=[-1, 0], heads=[1, -1], queries=[0, 5])
    assert sorted(some) == [0, 2]
    for layer, maps in some.items():
        torch.testing.assert_close(maps, whole[layer][:, [1, 3]][:, :, [0, 5]])
    torch.testing.assert_close(attention_maps(model, images(), 1, 2, queries=1)[2], whole[2][:, 2:3, :1])


def test_blocks_behind_the_last_one_asked_for_do_not_run() -> None:
    model = network()
    ran = []
    for index, block in enumerate(model.blocks):
        block.register_forward_hook(lambda *_, index=index: ran.append(index))
    attention_maps(model, images(), layers=[1])
    assert ran == [0]


@pytest.mark.parametrize("wrong", [{"layers": [3]}, {"heads": 4}, {"queries": [25]}, {"queries": 26}, {"layers": 4}])
def test_what_is_not_there_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"there are|the last 4 of 3"):
        attention_maps(network(), images(), **wrong)


def test_chunks_change_nothing(monkeypatch) -> None:
    model = network(class_token=False, global_pool="avg")
    whole = attention_maps(model, images()), attention_grid(model, images()), rollout(model, images())
    monkeypatch.setattr(attention, "CHUNK", 700)  # three rows at a time
    parts = attention_maps(model, images()), attention_grid(model, images()), rollout(model, images())
    torch.testing.assert_close(parts, whole)


def test_large_images_do_not_form_large_matrices(monkeypatch) -> None:
    model = randomise(VisionTransformer(ViTConfig(img_size=1024, embed_dim=16, depth=2, num_heads=2, num_classes=0)))
    largest = 0
    attend = attention.attend

    def watched(q, k):
        nonlocal largest
        for part, weights in attend(q, k):
            largest = max(largest, weights.numel())
            yield part, weights

    monkeypatch.setattr(attention, "attend", watched)
    x = images(1, 1024, 1024)
    assert attention_grid(model, x).shape == (1, 64, 64)
    assert largest == 2 * 4097  # the class token's row alone
    assert rollout(model, x).shape == (1, 64, 64)
    assert largest <= attention.CHUNK < 2 * 4097**2


def test_the_network_is_left_as_it_was() -> None:
    model = network(drop_path_rate=0.5, patch_drop_rate=0.5, attn_drop_rate=0.5)
    expected = attention_maps(model, images())
    model.train()
    model.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    maps = attention_maps(model, images())
    torch.testing.assert_close(maps, expected)
    assert [module.training for module in model.modules()] == modes
    assert not maps[0].requires_grad


def test_half_precision_has_float32_attention() -> None:
    model = network().to(torch.bfloat16)
    maps = attention_maps(model, images().to(torch.bfloat16), [0])[0]
    assert maps.dtype == torch.float32
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(2, 4, 25))


@pytest.mark.parametrize("variant", VARIANTS)
def test_grid_is_the_row_of_the_class_token_or_the_mean(variant: str) -> None:
    model = network(**VARIANTS[variant])
    prefix = model.num_prefix_tokens
    for head in (None, 1):
        maps = attention_maps(model, images(), [1], head)[1].mean(dim=1)
        row = maps[:, 0] if model.has_class_token else maps[:, prefix:].mean(dim=1)
        expected = row[:, prefix:].reshape(2, 4, 6)
        torch.testing.assert_close(attention_grid(model, images(), 1, head), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rollout_is_the_product_of_the_layers(variant: str) -> None:
    model = network(**VARIANTS[variant])
    prefix = model.num_prefix_tokens
    product = torch.eye(prefix + 24)
    for maps in attention_maps(model, images()).values():
        layer = maps.mean(dim=1) + torch.eye(prefix + 24)
        product = layer / layer.sum(dim=-1, keepdim=True) @ product
    torch.testing.assert_close(product.sum(dim=-1), torch.ones(2, prefix + 24))
    row = product[:, 0] if model.has_class_token else product[:, prefix:].mean(dim=1)
    tokens = attention.rollout_tokens(model, images())
    torch.testing.assert_close(tokens.sum(dim=-1), torch.ones(2))
    torch.testing.assert_close(tokens, row)
    torch.testing.assert_close(rollout(model, images()), row[:, prefix:].reshape(2, 4, 6))


# ---- positions and filters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["plain", "registers", "distilled", "no_class", "sincos"])
def test_similarity_of_positions(variant: str) -> None:
    model = network(**VARIANTS[variant])
    similarity = position_similarity(model)
    assert similarity.shape == (4, 6, 4, 6)
    flat = similarity.reshape(24, 24)
    torch.testing.assert_close(flat, flat.T)
    torch.testing.assert_close(flat.diagonal(), torch.ones(24))
    grid = (
        model.pos_embed[0, model.num_prefix_slots :]
        if model.pos_embed is not None
        else sincos_grid(4, 6, 32, "sincos_xy", torch.zeros(1))[0]
    )
    expected = torch.nn.functional.cosine_similarity(grid[8], grid[17], dim=0)
    torch.testing.assert_close(similarity[1, 2, 2, 5], expected)


@pytest.mark.parametrize("kind", ["rope", "none"])
def test_networks_without_position_embeddings_say_so(kind) -> None:
    with pytest.raises(PictureError, match=f"pos_embed='{kind}'") as caught:
        position_similarity(network(pos_embed=kind))
    assert isinstance(caught.value, VitHubError)


def test_position_figure() -> None:
    assert position_similarity_image(network(), scale=3).size == (6 * (18 + 4) - 4, 4 * (12 + 4) - 4)
    large = network(img_size=(8 * 20, 8 * 24))
    assert position_similarity_image(large, scale=1).size == (14 * (24 + 4) - 4, 14 * (20 + 4) - 4)
    figure = np.array(position_similarity_image(network(), scale=1))
    assert figure[0, 0].tolist() == [0xFD, 0xE7, 0x25]  # the first position is like itself: the lightest colour
    assert pixels.sample(24, 14)[0] == 0
    assert pixels.sample(24, 14)[-1] == 23
    assert len(set(pixels.sample(24, 14))) == 14


def test_before_and_after_a_resize() -> None:
    model = network()
    state = copy.deepcopy(model.state_dict())
    sheet = before_after(model, (64, 48))
    after = copy.deepcopy(model)
    after.set_input_size((64, 48))
    figures = [position_similarity_image(each) for each in (model, after)]
    width = max(400, *(figure.width for figure in figures))
    assert sheet.size == (2 * width + 24, max(figure.height for figure in figures) + 24)
    for left, figure in zip((0, width + 24), figures, strict=True):
        np.testing.assert_array_equal(sheet.crop((left, 24, left + figure.width, 24 + figure.height)), figure)
    assert np.array(sheet)[:24].min() < 128  # there is a caption
    assert model.config == SMALL
    torch.testing.assert_close(dict(model.state_dict()), dict(state), rtol=0, atol=0)


def test_filters_are_the_principal_components() -> None:
    model = network()
    assert patch_filters(model).size == (7 * (72 + 4) - 4, 4 * (72 + 4) - 4)
    assert patch_filters(model, 9).size == (7 * (72 + 4) - 4, 2 * (72 + 4) - 4)
    kernel = model.patch_embed.proj.weight.detach().flatten(1)
    directions = torch.linalg.svd(kernel - kernel.mean(dim=0), full_matrices=False).Vh[:4]
    ours = pixels.principal(kernel, 4)
    torch.testing.assert_close((ours * directions).sum(dim=1).abs(), torch.ones(4))
    assert patch_filters(network(in_chans=1), 100).size == (7 * 76 - 4, 5 * 76 - 4)  # 32 filters, no more components
    with pytest.raises(PictureError, match="4 channels"):
        patch_filters(network(in_chans=4))
    with pytest.raises(PictureError, match="hybrid"):
        patch_filters(network(img_size=32, patch_size=16, stem_layers=()))


def test_the_colour_map_grows_lighter_all_the_way() -> None:
    colours = pixels.colour(torch.linspace(0, 1, 64)).astype(float)
    assert (np.diff(colours @ [0.2126, 0.7152, 0.0722]) > 0).all()
    assert pixels.colour(torch.tensor([-1.0, 2.0])).tolist() == pixels.colour(torch.tensor([0.0, 1.0])).tolist()


# ---- pictures of an image ----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_pictures_have_the_size_of_the_image(variant: str) -> None:
    model = network(**VARIANTS[variant])
    for picture in (attention_image, rollout_image, feature_pca):
        assert picture(model, photo()).size == (48, 32)
        assert picture(model, images()).size == (48 + 4 + 48, 32)
        np.testing.assert_array_equal(picture(model, images()), picture(model, images()))
    assert attention_image(model, photo(mode="L"), layer=0, head=2).mode == "RGB"


def test_padding_and_margins_are_no_picture() -> None:
    padded = network(img_size=(30, 45), dynamic_img_pad=True)
    assert attention_image(padded, images(1, 30, 45)).size == (45, 30)
    cut = network(img_size=(35, 50), drop_partial=True)
    assert attention_image(cut, images(1, 35, 50)).size == (48, 32)


def test_grey_networks_and_tensors_of_any_channels() -> None:
    assert rollout_image(network(in_chans=1), photo()).size == (48, 32)
    model = network(in_chans=5)
    assert rollout_image(model, torch.zeros(1, 5, 32, 48)).size == (48, 32)
    with pytest.raises(PictureError, match="5 channels: give it a tensor"):
        feature_pca(model, photo())


def test_pca_separates_what_is_different() -> None:
    x = torch.zeros(1, 3, 32, 48)
    x[..., 24:] = 2.0
    colours = np.array(feature_pca(network(pos_embed="none"), x))[::8, ::8].reshape(4, 6, 3)
    assert (colours[:, :3] == colours[0, 0]).all()
    assert (colours[:, 3:] == colours[0, 5]).all()
    assert colours[0, 0, 0] != colours[0, 5, 0]


# ---- files -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    described = vit_hub.MyViTConfig.from_vit(SMALL)
    randomise(vit_hub.MyViTForImageClassification(described)).save_pretrained(path)
    vit_hub.MyViTImageProcessor(size={"height": 32, "width": 48}, crop_pct=0.9).save_pretrained(path)
    return path


def test_every_kind_is_written(folder, tmp_path) -> None:
    photo().save(tmp_path / "photo.jpg")
    written = visualize(folder, tmp_path / "a" / "b", image=tmp_path / "photo.jpg")
    assert [file.name for file in written] == [f"{kind}.png" for kind in KINDS]
    for file in written:
        with Image.open(file) as picture:
            picture.load()
            assert picture.format == "PNG"
    expected = vit_hub.MyViTImageProcessor.from_pretrained(folder)(photo_of(tmp_path), return_tensors="pt").pixel_values
    assert_same(tmp_path / "a" / "b" / "pca.png", feature_pca(vit_hub.load(folder), expected))


def photo_of(folder) -> Image.Image:
    with Image.open(folder / "photo.jpg") as image:
        return image.copy()


def assert_same(file, picture: Image.Image) -> None:
    with Image.open(file) as written:
        np.testing.assert_array_equal(np.array(written), np.array(pixels.visible(picture)))


def test_another_size(folder, tmp_path) -> None:
    written = visualize(folder, tmp_path / "out", image=photo(), size=(64, 96), kinds=["positions", "pca"])
    assert [file.name for file in written] == ["positions.png", "pca.png"]
    assert_same(written[0], before_after(vit_hub.load(folder), (64, 96)))
    with Image.open(written[1]) as picture:
        assert picture.size == (192, 128)  # enlarged for people to see


def test_without_an_image(folder, tmp_path) -> None:
    assert [file.name for file in visualize(folder, tmp_path / "out")] == ["positions.png", "filters.png"]
    with pytest.raises(UndecidedError, match="image: attention, pca show") as caught:
        visualize(folder, tmp_path / "none", kinds=["filters", "attention", "pca"])
    assert list(caught.value.fields) == ["image"]
    assert not (tmp_path / "none").exists()


def test_what_a_network_has_not_is_left_out_unless_asked_for(tmp_path) -> None:
    model = stock("DINOv3ViT")
    model.save_pretrained(tmp_path / "model")
    written = visualize(tmp_path / "model", tmp_path / "out", image=photo())
    assert [file.stem for file in written] == ["filters", "attention", "rollout", "pca"]
    with pytest.raises(PictureError, match="rope"):
        visualize(tmp_path / "model", tmp_path / "none", kinds=["positions"])


def test_wrong_words_and_files(folder, tmp_path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean positions"):
        visualize(folder, tmp_path / "out", kinds=["position"])
    (tmp_path / "text.jpg").write_text("no image")
    for name in ("text.jpg", "missing.jpg"):
        with pytest.raises(PictureError, match=f"{name} cannot be read"):
            visualize(folder, tmp_path / "out", image=tmp_path / name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P", "1", "LA", "I;16"])
def test_images_of_every_mode(mode: str, folder, tmp_path) -> None:
    image = Image.fromarray(np.arange(3500, dtype=np.uint16).reshape(50, 70) * 18) if mode == "I;16" else photo()
    image = image if mode == "I;16" else image.convert(mode)
    (written,) = visualize(folder, tmp_path / "out", image=image, kinds=["rollout"])
    assert len(np.unique(np.array(Image.open(written)))) > 8


def test_other_libraries_preprocessing_is_theirs(tmp_path) -> None:
    from transformers import ViTImageProcessor

    processor = ViTImageProcessor(size={"height": 32, "width": 32}, image_mean=[0.4] * 3, image_std=[0.3] * 3)
    processor.save_pretrained(tmp_path)
    stock("ViT").save_pretrained(tmp_path)
    (written,) = visualize(tmp_path, tmp_path / "out", image=photo(), kinds=["pca"])
    expected = processor(photo(), return_tensors="pt")["pixel_values"]
    ours = open_model(tmp_path).processor(photo(), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(ours, expected, atol=2e-2, rtol=0)
    assert written.is_file()
