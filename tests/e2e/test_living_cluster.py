"""A cluster as kubectl prints it: it stays as it is; what is changed moves, and the replay ends."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.importers.registry import open_trace
from replay.overrides.overrides import Overrides
from replay.results.kubectl.get import GetQuery, get
from replay.runner import FinishedReplay
from replay.world.loop.replay import RETRIES_SKIPPED
from replay.world.models import Models
from tests.e2e.commands import reprieve
from tests.e2e.replays import bindings, run
from tests.living_cluster import NODES, TAKEN_NS, Raw, ago, living_cluster, named, write_list

pytestmark = pytest.mark.e2e

_MOVED = ("scheduled", "nominated", "preempted", "evicted", "created")


def played(
    here: EmbeddedServices, folder: Path, items: list[Raw], *sets: str, drop: str = ""
) -> FinishedReplay:
    """Replay a list with overrides."""
    path = write_list(folder / "list.yaml", items)
    overrides = Overrides(sets=sets, drop_nodes=drop)
    return run(here, overrides.records(lambda: open_trace([path]), 0), folder / "run")


def moved(finished: FinishedReplay) -> list[tuple[str, str]]:
    """Return what was done to pods, by name, beside what the clock alone brings."""
    found = (
        (entry.observed, entry.observed.WhichOneof("observed"))
        for entry in finished.run.decisions()
    )
    return [(what or "", observed.object.name) for observed, what in found if what in _MOVED]


def notes(finished: FinishedReplay) -> dict[str, int]:
    """Return the summary's notes by kind."""
    return {kind: count for (kind, _), count in finished.replay.journal.notes.items()}


def shown(finished: FinishedReplay, resource: str) -> list[list[str]]:
    """Return the rows of `reprieve get` at the run's end."""
    lines: list[str] = []
    get(finished.run, GetQuery(resource=resource), lines.append)
    return [line.split() for line in "".join(lines).splitlines()]


def test_a_cluster_without_changes_stays_as_it_is(here: EmbeddedServices, tmp_path: Path) -> None:
    """Only the pod that terminates goes, at its time; one pod waits; ages are those of kubectl."""
    finished = played(here, tmp_path, living_cluster())
    assert moved(finished) == []
    assert finished.replay.now_ns == TAKEN_NS + 20 * 10**9
    assert "old-shell" not in {
        pod.message.metadata.name for pod in finished.replay.cluster.pods.values()
    }
    assert notes(finished) == {"ended-pod": 1, "service-time": 2}
    ages = {row[1]: row[-1] for row in shown(finished, "pods") if row[0] == "shop"}
    assert ages["db-0"] == "2d"
    assert ages["report-6d9f7c5b6-hjklm"] == "60m"
    assert ages["too-big"] == "40m"
    assert {row[3] for row in shown(finished, "nodes")[1:]} == {"2d"}


def test_pods_of_a_job_whose_running_time_is_not_given_are_named(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Two pods of `import` run; with a running time by the model they end, as does their Job."""
    path = write_list(tmp_path / "list.yaml", living_cluster())
    endless = run(here, open_trace([path]), tmp_path / "endless")
    texts = [text for kind, text in endless.replay.journal.notes if kind == "service-time"]
    assert len(texts) == 1
    assert "nothing says how long shop/import-0zzzz, shop/import-1zzzz run" in texts[0]
    models = Models(service_time_ns=3600 * 10**9)
    ended = run(here, open_trace([path]), tmp_path / "ended", models=models)
    assert "service-time" not in notes(ended)


@pytest.mark.parametrize(
    "left_out",
    [
        {"ReplicaSet"},
        {"PriorityClass"},
        {"Deployment"},
        {"StatefulSet", "DaemonSet", "Job"},
        {"Node"},
    ],
    ids=lambda kinds: ",".join(sorted(kinds)),
)
def test_a_list_without_some_kinds_is_accepted(
    here: EmbeddedServices, tmp_path: Path, left_out: Iterable[str]
) -> None:
    """What is missing is inferred or noted; nothing is made a second time."""
    items = [obj for obj in living_cluster() if obj["kind"] not in left_out]
    assert moved(played(here, tmp_path, items)) == []


@pytest.mark.parametrize("node", NODES)
def test_a_dropped_node_moves_its_own_pods_and_the_replay_ends(
    here: EmbeddedServices, tmp_path: Path, node: str
) -> None:
    """With and without ReplicaSets in the list, a StatefulSet among those that lose a pod."""
    for items in (
        living_cluster(),
        [obj for obj in living_cluster() if obj["kind"] != "ReplicaSet"],
    ):
        folder = tmp_path / str(len(items))
        folder.mkdir()
        finished = played(here, folder, items, drop=f"kubernetes.io/hostname={node}")
        lost = {
            item["metadata"]["name"]
            for item in items
            if item["kind"] == "Pod" and item["spec"].get("nodeName") == node
        }
        assert {name for _, name in moved(finished)} <= lost
        assert finished.replay.now_ns < TAKEN_NS + 3600 * 10**9


def test_of_two_equal_pods_the_one_that_started_later_is_preempted(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """One has run since 08:00 of that day, the other was created at 09:00 and has no start time."""
    items = living_cluster()
    urgent = copy.deepcopy(named(items, "Pod", "too-big"))
    urgent["metadata"].update(name="urgent", uid="urgent", creationTimestamp=ago())
    urgent["spec"].update(priority=1000, nodeSelector={"kubernetes.io/hostname": NODES[3]})
    urgent["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    equal = []
    for name, hours in (("early", 1.5), ("late", 0.5)):
        pod = copy.deepcopy(named(items, "Pod", "report-6d9f7c5b6-hjklm"))
        pod["metadata"].update(name=name, uid=name, creationTimestamp=ago(hours=hours))
        pod["metadata"].pop("ownerReferences")
        pod["metadata"]["labels"] = {"app": "alone"}
        pod["spec"]["nodeName"] = NODES[3]
        pod["status"]["startTime"] = ago(hours=hours)
        equal.append(pod)
    equal[1]["status"].pop("startTime")
    items = [item for item in items if not item["metadata"]["name"].startswith("report")]
    finished = played(here, tmp_path, [*items, *equal, urgent])
    assert bindings(finished)["urgent"].victims == ("late",)


def test_a_raised_class_preempts_those_of_lower_priority(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Before that the pod waits; the pods of higher classes stay."""
    items = living_cluster()
    waiting = named(items, "Pod", "too-big")
    waiting["spec"].update(priority=-5, priorityClassName="idle")
    waiting["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2500m"
    calm = tmp_path / "calm"
    calm.mkdir()
    assert moved(played(here, calm, items)) == []
    finished = played(here, tmp_path, items, "priorityClass.idle.value=5")
    chosen = bindings(finished)["too-big"]
    assert chosen.victims
    assert all(not name.startswith(("agent", "import", "web", "api")) for name in chosen.victims)


def test_a_job_that_ends_in_three_days_makes_room_without_retries_until_then(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The replay jumps there; the pod that waits is bound then."""
    items = living_cluster()
    for item in items:
        if item["kind"] == "Pod" and item["metadata"]["name"].startswith("import-"):
            item["metadata"]["annotations"] = {"reprieve/service-time": "72h"}
    waiting = named(items, "Pod", "too-big")
    waiting["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODES[4]}
    waiting["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2500m"
    named(items, "Job", "import")["spec"].update(completions=3, parallelism=2)
    finished = played(here, tmp_path, items)
    scheduled = [
        entry for entry in finished.run.decisions() if entry.observed.HasField("scheduled")
    ]
    assert [entry.observed.object.name for entry in scheduled] == ["too-big"]
    assert scheduled[0].time_ns > TAKEN_NS + 69 * 3600 * 10**9
    assert scheduled[0].observed.scheduled.attempts < 10
    assert notes(finished)["retries"] == 1
    assert ("retries", RETRIES_SKIPPED) in finished.replay.journal.notes


def test_a_comparison_reports_that_eviction_was_not_judged(tmp_path: Path) -> None:
    """A list does not say what pods use; with a leak in B, only A's is not."""
    write_list(tmp_path / "list.yaml", living_cluster())
    drop = "--drop-nodes kubernetes.io/hostname=worker-1"
    options = ("compare", "list.yaml", "--no-explain", "--run")
    both = reprieve(tmp_path, *options, "both", "--b", drop, "--", "--spans", "off").stdout
    assert "Eviction was not judged in A and B: no usage is recorded (--usage)." in both
    leak = "--usage 'app=web memory 200Mi+50Mi/m'"
    done = reprieve(tmp_path, *options, "leak", "--b", leak, "-o", "json", "--", "--spans", "off")
    printed = json.loads(done.stdout)
    assert list(printed["eviction_not_judged"]) == ["a"]
    assert json.loads((tmp_path / "leak" / "b" / "summary.json").read_bytes())["services"] == {
        "scheduler": "in process",
        "eviction": "in process",
    }
