"""The Hub on loopback is one: huggingface_hub itself finds everything that it asks a Hub for."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RemoteEntryNotFoundError, RepositoryNotFoundError
from huggingface_hub.utils import get_session

from .loopback import LoopbackHub

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # how huggingface_hub sends files


@pytest.fixture
def api(hub: LoopbackHub) -> HfApi:
    return HfApi(token="hf_writer")


def test_a_repository_and_its_revisions(api: HfApi, repo: str, folder: Path) -> None:
    assert api.whoami()["name"] == "writer"
    assert api.create_repo(repo).repo_id == repo
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_repo(repo)
    commit = api.upload_folder(repo_id=repo, folder_path=folder, commit_message="whole").oid
    api.create_branch(repo, branch="feature/a")
    api.create_tag(repo, tag="v1", revision=commit)
    refs = api.list_repo_refs(repo)
    assert {branch.name: branch.target_commit for branch in refs.branches} == {"main": commit, "feature/a": commit}
    assert [(tag.name, tag.target_commit) for tag in refs.tags] == [("v1", commit)]
    api.delete_file("conversion.json", repo, revision="feature/a")
    assert not api.file_exists(repo, "conversion.json", revision="feature/a")
    assert [one.title for one in api.list_repo_commits(repo)] == ["whole", "initial commit"]
    (found,) = api.get_paths_info(repo, ["model.safetensors", "nowhere"])
    assert (found.lfs.size, found.path) == ((folder / "model.safetensors").stat().st_size, "model.safetensors")
    info = api.model_info(repo, files_metadata=True)
    assert {one.rfilename: one.lfs and one.lfs.sha256 for one in info.siblings}["model.safetensors"] == found.lfs.sha256
    assert not api.verify_repo_checksums(repo, local_dir=folder, revision=commit).mismatches
    api.delete_repo(repo)
    assert not api.repo_exists(repo)


def test_downloads(api: HfApi, hub: LoopbackHub, repo: str, folder: Path) -> None:
    api.create_repo(repo)
    api.upload_folder(repo_id=repo, folder_path=folder)
    copy = Path(api.snapshot_download(repo))
    for file in folder.iterdir():
        assert (copy / file.name).read_bytes() == file.read_bytes()
    assert api.get_safetensors_metadata(repo).files_metadata["model.safetensors"].tensors["norm.bias"].shape == [48]
    assert any("range" in {name.lower() for name in one.headers} for one in hub.requests("GET", "/cdn/"))
    whole = (folder / "model.safetensors").read_bytes()
    url = f"{hub.endpoint}/{repo}/resolve/main/model.safetensors"
    part = get_session().get(url, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole[10:20])
    with pytest.raises(RemoteEntryNotFoundError):
        api.hf_hub_download(repo, "nowhere")


def test_a_cut_body_is_resumed(api: HfApi, hub: LoopbackHub, repo: str, folder: Path) -> None:
    api.create_repo(repo)
    api.upload_folder(repo_id=repo, folder_path=folder)
    hub.fail("GET", "/cdn/", drop="half")
    file = api.hf_hub_download(repo, "model.safetensors")
    assert Path(file).read_bytes() == (folder / "model.safetensors").read_bytes()
    assert len(hub.requests("GET", "/cdn/")) == 2


def test_doors(api: HfApi, hub: LoopbackHub, repo: str) -> None:
    reader = HfApi(token="hf_reader")
    api.create_repo(repo, private=True)
    for stranger in (reader, HfApi(token=False)):
        with pytest.raises(RepositoryNotFoundError):
            stranger.model_info(repo)
    there = hub.store.repos[repo]
    there.private, there.gated = False, True
    with pytest.raises(GatedRepoError):
        reader.hf_hub_download(repo, ".gitattributes")
    with pytest.raises(HfHubHTTPError, match="403"):
        reader.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=repo)
    with pytest.raises(HfHubHTTPError, match="401"):
        HfApi(token="hf_wrong").model_info(repo)


def test_pull_requests(api: HfApi, repo: str) -> None:
    api.create_repo(repo)
    opened = api.create_pull_request(repo, title="a change")
    assert (opened.num, opened.git_reference) == (1, "refs/pr/1")
    api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=repo, revision="refs/pr/1")
    assert api.file_exists(repo, "x.txt", revision="refs/pr/1")
    assert not api.file_exists(repo, "x.txt")
    commit = api.upload_file(path_or_fileobj=b"y", path_in_repo="y.txt", repo_id=repo, create_pr=True)
    assert commit.pr_num == 2
