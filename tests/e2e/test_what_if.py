"""What-if on the command line: overrides, checks, two runs compared, a grid swept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.whatif import replay_processes
from tests.e2e.commands import reprieve, reprieve_process
from tests.e2e.replays import DEMOS

NGINX = str(DEMOS / "nginx-preemption.jsonl")
LOOP = str(DEMOS / "eviction-loop.jsonl")
LOWER = "--set priorityClass.high-priority.value=0"

pytestmark = pytest.mark.e2e


@pytest.fixture
def elsewhere(services: EmbeddedServices) -> str:
    """Return options for a replay by the running services, without spans."""
    scheduler, eviction = (services.addresses[name] for name in ("scheduler", "eviction"))
    return f"--spans off --scheduler {scheduler} --eviction {eviction}"


def test_an_override_reaches_the_run_and_its_manifest(tmp_path: Path, elsewhere: str) -> None:
    """A preemptor without a higher priority preempts nobody."""
    arguments = ("replay", NGINX, "--run", "run", "-q", "-o", "json", *LOWER.split())
    arguments += tuple(elsewhere.split())
    summary = json.loads(reprieve(tmp_path, *arguments).stdout)
    assert summary["decided"]["preempted"] == 0
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_bytes())
    assert manifest["configuration"]["overrides"] == {
        "set": ["priorityClass.high-priority.value=0"]
    }


def test_an_override_that_touches_nothing_leaves_nothing_behind(tmp_path: Path) -> None:
    """Exit code 2, with what there is instead, before anything is started."""
    arguments = ("replay", NGINX, "--run", "run", "--set", "pdb.web.minAvailable=1")
    done = reprieve(tmp_path, *arguments, code=2)
    assert "has no effect: no budget and no workload has this name" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_failed_check_exits_with_1_and_shows_the_value(tmp_path: Path) -> None:
    """A sentence for each that failed, and none for those that hold."""
    checks = ("--assert", "preempted{priority<1000} == 0", "--assert", "bound >= 1")
    arguments = ("replay", NGINX, "--run", "run", "-q", "--in-process", "--spans", "off", *checks)
    done = reprieve(tmp_path, *arguments, code=1)
    assert done.stderr.strip().endswith("failed: preempted{priority<1000} == 0 (it is 1)")


def test_two_runs_part_at_the_preemption_that_a_priority_flipped(tmp_path: Path) -> None:
    """One trace and two configurations in one command; then the runs it left, as JSON."""
    options = ("--a", "--spans off", "--b", f"{LOWER} --spans off", "--run", "x")
    table = reprieve(tmp_path, "compare", NGINX, *options, COLUMNS="80")
    assert "A nominated default/nginx-a for test-worker" in table.stdout
    assert "The priority of default/nginx-a is 1,000,000 in A and 0 in B." in table.stdout
    assert max(map(len, table.stdout.splitlines())) <= 80
    printed = json.loads(reprieve(tmp_path, "compare", "x/a", "x/b", "-o", "json").stdout)
    assert printed["divergence"]["a"]["decision"] == "nominated"
    assert printed["figures"]["preempted"] == {"a": 1.0, "b": 0.0, "change": -1.0, "share": -1.0}


def test_equal_runs_decide_the_same(tmp_path: Path, elsewhere: str) -> None:
    """Even where one is compared with itself by two names."""
    reprieve(tmp_path, "replay", NGINX, "--run", "run", "-q", *elsewhere.split())
    done = reprieve(tmp_path, "compare", "run", "run")
    assert "All decisions are identical." in done.stdout
    assert "No pod was affected." in done.stdout


def test_a_run_that_was_stopped_earlier_is_named_with_the_reason(
    tmp_path: Path, elsewhere: str
) -> None:
    """No rule is the cause that the other one decides later."""
    options = ("--run", "x", "--b", "--until 1s", "--", *elsewhere.split())
    done = reprieve(tmp_path, "compare", NGINX, *options)
    assert "B ends at 1s: the time of --until is reached." in done.stdout


def test_a_threshold_is_named_where_it_flips_an_eviction(tmp_path: Path, elsewhere: str) -> None:
    """With its value in both runs."""
    both = f"--until 20m {elsewhere}"
    options = f"--set evictionHard.memory.available=1Mi {both}"
    arguments = ("--a", both, "--b", options, "--run", "x")
    done = reprieve(tmp_path, "compare", LOOP, *arguments)
    assert "evictionHard of memory.available is" in done.stdout
    assert "1Mi in B." in done.stdout


def test_a_sweep_keeps_what_is_finished_and_ends_in_one_table(
    tmp_path: Path, elsewhere: str
) -> None:
    """A larger grid runs what is missing; with --force all of it again."""
    tail = ("-o", "out", "--workers", "2", "--", *elsewhere.split())
    reprieve(tmp_path, "sweep", NGINX, "--over", "seed=1..2", *tail)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/cells/*/figures.json")}
    axes = ("--over", "seed=1..3", "--figure", "preempted")
    done = reprieve_process(tmp_path, "sweep", NGINX, *axes, *tail)
    assert "1 ± 0" in done.stdout
    assert len(list(tmp_path.glob("out/cells/*/figures.json"))) == 3
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert (tmp_path / "out" / "plot.svg").read_text(encoding="utf-8").startswith("<svg")
    reprieve(tmp_path, "sweep", NGINX, "--over", "seed=1..2", "--force", *tail)
    again = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/cells/*/figures.json")}
    assert again.keys() == before.keys()
    assert not set(again.values()) & set(before.values())


def test_a_cell_that_fails_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is run again the next time."""
    arguments = ("sweep", NGINX, "--over", "seed=1..2", "-o", "out", "--", "--spans", "off")
    with monkeypatch.context() as patch:
        patch.setattr(replay_processes, "_CHILD", _CRASHES)
        failed = reprieve(tmp_path, *arguments, code=1, children=True)
    assert "1 of 2 replays failed\nseed=2: lost" in failed.stderr
    assert len(list(tmp_path.glob("out/cells/*/figures.json"))) == 1
    reprieve(tmp_path, *arguments)


_CRASHES = """
import os
import sys
from replay.cli import replay_worker

def main():
    if sys.argv[sys.argv.index("--seed") + 1] == "2":
        sys.stderr.write("lost")
        sys.stderr.flush()
        os._exit(1)
    replays()

replays, replay_worker.command_line.main = replay_worker.command_line.main, main
replay_worker.main()
"""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            "--set priorityClass.none.value=1",
            "no PriorityClass none; its PriorityClasses are high-priority",
        ),
        ("--scheduler-config absent.yaml", "File 'absent.yaml' does not exist"),
        ("--scheduler-config bad.yaml", 'plugin "Nope" does not exist'),
        ("--drop-nodes zone=a", "has no effect"),
        ("--no-such-option", "No such option '--no-such-option'"),
        ("--model pod-gc=never", "is not a duration"),
        ("--usage 'app=none memory 1Gi'", "has no effect"),
    ],
)
def test_what_would_be_refused_of_b_is_refused_before_a_runs(
    tmp_path: Path, options: str, told: str
) -> None:
    """Options, files, configurations, and overrides of the trace; no folder is made."""
    (tmp_path / "bad.yaml").write_text(_UNKNOWN_PLUGIN, encoding="utf-8")
    done = reprieve(tmp_path, "compare", NGINX, "--b", options, "--run", "x", code=2)
    assert "the replay of B is refused: " in done.stderr
    assert told in done.stderr
    assert not (tmp_path / "x").exists()


_UNKNOWN_PLUGIN = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {enabled: [{name: Nope}]}}
"""


def test_a_point_of_a_grid_that_would_be_refused_is_named_before_any_runs(tmp_path: Path) -> None:
    """As the last of its values."""
    axis = ("--over", "set:priorityClass.high-priority.value=5,many")
    done = reprieve(tmp_path, "sweep", NGINX, *axis, "-o", "out", code=2)
    assert "set:priorityClass.high-priority.value=many: " in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_comparison_that_was_made_is_replaced_with_force_alone(tmp_path: Path) -> None:
    """And one that failed leaves a folder that can be used again."""
    arguments = ("compare", NGINX, "--b", "--seed 2", "--run", "x", "-q", "--no-explain")
    reprieve(tmp_path, *arguments)
    assert "--force replaces it" in reprieve(tmp_path, *arguments, code=2).stderr
    reprieve(tmp_path, *arguments, "--force")


def test_a_comparison_that_fails_leaves_a_folder_that_can_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether A or B fails: nothing is left of either."""
    arguments = ("compare", NGINX, "--a", "--seed 1", "--b", "--seed 2", "--run", "x", "-q")
    with monkeypatch.context() as patch:
        patch.setattr(replay_processes, "_CHILD", _CRASHES)
        done = reprieve(tmp_path, *arguments, code=3, children=True)
        assert "the replay of B failed" in done.stderr
    assert not (tmp_path / "x").exists()
    reprieve(tmp_path, *arguments, "--no-explain")


def test_a_complete_run_of_a_scheduler_that_made_mistakes_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replay ends with exit code 3, and all of it can be read."""
    monkeypatch.setattr(replay_processes, "_CHILD", _ENDS_WITH_3)
    arguments = ("compare", NGINX, "--b", "--seed 2", "--run", "x", "--no-explain")
    done = reprieve(tmp_path, *arguments, children=True)
    assert "Placements differ by design (seeds 0 and 2): no pod counts as moved." in done.stdout


_ENDS_WITH_3 = """
import sys
from replay.cli import replay_worker

def main():
    try:
        replays()
    finally:
        sys.exit(3)

replays, replay_worker.command_line.main = replay_worker.command_line.main, main
replay_worker.main()
"""


@pytest.mark.parametrize("command", ["replay", "compare", "sweep"])
def test_a_check_of_a_name_that_the_trace_does_not_have_is_refused_before_a_run(
    tmp_path: Path, command: str
) -> None:
    """Unless that is allowed; it would hold whatever happens."""
    check = ("--assert", "preempted{namespace=defualt} == 0")
    tail: tuple[str, ...] = ("--run", "x")
    if command == "compare":
        tail = ("--b", "--seed 2", "--run", "x", "--no-explain")
    elif command == "sweep":
        tail = ("--over", "seed=1", "-o", "x")
    done = reprieve(tmp_path, command, NGINX, *tail, *check, "-q", code=2)
    assert "no pod is in namespace defualt; did you mean default?; namespaces: default" in (
        done.stderr
    )
    assert not (tmp_path / "x").exists()
    reprieve(tmp_path, command, NGINX, *tail, *check, "-q", "--allow-no-effect")


def test_a_check_of_a_pod_that_never_was_is_refused_instead_of_judged(tmp_path: Path) -> None:
    """Names of pods are known at the end of the run, before there is a verdict."""
    tail = ("--run", "x", "-q", "--force", "--spans", "off", "--in-process")
    for check, told in (
        ("preempted{name=nginx-q} == 0", "no pod is named nginx-q; did you mean nginx-"),
        ("preempted{priority>2000000} == 0", "no pod has priority>2000000; priorities: "),
        ("bound{node=worker} == 0", "there is no node worker; "),
    ):
        done = reprieve(tmp_path, "replay", NGINX, *tail, "--assert", check, code=2)
        assert f"{check}: {told}" in done.stderr
    reprieve(tmp_path, "replay", NGINX, *tail, "--assert", "bound{node=test-worker} >= 0")


def test_a_failed_check_of_a_sweep_names_its_point(tmp_path: Path) -> None:
    """As the table and JUnit do."""
    arguments = ("sweep", NGINX, "--over", "seed=4", "-o", "out", "-q", "--", "--spans", "off")
    done = reprieve(tmp_path, *arguments[:4], "--assert", "bound == 0", *arguments[4:], code=1)
    assert done.stderr.startswith("Error: failed at seed=4: bound == 0 (it is ")


def test_a_compared_replay_that_is_refused_is_reported_once(tmp_path: Path) -> None:
    """With its own exit code, and one "Error:" before its message."""
    (tmp_path / "x" / "a").mkdir(parents=True)
    (tmp_path / "x" / "a" / "manifest.json").write_text("{}", encoding="utf-8")
    done = reprieve(tmp_path, "compare", NGINX, "--a", "--seed 1", "--run", "x", code=2)
    assert done.stderr.count("Error:") == 1
    assert "x/a is a former run" in done.stderr


def test_a_compared_replay_that_crashes_shows_its_last_lines_as_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the exit code is not that of a failed check."""
    lines = ["File x, line 1", "KeyError: 'lost'"]
    crash = f"import sys; sys.stderr.write({chr(10).join(lines)!r}); sys.exit(1)"
    monkeypatch.setattr(replay_processes, "_CHILD", crash)
    done = reprieve(
        tmp_path, "compare", NGINX, "--a", "--seed 1", "--run", "x", code=3, children=True
    )
    assert done.stderr.splitlines()[1:] == lines
    assert "the replay of A failed" in done.stderr


def test_a_quiet_replay_prints_only_what_fails(tmp_path: Path, elsewhere: str) -> None:
    """Exit codes report the rest; programs request JSON."""
    arguments = ("replay", NGINX, "-q", *elsewhere.split())
    done = reprieve(tmp_path, *arguments, "--run", "a")
    assert (done.stdout, done.stderr) == ("", "")
    done = reprieve(tmp_path, *arguments, "--run", "b", "--assert", "preempted == 0", code=1)
    assert (done.stdout, done.stderr) == ("", "Error: failed: preempted == 0 (it is 1)\n")
    done = reprieve(tmp_path, *arguments, "--run", "c", "-o", "json")
    assert json.loads(done.stdout)["decided"]["preempted"] == 1
    done = reprieve(tmp_path, "compare", "a", "b", "-q")
    assert (done.stdout, done.stderr) == ("", "")


def test_a_quiet_sweep_prints_only_what_fails(tmp_path: Path, elsewhere: str) -> None:
    """Its tables are in its folder."""
    tail = ("-o", "out", "-q", "--", *elsewhere.split())
    done = reprieve_process(tmp_path, "sweep", NGINX, "--over", "seed=1", *tail)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_baselines_own_value_is_no_error_in_a_grid(tmp_path: Path) -> None:
    """It is shown, and --assert compares with it; any other override without an effect is one."""
    axes = ("--over", "scale-nodes=1.0,3.0", "--over", "set:priorityClass.high-priority.value=0")
    own = ("--over", "set:priorityClass.high-priority.value=1000000")
    tail = ("--workers", "2", "--figure", "pending", "--", "--spans", "off")
    done = reprieve(tmp_path, "sweep", NGINX, *axes, "-o", "a", *tail)
    assert "baseline" not in done.stdout
    checks = ("--assert", "pending.change <= -1", "--junit", "x.xml", "--summary", "s.md")
    arguments = ("sweep", NGINX, *axes[:2], *own, "-o", "b", *checks, *tail)
    done = reprieve(tmp_path, *arguments, code=1)
    first, second = done.stdout.splitlines()[1:]
    assert first.split()[0] == "1.0"
    assert first.endswith("baseline")
    assert not second.endswith("baseline")
    point = "scale-nodes=1.0, set:priorityClass.high-priority.value=1000000"
    assert done.stderr == f"Error: failed at {point}: pending.change <= -1 (it is 0 pods)\n"
    assert 'tests="2" failures="1"' in (tmp_path / "x.xml").read_text(encoding="utf-8")
    summary = (tmp_path / "s.md").read_text(encoding="utf-8")
    assert summary.startswith("**1 of 2 checks failed**")
    assert "| **1.0** |" in summary
    alone = ("replay", NGINX, "--run", "r", "--scale-nodes", "1.0")
    assert "there are already" in reprieve(tmp_path, *alone, code=2).stderr


def test_results_for_ci_are_written_also_when_checks_fail(tmp_path: Path, elsewhere: str) -> None:
    """As JUnit XML, as a summary, and appended to the step's summary on GitHub."""
    checks = ("--assert", "preempted == 0", "--assert", "bound >= 1")
    files = ("--junit", "x.xml", "--summary", "s.md")
    (tmp_path / "step.md").write_text("before\n", encoding="utf-8")
    step = str(tmp_path / "step.md")
    arguments = ("replay", NGINX, "--run", "a", "-q", *elsewhere.split(), *checks, *files)
    reprieve(tmp_path, *arguments, code=1, GITHUB_STEP_SUMMARY=step)
    assert 'tests="2" failures="1"' in (tmp_path / "x.xml").read_text(encoding="utf-8")
    summary = (tmp_path / "s.md").read_text(encoding="utf-8")
    assert summary.startswith("**1 of 2 checks failed**")
    assert (tmp_path / "step.md").read_text(encoding="utf-8") == (
        f"before\n## reprieve replay\n\n{summary}\n"
    )
    (tmp_path / "link.md").symlink_to(tmp_path / "step.md")
    refused = reprieve(tmp_path, *arguments, "--force", code=2, GITHUB_STEP_SUMMARY="link.md")
    assert "link.md cannot be written: it is a symbolic link" in refused.stderr
    reprieve(
        tmp_path,
        "compare",
        "a",
        "a",
        "-q",
        "--summary",
        "c.md",
        "--no-explain",
        GITHUB_STEP_SUMMARY=step,
    )
    assert (tmp_path / "c.md").read_text(encoding="utf-8").startswith("All decisions are identical")
    assert not list(tmp_path.glob("*.draft"))
