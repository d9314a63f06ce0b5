"""Ten questions to a cluster in mid-life, each with the command that a person would try first.

The answers are reasoned by hand from `tests/zoned_cluster.py`, whose docstring has the nodes, what
is free on them, priorities, budgets and volumes; each test's docstring has the reasoning. Times are
seconds after the cluster was printed. Without models pods are ready once they are bound, and use
their whole grace period of 30 s to end. One pod, jobs/rebuild, waits from the beginning.
"""

from __future__ import annotations

import csv
import functools
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from replay.results.run.directory import RunDirectory
from reprieve.trace.v1beta1 import trace_pb2
from tests.e2e.commands import reprieve
from tests.kubectl_objects import TAKEN_NS, Raw, named, write_list
from tests.zoned_cluster import GENERAL, zoned_cluster

pytestmark = pytest.mark.e2e

WEB, CART, CHECKOUT = "shop/web-", "shop/cart-", "shop/checkout-"
THUMBS, LEGACY, ENCODE = "media/thumbs-", "media/legacy-", "jobs/encode-"
REBUILD = "jobs/rebuild"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed as JSON, and the run in which the question is answered."""

    printed: dict[str, Any]
    run: RunDirectory
    folder: Path

    def figure(self, name: str) -> float:
        """Return a figure of B in a comparison."""
        return float(self.printed["figures"][name]["b"])

    def log(self, what: str, prefix: str = "") -> list[tuple[float, str, trace_pb2.Observed]]:
        """Return the entries of a kind about pods whose NAMESPACE/NAME begins with a prefix."""
        return [
            (seconds, name, observed)
            for seconds, name, observed in _entries(self.run)
            if observed.WhichOneof("observed") == what and name.startswith(prefix)
        ]

    def times(self, what: str, prefix: str = "") -> list[float]:
        """Return when something happened to such pods, in the log's order."""
        return [seconds for seconds, _, _ in self.log(what, prefix)]

    def bound(self, prefix: str = "") -> list[tuple[float, str]]:
        """Return when and where such pods were bound."""
        return [
            (seconds, observed.scheduled.node_name)
            for seconds, _, observed in self.log("scheduled", prefix)
        ]

    def victims(self) -> list[tuple[float, str]]:
        """Return when pods were preempted, and their names without a ReplicaSet's suffixes."""
        return [(seconds, _workload(name)) for seconds, name, _ in self.log("preempted")]

    def pods(self, *options: str) -> list[Raw]:
        """Return the pods at the end, or at the moment of --at."""
        command = ("get", "pods", str(self.run.path), "-A", "-o", "json", *options)
        items: list[Raw] = json.loads(reprieve(self.folder, *command).stdout)["items"]
        return items


def _entries(run: RunDirectory) -> Iterator[tuple[float, str, trace_pb2.Observed]]:
    for decision in run.decisions():
        reference = decision.observed.object
        name = f"{reference.namespace}/{reference.name}" if reference.namespace else reference.name
        yield round((decision.time_ns - TAKEN_NS) / 1e9, 3), name, decision.observed


def _workload(name: str) -> str:
    """Return "media/thumbs" for "media/thumbs-6d9f7c5b6-bcdfg"."""
    return name.partition("-")[0]


def placed(pods: Sequence[Raw], namespace: str, app: str) -> list[str]:
    """Return the nodes, "" if none, of a workload's pods that do not terminate, sorted."""
    return sorted(
        pod["spec"].get("nodeName", "")
        for pod in pods
        if pod["metadata"]["namespace"] == namespace
        and pod["metadata"].get("labels", {}).get("app") == app
        and "deletionTimestamp" not in pod["metadata"]
    )


def terminating(pods: Sequence[Raw]) -> set[str]:
    """Return the names of the pods that terminate."""
    return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]}


@functools.cache
def _printed_cluster(folder: Path) -> str:
    return write_list(folder / "printed.yaml", zoned_cluster()).read_text()


@pytest.fixture
def cluster(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with cluster.yaml, as kubectl prints it, and nothing else."""
    text = _printed_cluster(tmp_path_factory.getbasetemp())
    (tmp_path / "cluster.yaml").write_text(text)
    return tmp_path


def compared(folder: Path, *arguments: str) -> Answer:
    """Return the answer of `reprieve compare cluster.yaml ARGUMENTS`; its run is B."""
    printed = reprieve(folder, "compare", "cluster.yaml", "-o", "json", *arguments).stdout
    found = json.loads(printed)
    return Answer(found, RunDirectory.open(folder / found["b"]), folder)


def replayed(folder: Path, *arguments: str) -> Answer:
    """Return the answer of `reprieve replay cluster.yaml ARGUMENTS`."""
    printed = reprieve(folder, "replay", "cluster.yaml", "-o", "json", *arguments).stdout
    (run,) = (folder / "runs").iterdir()
    return Answer(json.loads(printed), RunDirectory.open(run), folder)


def test_the_cluster_is_as_its_docstring_says() -> None:
    """12 nodes, 59 pods, of which 54 run; free CPU by node."""
    items = zoned_cluster()
    pods = [item for item in items if item["kind"] == "Pod"]
    free = {
        item["metadata"]["name"]: _milli(item["status"]["allocatable"]["cpu"])
        for item in items
        if item["kind"] == "Node"
    }
    running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    for pod in running:
        spec = pod["spec"]
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            free[spec["nodeName"]] -= _milli(container["resources"]["requests"]["cpu"])
    assert (len(free), len(pods), len(running)) == (12, 59, 55)
    assert list(free.values()) == [
        *(1700, 1100, 900, 1100, 1500, 500),
        *(3500, 2600, 5700),
        *(5600, 5600, 4600),
    ]


def _milli(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000


def test_a_node_dies(cluster: Path) -> None:
    """worker-3 has web, cart, db-0, thumbs and the agent.

    - 50 s: no status for the grace period: Unknown. 55 s: the next look of the node lifecycle
      controller sees that and taints with NoExecute, the first node of a zone at once.
    - 355 s: tolerations of 300 s are over. web, cart, thumbs and db-0 are deleted; the agent
      tolerates the taint. The kubelet is silent: all four stay Terminating.
    - ReplicaSets replace their pods at once. web may go to zone c only (2, 2, 1 pods by zone, and
      maxSkew 1), where worker-6 has just 500. cart (1000) finds worker-1 and worker-2 taken by its
      own: 4 or 5. thumbs (800) is tried after both, by priority, and there is room on 1, 2 or 4.
    - db-0 is not replaced while its name is taken: db has 1 of 2 for good.
    """
    answer = compared(cluster, "--b", "--fail worker-3")
    ready = answer.log("condition_changed", "worker-3")
    assert [(seconds, entry.condition_changed.status) for seconds, _, entry in ready] == [
        (50, "Unknown")
    ]
    assert [(seconds, _workload(name)) for seconds, name, _ in answer.log("created")] == [
        (355, "shop/web"),
        (355, "shop/cart"),
        (355, "media/thumbs"),
    ]
    assert answer.bound(WEB) == [(355, "worker-6")]
    assert [node in ("worker-4", "worker-5") for _, node in answer.bound(CART)] == [True]
    assert [node in ("worker-1", "worker-2", "worker-4") for _, node in answer.bound(THUMBS)] == [
        True
    ]
    assert answer.victims() == []
    pods = answer.pods()
    assert {_workload(name) for name in terminating(pods)} == {"web", "cart", "thumbs", "db"}
    assert placed(pods, "shop", "db") == ["worker-6"]
    assert "worker-3" in placed(pods, "kube-system", "agent")
    assert answer.figure("pending") == 1
    assert any(note["kind"] == "silent-node" and note["b"] == 4 for note in answer.printed["notes"])


def test_a_pool_goes(cluster: Path) -> None:
    """The pool batch has prometheus-0, four pods of encode, two of the Job report, and agents.

    encode and report may run in this pool only: six pods without a node, beside rebuild.
    prometheus only prefers it; its volume is in zone a, where 1200 fit on worker-1 (1700), not on
    worker-4 (1100). The agents go with their nodes, and so do pods that have ended or terminate
    there. Nobody is preempted: no other node would take those that wait.
    """
    answer = compared(cluster, "--b", "--drop-nodes pool=batch")
    assert [node for _, node in answer.bound()] == ["worker-1"]
    assert answer.bound("monitoring/prometheus-0") == [(0, "worker-1")]
    pods = answer.pods()
    assert placed(pods, "jobs", "encode") == [""] * 4
    assert placed(pods, "jobs", "report") == [""] * 2
    assert len(placed(pods, "kube-system", "agent")) == 9
    assert placed(pods, "default", "shell") == placed(pods, "shop", "migrate") == []
    assert answer.figure("pending") == 7
    assert answer.figure("preempted") == 0


def test_a_class_is_raised(cluster: Path) -> None:
    """The pod rebuild (1800, class idle, -5) waits; with 500 it may preempt thumbs and legacy (0).

    Free with them gone: worker-1 1700, worker-2 1900, worker-3 1700, worker-4 1900, worker-5 1900,
    worker-6 1700. On 2 and 4 the victim is thumbs, on 5 legacy: no budget, equal priority, one
    victim each, so that the victim that started last decides: thumbs on worker-4, an hour old. It
    has gone at 30 s, and rebuild is bound. Its replacement (800) fits on other nodes at once.
    """
    answer = compared(cluster, "--b", "--set priorityClass.idle.value=500")
    assert answer.victims() == [(0, "media/thumbs")]
    ((_, name, _),) = answer.log("preempted")
    assert name == _name_on("worker-4", "thumbs")
    assert answer.bound(REBUILD) == [(30, "worker-4")]
    assert [seconds for seconds, _ in answer.bound(THUMBS)] == [0]
    assert answer.figure("pending") == 0
    assert answer.printed["figures"]["preempted"]["a"] == 0


def _name_on(node: str, app: str) -> str:
    """Return the NAMESPACE/NAME of the pod of an app that ran on a node in the printed cluster."""
    (meta,) = (
        obj["metadata"]
        for obj in zoned_cluster()
        if obj["kind"] == "Pod"
        and obj["metadata"]["labels"].get("app") == app
        and obj["spec"].get("nodeName") == node
    )
    return f"{meta['namespace']}/{meta['name']}"


def test_a_budget_is_added(cluster: Path) -> None:
    """Without anything that disrupts web, a budget changes nothing.

    With the class raised as above, a budget of all four thumbs makes their preemption on worker-2
    and worker-4 a violation; legacy on worker-5 is none, and fewest violations count first. rebuild
    is bound there after legacy's 30 s. legacy's replacement (400) fits elsewhere at once.
    """
    calm = compared(cluster, "--b", "--set pdb.shop/web.minAvailable=3", "--run", "calm")
    assert calm.printed["divergence"] is None
    assert calm.printed["figures"]["pending"] == {"a": 1, "b": 1, "change": 0, "share": 0}
    raised = ("--", "--set", "priorityClass.idle.value=500")
    answer = compared(cluster, "--b", "--set pdb.media/thumbs.minAvailable=4", *raised)
    assert [name for _, name, _ in answer.log("preempted")] == [_name_on("worker-5", "legacy")]
    assert answer.bound(REBUILD) == [(30, "worker-5")]
    assert [seconds for seconds, _ in answer.bound(LEGACY)] == [0]
    assert answer.figure("against_budget") == 0


def test_a_budget_that_a_drain_cannot_meet(cluster: Path) -> None:
    """A drain of worker-2 takes 30 s; with all 6 pods of web required, it never ends.

    web, checkout, cart, coredns and thumbs run there. In B the four others are evicted, web stays,
    and the node stays cordoned.
    """
    budget = "--set pdb.shop/web.minAvailable=6"
    answer = compared(cluster, "--b", budget, "--", "--drain", "worker-2")
    without = Answer({}, RunDirectory.open(cluster / answer.printed["a"]), cluster)
    ended = [(at, entry.node_drain.evicted) for at, _, entry in without.log("node_drain")]
    assert ended == [(0, 0), (30, 5)]
    steps = [(at, entry.node_drain.step) for at, _, entry in answer.log("node_drain")]
    assert steps == [(0, "Cordoned"), (0, "Blocked")]
    assert "worker-2" in placed(answer.pods(), "shop", "web")
    assert placed(answer.pods(), "media", "thumbs").count("worker-2") == 0
    assert len(set(answer.times("removed"))) == 2  # debug-shell at 20 s, the four at 30 s
    (note,) = [note for note in answer.printed["notes"] if "is not drained" in note["text"]]
    assert "worker-2 is not drained: blocked since 0s" in note["text"]
    assert (note["a"], note["b"]) == (0, 1)


def test_thirty_replicas(cluster: Path) -> None:
    """The quota of shop has 38 pods and 18 that count: 20 of 24 come to be, 4 are refused.

    The evicted pod of web has failed and does not count. Slots of 500 by node, free and with thumbs
    and legacy (priority 0) gone: worker-1 3 and 3, worker-2 2 and 3, worker-3 1 and 3, worker-4 2
    and 3, worker-5 3 and 3, worker-6 1 and 3. So each zone has 6 more at most, which is also what
    maxSkew 1 allows: 18 are bound, 24 in all, and 2 wait. All four thumbs have to go, and legacy on
    worker-6; nothing of frontend or above is touched. thumbs' replacements (800) fit nowhere.
    """
    answer = compared(cluster, "--b", "--set deployment.shop/web.replicas=30")
    web = placed(answer.pods(), "shop", "web")
    assert [web.count(node) for node in ("", *GENERAL)] == [2, 4, 4, 4, 4, 4, 4]
    ((seconds, _, refused),) = answer.log("refused")
    assert (seconds, refused.refused.pods) == (0, 4)
    assert "exceeded quota: pods" in refused.refused.message
    assert answer.figure("refused") == 4
    assert {name for _, name in answer.victims()} == {"media/thumbs", "media/legacy"}
    printed = {obj["metadata"]["uid"] for obj in zoned_cluster()}
    first = [name for _, name, entry in answer.log("preempted") if entry.object.uid in printed]
    assert sorted(first) == sorted(
        [
            *(_name_on(f"worker-{number}", "thumbs") for number in (2, 3, 4, 6)),
            _name_on("worker-6", "legacy"),
        ]
    )
    assert placed(answer.pods(), "media", "thumbs") == [""] * 4
    assert answer.figure("pending") == 1 + 2 + 4 + 4
    assert answer.figure("against_budget") == 0


def _release(folder: Path) -> None:
    """Write release/: web with another image, and a new Deployment of one pod of 1900."""
    web = named(zoned_cluster(), "Deployment", "web")
    web["metadata"] = {"name": "web", "namespace": "shop"}
    web["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/web:2"
    del web["status"]
    labels = {"app": "search"}
    container: Raw = {
        "image": "registry.example/search:1",
        "name": "main",
        "resources": {"requests": {"cpu": "1900m", "memory": "1Gi"}},
    }
    spec = {
        "containers": [container],
        "nodeSelector": {"pool": "general"},
        "priorityClassName": "frontend",
    }
    search: Raw = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "search", "namespace": "shop"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    (folder / "release").mkdir()
    for manifest in (web, search):
        name = manifest["metadata"]["name"]
        (folder / "release" / f"{name}.yaml").write_text(yaml.safe_dump(manifest))


def test_a_release_and_who_is_preempted(cluster: Path) -> None:
    """A new pod search (1900, frontend) fits nowhere; web rolls out, 25 % of 6: 2 more, 1 less.

    search: with thumbs or legacy gone there are 1900 on worker-2, 4 and 5, and 1700 elsewhere. The
    victim that started last is thumbs on worker-4; search is bound at 30 s, when it has gone.

    web: at most 8 pods, at least 5 ready. At 0 s 2 new pods, and 1 old one goes; then a new one for
    it. By matchLabelKeys new pods spread among themselves: 6 of them are 2 in each zone, and there
    is room of 500 for those without anybody's preemption: zone c has one slot on each node.
    """
    _release(cluster)
    answer = compared(cluster, "--b", "--apply release/")
    assert [name for _, name, _ in answer.log("preempted")] == [_name_on("worker-4", "thumbs")]
    assert answer.bound("shop/search-") == [(30, "worker-4")]
    zones = sorted((int(node[-1]) - 1) % 3 for _, node in answer.bound(WEB))
    assert zones == [0, 0, 1, 1, 2, 2]
    assert answer.figure("against_budget") == 0
    web = [pod for pod in answer.pods() if pod["metadata"]["labels"].get("app") == "web"]
    assert [pod["spec"]["containers"][0]["image"][-2:] for pod in web] == [":2"] * 6
    assert answer.figure("pending") == 1


def test_a_leak_with_limits(cluster: Path) -> None:
    """With a limit of 768Mi, web reaches it after 11.36 minutes: 200 and 50 a minute, 681.6 s.

    The kernel kills the container, nobody is evicted, no pod is replaced. The container restarts at
    once: the back-off of the first exit, and it is forgotten after ten minutes without one. Its
    usage begins anew, so that the next kill is at 1363.2 s.
    """
    leak = ("--usage", "app=web memory 200Mi+50Mi/m", "--until", "25m")
    answer = replayed(cluster, *leak)
    assert answer.times("oom_killed") == [681.6] * 6 + [1363.2] * 6
    assert {_workload(name) for _, name, _ in answer.log("oom_killed")} == {"shop/web"}
    assert answer.times("evicted") == answer.times("created") == []
    web = [pod for pod in answer.pods() if pod["metadata"]["labels"].get("app") == "web"]
    (status,) = web[0]["status"]["containerStatuses"]
    assert status["restartCount"] == 2
    assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert status["lastState"]["terminated"]["exitCode"] == 137


def test_a_leak_without_limits(cluster: Path) -> None:
    """Without one, checkout grows: 200Mi and 500 a minute are 15 GiB after 1819.2 s.

    15 GiB are allocatable: 16 less 924Mi of reservations and the hard threshold of 100Mi. The
    kubelet looks every 10 s, so that at 1820 s less than the threshold is left of what pods may
    use. It evicts the pod that uses more than it requests, checkout, on worker-1, 2, 4 and 5; the
    other pods use nothing, and stay. Its replacements may not go to nodes under pressure, nor share
    one: 2 go to worker-3 and worker-6, 2 wait until the pressure's transition of 5 minutes is over.
    """
    leak = ("--usage", "app=checkout memory 200Mi+500Mi/m", "--until", "1h")
    answer = replayed(cluster, *leak)
    evicted = answer.log("evicted")
    assert {_workload(name) for _, name, _ in evicted} == {"shop/checkout"}
    assert [(seconds, entry.evicted.node_name) for seconds, _, entry in evicted] == [
        (1820, f"worker-{number}") for number in (1, 2, 4, 5)
    ]
    assert answer.times("oom_killed") == []
    bound = answer.bound(CHECKOUT)
    assert sorted(node for _, node in bound[:2]) == ["worker-3", "worker-6"]
    assert all(seconds > 1820 + 300 for seconds, _ in bound[2:])
    assert len(bound) == 4


def test_which_nodes_can_go(cluster: Path) -> None:
    """Each general node alone, with nobody pending but rebuild: of these two, worker-3 can go.

    - Without worker-3: db-0 (5000) goes to worker-6, where its volume's zone has 500 left. web has
      to be in zone c, too, and preempts thumbs there, which fits elsewhere. cart goes to worker-4
      or worker-5.
    - Without worker-6: kafka-2 and db-1 (1500) need zone c: worker-3 has 900, and 1700 without
      thumbs. The 200 that are left are too few for web (500), which waits: it may not go to other
      zones, and what else is on worker-3 has its own priority or a higher one.
    """
    over = ("--over", "drop-nodes=worker-3,worker-6", "--assert", "pending <= 1")
    done = reprieve(cluster, "sweep", "cluster.yaml", "-o", "out", *over, code=1)
    assert _figures(cluster, "pending", "preempted") == {"worker-3": (1, 1), "worker-6": (2, 1)}
    assert "Can go while each check holds: worker-3\n" in done.stdout
    assert "failed at drop-nodes=worker-6: pending <= 1 (it is 2 pods)" in done.stderr


def test_how_many_nodes_of_a_pool_can_go(cluster: Path) -> None:
    """The least used first: of the CPU, 27 % of batch-3 are requested, 55 % of batch-1, 67 % of 2.

    - Without batch-3 its encode (2000) goes to batch-1 (3500): only rebuild waits.
    - Without batch-1, too, prometheus goes to worker-1, and two of encode (4000) and one of report
      (1000) are left for batch-2 (2600): either encode or report fits, the other two pods wait.
    """
    over = ("--over", "scale-nodes=pool=batch:-0..-2", "--assert", "pending <= 1")
    order = ("--", "--scale-order", "least-used")
    done = reprieve(cluster, "sweep", "cluster.yaml", "-o", "out", *over, *order, code=1)
    assert _figures(cluster, "pending", "preempted") == {
        "pool=batch:-0": (1, 0),
        "pool=batch:-1": (1, 0),
        "pool=batch:-2": (3, 0),
    }
    assert "Can go while each check holds: batch-3\n" in done.stdout


def _figures(folder: Path, *names: str) -> dict[str, tuple[float, ...]]:
    """Return figures of a sweep by the value of its axis."""
    with (folder / "out" / "cells.csv").open() as lines:
        cells = list(csv.DictReader(lines))
    axis = next(iter(cells[0]))
    return {cell[axis]: tuple(float(cell[name]) for name in names) for cell in cells}


def test_a_zone_is_lost(cluster: Path) -> None:
    """In zone-c are worker-3, worker-6, batch-3 and gpu-3, a quarter of the cluster.

    - 50 s: all four are Unknown. The zone is wholly lost, so that its nodes are tainted at the
      usual rate, one in 10 s: 55, 65, 75 and 85 s. Tolerations are over 300 s after each.
    - web: zones a and b have 2 pods each, c none that do not terminate. The nodes of c exist, and
      count for the spread whatever their taints: a third pod in a or b would be 3 to 0. Both
      replacements wait, and nobody's preemption would help them: web has 4 of 6.
    - kafka-2, db-0 and db-1 stay Terminating with their names: kafka has 2 of 3, db none of 2.
    - cart, both thumbs, legacy, encode and inference (GPUs are free on gpu-1 and gpu-2) find nodes;
      notebook has no controller, and is not replaced.
    """
    answer = compared(cluster, "--b", "--fail topology.kubernetes.io/zone=zone-c")
    assert answer.times("condition_changed") == [50] * 4
    assert set(answer.times("created")) == {355, 365, 375, 385}
    made = sorted(_workload(name) for _, name, _ in answer.log("created"))
    assert made == [
        *("jobs/encode", "media/legacy", "media/thumbs", "media/thumbs", "ml/inference"),
        *("shop/cart", "shop/web", "shop/web"),
    ]
    pods = answer.pods()
    assert placed(pods, "shop", "web") == ["", "", *(GENERAL[number] for number in (0, 1, 3, 4))]
    assert placed(pods, "shop", "kafka") == ["worker-4", "worker-5"]
    assert placed(pods, "shop", "db") == placed(pods, "ml", "notebook") == []
    assert {"kafka-2", "db-0", "db-1", "notebook"} <= terminating(pods)
    for namespace, app, replicas in (
        ("shop", "cart", 3),
        ("media", "thumbs", 4),
        ("media", "legacy", 2),
        ("jobs", "encode", 4),
        ("ml", "inference", 3),
    ):
        assert len(list(filter(None, placed(pods, namespace, app)))) == replicas
    assert answer.figure("pending") == 1 + 2
    assert answer.figure("unavailable") == 2 + 1 + 2 + 4 + 1  # web, kafka, db, agents, a plugin
    assert answer.victims() == []


def test_an_upgrade_node_by_node(cluster: Path) -> None:
    """Each node: cordoned, drained, away for 5 minutes; then the next one is cordoned.

    Evicted pods use their 30 s: the drains of worker-1 to worker-5 end after them, at 30, 360, 690,
    1020 and 1350 s, and the next node's turn comes 300 s later. Budgets wait for nothing there, as
    pods of one budget are on different nodes. db-0 has to stay in zone c: on worker-6, with db-1,
    after 720 s (its name is free at 690; thumbs has to go first).

    worker-6, from 1650 s: one of db is evicted, the other refused, since one must be available. The
    first has gone at 30 s, is made again, and preempts on worker-3, the only node of its zone:
    ready after 60 s. The retry after it, 65 s, evicts the other one, which has gone after 95 s, at
    1745 s; the node is back at 2045 s.
    """
    answer = replayed(cluster, "--drain", "pool=general,parallel=1,uncordon-after=5m")
    drained = {
        step: [at for at, _, entry in answer.log("node_drain") if entry.node_drain.step == step]
        for step in ("Cordoned", "Drained", "Uncordoned")
    }
    assert drained["Cordoned"] == [0, 330, 660, 990, 1320, 1650]
    assert drained["Drained"] == [30, 360, 690, 1020, 1350, 1745]
    assert drained["Uncordoned"] == [330, 660, 990, 1320, 1650, 2045]
    assert [name for _, name, _ in answer.log("node_drain")][::3][:5] == list(GENERAL[:5])
    (blocked,) = [
        entry.node_drain.message
        for _, _, entry in answer.log("node_drain")
        if entry.node_drain.step == "Blocked"
    ]
    assert "budget shop/db refuses shop/db-" in blocked
    assert answer.bound("shop/db-0")[0] == (720, "worker-6")
    pods = answer.pods()
    expected = {"web": 6, "cart": 3, "checkout": 4, "kafka": 3, "db": 2}
    for app, replicas in expected.items():
        nodes = placed(pods, "shop", app)
        assert len(nodes) == replicas
        assert "" not in nodes
    stayed = {pod["metadata"]["name"] for pod in pods}
    assert {"haproxy-worker-1", *(f"agent-{name}" for name in GENERAL)} <= stayed
    verdicts = {workload["name"]: workload for workload in answer.printed["workloads"]}
    assert (verdicts["db"]["least_ready"], verdicts["kafka"]["least_ready"]) == (1, 2)
    assert [verdict["below_budget"]["times"] for verdict in verdicts.values()] == [0] * len(
        verdicts
    )
    assert answer.printed["unavailable"] == 0


@pytest.mark.parametrize(
    ("misspelt", "hint"),
    [
        ("--fail worker-33", "no node is named worker-33"),
        ("--fail topology.kubernetes.io/zone=zone-d", "zone=zone-c"),
        ("--drop-nodes pool=bacth", "pool=batch"),
        ("--drain pool=genral,uncordon-after=5m", "pool=general"),
        ("--set priorityClass.idel.value=500", "idle"),
        ("--set pdb.shop/wbe.minAvailable=3", "did you mean shop/web?"),
        ("--set deployment.shop/wbe.replicas=30", "did you mean shop/web?"),
        ("--apply relaese/", "relaese does not exist"),
        ("--usage 'app=wbe memory 1Gi'", "app=cart"),
        ("--assert 'pending{namespace=shopp} == 0'", "did you mean shop?"),
        ("--assert 'unavailable{class=fronted} == 0'", "did you mean frontend?"),
    ],
)
def test_a_misspelt_question_is_refused_before_anything_is_replayed(
    cluster: Path, misspelt: str, hint: str
) -> None:
    """An answer about nothing would be a wrong one: exit code 2, and what there is instead."""
    done = reprieve(cluster, "replay", "cluster.yaml", *shlex.split(misspelt), code=2)
    assert hint in done.stderr
    assert not (cluster / "runs").exists()
