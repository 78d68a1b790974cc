"""Every step of a push fails once in every way: nothing is lost, and there is never more than one commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from vit_hub.hub import plan, push, remote
from vit_hub.hub.card import render
from vit_hub.hub.push import Push, PushError, publish

from .loopback import LoopbackHub, corrupted
from .wire import Answer

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # how huggingface_hub sends files

PERSON = "---\nlicense: apache-2.0\nwidget: mine\n---\n# By hand\n\nWords that nobody may lose.\n"

STEPS = {
    "look": ("GET", r"/api/models/me/[\w-]+$"),
    "resolve head": ("GET", "/revision/main"),
    "list": ("GET", "/tree/"),
    "describe card": ("HEAD", "/resolve/.*README"),
    "read card": ("GET", "/resolve/.*README"),
    "modes": ("POST", "/preupload/"),
    "batch": ("POST", "/objects/batch"),
    "part": ("PUT", "/part/2"),
    "complete": ("POST", "/complete"),
    "verify": ("POST", "/lfs/verify"),
    "validate": ("POST", "/validate-yaml"),
    "commit": ("POST", "/commit/"),
    "list again": ("GET", "/tree/"),
    "refs": ("GET", "/refs"),
    "tag": ("POST", "/tag/"),
}
WAYS = {
    "429": {"status": 429, "headers": {"Retry-After": "3"}},
    "500": {"status": 500},
    "503 twice": {"status": 503, "times": 2},
    "a proxy's page": {"rewrite": lambda given: Answer(502, {"Content-Type": "text/html"}, b"<html>later</html>")},
    "dropped before": {"drop": "before"},
    "dropped after": {"drop": "after"},
}


@pytest.fixture(scope="module")
def card(made: Path) -> ModelCard:
    return render(made, repo="me/vit", license="apache-2.0")


@pytest.fixture(autouse=True)
def _one_card(card: ModelCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says is not the matter here, and to find that out takes longer than all the rest."""
    monkeypatch.setattr(plan, "render", lambda folder, **words: card)


@pytest.fixture
def written(hub: LoopbackHub, repo: str) -> str:
    """A repository with a card that a person wrote."""
    commit(hub, repo, "by hand", PERSON, new=True)
    return repo


def commit(hub: LoopbackHub, repo: str, title: str, card: str, *, new: bool = False) -> None:
    """What somebody else does on the Hub."""
    there = hub.store.create(repo) if new else hub.store.repos[repo]
    head = there.resolve("main")
    assert head is not None
    there.add("heads/main", title, {**head.files, "README.md": hub.store.keep(card.encode())}, head)


def titles(hub: LoopbackHub, repo: str, revision: str = "main") -> list[str]:
    return [one.title for one in hub.store.repos[repo].history(revision)]


def arrived(hub: LoopbackHub, folder: Path, pushed: Push) -> None:
    """Everything is there as it is in the folder, and the person's card with our part in it."""
    assert pushed.commit is not None
    for file in ("model.safetensors", "config.json", "preprocessor_config.json", "conversion.json"):
        assert hub.store.read(pushed.repo, file, pushed.commit) == (folder / file).read_bytes()
    card = hub.store.read(pushed.repo, "README.md", pushed.commit).decode()
    assert "Words that nobody may lose." in card
    assert "widget: mine" in card
    assert "vit_hub: generated" in card


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", STEPS)
def test_any_step_fails_once(hub: LoopbackHub, folder: Path, written: str, step: str, way: str) -> None:
    hub.multipart_over, hub.part_size = 100_000, 100_000
    fault = hub.fail(*STEPS[step], after=1 if step == "list again" else 0, **WAYS[way])
    pushed = publish(folder, written, message="ours", tag="v1")
    assert fault.times == 0, "the fault was never met"
    assert titles(hub, written) == ["ours", "by hand", "initial commit"]
    arrived(hub, folder, pushed)
    assert hub.store.repos[written].refs["tags/v1"] == pushed.commit == hub.store.repos[written].refs["heads/main"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", ["/repos/create", "/branch/"])
def test_making_a_repository_fails_once(hub: LoopbackHub, folder: Path, repo: str, step: str, way: str) -> None:
    fault = hub.fail("POST", step, **WAYS[way])
    pushed = publish(folder, repo, revision="dev", message="ours", private=True)
    assert fault.times == 0
    assert hub.store.repos[repo].private
    assert titles(hub, repo, "dev") == ["ours", "initial commit"]
    assert titles(hub, repo) == ["initial commit"]
    assert pushed.url == f"{hub.endpoint}/{repo}/tree/dev"


@pytest.mark.parametrize("way", WAYS)
def test_a_proposal_whose_answer_is_lost_is_not_made_twice(
    hub: LoopbackHub, folder: Path, written: str, way: str
) -> None:
    hub.fail("POST", "/commit/", **WAYS[way])
    pushed = publish(folder, written, create_pr=True, message="ours", token="hf_reader")
    assert titles(hub, written) == ["by hand", "initial commit"]
    assert [ref for ref in hub.store.repos[written].refs if ref.startswith("pr/")] == ["pr/1"]
    assert pushed.pr_url == f"{hub.endpoint}/{written}/discussions/1"
    arrived(hub, folder, pushed)


def test_a_busy_hub_is_given_the_time_it_asks_for(hub: LoopbackHub, folder: Path, written: str) -> None:
    hub.fail("POST", "/validate-yaml", status=429, headers={"Retry-After": "7"})
    publish(folder, written)
    assert 8.0 in remote.time.waited


def test_somebody_else_was_faster(hub: LoopbackHub, folder: Path, written: str) -> None:
    edit = partial(commit, hub, written, "their edit", PERSON.replace("By hand", "By another hand"))
    hub.fail("POST", "/commit/", action=edit)
    pushed = publish(folder, written, message="ours")
    assert titles(hub, written) == ["ours", "their edit", "by hand", "initial commit"]
    assert "By another hand" in hub.store.read(written, "README.md").decode()
    arrived(hub, folder, pushed)


def test_somebody_else_is_always_faster(hub: LoopbackHub, folder: Path, written: str) -> None:
    edits = (partial(commit, hub, written, f"edit {n}", PERSON + str(n)) for n in range(9))
    hub.fail("POST", "/commit/", times=9, action=lambda: next(edits)())
    with pytest.raises(PushError, match="nothing was committed, try again"):
        publish(folder, written)
    assert titles(hub, written)[: push.TRIES] == ["edit 2", "edit 1", "edit 0"]


def test_the_answer_is_lost_and_somebody_goes_on(hub: LoopbackHub, folder: Path, written: str) -> None:
    def and_then(given: Answer) -> Answer:
        commit(hub, written, "their edit", hub.store.read(written, "README.md").decode())
        return given

    hub.fail("POST", "/commit/", drop="after", rewrite=and_then)
    pushed = publish(folder, written, message="ours")
    assert titles(hub, written) == ["their edit", "ours", "by hand", "initial commit"]
    arrived(hub, folder, pushed)


def test_the_commit_lands_after_we_looked(hub: LoopbackHub, folder: Path, written: str) -> None:
    """The hardest case: the answer is lost, the head has not moved yet, and then it does."""
    late: list[Callable[[], object]] = []

    def hold_back(given: Answer) -> Answer:
        there = hub.store.repos[written]
        ours = there.refs["heads/main"]
        there.refs["heads/main"] = there.commits[ours].parent or ""
        late.append(lambda: there.refs.update({"heads/main": ours}))
        return given

    hub.fail("POST", "/commit/", drop="after", rewrite=hold_back)
    hub.fail("POST", "/commit/", action=lambda: late[0]())
    pushed = publish(folder, written, message="ours")
    assert titles(hub, written) == ["ours", "by hand", "initial commit"]
    assert pushed.changed
    arrived(hub, folder, pushed)


@pytest.mark.parametrize("step", ["list", "read card", "modes", "part", "validate", "commit"])
def test_a_hub_that_stays_down(hub: LoopbackHub, folder: Path, written: str, step: str) -> None:
    hub.multipart_over, hub.part_size = 100_000, 100_000
    hub.fail(*STEPS[step], status=503, times=1000)
    with pytest.raises(PushError, match="503 again and again: run the same command later"):
        publish(folder, written)
    assert titles(hub, written) == ["by hand", "initial commit"]
    assert hub.store.read(written, "README.md").decode() == PERSON


@pytest.mark.parametrize("times", [1, 1000])
def test_a_damaged_card_is_never_pushed_back(hub: LoopbackHub, folder: Path, written: str, times: int) -> None:
    hub.fail("GET", "/resolve/.*README", rewrite=corrupted, times=times)
    if times == 1:
        arrived(hub, folder, publish(folder, written))
    else:
        with pytest.raises(PushError, match="came damaged twice: nothing was pushed"):
            publish(folder, written)
        assert titles(hub, written) == ["by hand", "initial commit"]


def test_what_arrived_is_compared(hub: LoopbackHub, folder: Path, written: str) -> None:
    def swap(given: Answer) -> Answer:
        there = hub.store.repos[written]
        there.commits[there.refs["heads/main"]].files["config.json"] = hub.store.keep(b"{}")
        return given

    hub.fail("POST", "/commit/", rewrite=swap)
    with pytest.raises(PushError, match=r"not what was sent: config\.json"):
        publish(folder, written)
