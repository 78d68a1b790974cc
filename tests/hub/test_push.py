"""Push: what is refused before anything is sent, what the options do, and what the Hub has afterwards."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

import vit_hub
from vit_hub.cli import main
from vit_hub.errors import FolderError, UnknownNameError, VerificationError, VitHubError
from vit_hub.hub.licences import LicenceError
from vit_hub.hub.push import PushError, publish

from .loopback import LoopbackHub

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # how huggingface_hub sends files


def titles(hub: LoopbackHub, repo: str, revision: str = "main") -> list[str]:
    """All commits after the one that every repository begins with, newest first."""
    return [commit.title for commit in hub.store.repos[repo].history(revision)][:-1]


def writes(hub: LoopbackHub) -> list[str]:
    return [one.path for one in hub.log if one.method not in ("GET", "HEAD")]


def test_one_commit_with_everything(hub: LoopbackHub, folder: Path, repo: str) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    pushed = vit_hub.push(folder, repo, message="first", tag="v1")
    assert titles(hub, repo) == ["first"]
    assert pushed.changed
    assert pushed.url == f"{hub.endpoint}/{repo}"
    assert {file.name: (file.mode, file.state) for file in pushed.files} == {
        "config.json": ("regular", "new"),
        "conversion.json": ("regular", "new"),
        "model.safetensors": ("lfs", "new"),
        "preprocessor_config.json": ("regular", "new"),
        "README.md": ("regular", "new"),
    }
    for file in pushed.files:
        assert file.size == len(hub.store.read(repo, file.name, "v1"))
    assert hub.store.repos[repo].refs["tags/v1"] == pushed.commit
    assert hub.store.read(repo, "model.safetensors") == (folder / "model.safetensors").read_bytes()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_nothing_changed_is_no_commit(
    hub: LoopbackHub, folder: Path, repo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = publish(folder, repo)
    hub.log.clear()
    again = publish(folder, repo)
    assert (again.changed, again.commit) == (False, first.commit)
    assert not writes(hub)
    assert main(["push", str(folder), repo, "--tag", "v1"]) == 0
    assert "nothing changed, no commit" in capsys.readouterr().out
    assert hub.store.repos[repo].refs["tags/v1"] == first.commit
    assert len(titles(hub, repo)) == 1


def test_only_what_changed_is_sent(hub: LoopbackHub, folder: Path, repo: str) -> None:
    publish(folder, repo)
    (folder / "NOTICE").write_text("with thanks")
    (folder / "conversion.json").write_text((folder / "conversion.json").read_text() + "\n")
    hub.log.clear()
    states = {file.name: file.state for file in publish(folder, repo).files}
    assert (states["NOTICE"], states["conversion.json"]) == ("new", "changed")
    assert states["model.safetensors"] == states["config.json"] == states["README.md"] == "unchanged"
    assert not hub.requests("POST", "batch")


def test_a_dry_run_writes_nothing(
    hub: LoopbackHub, folder: Path, repo: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    assert main(["push", str(folder), repo, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    size = (folder / "model.safetensors").stat().st_size
    assert f"new       lfs     {size:>13,}  model.safetensors" in printed
    assert "nothing was sent" in printed
    assert not writes(hub)
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    publish(folder, repo)
    (folder / "conversion.json").unlink()
    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    hub.log.clear()
    would = vit_hub.push(folder, repo, dry_run=True, license="apache-2.0")
    assert {file.name for file in would.files if file.state == "removed"} == {"conversion.json"}
    assert would.commit is None
    assert not writes(hub)


def test_branches_and_proposals(hub: LoopbackHub, folder: Path, repo: str) -> None:
    publish(folder, repo, revision="feature/one", message="ours")
    assert (titles(hub, repo, "feature/one"), titles(hub, repo)) == (["ours"], [])
    proposed = publish(folder, repo, create_pr=True, message="ours", token="hf_reader")
    assert proposed.pr_url == f"{hub.endpoint}/{repo}/discussions/1"
    assert (titles(hub, repo, "refs/pr/1"), titles(hub, repo)) == (["ours"], [])
    (folder / "NOTICE").write_text("with thanks")
    publish(folder, repo, revision="refs/pr/1", message="more")
    assert titles(hub, repo, "refs/pr/1") == ["more", "ours"]
    with pytest.raises(PushError, match="tag it after the merge"):
        publish(folder, repo, create_pr=True, tag="v1")
    with pytest.raises(PushError, match="no such revision"):
        publish(folder, repo, revision="refs/pr/7")


def test_private_and_tags(hub: LoopbackHub, folder: Path, repo: str) -> None:
    publish(folder, repo, private=True, tag="v1")
    assert hub.store.repos[repo].private
    (folder / "NOTICE").write_text("with thanks")
    with pytest.raises(PushError, match="tag v1 is there already"):
        publish(folder, repo, tag="v1")
    (folder / "NOTICE").unlink()
    assert not publish(folder, repo, tag="v1").changed  # the same command again
    assert len(titles(hub, repo)) == 1
    publish(folder, repo + "-public")
    with pytest.raises(PushError, match="is public already"):
        publish(folder, repo + "-public", private=True)


# ---- tokens ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("token", "why"), [("hf_wrong", "refuses the token"), ("hf_reader", "may not do this")])
def test_a_token_that_does_not_do(hub: LoopbackHub, folder: Path, repo: str, token: str, why: str) -> None:
    for name in (repo, f"{repo}-there"):
        if name.endswith("there"):
            hub.store.create(name)
        with pytest.raises(PushError, match=why) as refused:
            publish(folder, name, token=token)
        assert "hf auth login" in str(refused.value)
        assert token not in str(refused.value)
    assert repo not in hub.store.repos
    assert titles(hub, f"{repo}-there") == []


def test_nobody_is_logged_in(
    hub: LoopbackHub, folder: Path, repo: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    assert main(["push", str(folder), repo]) == 2
    assert "run `hf auth login`, or give a token (HF_TOKEN, token=..., push --token)" in capsys.readouterr().err
    assert main(["push", str(folder), repo, "--token", "hf_writer"]) == 0
    printed = capsys.readouterr()
    assert "hf_writer" not in printed.out + printed.err
    assert len(titles(hub, repo)) == 1


def test_the_token_goes_to_the_hub_only(hub: LoopbackHub, folder: Path, repo: str) -> None:
    vit_hub.push(folder, repo)
    vit_hub.load(repo)
    assert [one for one in hub.log if one.origin == "cdn"]
    assert not [one for one in hub.log if one.origin == "cdn" and one.authorized]


def test_no_token_in_the_clear(folder: Path, repo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.example")
    with pytest.raises(VitHubError, match="in the clear: use https"):
        publish(folder, repo, token="hf_writer")
    monkeypatch.setenv("HF_TOKEN", "hf_writer")  # the stored one is not used there
    with pytest.raises(PushError, match="nobody is logged in"):
        publish(folder, repo)
    with pytest.raises(PushError, match="owner/name"):
        publish(folder, "my-vit")


# ---- what must not be published --------------------------------------------------------------------------


def test_an_unknown_licence_is_asked_for(
    hub: LoopbackHub, folder: Path, repo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    described = json.loads((folder / "config.json").read_text())
    del described["pretrained_cfg"]["license"]
    (folder / "config.json").write_text(json.dumps(described))
    for other in ("README.md", "conversion.json"):  # they know it, too
        (folder / other).unlink()
    assert main(["push", str(folder), repo]) == 2
    assert "--license" in capsys.readouterr().err
    assert not hub.log
    assert main(["push", str(folder), repo, "--license", "mit"]) == 0
    assert "license: mit\n" in hub.store.read(repo, "README.md").decode()


def test_a_weaker_licence_is_refused(hub: LoopbackHub, folder: Path, repo: str) -> None:
    described = json.loads((folder / "config.json").read_text())
    described["pretrained_cfg"]["license"] = "cc-by-nc-4.0"
    (folder / "config.json").write_text(json.dumps(described))
    with pytest.raises(LicenceError, match=r"cc-by-nc-4\.0"):
        publish(folder, repo, license="mit")
    assert not hub.log


def test_a_card_that_the_hub_refuses(hub: LoopbackHub, folder: Path, repo: str) -> None:
    hub.fail("POST", "validate-yaml", status=400)
    with pytest.raises(PushError, match=r"refuses the metadata of the card: .*injected"):
        publish(folder, repo)
    assert titles(hub, repo) == []
    assert not hub.requests("PUT", "")  # asked before the weights are sent


def test_foreign_things_in_the_folder(hub: LoopbackHub, folder: Path, repo: str, tmp_path: Path) -> None:
    for name in ("training_args.bin", "modeling.py", "optimizer.safetensors", "notes.txt"):
        (folder / name).write_text("x")
    (folder / "logs").mkdir()
    os.symlink(tmp_path, folder / "elsewhere")
    (folder / ".git").mkdir()
    with pytest.raises(FolderError) as refused:
        vit_hub.push(folder, repo)
    for line in (
        "training_args.bin can run code",
        "modeling.py can run code",
        "optimizer.safetensors is no part",
        "notes.txt is no part",
        "logs is a folder",
        "elsewhere is a link",
    ):
        assert line in str(refused.value)
    assert ".git" not in str(refused.value)
    assert not hub.log


@pytest.mark.parametrize("damage", ["nan", "other weights", "other names", "eps"])
def test_a_folder_that_is_not_what_it_says(hub: LoopbackHub, folder: Path, repo: str, damage: str) -> None:
    weights, description = folder / "model.safetensors", folder / "config.json"
    state = load_file(weights)
    if damage == "nan":
        state["head.bias"][0] = torch.nan
    elif damage == "other weights":
        state["head.bias"] += 1
    elif damage == "other names":
        state["heads.bias"] = state.pop("head.bias")
    else:  # timm's part of config.json says something else than transformers'
        described = json.loads(description.read_text())
        described["model_args"]["norm_eps"] = 1e-2
        description.write_text(json.dumps(described))
    if damage != "eps":
        save_file(state, weights, {"format": "pt"})
    if damage in ("nan", "other names"):
        (folder / "conversion.json").unlink()  # or its checksum would tell
    with pytest.raises((FolderError, VerificationError, RuntimeError)):
        vit_hub.push(folder, repo, license="apache-2.0")
    assert not hub.log


def test_stock_folders_are_pushed_from_ours(hub: LoopbackHub, folder: Path, repo: str) -> None:
    with pytest.raises(UnknownNameError):
        vit_hub.push(folder, repo, as_="google")
    vit_hub.convert(folder, folder.parent / "stock", to="timm")
    with pytest.raises(FolderError, match="is not a folder of ours"):
        vit_hub.push(folder.parent / "stock", repo)


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_stock_models_open_without_us(hub: LoopbackHub, folder: Path, repo: str, library: str) -> None:
    import timm
    from transformers import AutoModelForImageClassification

    from vit_hub.hub.folder import open_folder

    assert main(["push", str(folder), repo, "--as", library]) == 0
    network = open_folder(folder)
    x = torch.randn(1, 3, *network.config.img_size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        if library == "timm":
            theirs = timm.create_model(f"hf-hub:{repo}", pretrained=True).eval()
            output = theirs(x)
        else:
            theirs = AutoModelForImageClassification.from_pretrained(repo).eval()
            output = theirs(x).logits
        torch.testing.assert_close(output, network(x), rtol=1e-5, atol=1e-5)
    assert type(theirs).__module__.split(".")[0] == library
    assert "license: apache-2.0\n" in hub.store.read(repo, "README.md").decode()
    assert len(titles(hub, repo)) == 1


# ---- the card --------------------------------------------------------------------------------------------


def test_whose_words_are_kept(hub: LoopbackHub, folder: Path, repo: str) -> None:
    """Those on the Hub before those in the folder; without any there, those in the folder."""
    publish(folder, repo)
    (folder / "README.md").write_text("# Mine\n\nWritten in the folder.\n")
    publish(folder, repo)
    card = hub.store.read(repo, "README.md").decode()
    assert "Written in the folder." in card
    there = hub.store.repos[repo]
    head = there.resolve("main")
    edited = hub.store.keep(card.replace("Written in the folder.", "Written on the Hub.").encode())
    there.add("heads/main", "edit", {**head.files, "README.md": edited}, head)
    pushed = publish(folder, repo)
    card = hub.store.read(repo, "README.md").decode()
    assert "Written on the Hub." in card
    assert "Written in the folder." not in card
    assert "which is kept" in pushed.notes[0]
    (folder / "README.md").unlink()
    assert publish(folder, repo).notes == ()
