"""The action on two commits of a repository: what it finds, replays, comments, and how it ends."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import yaml

from replay.cli.checks import STEP_SUMMARY
from tests.e2e.commands import Done, environment, reprieve
from tests.e2e.replays import DEMOS, ROOT

pytestmark = pytest.mark.e2e
GIT = shutil.which("git") or "git"
ACTION = ROOT / "action"
NGINX = str(DEMOS / "nginx-preemption.jsonl")
SHOP = (ROOT / "examples" / "manifests" / "shop.yaml").read_text(encoding="utf-8")
RECORDING = ROOT / "examples" / "recordings" / "shop"
WORKFLOW = ROOT / "examples" / "workflows" / "what-if.yml"
HIGH = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high-priority}
value: 1000000
"""
SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podMaxBackoffSeconds: 10
"""


def commit(repository: Path, **files: str) -> None:
    """Write files, by their names without suffix, and commit them."""
    for name, text in files.items():
        (repository / f"{name}.yaml").write_text(text, encoding="utf-8")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    for command in (("add", "-A"), (*identity, "commit", "-qm", "x")):
        subprocess.run([GIT, "-C", str(repository), *command], check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one commit."""
    folder = tmp_path / "repository"
    subprocess.run([GIT, "init", "-q", str(folder)], check=True)
    commit(folder, high=HIGH, scheduler=SCHEDULER, shop=SHOP, other="kind: ConfigMap\n")
    return folder


def what_if(
    repository: Path, code: int = 0, is_process: bool = False, **inputs: str
) -> tuple[Done, str]:
    """Run the script as action.yml does, or here; return its result and the comment."""
    out = repository.parent / "out"
    named = {f"REPRIEVE_{name.upper()}": text for name, text in inputs.items()}
    named |= {"REPRIEVE_OUTPUT": str(out), "REPRIEVE_BASE": "HEAD~1"}
    named |= {"GITHUB_OUTPUT": str(out) + ".env", STEP_SUMMARY: str(out) + ".md"}
    done = (_in_a_process if is_process else _here)(repository, environment(**named))
    assert done.returncode == code, done.stdout + done.stderr
    written = (repository.parent / "out.env").read_text(encoding="utf-8").splitlines()
    assert written[-2:] == [f"comment={out}/comment.md", f"code={code}"]
    assert not subprocess.run(
        [GIT, "-C", str(repository), "status", "--short"], capture_output=True, check=True
    ).stdout
    worktrees = [GIT, "-C", str(repository), "worktree", "list"]
    assert len(subprocess.run(worktrees, capture_output=True, check=True).stdout.splitlines()) == 1
    return done, (out / "comment.md").read_text(encoding="utf-8")


def _in_a_process(folder: Path, variables: dict[str, str]) -> Done:
    command = [sys.executable, "-P", str(ACTION / "what_if.py")]
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


def _here(folder: Path, variables: dict[str, str]) -> Done:
    """Run the script's module in this process, with the commands of reprieve that it runs."""
    errors = io.StringIO()

    def run(*arguments: str) -> tuple[int, str]:
        done = reprieve(folder, *arguments, code=None)
        errors.write(done.stderr)
        return done.returncode, done.stderr

    script = _script()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stderr(errors),
        mock.patch.dict(os.environ, variables, clear=True),
        mock.patch.object(script, "_reprieve", run),
    ):
        code = script.main()
    return Done([], code, "", errors.getvalue())


@cache
def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("what_if_action", ACTION / "what_if.py")
    assert spec is not None
    assert spec.loader is not None
    script = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_a_changed_class_is_replayed_and_fails_its_check(repository: Path) -> None:
    """The comment begins with the marker, then the files, the failed check, the differences."""
    commit(repository, high=HIGH.replace("1000000", "0"), other="kind: ConfigMap\ndata: {}\n")
    checks = "\npreempted.change == 0\nbound >= 0\n"
    _, comment = what_if(
        repository, 1, is_process=True, trace=NGINX, checks=checks, options="--spans off"
    )
    assert comment.startswith("<!-- reprieve-what-if -->\n")
    assert "- <code>high.yaml</code>\n" in comment
    assert "other.yaml" not in comment
    order = ["**1 of 2 checks failed**", "| **failed** |", "| holds |", "Runs diverge at 8s"]
    places = [comment.index(heading) for heading in order]
    assert places == sorted(places)
    assert "| preempted | 1 | 0 | -1 | -100.0 % |" in comment
    out = repository.parent / "out"
    assert 'failures="1"' in (out / "checks.xml").read_text(encoding="utf-8")
    assert (out / "comparison.html").stat().st_size > 1_000_000
    assert "1 of 2 checks failed" in (repository.parent / "out.md").read_text(encoding="utf-8")


def test_numbers_of_a_pull_request_are_read_as_kubectl_reads_them(repository: Path) -> None:
    """The same number in another form is no change; 1:1 is a string, however long."""
    commit(repository, high=HIGH.replace("1000000", "15"))
    base_60 = "kind: ConfigMap\ndata: {a: " + "1:" * 100_000 + "1}\n"
    commit(repository, high=HIGH.replace("1000000", "0o17"), other=base_60)
    assert "Nothing that a replay reads differs." in what_if(repository, trace=NGINX)[1]


def test_a_change_that_a_replay_does_not_read_starts_none(repository: Path) -> None:
    """Of another kind, or of a comment; the comment says so."""
    commit(repository, other="kind: ConfigMap\ndata: {}\n")
    assert "No file that a what-if is made for has changed." in what_if(repository, trace=NGINX)[1]
    commit(repository, high="# It is high.\n" + HIGH)
    assert "Nothing that a replay reads differs." in what_if(repository, trace=NGINX)[1]


def test_a_configuration_is_replayed_with_both_its_versions(repository: Path) -> None:
    """One that is refused is shown as the replay's message."""
    commit(repository, scheduler=SCHEDULER.replace("10", "20"))
    _, comment = what_if(repository, trace=NGINX, options="--spans off")
    assert "All decisions are identical." in comment
    commit(repository, scheduler=SCHEDULER.replace("10", "-1"))
    _, comment = what_if(repository, 2, trace=NGINX, options="--spans off --force")
    assert "podMaxBackoffSeconds" in comment
    assert "<pre>Error: the replay of B is refused" in comment


def test_manifests_of_both_commits_are_replayed(repository: Path) -> None:
    """Where no trace is named; any change can start it."""
    commit(repository, shop=SHOP.replace("replicas: 3", "replicas: 16"))
    checks = "pending == 0"
    _, comment = what_if(
        repository, 1, kinds="*", manifests="shop.yaml", checks=checks, options="--spans off"
    )
    assert "it is 1 pod " in comment
    assert "| pods | 4 | 17 |" in comment


def test_a_base_that_is_not_fetched_is_explained(repository: Path) -> None:
    """With what to change in the workflow."""
    done, comment = what_if(repository, 2, trace=NGINX)
    assert "check out with fetch-depth: 0" in done.stderr
    assert "The what-if was not made" in comment


def test_the_action_hands_every_input_to_the_script() -> None:
    """By the environment alone: no text of an input becomes part of a script."""
    action: Any = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
    script = (ACTION / "what_if.py").read_text(encoding="utf-8")
    (step,) = (step for step in action["runs"]["steps"] if step.get("id") == "what-if")
    for name in ("trace", "manifests", "base", "head", "kinds", "checks", "options"):
        assert step["env"][f"REPRIEVE_{name.upper()}"] == f"${{{{ inputs.{name} }}}}"
        assert f"REPRIEVE_{name.upper()}" in script
    for run_step in action["runs"]["steps"]:
        assert "${{" not in run_step.get("run", "") + run_step.get("with", {}).get("script", "")
    workflow: Any = yaml.safe_load(
        (ROOT / "examples" / "workflows" / "what-if.yml").read_text(encoding="utf-8")
    )
    used = workflow["jobs"]["what-if"]["steps"][-1]["with"]
    assert set(used) <= set(action["inputs"])


def test_the_options_of_the_example_are_valid_checks(tmp_path: Path) -> None:
    """As reprieve reads them."""
    text = (ROOT / "examples" / "workflows" / "what-if.yml").read_text(encoding="utf-8")
    checks = re.findall(r"^ {12}(\S.*)$", text, re.M)
    assert checks
    options = [part for check in checks for part in ("--assert", check)]
    reprieve(tmp_path, "replay", NGINX, "--run", "r", "-q", "--in-process", "--no-report")
    reprieve(tmp_path, "compare", "r", "r", "-q", *options)


def test_the_page_shows_the_comment_on_its_example(repository: Path) -> None:
    """Each quoted line, in order; the checks are those of the example workflow."""
    reprieve(repository.parent, "record", "--from", str(RECORDING), "-o", "shop.ktr")
    before = HIGH.replace("high-priority", "checkout").replace("1000000", "1000")
    commit(repository, cluster=before)
    commit(repository, cluster=before + "preemptionPolicy: Never\n")
    workflow: Any = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    checks = workflow["jobs"]["what-if"]["steps"][-1]["with"]["checks"]
    trace = str(repository.parent / "shop.ktr")
    _, comment = what_if(repository, 1, trace=trace, checks=checks, options="--spans off")
    page = (ROOT / "docs" / "what-if-in-ci.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^> ?(.*)$", page, re.M)
    assert len(quoted) > 20
    lines = iter([*comment.replace("cluster.yaml", "cluster/classes.yaml").splitlines(), ""])
    assert [line for line in quoted if line and line not in lines] == []


def test_a_deleted_class_and_a_new_budget_are_notes(repository: Path) -> None:
    """A recording keeps its own; a changed budget is replayed with both its values."""
    budget = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 1}
"""
    commit(repository, high="kind: ConfigMap\n", budget=budget)
    _, comment = what_if(repository, trace=NGINX)
    assert "PriorityClass high-priority is deleted: the recorded one is kept" in comment
    assert "PodDisruptionBudget shop/web is new" in comment
    changed = budget.replace("minAvailable: 1", "maxUnavailable: 50%")
    commit(repository, high="kind: ConfigMap\n", budget=changed)
    _, comment = what_if(repository, trace=NGINX, options="--spans off")
    assert "All decisions are identical." in comment
    runs = repository.parent / "out" / "runs"
    for side, value in (("a", "minAvailable=1"), ("b", "maxUnavailable=50%")):
        manifest = json.loads((runs / side / "manifest.json").read_bytes())
        assert manifest["configuration"]["overrides"] == {"set": [f"pdb.shop/web.{value}"]}


def test_the_page_shows_the_example() -> None:
    """The whole workflow, as the file has it."""
    page = (ROOT / "docs" / "what-if-in-ci.md").read_text(encoding="utf-8")
    example = (ROOT / "examples" / "workflows" / "what-if.yml").read_text(encoding="utf-8")
    assert f"```yaml\n{example}```" in page
