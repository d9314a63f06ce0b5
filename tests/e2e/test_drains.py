"""Nodes that are drained, upgraded or fail by an option, with times that are worked out by hand.

The cluster is one as kubectl prints it in mid-life: nodes of two cores, and a Deployment `web`,
whose pods request half a core, need 30 s to start and 10 s to stop, unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from replay.importers.registry import open_trace
from replay.overrides.errors import OverrideError
from replay.overrides.overrides import Overrides
from replay.results.kubectl.get import GetQuery, get
from replay.runner import FinishedReplay
from replay.world.models import Models
from tests.e2e.commands import reprieve
from tests.e2e.replays import run
from tests.living_cluster import Raw, write_list

pytestmark = pytest.mark.e2e

_CREATED = "2026-03-02T09:00:00Z"
_LABELS = {"app": "web"}
_S = 1_000_000_000


def node(name: str, created: str = _CREATED) -> Raw:
    """Return a node of two cores that is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"{name}-uid",
            "creationTimestamp": created,
            "labels": {"kubernetes.io/hostname": name, "pool": "old"},
        },
        "spec": {},
        "status": {
            "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": "2", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": created}],
        },
    }


def pod(name: str, on: str, *, owner: str = "web-set", cpu: str = "500m", **spec: Any) -> Raw:
    """Return a pod that runs on a node; `owner` is the name of its ReplicaSet, "" if none.

    A pod without an owner has no labels, or the ReplicaSet would adopt it.
    """
    meta: Raw = {
        "name": name,
        "namespace": "default",
        "uid": f"{name}-uid",
        "creationTimestamp": _CREATED,
        "labels": dict(_LABELS) if owner else {},
    }
    if owner:
        meta["ownerReferences"] = [_owner("ReplicaSet", owner)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {**_pod_spec(cpu), "nodeName": on, **spec},
        "status": {
            "phase": "Running",
            "startTime": _CREATED,
            "conditions": [
                {"type": type_, "status": "True", "lastTransitionTime": _CREATED}
                for type_ in ("PodScheduled", "Ready")
            ],
        },
    }


def workload(replicas: int) -> list[Raw]:
    """Return the Deployment `web` and its ReplicaSet."""
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": _pod_spec("500m")},
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"{name}-uid",
                "creationTimestamp": _CREATED,
                "labels": dict(_LABELS),
                **({"ownerReferences": [_owner("Deployment", "web")]} if name != "web" else {}),
            },
            "spec": spec,
        }
        for kind, name in (("Deployment", "web"), ("ReplicaSet", "web-set"))
    ]


def budget(**spec: int) -> Raw:
    """Return the budget `web` of the Deployment."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "budget-uid",
            "creationTimestamp": _CREATED,
        },
        "spec": {"selector": {"matchLabels": _LABELS}, **spec},
    }


def _owner(kind: str, name: str) -> Raw:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": f"{name}-uid",
        "controller": True,
    }


def _pod_spec(cpu: str) -> Raw:
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    container = {"name": "main", "image": "registry.example/web:1", "resources": resources}
    return {"containers": [container], "terminationGracePeriodSeconds": 10}


def played(
    here: EmbeddedServices, folder: Path, items: Sequence[Raw], **options: Any
) -> FinishedReplay:
    """Replay a cluster with overrides."""
    path = write_list(folder / "cluster.yaml", list(items))
    plan = Overrides(**options).plan(lambda: open_trace([path]))
    return run(here, plan.records(0), folder / "run", models=Models(start_delay_ns=30 * _S))


def start_ns(finished: FinishedReplay) -> int:
    """Return the time at which the cluster was printed."""
    return finished.run.summary()["start_ns"]  # type: ignore[no-any-return] # of JSON


def steps(finished: FinishedReplay) -> list[tuple[int, str, str]]:
    """Return the steps of drains as (seconds since the beginning, node, step)."""
    begin_ns = start_ns(finished)
    return [
        (
            (entry.time_ns - begin_ns) // _S,
            entry.observed.object.name,
            entry.observed.node_drain.step,
        )
        for entry in finished.run.decisions()
        if entry.observed.HasField("node_drain")
    ]


def removed(finished: FinishedReplay) -> list[tuple[int, str]]:
    """Return the drained pods as (seconds since the beginning, name)."""
    begin_ns = start_ns(finished)
    return [
        ((entry.time_ns - begin_ns) // _S, entry.observed.object.name)
        for entry in finished.run.decisions()
        if entry.observed.removed.cause == "drained"
    ]


def notes(finished: FinishedReplay) -> list[str]:
    """Return the notes on drains."""
    return [text for kind, text in finished.replay.journal.notes if kind == "drain"]


def test_a_drain_takes_one_pod_for_each_replacement_that_is_ready(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """With minAvailable 2 of 3 pods, all on one node.

    At 0 s one eviction is allowed; its replacement is ready at 30 s. The retry of that instant asks
    before the budget's status has changed, the next one, at 35 s, succeeds. So the third is evicted
    at 70 s. Each pod stops after 10 s, so that the node is drained after 80 s.
    """
    items = [node("a"), node("b"), *workload(3), budget(minAvailable=2)]
    items += [pod(f"web-{number}", "a") for number in range(3)]
    finished = played(here, tmp_path, items, drain=("a",))
    assert [at_s for at_s, _ in removed(finished)] == [10, 45, 80]
    assert steps(finished) == [
        (0, "a", "Cordoned"),
        (0, "a", "Blocked"),
        (35, "a", "Blocked"),
        (80, "a", "Drained"),
    ]
    (row,) = finished.summary.decided.drains
    assert (row.took_ns, row.evicted) == (80 * _S, 3)
    assert row.message == "waited for budgets: default/web 70s"


def test_an_upgrade_takes_two_nodes_at_a_time(here: EmbeddedServices, tmp_path: Path) -> None:
    """Two at a time: both are empty after 10 s and return a minute later; then comes the third."""
    items = [*map(node, "abcd"), *workload(3), *(pod(f"web-{name}", name) for name in "abc")]
    drain = "a,b,c,parallel=2,uncordon-after=1m"
    finished = played(here, tmp_path, items, drain=(drain,))
    assert steps(finished) == [
        *((0, name, "Cordoned") for name in "ab"),
        *((10, name, "Drained") for name in "ab"),
        (70, "a", "Uncordoned"),
        (70, "c", "Cordoned"),
        (70, "b", "Uncordoned"),
        (80, "c", "Drained"),
        (140, "c", "Uncordoned"),
    ]
    assert not any(node.spec.unschedulable for node in finished.replay.cluster.nodes.values())


def test_a_drain_without_a_return_cordons_all_its_nodes_first(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """As `kubectl drain a b` does, so that no pod moves twice."""
    items = [*map(node, "abc"), *workload(2), *(pod(f"web-{name}", name) for name in "ab")]
    finished = played(here, tmp_path, items, drain=("a,b",))
    assert steps(finished)[:2] == [(0, "a", "Cordoned"), (0, "b", "Cordoned")]
    assert [at_s for at_s, _ in removed(finished)] == [10, 20]
    lines: list[str] = []
    get(finished.run, GetQuery(resource="nodes"), lines.append)
    rows = [line.split() for line in "".join(lines).splitlines()[1:]]
    assert [row[1] for row in rows] == ["Ready,SchedulingDisabled"] * 2 + ["Ready"]


def test_a_drain_that_is_blocked_for_ever_ends_the_replay_with_a_note(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """With maxUnavailable 0; the other node's turn never comes."""
    items = [*map(node, "ab"), *workload(1), budget(maxUnavailable=0), pod("web-0", "a")]
    drain = "pool=old,at=10m,uncordon-after=1m"
    finished = played(here, tmp_path, items, drain=(drain,))
    assert steps(finished) == [(600, "a", "Cordoned"), (600, "a", "Blocked")]
    assert finished.replay.now_ns < start_ns(finished) + 700 * _S
    assert (
        "node a is not drained: blocked since 10m0s after the beginning: budget default/web "
        "refuses default/web-0" in notes(finished)
    )
    assert "their turn to be drained never came: nodes b" in notes(finished)


def test_a_blocked_drain_names_what_will_be_refused_in_any_case_too(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Two budgets cover `web-1`, which the Eviction API refuses; one of `web-0` allows nothing.

    Who mends the latter budget alone meets the other refusal next.
    """
    one, two = pod("web-0", "a"), pod("web-1", "a")
    two["metadata"]["labels"] = {**_LABELS, "part": "two"}
    second = budget(minAvailable=0)
    second["metadata"] = {**second["metadata"], "name": "second", "uid": "second-uid"}
    second["spec"] = {**second["spec"], "selector": {"matchLabels": {"part": "two"}}}
    items = [*map(node, "ab"), *workload(2), budget(maxUnavailable=0), second, one, two]
    finished = played(here, tmp_path, items, drain=("a",))
    blocked = next(note for note in notes(finished) if note.startswith("node a is not drained"))
    assert blocked.endswith(
        "budget default/web refuses default/web-0; pod default/web-1: This pod has more than one "
        "PodDisruptionBudget, which the eviction subresource does not support."
    )


def test_a_refused_pod_that_terminates_on_a_failed_node_does_not_keep_the_replay_running(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The budget refuses web-0, also when its node fails and it ceases to be ready, at 110 s.

    At 415 s its toleration is over (the NoExecute taint comes 5 s later), and it is deleted. It
    stays Terminating, for its kubelet does not answer. There is nothing to request again: the
    replay ends soon after that.
    """
    items = [*map(node, "ab"), *workload(1), budget(maxUnavailable=0), pod("web-0", "a")]
    finished = played(here, tmp_path, items, drain=("a",), fail=("a,at=1m",))
    assert steps(finished) == [(0, "a", "Cordoned"), (0, "a", "Blocked")]
    made = [
        entry.time_ns for entry in finished.run.decisions() if entry.observed.HasField("created")
    ]
    assert made == [start_ns(finished) + 415 * _S]
    assert finished.replay.now_ns < start_ns(finished) + 600 * _S
    assert "node a is not drained: default/web-0 did not terminate" in notes(finished)


def test_a_drain_that_a_finalizer_holds_up_names_the_pod(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The other pod of the node has gone by then, and is not named."""
    held = pod("web-0", "a")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    items = [*map(node, "ab"), *workload(2), held, pod("web-1", "a")]
    finished = played(here, tmp_path, items, drain=("a",))
    assert removed(finished) == [(10, "web-1")]
    assert steps(finished) == [(0, "a", "Cordoned")]
    assert notes(finished) == ["node a is not drained: default/web-0 did not terminate"]


def test_the_row_of_a_blocked_drain_is_as_at_the_end_and_not_as_at_its_first_refusal(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """With minAvailable 2 of 3 pods, and room for one pod on the other node.

    The first eviction is allowed at 0 s, the second at 35 s, when the first replacement is ready.
    The second one stays pending, so that the budget refuses the third pod for ever.
    """
    filler = pod("filler", "b", owner="", cpu="1200m")
    items = [*map(node, "ab"), *workload(3), budget(minAvailable=2), filler]
    items += [pod(f"web-{number}", "a") for number in range(3)]
    finished = played(here, tmp_path, items, drain=("a",))
    (row,) = finished.summary.decided.drains
    assert (row.step, row.evicted) == ("Blocked", 2)
    assert row.message == "budget default/web refuses default/web-2"


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("force=false", "pods without a controller (no force): default/bare"),
        ("delete-emptydir-data=false", "pods with emptyDir volumes"),
    ],
)
def test_a_drain_may_refuse_what_kubectl_refuses(
    here: EmbeddedServices, tmp_path: Path, option: str, reason: str
) -> None:
    """Nothing of the node is evicted then, and it stays cordoned; the next node's turn comes."""
    items = [*map(node, "abc"), *workload(2)]
    items += [pod("bare", "a", owner="", volumes=[{"name": "cache", "emptyDir": {}}])]
    items += [pod("web-a", "a"), pod("web-b", "b")]
    finished = played(here, tmp_path, items, drain=(f"a,b,{option},uncordon-after=1m",))
    assert steps(finished)[:3] == [(0, "a", "Cordoned"), (0, "a", "Failed"), (0, "b", "Cordoned")]
    assert [name for _, name in removed(finished)] == ["web-b"]
    assert finished.replay.cluster.nodes["a"].spec.unschedulable
    (note,) = notes(finished)
    assert note.startswith("node a is not drained, and stays cordoned: ")
    assert reason in note


def test_what_a_plain_kubectl_drain_refuses_is_noted(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """By default it is evicted, as upgrades of managed pools do."""
    volume = [{"name": "cache", "emptyDir": {}}]
    items = [*map(node, "ab"), pod("bare", "a", owner="", volumes=volume)]
    finished = played(here, tmp_path, items, drain=("a",))
    assert removed(finished) == [(10, "bare")]
    unmanaged, empty_dir = sorted(notes(finished), key=lambda text: "emptyDir" in text)
    assert unmanaged.endswith("without --force: default/bare")
    assert empty_dir.endswith("without --delete-emptydir-data: default/bare")


def test_pods_of_daemon_sets_stay_though_the_list_has_no_daemon_set(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """`kubectl get nodes,pods` prints none, and the cluster has them all the same."""
    daemon = pod("agent", "a", owner="")
    daemon["metadata"]["ownerReferences"] = [_owner("DaemonSet", "agent")]
    finished = played(here, tmp_path, [node("a"), daemon], drain=("a",))
    assert (removed(finished), steps(finished)[-1]) == ([], (0, "a", "Drained"))


@pytest.mark.parametrize(
    ("order", "first"), [("name", "a"), ("least-used", "b"), ("youngest", "c")]
)
def test_the_order_decides_which_node_goes_first(
    here: EmbeddedServices, tmp_path: Path, order: str, first: str
) -> None:
    """`a` has two pods, `b` one, `c` two and is the youngest."""
    items = [node("a"), node("b"), node("c", "2026-03-02T09:30:00Z"), *workload(5)]
    items += [pod(f"web-{number}", name) for number, name in enumerate("aabcc")]
    drain = f"pool=old,order={order},uncordon-after=1m"
    finished = played(here, tmp_path, items, drain=(drain,))
    assert steps(finished)[0] == (0, first, "Cordoned")


def test_a_node_fails_at_a_time_and_reports_again(here: EmbeddedServices, tmp_path: Path) -> None:
    """At 60 s for 2 minutes: it is NotReady once its grace period is over, and Ready at 180 s."""
    items = [*map(node, "ab"), *workload(1), pod("web-0", "a")]
    finished = played(here, tmp_path, items, fail=("a,at=1m,for=2m",))
    begin_ns = start_ns(finished)
    grace_s = Models().node_grace_ns // _S
    changed = [
        ((entry.time_ns - begin_ns) // _S, entry.observed.condition_changed.status)
        for entry in finished.run.decisions()
        if entry.observed.HasField("condition_changed")
    ]
    assert changed == [(60 + grace_s, "Unknown"), (180, "True")]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"drain": ("wroker-a",)}, "no node is named wroker-a; did you mean worker-a?"),
        ({"drain": ("pool=new",)}, "the nodes have pool=old"),
        ({"drain": ("worker-a,at=soon",)}, "at=soon is not a duration"),
        ({"drain": ("worker-a,paralel=2",)}, "'paralel' is not an option; did you mean parallel?"),
        ({"drain": ("pool=old,uncordon-afer=5m",)}, "did you mean uncordon-after?; options: at,"),
        ({"drain": ("pool=old,zone=a",)}, "the nodes have pool=old"),
        ({"drain": ("worker-a,at=1m,paralel=2",)}, "'paralel' is not an option; did you mean"),
        ({"drain": ("at=1m",)}, "write a node's name or a label selector first"),
        ({"drain": ("worker-a", "pool=old")}, "node worker-a is in --drain worker-a and in"),
        ({"drain": ("worker-a,ignore-daemonsets=false",)}, "kubectl drains no node"),
        ({"drain": ("worker-a",), "drop_nodes": "worker-a"}, "no node is named worker-a"),
        ({"fail": ("worker-a,for=2m", "pool=old,at=1m")}, "the first of them is not over"),
        ({"fail": ("worker-a,until=2m",)}, "'until' is not an option; options: at, for"),
        ({"fail": ("pool in (old, new),fro=2m",)}, "'fro' is not an option; did you mean for?"),
        ({"apply": ("release.yaml,att=2m",)}, "'att' is not an option; did you mean at?"),
        ({"drop_nodes": "worker-c"}, "no node is named worker-c; did you mean"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    """With what there is instead."""
    path = write_list(tmp_path / "list.yaml", [node("worker-a"), node("worker-b")])
    with pytest.raises(OverrideError) as raised:
        Overrides(**options).plan(lambda: open_trace([path]))
    assert problem in str(raised.value)


def test_a_time_after_the_end_of_the_replay_is_refused(tmp_path: Path) -> None:
    """It would say nothing otherwise."""
    write_list(tmp_path / "list.yaml", [node("a"), node("b")])
    arguments = ("replay", "list.yaml", "--drain", "a,at=2h", "--until", "1h")
    done = reprieve(tmp_path, *arguments, code=2)
    assert "--drain a,at=2h is after the time of --until" in done.stderr


def test_a_comparison_names_the_drain_as_the_cause(tmp_path: Path) -> None:
    """A node that is cordoned in B only is no pod that "only B has"."""
    items = [*map(node, "ab"), *workload(1), pod("web-0", "a")]
    write_list(tmp_path / "list.yaml", items)
    done = reprieve(tmp_path, "compare", "list.yaml", "--run", "cmp", "--b", "--drain a,at=1m")
    assert "Only B has --drain a,at=1m." in done.stdout
