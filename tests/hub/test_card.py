"""Cards: true to the files, runnable, merged without loss, never under a weaker licence."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import vit_hub
from vit_hub import presets
from vit_hub.cli import main
from vit_hub.conversion.releases import ABOUT, RELEASES
from vit_hub.errors import FolderError
from vit_hub.hub.card import CardError, LicenceError, card, check_licence, merge, person_text, render, write_card
from vit_hub.hub.card_merge import BEGIN, END
from vit_hub.hub.card_network import multiply_adds, network_rows, parameters
from vit_hub.hub.licences import KNOWN, Licence, allows, read_licence
from vit_hub.hub.papers import PAPERS, papers
from vit_hub.modeling.vit import VisionTransformer

GOLDEN = Path(__file__).parents[1] / "golden"
TOKEN = GOLDEN / "google_flax/tiny_token/checkpoint.npz"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Real conversions: a classifier, resized, features, a projection, and every stock format."""
    root = tmp_path_factory.mktemp("folders")
    made = {
        "classifier": vit_hub.convert(TOKEN, root / "classifier"),
        "resized": vit_hub.resize(root / "classifier", root / "resized", (96, 80)),
        "features": vit_hub.convert(GOLDEN / "dinov3/vits16_like/dinov3_pretrain.pth", root / "features"),
        "projection": vit_hub.convert(GOLDEN / "clip/state_dict_fp16/ViT-B-16_state_dict.pt", root / "projection"),
        "google": vit_hub.convert(root / "classifier", root / "google", to="google"),
        "stock_features": vit_hub.convert(root / "features", root / "stock_features", to="transformers"),
    }
    for to in ("timm", "transformers", "torchvision"):
        made[to] = vit_hub.convert(root / "classifier", root / to, to=to, act_layer="gelu")
    return {name: result.path for name, result in made.items()}


@pytest.fixture
def folder(originals: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the classifier's folder without the card that it came with, free to be changed."""
    copied = Path(shutil.copytree(originals["classifier"], tmp_path / "my-vit"))
    (copied / "README.md").unlink()
    return copied


def change(file: Path, **values: object) -> None:
    content = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({**content, **values}))


# ---- what it says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "library", "task"),
    [
        ("classifier", "timm", "image-classification"),
        ("resized", "timm", "image-classification"),
        ("features", "timm", "image-feature-extraction"),
        ("projection", "timm", "image-feature-extraction"),
        ("timm", "timm", "image-classification"),
        ("transformers", "transformers", "image-classification"),
        ("stock_features", "transformers", "image-feature-extraction"),
        ("torchvision", None, "image-classification"),
        ("google", None, "image-classification"),
    ],
)
def test_every_kind_of_folder_has_a_card(name: str, library: str | None, task: str, originals: dict[str, Path]) -> None:
    rendered = render(originals[name])
    assert (rendered.data.library_name, rendered.data.pipeline_tag) == (library, task)
    text, proof = str(rendered), json.loads((originals[name] / "conversion.json").read_text())
    assert proof["source"]["files"][0]["sha256"] in text
    assert f"{proof['verification']['worst']:.1e} of the largest value" in text
    assert "**verified**" in text
    assert "More Information Needed" not in text
    assert str(GOLDEN) not in text  # a card is no place for somebody's paths
    assert str(originals[name]) not in text
    assert ("import vit_hub" in text) == (name in ("classifier", "resized", "features", "projection"))


def test_the_head_states_licence_name_and_link(originals: dict[str, Path]) -> None:
    assert render(originals["classifier"]).data.license == "apache-2.0"
    data = render(originals["features"]).data
    assert (data.license, data.license_name) == ("other", "dinov3-license")
    assert data.license_link.startswith("https://ai.meta.com/")


def test_the_text_states_network_images_and_resize(originals: dict[str, Path]) -> None:
    text = str(render(originals["resized"]))
    assert "| MLP | 128, GELU (tanh approximation) |" in text
    assert "| image | 96 x 80, 3 channels |" in text
    assert "Resized to 96 x 80, whatever the shape; kernel bilinear;" in text
    assert "Resized from 64 x 64 to 96 x 80 (grid 4 x 4 to 6 x 5, positions resampled, policy jax)" in text
    assert "names of the classes are not known" in text
    assert "@misc{dosovitskiy2020" in text
    assert "The shorter edge resized to 256, 224 x 224 cut from the middle; kernel bicubic;" in str(
        render(originals["features"])
    )


def test_what_was_not_verified_is_said_plainly(tmp_path: Path) -> None:
    path = vit_hub.convert(TOKEN, tmp_path / "out", verify=False).path
    text = str(render(path))
    assert "**Not verified**" in text
    assert "**verified**" not in text


def test_notes_of_every_step_are_limitations(folder: Path) -> None:
    old = {"source": {"name": "a.npz", "files": []}, "family": "google", "notes": ["head is constant"]}
    change(folder / "conversion.json", notes=["resampled before"], history=[old])
    assert "- head is constant\n- resampled before" in str(render(folder))


def test_labels_are_counted_and_cannot_break_the_card(folder: Path) -> None:
    hostile = f"{END} | `x`\n# fake"
    names = [hostile, *(f"class {index}" for index in range(1, 10))]
    change(folder / "config.json", label_names=names)
    text = str(render(folder))
    assert "10 classes: &lt;!-- vit_hub" in text
    assert text.count(END) == 1
    assert "\n# fake" not in text
    change(folder / "config.json", label_names=[f"class {index}" for index in range(1000)])
    assert "1000 classes: class 0, class 1" in str(render(folder))
    assert "and 988 more" in str(render(folder))


def test_a_folder_that_only_has_a_config_gets_an_honest_card(folder: Path) -> None:
    (folder / "conversion.json").unlink()
    text = str(render(folder))
    assert "No file of this folder says where the weights came from." in text
    assert "## Proof" not in text


def test_the_repository_of_the_source_is_the_base_model(folder: Path) -> None:
    change(folder / "conversion.json", source={"name": "me/a", "repo": "me/a", "revision": "c" * 40, "files": []})
    data = render(folder).data
    assert data.base_model == "me/a"
    assert "base_model_relation" not in data  # a conversion is none of the Hub's relations
    old = {"source": {"name": "me/b", "repo": "me/b", "files": []}, "family": "clip/openai", "verdict": "trained"}
    change(folder / "conversion.json", source={"name": "x", "files": []}, history=[old])
    assert (render(folder).data.base_model, render(folder).data.base_model_relation) == ("me/b", "finetune")
    assert render(folder).data.pipeline_tag == "image-classification"
    change(folder / "conversion.json", source={"name": "me/a", "repo": "me/a", "revision": "c" * 40, "files": []})
    assert "[me/a](https://huggingface.co/me/a) at cccccccccccc" in str(render(folder))


def test_files_that_are_not_json_are_refused_by_name(folder: Path) -> None:
    (folder / "evaluation.json").write_text("{")
    with pytest.raises(FolderError, match=r"evaluation\.json is not JSON"):
        render(folder)
    with pytest.raises(FolderError, match="vit-hub convert"):
        render(folder.parent)


# ---- training and evaluation -------------------------------------------------------------------------------


def result(sha: str | None, **changes: object) -> dict:
    data = {"name": "beans", "config": None, "split": "test", "revision": "a" * 40, "rows": 128}
    speed = {"images_per_second": 812.5, "device": "cpu", "batch_size": 32}
    metrics = {"top1": 0.9375, "top5": 1.0, "ece": 0.021}
    given = {"limit": 128, "labels": "/home/me/map.json", "dtype": None}
    entry = {
        "task": "image-classification",
        "dataset": data,
        "metrics": metrics,
        "throughput": speed,
        "settings": given,
    }
    return {**entry, "weights_sha256": sha, **changes}


def sha(folder: Path) -> str:
    return json.loads((folder / "conversion.json").read_text())["weights_sha256"]


def test_evaluations_become_a_model_index(folder: Path) -> None:
    change(folder / "evaluation.json", results=[result(sha(folder)), result(sha(folder), task="knn")])
    rendered = render(folder, repo="me/x")
    found = {(one.metric_type, one.metric_name): one for one in rendered.data.eval_results}
    assert found["accuracy", "top-1 accuracy"].metric_value == 0.9375
    assert found["accuracy", "top-1 accuracy, k-NN"].dataset_type == "beans"
    assert found["ece", "ece"].dataset_split == "test"
    assert rendered.data.model_name == "x"
    numbers = "top1 0.9375, top5 1, ece 0.021 | limit 128, labels map.json | 812.5 images/s (cpu, batch 32) |"
    assert f"| image-classification | beans, test | 128 | {numbers}" in str(rendered)
    assert found["ece", "ece"].metric_args["limit"] == 128


def test_an_evaluation_of_other_weights_is_not_shown(folder: Path) -> None:
    change(folder / "evaluation.json", results=[result("0" * 64)])
    rendered = render(folder)
    assert rendered.data.eval_results is None
    assert "## Evaluation" not in str(rendered)


def test_data_on_somebodys_disk_lose_their_path(folder: Path) -> None:
    local = {"name": "/home/me/beans", "config": None, "split": "test", "revision": None, "rows": 3}
    change(folder / "evaluation.json", results=[result(sha(folder), dataset=local)])
    rendered = render(folder)
    assert rendered.data.eval_results[0].dataset_type == "imagefolder"
    assert "/home/me" not in str(rendered)


def test_training_is_told_with_data_recipe_metrics_and_curves(folder: Path) -> None:
    curves = [{"step": step, "loss": 2.0 / (step + 1), "eval_top1": None} for step in range(100)]
    change(
        folder / "training.json",
        data={"name": "beans", "split": "train", "revision": "b" * 40, "rows": 1034, "labels": 3},
        recipe={"lr": 1e-4, "betas": [0.9, 0.999], "mixup": {"alpha": 0.2}},
        metrics={"eval_top1": 0.97},
        curves=curves,
        held_out={"name": "/home/me/beans", "split": "validation", "revision": None},
        base={"source": "me/base", "license": "apache-2.0", "from_scratch": False},
    )
    source = {"name": "me/base", "repo": "me/base", "revision": "c" * 40, "files": []}
    change(folder / "conversion.json", source=source, verdict="trained", verification=None)
    rendered, text = render(folder), str(render(folder))
    assert rendered.data.datasets == ["beans"]
    assert (rendered.data.base_model, rendered.data.base_model_relation) == ("me/base", "finetune")
    for row in ("| lr | 0.0001 |", "| mixup.alpha | 0.2 |", "| eval_top1 | 0.97 |", "| 0 | 2 |", "| 99 | 0.02 |"):
        assert row in text
    assert text.count("\n| 11 |") == 1  # ten rows of a hundred
    assert "measured on beans, validation, which it was not trained on" in text
    assert "There is no reference for weights that were trained here." in text
    assert "erified" not in text
    change(folder / "training.json", base={"from_scratch": True})
    assert "Trained from random weights." in str(render(folder))


# ---- the snippets run --------------------------------------------------------------------------------------


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize(
    "name", ["classifier", "resized", "features", "projection", "timm", "transformers", "stock_features", "torchvision"]
)
def test_every_snippet_runs_as_it_is(
    name: str, originals: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(originals[name], tmp_path / "here"))
    # No resize is needed for these: Pillow and torchvision may round it differently.
    height, width = {"classifier": (64, 64), "resized": (96, 80), "features": (256, 256)}.get(name, (90, 120))
    noise = torch.randint(256, (height, width, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    Image.fromarray(noise.numpy()).save("image.jpg", quality=100)
    text = write_card(Path()).read_text()
    spaces = []
    for code in blocks(text, "python"):
        spaces.append({})
        exec(compile(code, "card", "exec"), spaces[-1])
    for command in "".join(blocks(text, "sh")).splitlines():
        program, *words = shlex.split(command)
        assert program == "vit-hub"
        assert main(words) == 0
    said = {key: value for space in spaces for key, value in space.items()}
    if name in ("classifier", "resized"):  # every way gives the same answer
        best = said["probabilities"].max().item()
        assert said["answers"][0]["label"] == said["label"] == f"LABEL_{said['probabilities'].argmax().item()}"
        assert said["answers"][0]["score"] == pytest.approx(best, abs=1e-5)
    elif name == "features":
        ours = [torch.as_tensor(space["features"]).float() for space in spaces if "features" in space]
        assert len(ours) == 3
        for other in ours[1:]:
            torch.testing.assert_close(other, ours[0], rtol=0, atol=1e-5)
    assert any(key in said for key in ("model", "network"))


@pytest.mark.parametrize("name", ["classifier", "features", "timm", "transformers", "stock_features"])
def test_the_snippets_of_a_repository_are_those_of_a_folder(name: str, originals: dict[str, Path]) -> None:
    there = blocks(str(render(originals[name], repo="me/my-vit")), "python")
    moved = [code.replace("hf-hub:me/my-vit", "local-dir:.").replace("me/my-vit", ".") for code in there]
    assert moved == blocks(str(render(originals[name])), "python")


def test_googles_file_opens_as_the_card_says(
    originals: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(originals["google"])
    (code,) = blocks(str(render(Path())), "python")
    space: dict = {}
    exec(compile(code, "card", "exec"), space)
    assert "cls" in space["arrays"]
    space["arrays"].close()


# ---- merging -----------------------------------------------------------------------------------------------

GENERATED = f"""---
license: apache-2.0
library_name: timm
tags:
- vit_hub
---

{BEGIN}
# Title

Generated.
{END}
"""
texts = st.text(alphabet=st.sampled_from("ab #`-\n\r<!>:"), max_size=60).filter(lambda text: "<!-- vit_hub" not in text)
values = st.one_of(st.integers(), st.booleans(), st.text(max_size=8), st.lists(st.text(max_size=4), max_size=3))
heads = st.dictionaries(st.text(min_size=1, max_size=6), values, max_size=4)


@given(above=texts, below=texts, head=heads, marked=st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_persons_text_survives_and_merging_twice_changes_nothing(
    above: str, below: str, head: dict, marked: bool
) -> None:
    front = f"---\n{yaml.safe_dump(head)}---\n"
    body = f"\n{above}\n{BEGIN}\nold\n{END}\n{below}" if marked else f"\n{above}\n{below}"
    merged = merge(GENERATED, front + body)
    kept = person_text(merged)
    if body.strip():
        expected = person_text(front + body)
        assert kept == expected if marked else kept.startswith(expected)
    assert merge(GENERATED, merged) == merged
    data = yaml.safe_load(merged.split("---")[1]) if not any("---" in str(v) for v in head.items()) else {}
    assert all(data[key] == value for key, value in head.items() if data and key not in ("license", "tags"))


def test_the_block_goes_below_and_their_title_replaces_ours() -> None:
    merged = merge(GENERATED, "# Mine\n\nWords.")
    assert merged.index("Words.") < merged.index(BEGIN)
    assert "# Title" not in merged
    assert "# Title" in merge(GENERATED, "Words without a title.\n```sh\n# no title\n```\n")


def test_metadata_are_united_and_comments_and_order_stay() -> None:
    existing = "---\n# mine\nlanguage: en  # words\ntags: [cats, vit_hub]\nlibrary_name: other\n---\nText\n"
    head = merge(GENERATED, existing).split("---")[1]
    assert head.startswith("\n# mine\nlanguage: en  # words\ntags: [cats, vit_hub]\n")
    assert yaml.safe_load(head)["library_name"] == "timm"
    more = existing.replace(", vit_hub", "")
    assert yaml.safe_load(merge(GENERATED, more).split("---")[1])["tags"] == ["cats", "vit_hub"]


def test_line_ends_stay() -> None:
    merged = merge(GENERATED, "---\r\nlanguage: en\r\n---\r\n# Mine\r\n")
    assert "\n" not in merged.replace("\r\n", "")


@pytest.mark.parametrize("head", ["a: [", "- a\n- b", "a: b: c", "1: 2"])
def test_broken_metadata_are_an_error_and_nothing_is_lost(head: str, folder: Path) -> None:
    before = f"---\n{head}\n---\nMy text\n"
    (folder / "README.md").write_text(before)
    with pytest.raises(CardError, match="by hand"):
        write_card(folder)
    assert (folder / "README.md").read_text() == before


@pytest.mark.parametrize("body", [BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}", f"{BEGIN}{BEGIN}{END}"])
def test_damaged_marks_are_an_error(body: str) -> None:
    with pytest.raises(CardError, match="damaged"):
        merge(GENERATED, f"Words\n{body}\n")


def test_results_of_others_stay_and_ours_are_renewed(folder: Path) -> None:
    theirs = {"type": "accuracy", "value": 0.5}
    index = [
        {"name": "m", "results": [{"task": {"type": "t"}, "dataset": {"type": "d", "name": "d"}, "metrics": [theirs]}]}
    ]
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'model-index': index})}---\n")
    for top1 in (0.1, 0.2):
        change(folder / "evaluation.json", results=[result(sha(folder), metrics={"top1": top1})])
        write_card(folder)
    (entry,) = yaml.safe_load((folder / "README.md").read_text().split("---")[1])["model-index"]
    assert [metric["value"] for one in entry["results"] for metric in one["metrics"]] == [0.5, 0.2]
    (folder / "evaluation.json").unlink()
    assert "0.2" not in write_card(folder).read_text().split("---")[1]


def test_a_card_is_refreshed_in_place(folder: Path) -> None:
    path = write_card(folder)
    first = path.read_bytes()
    assert write_card(folder).read_bytes() == first
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []
    path.write_text("# Cats\n\nMine.\n\n" + first.decode())
    change(folder / "evaluation.json", results=[result(sha(folder))])
    assert "Mine." in write_card(folder).read_text()


# ---- licences ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "wanted", "good"),
    [
        ("apache-2.0", "apache-2.0", True),
        ("apache-2.0", "mit", True),
        ("apache-2.0", "cc-by-nc-4.0", True),
        ("apache-2.0", "cc0-1.0", False),
        ("cc0-1.0", "mit", True),
        ("cc-by-nc-4.0", "apache-2.0", False),
        ("cc-by-nc-4.0", "cc-by-nc-sa-4.0", True),
        ("cc-by-nc-4.0", "cc-by-nc-sa-3.0", False),
        ("cc-by-nc-sa-4.0", "cc-by-nc-4.0", False),
        ("gpl-3.0", "agpl-3.0", False),
        ("other", "apache-2.0", False),
        ("my-own", "my-own", True),
        ("my-own", "mit", False),
        ("mit", "my-own", False),
    ],
)
def test_which_licence_allows_which(source: str, wanted: str, good: bool) -> None:
    assert allows(Licence(source), Licence(wanted)) == good


def test_every_licence_and_paper_of_a_release_is_known() -> None:
    stated = [release.about for release in RELEASES] + list(ABOUT.values())
    licences = {about["license"] for about in stated if "license" in about}
    licences |= {release.license for release in presets.releases().values()}
    assert licences <= KNOWN
    cited = {about["paper"] for about in stated if "paper" in about}
    assert cited | {release.paper for release in presets.releases().values()} <= PAPERS.keys()
    assert read_licence("other", name="dinov3-license") == read_licence("other", paper="arXiv:2508.10104")


def test_the_licence_of_a_folder(folder: Path) -> None:
    assert check_licence(folder, None) == "apache-2.0"
    assert check_licence(folder, "cc-by-nc-4.0") == "cc-by-nc-4.0"
    with pytest.raises(LicenceError, match=r"apache-2\.0 \(.*config\.json.*\): give --license apache-2\.0"):
        check_licence(folder, "cc0-1.0")


def test_the_strictest_of_all_sources_counts(folder: Path) -> None:
    change(folder / "training.json", base={"license": "cc-by-nc-4.0"})
    assert check_licence(folder, None) == "cc-by-nc-4.0"
    assert render(folder).data.license == "cc-by-nc-4.0"
    with pytest.raises(LicenceError) as raised:
        check_licence(folder, "apache-2.0")
    assert raised.value.sources["training.json"] == "cc-by-nc-4.0"
    assert raised.value.sources["config.json"] == "apache-2.0"
    change(folder / "training.json", base={"license": "gpl-3.0"})
    change(folder / "conversion.json", about={"license": "cc-by-nc-4.0"})
    with pytest.raises(LicenceError, match="no licence satisfies all"):
        check_licence(folder, None)


def test_a_repository_that_says_less_than_its_release_does_not_count(folder: Path) -> None:
    change(folder / "conversion.json", source={"name": "facebook/vit-mae-base", "repo": "facebook/vit-mae-base"})
    assert check_licence(folder, None) == "cc-by-nc-4.0"


def test_an_unknown_licence_is_refused_until_it_is_given(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["pretrained_cfg"]["license"]
    (folder / "config.json").write_text(json.dumps(config))
    change(folder / "conversion.json", about={})
    with pytest.raises(LicenceError, match="--license"):
        check_licence(folder, None)
    with pytest.raises(LicenceError, match="the Hub has no licence mti"):
        check_licence(folder, "mti")
    assert "license" not in render(folder).data.to_dict()
    assert "under which licence the source was published" in str(render(folder))
    assert check_licence(folder, "mit") == "mit"
    write_card(folder, license="mit")
    assert check_licence(folder, None) == "mit"  # the card remembers


def test_a_licence_without_an_id_keeps_its_name(originals: dict[str, Path], folder: Path) -> None:
    assert check_licence(originals["features"], "other") == check_licence(originals["features"], "dinov3-license")
    for word in ("other", "dinov3-license"):
        assert "license_name: dinov3-license\nlicense_link: https://ai.meta" in card(
            originals["features"], license=word
        )
    head = "license: other\nlicense_name: mine\nlicense_link: https://example.org"
    (folder / "README.md").write_text(f"---\n{head}\n---\n")
    assert check_licence(folder, None) == "other"
    for word in (None, "other"):
        assert head in card(folder, license=word)


def test_a_persons_licence_stays_unless_it_is_weaker(folder: Path) -> None:
    (folder / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    assert check_licence(folder, None) == "cc-by-nc-4.0"
    assert "license: cc-by-nc-4.0" in write_card(folder).read_text()
    assert "license: mit" in card(folder, license="mit")
    (folder / "README.md").write_text("---\nlicense: cc0-1.0\n---\n")
    for check in (lambda: check_licence(folder, None), lambda: write_card(folder)):
        with pytest.raises(LicenceError, match=r"--license apache-2\.0"):
            check()


# ---- numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in presets.names() if name.startswith("myvit_test_")])
def test_counts_are_those_of_the_whole_network(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config = presets.config(name)
    network = VisionTransformer(config, device="meta").eval()
    network.lean = False
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.empty(1, config.in_chans, *config.img_size, device="meta"))
    assert parameters(config) == sum(parameter.numel() for parameter in network.parameters())
    assert 2 * multiply_adds(config) == counter.get_total_flops()
    assert len(dict(network_rows(config))) >= 11


def test_papers_that_are_not_in_the_table_are_linked() -> None:
    known, unknown = papers(["arXiv:2304.07193", "arXiv:2304.07193, arXiv:9999.99999"])
    assert known.bibtex.startswith("@misc{oquab2023dinov2,")
    assert (unknown.bibtex, unknown.url) == (None, "https://arxiv.org/abs/9999.99999")


# ---- the command line --------------------------------------------------------------------------------------


def test_the_command_prints_or_writes(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["card", str(folder), "--repo", "me/my-vit"]) == 0
    assert 'timm.create_model("hf-hub:me/my-vit", pretrained=True)' in capsys.readouterr().out
    assert not (folder / "README.md").exists()
    assert main(["card", str(folder), "--write", "--license", "mit"]) == 0
    assert "license: mit" in (folder / "README.md").read_text()
    assert main(["card", str(folder), "--license", "cc0-1.0"]) == 2
    assert "not allowed" in capsys.readouterr().err
