"""The rules by which a pod moves, is ignored, or keeps its node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterPod, ReplicaController
from services.autoscaler.core.options import from_flags
from services.autoscaler.core.scale_down.disruptions import RemainingBudgets
from services.autoscaler.core.scale_down.drainability import (
    SAFE_LOCAL_VOLUMES,
    SAFE_TO_EVICT,
    Blocking,
    Controllers,
    Draining,
    Fate,
    pods_to_move,
    verdict,
)
from services.autoscaler.core.scale_down.utilization import utilization
from services.kube.pod import PodPhase
from services.kube.selector import LabelSelector
from services.kube.time import HOUR_NS, SECOND_NS
from services.kube.workloads import PodDisruptionBudget
from tests.unit.autoscaler.builders import make_node, make_pod, make_spec

NOW = 100 * HOUR_NS
S = SECOND_NS
OWNER = ReplicaController(kind="ReplicaSet", namespace="default", name="owner", desired=2)


def draining(*owners: ReplicaController, allowed: int | None = None, **flags: str) -> Draining:
    """Return a drain where `owners` exist; `allowed`: a budget for all pods of "default"."""
    budget = PodDisruptionBudget(
        namespace="default", name="b", selector=LabelSelector(), disruptions_allowed=allowed or 0
    )
    return Draining(
        now=Now(NOW),
        options=from_flags({name.replace("_", "-"): text for name, text in flags.items()}),
        budgets=RemainingBudgets(() if allowed is None else (budget,)),
        controllers=Controllers(
            daemon_sets=frozenset({"kube-system/owner"}),
            by_kind={(owner.kind, f"{owner.namespace}/{owner.name}"): owner for owner in owners},
        ),
    )


def safe(text: str) -> dict[str, str]:
    """Return the annotation."""
    return {SAFE_TO_EVICT: text}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("p"), Fate.MOVES),
        (make_pod("p", annotations={"kubernetes.io/config.mirror": ""}), Fate.IGNORED),
        (make_pod("p", owner=""), Blocking.NOT_REPLICATED),
        (make_pod("p", owner="", annotations=safe("true")), Fate.MOVES),
        (make_pod("p", owner="Custom"), Blocking.NOT_REPLICATED),
        (make_pod("p", annotations=safe("false")), Blocking.NOT_SAFE_TO_EVICT_ANNOTATION),
        (make_pod("p", annotations=safe("on-completion")), Fate.COMPLETES),
        (make_pod("p", local_volumes=("v",)), Blocking.LOCAL_STORAGE_REQUESTED),
        (make_pod("p", local_volumes=("v",), annotations={SAFE_LOCAL_VOLUMES: "u,v"}), Fate.MOVES),
        (make_pod("p", owner="Job"), Blocking.CONTROLLER_NOT_FOUND),
        (make_pod("p", owner="Job", annotations=safe("true")), Blocking.CONTROLLER_NOT_FOUND),
        (make_pod("p", owner="DaemonSet"), Blocking.CONTROLLER_NOT_FOUND),
        (make_pod("p", owner="DaemonSet", namespace="kube-system"), Fate.MOVES),
    ],
)
def test_the_first_rule_that_decides_counts(pod: ClusterPod, expected: Fate | Blocking) -> None:
    """An owner's absence comes before what lets a pod go, and that before what blocks."""
    assert verdict(pod, draining(OWNER)) is expected


def test_an_owner_with_too_few_replicas_blocks() -> None:
    """Of ReplicaSets and ReplicationControllers; fewer, not as many."""
    assert verdict(make_pod("p"), draining(OWNER, min_replica_count="2")) is Fate.MOVES
    few = verdict(make_pod("p"), draining(OWNER, min_replica_count="3"))
    assert few is Blocking.MIN_REPLICAS_REACHED
    job = replace(OWNER, kind="Job")
    assert verdict(make_pod("p", owner="Job"), draining(job, min_replica_count="3")) is Fate.MOVES


def test_owners_are_not_asked_for_where_custom_ones_may_go() -> None:
    """One flag switches the check of replicas off, and admits every controller."""
    asked = draining(skip_nodes_with_custom_controller_pods="false")
    assert verdict(make_pod("p"), asked) is Fate.MOVES
    assert verdict(make_pod("p", owner="Custom"), asked) is Fate.MOVES
    assert verdict(make_pod("p", owner=""), asked) is Blocking.NOT_REPLICATED


def test_a_set_of_an_api_group_that_is_not_watched_is_not_looked_up() -> None:
    """A StatefulSet outside of apps counts as being there."""
    pod = make_pod("p", owner="StatefulSet")
    owner = replace(pod.pod.owners[0], api_version="example.com/v1")
    other = replace(pod, pod=replace(pod.pod, owners=(owner,)))
    assert verdict(pod, draining()) is Blocking.CONTROLLER_NOT_FOUND
    assert verdict(other, draining()) is Fate.MOVES


def test_a_pod_of_kube_system_without_a_budget_may_go_when_it_is_old() -> None:
    """Strictly older than an hour; a budget decides otherwise."""
    owner = replace(OWNER, namespace="kube-system")
    young = make_pod("p", namespace="kube-system", creation_ns=NOW - HOUR_NS)
    old = make_pod("p", namespace="kube-system", creation_ns=NOW - HOUR_NS - 1)
    assert verdict(young, draining(owner)) is Blocking.UNMOVABLE_KUBE_SYSTEM_POD
    assert verdict(old, draining(owner)) is Fate.MOVES
    assert verdict(young, draining(owner, skip_nodes_with_system_pods="false")) is Fate.MOVES


def test_a_budget_blocks_unless_the_annotation_lets_the_pod_go() -> None:
    """The annotation passes the rule of budgets."""
    assert verdict(make_pod("p"), draining(OWNER, allowed=0)) is Blocking.NOT_ENOUGH_PDB
    assert verdict(make_pod("p"), draining(OWNER, allowed=1)) is Fate.MOVES
    assert verdict(make_pod("p", annotations=safe("true")), draining(OWNER, allowed=0)) is (
        Fate.MOVES
    )


@pytest.mark.parametrize(
    ("phase", "policy", "expected"),
    [
        (PodPhase.SUCCEEDED, "Never", Fate.MOVES),
        (PodPhase.SUCCEEDED, "OnFailure", Fate.MOVES),
        (PodPhase.SUCCEEDED, "Always", Blocking.NOT_REPLICATED),
        (PodPhase.FAILED, "Always", Fate.MOVES),
        (PodPhase.RUNNING, "Never", Blocking.NOT_REPLICATED),
    ],
)
def test_a_pod_that_has_finished_may_go(
    phase: PodPhase, policy: str, expected: Fate | Blocking
) -> None:
    """Unless it would be restarted."""
    pod = make_pod("p", owner="")
    ended = replace(pod, pod=replace(pod.pod, phase=phase), restart_policy=policy)
    assert verdict(ended, draining()) is expected


def test_a_pod_is_ignored_half_a_minute_after_its_grace_period_strictly() -> None:
    """Its deletion's time, its grace period, and 30 s; its requests do not count then, either."""
    spec = make_spec(1000, grace_s=10)
    late = make_pod("p", spec, deletion_ns=NOW - 40 * S - 1)
    in_time = make_pod("p", spec, deletion_ns=NOW - 40 * S)
    assert verdict(late, draining(OWNER)) is Fate.IGNORED
    assert verdict(in_time, draining(OWNER)) is Fate.MOVES
    shares = [
        utilization(
            make_node("n"),
            [pod],
            gpu_label="",
            skip_daemon_pods=False,
            skip_mirror_pods=False,
            now=Now(NOW),
        )
        for pod in (late, in_time)
    ]
    assert [share and share.cpu for share in shares] == [0.0, 0.25]


def test_a_nodes_pods_are_divided_up_to_the_first_that_blocks() -> None:
    """Its name and reason are kept."""
    pods = [
        make_pod("a"),
        make_pod("b", owner="DaemonSet", namespace="kube-system"),
        make_pod("c", annotations=safe("on-completion")),
        make_pod("d", annotations=safe("false")),
    ]
    moved = pods_to_move(pods, draining(OWNER))
    assert [pod.key for pod in moved.pods] == ["default/a"]
    assert [pod.key for pod in moved.daemon_pods] == ["kube-system/b"]
    assert [pod.key for pod in moved.on_completion] == ["default/c"]
    assert moved.blocking == (pods[3], Blocking.NOT_SAFE_TO_EVICT_ANNOTATION)


def test_budgets_are_used_up_and_may_be_exceeded() -> None:
    """An empty selector selects every pod of its namespace, none selects nothing."""
    budgets = draining(allowed=2).budgets
    pods = [make_pod(name) for name in "abc"]
    assert budgets.allow_all(pods[:2]) is True
    assert budgets.allow_all(pods) is False
    budgets.take(pods)
    assert budgets.remaining == [-1]
    assert budgets.matching(make_pod("p", namespace="other")) == []
    nothing = PodDisruptionBudget(namespace="default", name="n", selector=None)
    assert RemainingBudgets((nothing,)).matching(pods[0]) == []


def test_only_gpus_count_on_a_node_that_has_them() -> None:
    """A GPU that is not there yet is not used; daemon pods may be taken off both sides."""
    with_gpu = make_node("n", labels={"gpu": "a100"})
    plain = replace(with_gpu.node, allocatable={**with_gpu.node.allocatable, "nvidia.com/gpu": 4})

    def measured(node: object, pods: list[ClusterPod], *, skip: bool = False) -> tuple[str, float]:
        assert isinstance(node, type(with_gpu))
        result = utilization(
            node, pods, gpu_label="gpu", skip_daemon_pods=skip, skip_mirror_pods=False, now=Now(NOW)
        )
        assert result is not None
        return result.resource, result.share

    busy = [make_pod("p", 3900)]
    assert measured(with_gpu, busy) == ("nvidia.com/gpu", 0.0)
    assert measured(replace(with_gpu, node=plain), busy) == ("nvidia.com/gpu", 0.0)
    assert measured(make_node("n"), busy) == ("cpu", 0.975)
    daemons = [make_pod("d", 2000, owner="DaemonSet"), make_pod("p", 500)]
    assert measured(make_node("n"), daemons, skip=True) == ("cpu", 0.25)
    assert measured(make_node("n"), daemons) == ("cpu", 0.625)
