"""What-if on the command line: overrides, checks, two runs compared, a grid swept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.whatif import sweep
from tests.e2e.commands import reprieve, reprieve_process
from tests.e2e.replays import DEMOS

NGINX = str(DEMOS / "nginx-preemption.jsonl")
LOOP = str(DEMOS / "eviction-loop.jsonl")
LOWER = "--set priorityClass.high-priority.value=0"

pytestmark = pytest.mark.e2e


@pytest.fixture
def elsewhere(services: EmbeddedServices) -> str:
    """Return options for a replay by the running services, without spans."""
    scheduler, eviction = (services.addresses[each] for each in ("scheduler", "eviction"))
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


def test_a_check_that_fails_ends_with_1_and_says_what_was_found(tmp_path: Path) -> None:
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
    found = json.loads(reprieve(tmp_path, "compare", "x/a", "x/b", "-o", "json").stdout)
    assert found["divergence"]["a"]["decision"] == "nominated"
    assert found["figures"]["preempted"] == {"a": 1.0, "b": 0.0, "change": -1.0, "share": -1.0}


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
    """A larger grid runs what is missing; a cell that fails is named."""
    tail = ("-o", "out", "--workers", "2", "--", *elsewhere.split())
    reprieve_process(tmp_path, "sweep", NGINX, "--over", "seed=1..2", *tail)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/cells/*/figures.json")}
    axes = ("--over", "seed=1..3", "--figure", "preempted")
    done = reprieve_process(tmp_path, "sweep", NGINX, *axes, *tail)
    assert "1 ± 0" in done.stdout
    assert len(list(tmp_path.glob("out/cells/*/figures.json"))) == 3
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert (tmp_path / "out" / "plot.svg").read_text(encoding="utf-8").startswith("<svg")
    values = ("--over", "set:priorityClass.none.value=1")
    arguments = ("sweep", NGINX, *values, "-o", "bad", "--", "--spans", "off")
    failed = reprieve_process(tmp_path, *arguments, code=1)
    assert "has no effect: the trace has high-priority" in failed.stderr


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
    monkeypatch.setattr(sweep, "_CHILD", crash)
    done = reprieve(tmp_path, "compare", NGINX, "--a", "--seed 1", "--run", "x", code=3)
    assert done.stderr.splitlines()[1:] == lines
    assert "the replay of A failed" in done.stderr


def test_a_quiet_replay_prints_only_what_fails(tmp_path: Path, elsewhere: str) -> None:
    """Exit codes report the rest; programs ask for JSON."""
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
    done = reprieve_process(tmp_path, "sweep", NGINX, *axes, "-o", "a", *tail)
    assert "baseline" not in done.stdout
    checks = ("--assert", "pending.change <= -1", "--junit", "x.xml", "--summary", "s.md")
    arguments = ("sweep", NGINX, *axes[:2], *own, "-o", "b", *checks, *tail)
    done = reprieve_process(tmp_path, *arguments, code=1)
    first, second = done.stdout.splitlines()[1:]
    assert first.split()[0] == "1.0"
    assert first.endswith("baseline")
    assert not second.endswith("baseline")
    assert done.stderr == "Error: failed: pending.change <= -1 (it is 0 pods)\n"
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
