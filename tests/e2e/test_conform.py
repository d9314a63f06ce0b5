"""`reprieve conform` as people use it, on a few vectors of their own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from replay.conform.vectors.vectors import RECORDED
from tests.e2e.commands import REFUSED, SERVICE, reprieve

pytestmark = pytest.mark.e2e
DIFFERS = 1
CONFIG = {
    "hard": {"memory.available": "1Gi"},
    "pressure_transition_ms": 300_000,
    "max_pod_grace_s": 0,
    "dedicated_imagefs": False,
    "split_containerfs": False,
    "local_storage_isolation": False,
    "allow_overwrite_tgps": False,
}
STATS = {"memory": {"available": 4 << 30, "working_set": 1 << 30}}
CALM: dict[str, Any] = {
    "conditions": [],
    "under": [False, False, False],
    "thresholds_met": [],
    "first_observed_ms": {},
    "condition_last_observed_ms": {},
    "any_of": [{"evicted": [], "kills": [], "gc": [], "node_events": [], "pod_order": []}],
}


def vector(id_: str, expected: dict[str, object]) -> dict[str, object]:
    """Return a script of one step on a calm node."""
    return {
        "id": id_,
        "tags": ["calm"],
        "config": CONFIG,
        "script": [{"at_ms": 0, "stats": STATS}],
        "thresholds": ["memory.available<1Gi grace=0s min_reclaim="],
        "expected": [expected],
    }


def unseen(id_: str, cause: object, error: str) -> dict[str, object]:
    """Return a script whose first step cannot look at the file systems; the third evicts nobody."""
    steps = [{"at_ms": 10_000 * number, "stats": STATS} for number in range(3)]
    steps[0]["disk_info_error"] = steps[2]["disk_info_error"] = cause
    low = {"memory": {"available": 1 << 20, "working_set": 1 << 30}}
    steps[0]["stats"] = low
    told = CALM | {"error": error}
    return vector(id_, CALM) | {"script": steps, "expected": [told, CALM, CALM]}


def queue_vector(id_: str, node: str) -> dict[str, object]:
    """Return a script that nominates a pod to no node by name; `node` is where it was then."""
    pod = {"name": "a", "priority": 1, "nominated": "n1"}
    entry = ["default/a", 0, 0]
    state = {
        "active": [entry],
        "backoff": [],
        "unschedulable": [],
        "nominated": {"n1": ["default/a"]},
        "cycle": 0,
        "move_request_cycle": -1,
        "error_backoff": [],
        "in_flight": [],
        "in_flight_events": 0,
    }
    there = {"state": state | {"nominated": {"n2": ["default/a"]}}}
    return {
        "id": id_,
        "tags": ["nominate"],
        "config": {
            "initial_backoff_ms": 1000,
            "max_backoff_ms": 10_000,
            "max_unschedulable_ms": 300_000,
            "hints": True,
            "pop_from_backoffq": True,
        },
        "script": [
            {"at_ms": 0, "op": "add", "pod": pod},
            {"at_ms": 0, "op": "nominate", "key": "default/a", "node": "n2"},
            {"at_ms": 0, "op": "nominate", "key": "default/a"},
        ],
        "expected": [
            {"state": state},
            there,
            {"state": state | {"nominated": {node: ["default/a"]}}},
        ],
        "ties": False,
    }


def write(path: Path, *vectors: dict[str, object]) -> str:
    """Write vectors as a file that `conform` reads, and return its name."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(vector) + "\n" for vector in vectors)
    return path.name


def test_vectors_are_counted_by_topic_and_in_the_last_line(tmp_path: Path) -> None:
    """Gzipped files are read as well."""
    first = write(tmp_path / "eviction-v1.32-a.jsonl.gz", vector("a", CALM), vector("b", CALM))
    second = write(tmp_path / "eviction-v1.27-c.jsonl", vector("c", CALM))
    output = reprieve(tmp_path, "conform", first, second).stdout.splitlines()
    assert output[0] == "eviction-v1.32-a.jsonl.gz: eviction v1.32, 2 passed, 0 failed"
    assert [line.split() for line in output[1:3]] == [
        ["TOPIC", "PASSED", "FAILED"],
        ["calm", "2", "0"],
    ]
    assert "eviction-v1.27-c.jsonl: eviction v1.27, 1 passed, 0 failed" in output
    assert output[-1] == "3 passed, 0 failed"


def test_a_vector_that_differs_is_reported_with_both_sides_and_exits_with_1(tmp_path: Path) -> None:
    """The others are played all the same."""
    pressed = CALM | {"conditions": ["MemoryPressure"]}
    name = write(tmp_path / "x.jsonl", vector("calm-after-all", pressed), vector("calm", CALM))
    done = reprieve(tmp_path, "conform", name, code=DIFFERS)
    assert "conditions [], expected ['MemoryPressure']" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed"
    printed = json.loads(reprieve(tmp_path, "conform", name, "-o", "json", code=DIFFERS).stdout)
    assert printed[0]["topics"] == {"calm": {"passed": 1, "failed": 1}}
    assert [difference["id"] for difference in printed[0]["differences"]] == ["calm-after-all"]
    only = reprieve(tmp_path, "conform", name, "--only", "calm-after", code=DIFFERS)
    assert only.stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_what_no_rpc_has_is_played_with_our_own_code(tmp_path: Path) -> None:
    """Estimates and expanders, wherever the autoscaler is: nothing is sent to it, or started."""
    kinds = ("estimate", "expander")
    names = [str(RECORDED / f"autoscaler-{kind}-v1.36.jsonl.gz") for kind in kinds]
    nobody = ("--autoscaler", "127.0.0.1:1", "--only", "-00")
    lines = reprieve(tmp_path, "conform", *names, *nobody).stdout.splitlines()
    ours = "v1.36 (this installation's own code: no RPC has it), "
    counts = [line.partition(ours)[2] for line in lines if ours in line]
    assert counts == ["6 passed, 0 failed", "6 passed, 0 failed"]
    files = json.loads(reprieve(tmp_path, "conform", *names, *nobody, "-o", "json").stdout)
    assert [(file["kind"], file["service"]) for file in files] == [
        (f"autoscaler-{kind}", None) for kind in kinds
    ]
    scripts = str(RECORDED / "autoscaler-v1.36.jsonl.gz")
    assert "UNAVAILABLE" in reprieve(tmp_path, "conform", scripts, *nobody, code=SERVICE).stderr


def test_a_quiet_conform_prints_the_files_that_fail_alone(tmp_path: Path) -> None:
    """Nothing where all vectors pass; -o json is printed in any case."""
    pressed = CALM | {"conditions": ["MemoryPressure"]}
    good = write(tmp_path / "good.jsonl", vector("calm", CALM))
    bad = write(tmp_path / "bad.jsonl", vector("calm-after-all", pressed))
    done = reprieve(tmp_path, "conform", good, "-q")
    assert (done.stdout, done.stderr) == ("", "")
    done = reprieve(tmp_path, "conform", good, bad, "-q", code=DIFFERS)
    assert "conditions [], expected ['MemoryPressure']" in done.stdout
    assert "good.jsonl" not in done.stdout
    assert json.loads(reprieve(tmp_path, "conform", good, "-q", "-o", "json").stdout)


def test_a_vector_that_cannot_be_read_fails_and_the_rest_is_played(tmp_path: Path) -> None:
    """Each says why: broken JSON, another kind of object, a part that is missing or odd."""
    lines = [
        "nothing",
        json.dumps(vector("first", CALM)),
        "[1]",
        json.dumps({"id": "empty"}),
        json.dumps({"id": "no-stats", "tags": 7} | vector("x", CALM) | {"id": "no-stats"}).replace(
            '"stats"', '"state"'
        ),
        json.dumps(vector("odd", CALM) | {"script": 5}),
        json.dumps(vector("short", CALM) | {"expected": []}),
        json.dumps({"scenario": 5}),
        json.dumps(vector("last", CALM)),
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n")
    (printed,) = json.loads(
        reprieve(tmp_path, "conform", "x.jsonl", "-o", "json", code=DIFFERS).stdout
    )
    assert (printed["passed"], printed["failed"]) == (2, 7)
    said = {difference["id"]: difference["difference"] for difference in printed["differences"]}
    assert list(said) == ["line 1", "line 3", "empty", "no-stats", "odd", "short", "line 8"]
    assert "is not JSON" in said["line 1"]
    assert "is not a JSON object" in said["line 3"]
    assert "cannot be read: KeyError('stats')" in said["no-stats"]
    assert all("cannot be read" in said[id_] for id_ in ("empty", "odd", "short", "line 8"))


def test_a_file_that_breaks_off_fails_where_it_does(tmp_path: Path) -> None:
    """What stands before and the other files are played."""
    vectors = [vector(f"{number}{'x' * 9999}", CALM) for number in range(9)]
    write(tmp_path / "x.jsonl.gz", *vectors)
    whole = (tmp_path / "x.jsonl.gz").read_bytes()
    (tmp_path / "x.jsonl.gz").write_bytes(whole[:-20])
    name = write(tmp_path / "y.jsonl", vector("y", CALM))
    output = reprieve(tmp_path, "conform", "x.jsonl.gz", name, code=DIFFERS).stdout
    assert "is not a whole gzip file" in output
    assert output.splitlines()[-1].endswith(" passed, 1 failed")
    assert "y.jsonl: eviction v1.32, 1 passed, 0 failed" in output


def test_without_files_all_recorded_vectors_are_played(tmp_path: Path) -> None:
    """Those that lie in `conformance` or in the wheel; some of them by their ids."""
    output = reprieve(
        tmp_path, "conform", "--only", "hand-nominate", children=True
    ).stdout.splitlines()
    files = [line.split(":")[0] for line in output if line.endswith(" failed") and ":" in line]
    assert files == sorted(path.name for path in RECORDED.glob("*.jsonl.gz"))
    assert output[-1].endswith(" passed, 0 failed")
    refused = reprieve(tmp_path, "conform", "--rules", "v1.20", code=REFUSED).stderr
    assert "--rules" in refused


def test_vectors_are_judged_by_the_version_that_they_show(tmp_path: Path) -> None:
    """Whatever their file's name is; --rules names another one."""
    for version in ("v1.16", "v1.20", "v1.34"):
        recorded = (RECORDED / f"queue-{version}.jsonl.gz").read_bytes()
        (tmp_path / "queue-v1.99.jsonl.gz").write_bytes(recorded)
        only = ("queue-v1.99.jsonl.gz", "--only", "q-hand-c")
        stdout = reprieve(tmp_path, "conform", *only).stdout
        assert f": queue {version}, " in stdout
        assert ", 0 failed" in stdout
    stdout = reprieve(tmp_path, "conform", *only, "--rules", "v1.36").stdout
    assert ": queue v1.36, " in stdout


@pytest.mark.parametrize("mode", ["v1.32", "v1.27"])
def test_a_step_may_fail_to_look_at_the_file_systems(tmp_path: Path, mode: str) -> None:
    """It ends with the kubelet's words; what its provider said in its own is not compared."""
    error = "eviction manager: failed to get HasDedicatedImageFs: no such luck"
    vectors = [unseen("flag", cause=True, error=error), unseen("text", "no such luck", error)]
    name = write(tmp_path / f"eviction-{mode}-x.jsonl", *vectors)
    assert reprieve(tmp_path, "conform", name).stdout.splitlines()[-1] == "2 passed, 0 failed"
    name = write(tmp_path / f"eviction-{mode}-y.jsonl", unseen("flag", cause=True, error="other"))
    found = reprieve(tmp_path, "conform", name, code=DIFFERS).stdout
    assert "HasDedicatedImageFs" in found


@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_a_script_may_nominate_without_a_node(tmp_path: Path, stream: tuple[str, ...]) -> None:
    """It takes the one of the pod's status."""
    name = write(
        tmp_path / "queue-v1.34-x.jsonl", queue_vector("status", "n1"), queue_vector("kept", "n2")
    )
    output = reprieve(tmp_path, "conform", name, *stream, code=DIFFERS).stdout
    assert output.splitlines()[-1] == "1 passed, 1 failed"
    assert "kept" in output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no vectors"),
        ("{}\n", "neither a scenario nor a script"),
        ("nothing\n", "line 1: is not JSON"),
    ],
)
def test_a_file_without_vectors_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Exit 2 says what is wrong."""
    (tmp_path / "x.jsonl").write_text(text)
    assert said in reprieve(tmp_path, "conform", "x.jsonl", code=REFUSED).stderr
