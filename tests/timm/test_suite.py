"""timm's own tests/test_models.py, from the sdist of the installed version, over our models."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import timm

import vit_hub  # noqa: F401  # registers

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache"

TESTS = timm.list_models("myvit_test_*")
GROUPS = {
    "base": ["myvit_b16"],
    "small_a": TESTS[::2],
    "small_b": TESTS[1::2],
    "plain": ["myvit_ti16", "myvit_r_ti16", "myvit_ti16_hf_distilled", "myvit_xsmall16_clip"],
    "larger": ["myvit_s32", "myvit_s14_hf_dinov2_lc"],
}


@pytest.fixture(scope="session")
def suite() -> Path:
    """The tests of the installed version, in a folder without a ``timm/`` next to them that would be tested instead."""
    home = CACHE / f"timm-{timm.__version__}"
    if not home.exists():
        CACHE.mkdir(exist_ok=True)
        work = CACHE / f"timm-{timm.__version__}.{os.getpid()}"  # moved when complete: others may be at it too
        requirement = f"timm=={timm.__version__}"
        pip = [sys.executable, "-m", "pip", "download", requirement, "--no-deps", "--no-binary", "timm", "-q"]
        done = subprocess.run([*pip, "-d", str(work)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"pip cannot fetch the sdist of {requirement}, which has timm's tests: {done.stderr[-300:]}")
        with tarfile.open(next(work.glob("*.tar.gz"))) as archive:
            for member in archive.getmembers():
                _, _, path = member.name.partition("/")
                if path.startswith("tests/") or path == "pyproject.toml":
                    archive.extract(member.replace(name=path), work, filter="data")
        try:
            work.rename(home)
        except OSError:  # another process was faster
            assert home.exists()
    return home


@pytest.mark.parametrize("group", GROUPS)
def test_timm_suite(group: str, suite: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GITHUB_ACTIONS"}
    environment |= {
        "MYVIT_SUITE": ",".join(GROUPS[group]),
        "MYVIT_SUITE_WEIGHTS": str(tmp_path),
        "PYTHONPATH": str(HERE),
        "HF_HUB_OFFLINE": "1",
    }
    options = ["-p", "suite_plugin", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--tb=short", "-rs"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/test_models.py"],
        cwd=suite,
        env=environment,
        capture_output=True,
        text=True,
    )
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", done.stdout)}
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    archs = len(GROUPS[group])
    # Eight tests for each architecture, one for each tag, one for each tag with weights; none of them skipped.
    assert counts["passed"] >= 9 * archs, done.stdout[-2000:]
    assert "failed" not in counts
    assert "skipped" not in counts, done.stdout[-2000:]
