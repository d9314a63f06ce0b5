"""A run that goes on from another one's state is the run that is played from its beginning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from replay import recovery
from replay.cli.errors import REFUSED
from replay.errors import BackendError, OutputError
from replay.recovery import Recovery
from replay.results.run.checkpoints import checkpoints_in
from replay.results.run.directory import RunDirectory
from replay.results.run.manifest import SharedBeginning
from replay.results.run.resume_point import ResumePoint
from services.kube.time import SECOND_NS
from tests.e2e.commands import reprieve
from tests.torture.same_run import differences, recorded_differences

pytestmark = pytest.mark.e2e

QUIET = ("--no-report", "-q")
AT = "4m"
AT_NS = 240 * SECOND_NS
NODE = "node-0003"
SHOWN = {"--fail", "--rules"}
"""What-ifs whose runs are compared by all that commands show, not only by long tests."""
RELEASE = """
apiVersion: v1
kind: Pod
metadata: {name: late}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}
"""


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a trace, the run `a` of it with many states, and a release."""
    folder = tmp_path_factory.mktemp("forks")
    options = ("--nodes", "8", "--pods", "120", "--deployments", "4", "--budgets", "10")
    more = ("--seed", "3", "--window", "6m", "--service-time", "60s", "--leaky", "5")
    reprieve(folder, "generate", "-o", "c.ktr", *options, *more)
    (folder / "release.yaml").write_text(RELEASE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "KEPT_SHARE", float("inf"))
        patch.setattr(recovery, "LOOK_NS", 0)
        reprieve(folder, "replay", "c.ktr", "--run", "a", *QUIET)
    assert len(checkpoints_in(folder / "a")) > 10
    return folder


def replayed(folder: Path, run: str, *arguments: str, code: int = 0) -> RunDirectory:
    """Replay into a folder beside `a`."""
    reprieve(folder, "replay", *arguments, "--run", run, "--force", *QUIET, code=code)
    return RunDirectory.open(folder / run)


def shared_of(run: RunDirectory) -> SharedBeginning:
    """Return what a run has from another one; it has something."""
    shared = run.manifest().shared
    assert shared is not None
    return shared


@pytest.mark.parametrize(
    ("added", "timed"),
    [
        (("--fail", NODE), ("--fail", f"{NODE},at={AT}")),
        (("--fail", f"{NODE},for=1m"), ("--fail", f"{NODE},for=1m,at={AT}")),
        (("--drain", f"{NODE},order=name"), ("--drain", f"{NODE},order=name,at={AT}")),
        (("--apply", "release.yaml"), ("--apply", f"release.yaml,at={AT}")),
        (("--drop-nodes", NODE), ("--drop-nodes", f"{NODE},at={AT}")),
        (("--scale-nodes", "+2"), ("--scale-nodes", f"+2,at={AT}")),
        (
            ("--set", "priorityClass.batch.value=300000"),
            ("--set", f"priorityClass.batch.value=300000,at={AT}"),
        ),
        (
            ("--set", "deployment.app-001.replicas=30"),
            ("--set", f"deployment.app-001.replicas=30,at={AT}"),
        ),
        (("--until", "5m"), ("--until", "5m")),
        (
            ("--rules", "v1.16", "--seed", "5"),
            ("--restart-scheduler", f"{AT} --seed 5 --rules v1.16"),
        ),
        (
            ("--set", "podMaxBackoffSeconds=60", "--fail", NODE),
            (
                *("--fail", f"{NODE},at={AT}"),
                *("--restart-scheduler", f"{AT} --set podMaxBackoffSeconds=60"),
            ),
        ),
    ],
)
@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_fork_is_the_run_of_its_twin(
    forked: Path, added: Sequence[str], timed: Sequence[str], is_long: bool
) -> None:
    """Most of it was not played."""
    name = added[0] + added[1][-12:] + "-long" * is_long
    fork = replayed(forked, f"fork{name}", "--from", "a", "--at", AT, *added)
    twin = replayed(forked, f"twin{name}", "c.ktr", *timed)
    unequal = differences if is_long or added[0] in SHOWN else recorded_differences
    assert not unequal(fork.path, twin.path)
    shared = shared_of(fork)
    assert shared.run == "a"
    # With --until alone nothing differs, and `a` may have kept the state at the very end.
    last_ns = 300 * SECOND_NS if added[0] == "--until" else AT_NS
    assert 0.8 * AT_NS < shared.length_ns <= last_ns
    assert twin.manifest().shared is None
    assert fork.manifest().argv[:2] == ("replay", "c.ktr")


def test_a_fork_of_a_fork_shares_what_both_have(forked: Path) -> None:
    """It may begin before the moment of the first one, from a state that came with it."""
    replayed(forked, "first", "--from", "a", "--at", AT, "--fail", NODE)
    second = replayed(forked, "second", "--from", "first", "--at", "2m", "--drain", "node-0001")
    twin = ("c.ktr", "--fail", f"{NODE},at={AT}", "--drain", "node-0001,at=2m")
    assert not recorded_differences(second.path, replayed(forked, "twin", *twin).path)
    assert shared_of(second).length_ns < 120 * SECOND_NS


def test_the_runs_do_not_depend_on_each_other(forked: Path, tmp_path: Path) -> None:
    """The origin may go, and be replaced, and what the fork has stays whole."""
    for name in ("a", "c.ktr"):
        source = forked / name
        if source.is_dir():
            (tmp_path / name).mkdir()
            for path in source.iterdir():
                (tmp_path / name / path.name).write_bytes(path.read_bytes())
        else:
            (tmp_path / name).write_bytes(source.read_bytes())
    replayed(tmp_path, "fork", "--from", "a", "--at", AT, "--fail", NODE)
    replayed(tmp_path, "a", "c.ktr", "--seed", "9")
    for path in (tmp_path / "a").iterdir():
        path.unlink()
    reprieve(tmp_path, "verify", "fork")


def test_a_run_whose_settings_differ_from_the_beginning_shares_nothing(forked: Path) -> None:
    """It is played from there, with the same result as without --from."""
    run = replayed(forked, "other", "--from", "a", "--seed", "5")
    assert run.manifest().shared is None
    assert run.manifest().seed == 5


def test_what_differs_late_is_found_in_the_trace(forked: Path) -> None:
    """Without --at, an override knows by the records that it changes when it has an effect."""
    run = replayed(forked, "late", "--from", "a", "--fail", f"{NODE},at={AT}")
    assert shared_of(run).length_ns < AT_NS
    early = replayed(forked, "early", "--from", "a", "--drop-nodes", "node-0002")
    assert early.manifest().shared is None


def test_a_state_that_was_changed_is_not_used(forked: Path, tmp_path: Path) -> None:
    """The run is played from its beginning, and a line says why."""
    (tmp_path / "c.ktr").write_bytes((forked / "c.ktr").read_bytes())
    (tmp_path / "a").mkdir()
    for path in (forked / "a").iterdir():
        content = path.read_bytes()
        if path.name == "decisions.jsonl":
            content = content.replace(b"node-0001", b"node-0002", 1)
        (tmp_path / "a" / path.name).write_bytes(content)
    arguments = ("replay", "--from", "a", "--at", AT, "--fail", NODE, "--run", "fork", *QUIET)
    done = reprieve(tmp_path, *arguments)
    assert "nothing of a is shared" in " ".join(done.stderr.split())
    fork = RunDirectory.open(tmp_path / "fork")
    assert fork.manifest().shared is None
    twin = replayed(forked, "twin", "c.ktr", "--fail", f"{NODE},at={AT}")
    assert not recorded_differences(fork.path, twin.path)


def test_a_state_that_a_service_does_not_take_is_not_used(forked: Path) -> None:
    """As by a service of another build: the run is played from its beginning."""
    reopen, reopened = Recovery.reopen, list[int]()

    def refuse_first(recovery_: Recovery, point: ResumePoint) -> None:
        reopened.append(point.rounds)
        if len(reopened) == 1:
            raise BackendError("not a state of the scheduler")
        reopen(recovery_, point)

    with mock.patch.object(Recovery, "reopen", refuse_first):
        run = replayed(forked, "refused-state", "--from", "a", "--at", AT, "--fail", NODE)
    assert reopened[0]
    assert reopened[1:] == [0]
    assert run.manifest().shared is None
    twin = replayed(forked, "twin-of-refused", "c.ktr", "--fail", f"{NODE},at={AT}")
    assert not recorded_differences(run.path, twin.path)


@pytest.mark.parametrize(
    "breaking", ["replay.runner._Attempt.play", "replay.forks.RunDirectory.go_back"]
)
def test_a_fork_that_breaks_off_goes_on(forked: Path, breaking: str) -> None:
    """From the state that it has taken, or from its beginning where it has not taken it yet."""
    name = breaking.rpartition(".")[2]
    arguments = ("--from", "a", "--at", AT, "--fail", NODE, "--run", f"broken-{name}", *QUIET)
    with mock.patch(breaking, side_effect=OutputError("the disk is full")):
        reprieve(forked, "replay", *arguments, code=6)
    reprieve(forked, "resume", f"broken-{name}")
    twin = replayed(forked, f"whole-{name}", "c.ktr", "--fail", f"{NODE},at={AT}")
    assert not recorded_differences(forked / f"broken-{name}", twin.path)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("c.ktr", "--at", AT), "--at is a moment of a run: name the run with --from"),
        (("c.ktr", "--from", "a"), "leave TRACE out"),
        (("--from", "a", "--at", "soon"), "is not a duration or a time"),
        (("--from", "a", "--at", AT, "--usage", "* memory 1Mi"), "--usage has an effect from the"),
        (("--from", "a", "--at", AT, "--no-eviction"), "--no-eviction has an effect from the"),
        (
            ("--from", "a", "--at", AT, "--set", "evictionHard.memory.available=1Mi"),
            "a configuration is that of the whole replay",
        ),
        (("--from", "nothing"), "is not a run directory"),
    ],
)
def test_what_cannot_be_a_fork_is_refused(
    forked: Path, arguments: Sequence[str], problem: str
) -> None:
    """Before anything is started."""
    done = reprieve(forked, "replay", *arguments, "--run", "refused", *QUIET, code=REFUSED)
    assert problem in " ".join(done.stderr.split())
    assert not (forked / "refused").exists()


def test_a_comparison_plays_what_differs(forked: Path) -> None:
    """B goes on from a state of A, at a moment or where the override has its first effect."""
    arguments = ("compare", "a", "--at", AT, "--b", f"--fail {NODE}", "--run", "cmp", "--force")
    done = reprieve(forked, *arguments, "-o", "json", "--no-explain")
    assert "B has its beginning from A: 3m" in done.stderr
    compared = json.loads(done.stdout)
    twin = replayed(forked, "twin", "c.ktr", "--fail", f"{NODE},at={AT}")
    assert not recorded_differences(forked / "cmp" / "b", twin.path)
    whole = reprieve(forked, "compare", "a", "twin", "-o", "json", "--no-explain")
    plain = json.loads(whole.stdout)
    for name in plain:
        if name not in {"run_b", "b"}:
            assert compared[name] == plain[name], name


@pytest.mark.parametrize("of", ["c.ktr", "a"])
def test_a_sweep_shares_what_its_points_have_in_common(
    of: str, forked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is played as a whole, the others from a state of it; or all from a run's."""
    monkeypatch.setattr(recovery, "KEPT_SHARE", float("inf"))
    monkeypatch.setattr(recovery, "LOOK_NS", 0)
    over = ("--over", "fail=node-0001,node-0002,node-0003", "--at", AT)
    done = reprieve(forked, "sweep", of, "-o", str(tmp_path / "out"), *over, "--", "--seed", "0")
    shares = {"c.ktr": 2, "a": 3}[of]
    assert f"{shares} runs of 3 begin with what others played" in done.stderr
    twin = replayed(forked, "twin", "c.ktr", "--fail", f"{NODE},at={AT}")
    runs = [path.parent for path in (tmp_path / "out").rglob("manifest.json")]
    assert len(runs) == 3
    logs = [(run / "decisions.jsonl").read_bytes() for run in runs]
    assert (twin.path / "decisions.jsonl").read_bytes() in logs
