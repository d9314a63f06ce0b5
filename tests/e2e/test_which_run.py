"""`get`, `describe` and `explain` have one order of arguments, and find the run that is meant."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from unittest import mock

import pytest

from replay.results.run.files import latest_run
from tests.e2e.commands import REFUSED, reprieve
from tests.e2e.replays import ROOT

NGINX = str(ROOT / "examples" / "traces" / "nginx-preemption.jsonl")
EVICTION = str(ROOT / "examples" / "traces" / "eviction-loop.jsonl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs/nginx-preemption-1, and after it runs/compare-1/a."""
    folder = tmp_path_factory.mktemp("which-run")
    reprieve(folder, "replay", NGINX, "-q", "--no-report", "--in-process")
    older = ["--run", "runs/compare-1/a", "--until", "10s"]
    reprieve(folder, "replay", EVICTION, *older, "-q", "--no-report", "--in-process")
    os.utime(folder / "runs" / "nginx-preemption-1" / "manifest.json", ns=(1, 1))
    return folder


NGINX_RUN = "runs/nginx-preemption-1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["pods", "nginx-a", NGINX_RUN],
        ["pods", NGINX_RUN, "nginx-a"],
        [NGINX_RUN, "pods", "nginx-a"],
        ["pod/nginx-a", f"./{NGINX_RUN}/"],
        ["pods", "nginx-a", "--run", NGINX_RUN],
    ],
    ids=" ".join,
)
def test_a_run_is_recognised_at_any_argument_position(made: Path, arguments: list[str]) -> None:
    """No name of an object is the path of a folder with a run."""
    shown = reprieve(made, "get", *arguments, "-o", "name").stdout
    assert shown == "pod/nginx-a\n"
    described = reprieve(made, "describe", *arguments).stdout
    assert described.startswith("Name:                 nginx-a\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nginx-a", NGINX_RUN],
        ["default/nginx-a", NGINX_RUN],
        ["pod", "nginx-a", NGINX_RUN],
        ["pod/nginx-a", NGINX_RUN],
        [NGINX_RUN, "nginx-a"],
        ["nginx-a", "--run", NGINX_RUN],
    ],
    ids=" ".join,
)
def test_explain_has_the_same_order(made: Path, arguments: list[str]) -> None:
    """Its only type is pod, which may be left out."""
    shown = reprieve(made, "explain", *arguments, "--attempt", "1").stdout
    assert shown.startswith("default/nginx-a at 8s: attempt 1 of 2\n")


def test_without_a_run_it_is_the_latest(made: Path, tmp_path: Path) -> None:
    """By its manifest, also in the folder of a comparison; never a run outside runs/."""
    assert reprieve(made, "get", "rs", "-o", "name").stdout == "replicaset.apps/cache\n"
    copied = tmp_path / "copied"
    shutil.copytree(made, copied)
    os.utime(copied / NGINX_RUN / "manifest.json")
    assert reprieve(copied, "get", "po", "nginx-a", "-o", "name").stdout == "pod/nginx-a\n"
    assert reprieve(copied, "explain", "nginx-a").stdout.startswith("default/nginx-a ")
    assert "nginx-a" in reprieve(copied, "describe", "pod", "nginx-a").stdout
    shutil.copytree(copied / NGINX_RUN, copied / "elsewhere")
    assert latest_run(copied / "runs") == copied / NGINX_RUN


def test_a_terminal_shows_which_run_is_the_latest(made: Path) -> None:
    """On standard error; in a pipe there is nothing but the answer."""
    assert reprieve(made, "get", "rs").stderr == ""
    with mock.patch("replay.cli.which_run.sys") as terminal:
        terminal.stderr.isatty.return_value = True
        assert reprieve(made, "get", "rs").stderr == "run: runs/compare-1/a, the latest\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "pods", "runs/nope"], "runs/nope is not a run directory: there is no such folder"),
        (["explain", "nginx-a", "nope"], "nope is not a run directory: there is no such folder"),
        (["describe", "pod", "."], ". is not a run directory: it has no manifest.json"),
        (["get", NGINX_RUN], "name a type of objects"),
        (["explain", NGINX_RUN], "name a pod"),
        (["get", "pods", NGINX_RUN, "runs/compare-1/a"], "give one run"),
    ],
)
def test_incomplete_arguments_are_refused(made: Path, arguments: list[str], message: str) -> None:
    """With what is missing, and exit code 2."""
    assert message in reprieve(made, *arguments, code=REFUSED).stderr


def test_without_any_run_the_error_explains_how_to_make_one(tmp_path: Path) -> None:
    """Also where there is no folder runs/."""
    for arguments in (["get", "pods"], ["explain", "web-0"], ["describe", "pod", "web-0"]):
        refused = reprieve(tmp_path, *arguments, code=REFUSED).stderr
        assert "runs/ has no run" in refused
        assert "reprieve replay TRACE" in refused
