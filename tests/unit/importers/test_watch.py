"""Tests of recordings of watches: what is input, and what was only observed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.kube.changes import grace_period_s, time_ns
from reprieve.trace.v1beta1.trace_pb2 import PodLife
from tests.unit.importers.builders import (
    T0_S,
    Raw,
    S,
    deletes,
    imported,
    issues,
    kinds,
    line,
    list_end,
    make_deployment,
    make_object,
    make_pod,
    make_replica_set,
    observed,
)

_SCHEDULED = ("PodScheduled", "True", "")
_PREEMPTED = ("DisruptionTarget", "True", "PreemptionByScheduler")
_STOPS: Raw = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30}


def _running(name: str, version: int, **more: object) -> Raw:
    return make_pod(name, version, node="n", phase="Running", **more)  # type: ignore[arg-type]  # as given


@pytest.mark.parametrize(
    ("listed", "ready_s", "delay_s"),
    [(None, 12, 7), (None, 5, None), ("False", 12, 7), ("True", 12, None)],
)
def test_how_long_a_pod_took_to_be_ready_is_its_life(
    tmp_path: Path, listed: str | None, ready_s: int, delay_s: int | None
) -> None:
    """It runs from 5 s on; one that was ready in the first list may only have lost it meanwhile."""
    ready = [_SCHEDULED, ("Ready", "True", "")]
    runs = [_SCHEDULED, ("Ready", listed or "False", "")]
    started = "2026-01-01T00:00:05Z"
    first = _running("p", 2, conditions=runs)
    first["status"]["startTime"] = started
    lines = [line(1, "ADDED", make_pod("p", 2))]
    if listed is not None:
        lines = [line(6, "ADDED", first)]
    lines += [line(6 if listed else 0, "BOOKMARK", list_end("Pod", 1))]
    if listed is None:
        lines.reverse()
        lines += [line(5, "MODIFIED", _running("p", 3, conditions=ready if ready_s == 5 else runs))]
    lines += [line(ready_s, "MODIFIED", _running("p", 4, conditions=ready))]
    lines += [line(20, "MODIFIED", _running("p", 5, conditions=ready))]
    create = next(record for record in imported(tmp_path, *lines) if record.HasField("pod_create"))
    life = create.pod_create.life
    assert (life.ready_delay_duration_ns if life.HasField("ready_delay_duration_ns") else None) == (
        None if delay_s is None else delay_s * S
    )


def test_a_users_pod_is_input_and_its_changes_are_observed(tmp_path: Path) -> None:
    """Its node and status are the cluster's doing; how long it took is its life."""
    records = imported(
        tmp_path,
        line(0, "BOOKMARK", list_end("Pod", 1)),
        line(1, "ADDED", make_pod("p", 2)),
        line(2, "MODIFIED", make_pod("p", 3, node="n", conditions=[_SCHEDULED])),
        line(5, "MODIFIED", _running("p", 4)),
        line(15, "MODIFIED", make_pod("p", 5, node="n", phase="Failed")),
    )
    assert kinds(records) == [
        "header",
        "pod_create",
        "observed scheduled",
        "observed started",
        "observed finished",
    ]
    create = records[1].pod_create
    assert create.pod.spec.node_name == ""
    assert not create.pod.HasField("status")
    assert create.life == PodLife(
        service_duration_ns=10 * S, fails=True, start_delay_duration_ns=3 * S
    )
    assert records[1].time_ns == (T0_S + 1) * S
    assert observed(records, "scheduled")[0].scheduled.waited_duration_ns == S
    assert records[0].header.start_time_ns == (T0_S + 1) * S
    assert records[0].header.window_end_time_ns == (T0_S + 15) * S


def test_a_preempted_pod_is_observed_and_its_life_is_a_lower_bound(tmp_path: Path) -> None:
    """The replay decides itself whom it preempts; the pod's way to stop is kept."""
    end = make_pod("p", 7, node="n", phase="Failed", conditions=[_PREEMPTED], metadata={**_STOPS})
    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("p", 2)),
        line(1, "MODIFIED", make_pod("p", 3, node="n")),
        line(2, "MODIFIED", _running("p", 4)),
        line(30, "MODIFIED", _running("p", 5, conditions=[_PREEMPTED])),
        line(30.5, "MODIFIED", _running("p", 6, conditions=[_PREEMPTED], metadata=_STOPS)),
        line(34, "MODIFIED", end),
        line(34, "DELETED", {**end, "metadata": {**end["metadata"], "resourceVersion": "8"}}),
    )
    assert not deletes(records)
    assert len(observed(records, "preempted")) == 1
    assert observed(records, "removed")[0].removed.cause == "preempted"
    life = records[1].pod_create.life
    assert life.censored
    assert life.service_duration_ns == int(28.5 * S)
    assert life.shutdown_duration_ns == int(3.5 * S)
    assert not life.fails


def test_a_nomination_and_its_end_and_each_new_failure_are_observed(tmp_path: Path) -> None:
    """One failure a message, however often it is written."""

    def pending(version: int, message: str, nominated: str) -> Raw:
        status: Raw = {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": message,
                }
            ],
            "nominatedNodeName": nominated,
        }
        return make_pod("p", version, status=status)

    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("p", 2)),
        line(1, "MODIFIED", pending(3, "0/1 nodes", "n")),
        line(2, "MODIFIED", pending(4, "0/1 nodes", "n")),
        line(3, "MODIFIED", pending(5, "0/2 nodes", "")),
    )
    failures = observed(records, "failed_scheduling")
    assert [failure.failed_scheduling.message for failure in failures] == ["0/1 nodes", "0/2 nodes"]
    nominations = observed(records, "nominated")
    assert [nomination.nominated.node_name for nomination in nominations] == ["n", ""]
    assert [(issue.kind, issue.count) for issue in issues(records)] == [("status-only", 1)]


def test_deletions_by_users_and_drains_are_input(tmp_path: Path) -> None:
    """With the grace period where it is not the pod's own."""
    drained = ("DisruptionTarget", "True", "EvictionByEvictionAPI")
    short = {**_STOPS, "deletionGracePeriodSeconds": 5}
    records = imported(
        tmp_path,
        line(0, "ADDED", _running("a", 2)),
        line(0, "ADDED", _running("b", 3)),
        line(0, "ADDED", make_pod("c", 4)),
        line(1, "MODIFIED", _running("a", 5, metadata=_STOPS)),
        line(2, "MODIFIED", _running("b", 6, conditions=[drained], metadata=short)),
        line(3, "DELETED", make_pod("c", 7)),
        line(4, "MODIFIED", _running("a", 8, metadata={**_STOPS, "deletionGracePeriodSeconds": 0})),
        line(4, "DELETED", _running("a", 9, metadata=_STOPS)),
    )
    deletions = [(delete.object.name, delete.cause) for delete in deletes(records)]
    assert deletions == [("a", "user"), ("b", "drain"), ("c", "user")]
    graces = [
        delete.grace_period_seconds if delete.HasField("grace_period_seconds") else None
        for delete in deletes(records)
    ]
    assert graces == [None, 5, None]


def test_an_eviction_by_a_kubelet_and_its_clean_up_are_observed(tmp_path: Path) -> None:
    """The signal is read from the kubelet's words."""
    words = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 9Ki. "
    status = {"reason": "Evicted", "message": words}
    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("p", 2)),
        line(1, "MODIFIED", _running("p", 3)),
        line(9, "MODIFIED", make_pod("p", 4, node="n", phase="Failed", status=status)),
        line(20, "DELETED", make_pod("p", 5, node="n", phase="Failed", status=status)),
    )
    evicted = observed(records, "evicted")[0].evicted
    assert (evicted.node_name, evicted.signal) == ("n", "memory.available")
    assert observed(records, "removed")[0].removed.cause == "evicted"
    assert not deletes(records)
    life = records[1].pod_create.life
    assert life.censored
    assert not life.fails


def test_a_pod_that_a_kubelet_ends_for_a_critical_one_is_observed_as_evicted(
    tmp_path: Path,
) -> None:
    """As a replay logs it, with the same signal; its removal has the same cause."""
    status = {"reason": "Preempting", "message": "Preempted in order to admit critical pod"}
    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("p", 2)),
        line(1, "MODIFIED", _running("p", 3)),
        line(9, "MODIFIED", make_pod("p", 4, node="n", phase="Failed", status=status)),
        line(20, "DELETED", make_pod("p", 5, node="n", phase="Failed", status=status)),
    )
    assert [record.evicted.signal for record in observed(records, "evicted")] == [
        "kubeletPreemption"
    ]
    assert not observed(records, "finished")
    assert observed(records, "removed")[0].removed.cause == "evicted"


def test_a_pod_that_its_kubelet_rejects_may_run_in_a_replay(tmp_path: Path) -> None:
    """Its node had no room; the pod itself does not fail, and its life is not recorded."""
    words = "Node didn't have enough resource: cpu, requested: 1, used: 4, capacity: 4"
    status = {"reason": "OutOfcpu", "message": f"Pod was rejected: {words}"}
    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("p", 2)),
        line(1, "MODIFIED", make_pod("p", 3, node="n")),
        line(1, "MODIFIED", make_pod("p", 4, node="n", phase="Failed", status=status)),
    )
    assert records[1].pod_create.life == PodLife()
    rejected = observed(records, "rejected")[0].rejected
    assert (rejected.node_name, rejected.reason, rejected.message) == ("n", "OutOfcpu", words)
    assert observed(records, "finished")[0].finished.phase == "Failed"


@pytest.mark.parametrize(("reason", "is_its_own"), [("Preempting", False), ("Error", True)])
def test_a_pod_that_its_kubelet_ends_does_not_fail_by_itself(
    tmp_path: Path, reason: str, is_its_own: bool
) -> None:
    """As for a critical pod, or because its node shuts down."""
    conditions = [] if is_its_own else [("DisruptionTarget", "True", "TerminationByKubelet")]
    status = {"reason": reason}
    failed = make_pod(
        "p", 4, node="n", phase="Failed", conditions=[_SCHEDULED, *conditions], status=status
    )
    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("p", 2)),
        line(1, "MODIFIED", _running("p", 3)),
        line(9, "MODIFIED", failed),
    )
    life = records[1].pod_create.life
    assert (life.fails, life.censored) == (is_its_own, not is_its_own)


def test_what_a_recorded_deployment_made_is_expected_of_the_replay(tmp_path: Path) -> None:
    """Its ReplicaSet, and that one's pods with their lives, stand before it; they are observed."""
    web, rs = make_deployment(2, 2), make_replica_set(3, 2, owner=make_deployment(2, 2))
    for name, lines in {
        "d": [line(0, "ADDED", web)],
        "r": [line(0.1, "ADDED", rs)],
        "p": [
            line(0.2, "ADDED", make_pod("rs-a", 4, owner=rs)),
            line(0.2, "ADDED", make_pod("rs-b", 5, owner=rs)),
            line(1, "MODIFIED", make_pod("rs-b", 6, owner=rs, node="n")),
            line(2, "MODIFIED", _running("rs-b", 7, owner=rs)),
            line(9, "MODIFIED", make_pod("rs-b", 8, owner=rs, node="n", phase="Succeeded")),
        ],
    }.items():
        (tmp_path / name).write_bytes(b"\n".join(lines))
    records = list(open_trace([tmp_path]))
    assert kinds(records)[:8] == [
        "header",
        "controller_pod",
        "controller_pod",
        "controller_pod",
        "create deployment",
        "observed created",
        "observed created",
        "observed created",
    ]
    expected = [record.controller_pod for record in records if record.HasField("controller_pod")]
    assert [
        (entry.owner.kind, entry.owner.name, entry.ordinal, entry.name) for entry in expected
    ] == [
        ("Deployment", "web", 0, "rs"),
        ("ReplicaSet", "rs", 0, "rs-a"),
        ("ReplicaSet", "rs", 1, "rs-b"),
    ]
    assert expected[2].life.service_duration_ns == 7 * S
    assert not any(record.HasField("pod_create") for record in records)


def test_pods_of_the_first_list_are_input_with_their_node_and_count_as_made(tmp_path: Path) -> None:
    """The controller's next pod has the next ordinal."""
    rs = make_replica_set(1, 2)
    for name, lines in {
        "r": [line(0, "ADDED", rs), line(0, "BOOKMARK", list_end("ReplicaSet", 9))],
        "p": [
            line(0, "ADDED", _running("rs-a", 4, owner=rs)),
            line(0, "BOOKMARK", list_end("Pod", 9)),
            line(5, "ADDED", make_pod("rs-b", 10, owner=rs)),
        ],
    }.items():
        (tmp_path / name).write_bytes(b"\n".join(lines))
    records = list(open_trace([tmp_path]))
    assert kinds(records) == [
        "header",
        "controller_pod",
        "create replica_set",
        "pod_create",
        "observed created",
    ]
    assert records[1].controller_pod.ordinal == 1
    assert records[3].pod_create.pod.spec.node_name == "n"
    assert records[3].pod_create.pod.status.phase == "Running"
    assert records[3].time_ns == T0_S * S


def test_pods_of_owners_that_are_not_recorded_are_input(tmp_path: Path) -> None:
    """Nobody in the replay would make them."""
    rs = make_replica_set(1, 1)
    records = imported(tmp_path, line(0, "ADDED", make_pod("rs-a", 4, owner=rs)))
    assert kinds(records) == ["header", "pod_create"]


def test_a_controllers_own_deletions_are_observed_and_a_users_are_input(tmp_path: Path) -> None:
    """A ReplicaSet that has more pods than it wants deletes them itself."""
    rs, fewer = make_replica_set(1, 2), make_replica_set(10, 1)
    (tmp_path / "r").write_bytes(b"\n".join([line(0, "ADDED", rs), line(5, "MODIFIED", fewer)]))
    pods = [
        line(0, "ADDED", make_pod("rs-a", 4, owner=rs)),
        line(0, "ADDED", make_pod("rs-b", 5, owner=rs)),
        line(2, "MODIFIED", _running("rs-a", 6, owner=rs)),
        line(3, "MODIFIED", _running("rs-b", 7, owner=rs)),
        line(6, "MODIFIED", _running("rs-a", 11, owner=rs, metadata=_STOPS)),
        line(7, "MODIFIED", _running("rs-b", 12, owner=rs, metadata=_STOPS)),
    ]
    (tmp_path / "p").write_bytes(b"\n".join(pods))
    records = list(open_trace([tmp_path]))
    assert [(delete.object.name, delete.cause) for delete in deletes(records)] == [("rs-b", "user")]
    assert "update replica_set" in kinds(records)


def test_gates_and_labels_that_users_change_are_updates(tmp_path: Path) -> None:
    """A binding's own labels (zone and region of the node) are not."""
    gated = {"schedulingGates": [{"name": "g"}]}
    zone = {"labels": {"app": "a", "topology.kubernetes.io/zone": "z"}}
    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("p", 2, spec=gated)),
        line(1, "MODIFIED", make_pod("p", 3)),
        line(2, "MODIFIED", make_pod("p", 4, metadata={"labels": {"app": "a"}})),
        line(3, "MODIFIED", make_pod("p", 5, node="n", metadata=zone)),
        line(4, "MODIFIED", make_pod("p", 6, node="n", metadata={"labels": {"app": "b"}})),
    )
    updates = [record.update.pod for record in records if record.update.HasField("pod")]
    assert [dict(update.metadata.labels) for update in updates] == [{}, {"app": "a"}, {"app": "b"}]
    assert not any(update.spec.scheduling_gates or update.spec.node_name for update in updates)


def test_pods_of_another_scheduler_come_with_the_node_they_got(tmp_path: Path) -> None:
    """They occupy it; a replay never queues them."""
    other = {"schedulerName": "batch-scheduler"}
    lines = [
        line(0, "ADDED", make_pod("p", 2, spec=other)),
        line(3, "MODIFIED", make_pod("p", 3, node="n", spec=other)),
    ]
    records = imported(tmp_path, *lines)
    assert kinds(records) == ["header", "pod_create", "observed scheduled"]
    assert records[1].pod_create.pod.spec.node_name == "n"
    assert records[1].time_ns == (T0_S + 3) * S
    ours = ImportOptions(scheduler_names=("default-scheduler", "batch-scheduler"))
    assert imported(tmp_path, *lines, options=ours)[1].pod_create.pod.spec.node_name == ""


def test_static_pods_come_on_their_node(tmp_path: Path) -> None:
    """A mirror pod has its node from the beginning."""
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    records = imported(tmp_path, line(0, "ADDED", make_pod("p", 2, node="n", metadata=mirror)))
    assert records[1].pod_create.pod.spec.node_name == "n"


def test_node_changes_are_input_and_heartbeats_are_counted(tmp_path: Path) -> None:
    """Pressure is what a replay's own kubelets decide."""

    def node(version: int, *, ready: str, beat: str, pressure: str = "False") -> Raw:
        conditions = [
            {"type": "Ready", "status": ready, "lastHeartbeatTime": beat},
            {"type": "MemoryPressure", "status": pressure},
        ]
        taint = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
        spec = {"taints": [taint]} if pressure == "True" else {}
        status = {"conditions": conditions, "capacity": {"cpu": "6"}}
        return make_object("Node", "n", version, spec=spec, status=status)

    records = imported(
        tmp_path,
        line(0, "ADDED", node(2, ready="False", beat="2026-01-01T00:00:00Z")),
        line(1, "MODIFIED", node(3, ready="True", beat="2026-01-01T00:00:01Z")),
        line(2, "MODIFIED", node(4, ready="True", beat="2026-01-01T00:00:02Z")),
        line(3, "MODIFIED", node(5, ready="True", beat="2026-01-01T00:00:03Z", pressure="True")),
        line(9, "DELETED", node(6, ready="True", beat="2026-01-01T00:00:03Z")),
    )
    assert kinds(records) == [
        "header",
        "create node",
        "update node",
        "observed condition_changed",
        "delete Node user",
        "issue heartbeat",
    ]
    assert observed(records, "condition_changed")[0].condition_changed.type == "MemoryPressure"


def test_a_budgets_status_is_observed_and_never_part_of_the_input(tmp_path: Path) -> None:
    """A replay computes it; the recorded one is there for who wants it."""

    def budget(version: int, allowed: int, minimum: int = 1) -> Raw:
        status = {"disruptionsAllowed": allowed, "expectedPods": 3}
        return make_object(
            "PodDisruptionBudget", "b", version, spec={"minAvailable": minimum}, status=status
        )

    records = imported(
        tmp_path,
        line(0, "ADDED", budget(2, 1)),
        line(1, "MODIFIED", budget(3, 2)),
        line(2, "MODIFIED", budget(4, 2, minimum=2)),
    )
    assert kinds(records) == [
        "header",
        "create pod_disruption_budget",
        "observed budget_status",
        "observed budget_status",
        "update pod_disruption_budget",
    ]
    assert not records[1].create.pod_disruption_budget.HasField("status")
    assert records[3].observed.budget_status.status.disruptions_allowed == 2


def test_scalings_and_deletions_of_controllers_are_input(tmp_path: Path) -> None:
    """Their status is not."""
    busy = {**make_deployment(3, 1), "status": {"replicas": 1}}
    records = imported(
        tmp_path,
        line(0, "ADDED", make_deployment(2, 1)),
        line(1, "MODIFIED", busy),
        line(2, "MODIFIED", make_deployment(4, 5)),
        line(3, "DELETED", make_deployment(5, 5)),
    )
    assert kinds(records) == [
        "header",
        "create deployment",
        "update deployment",
        "delete Deployment user",
        "issue status-only",
    ]


def _of_class(name: str, version: int, priority: int, policy: str = "") -> Raw:
    spec: Raw = {"priorityClassName": name, "priority": priority}
    if policy:
        spec["preemptionPolicy"] = policy
    return make_pod(f"p-{version}", version, spec=spec)


def test_classes_are_inferred_from_their_pods_where_none_is_recorded(tmp_path: Path) -> None:
    """Such as by a user who may read no object of the cluster; each before the pods of it."""
    records = imported(
        tmp_path,
        line(0, "ADDED", _of_class("gold", 2, 7, "Never")),
        line(1, "ADDED", _of_class("gold", 3, 8, "Never")),
        line(1, "ADDED", _of_class("system-node-critical", 4, 2_000_001_000)),
    )
    assert kinds(records)[:3] == ["header", "create priority_class", "pod_create"]
    gold = records[1].create.priority_class
    assert (gold.metadata.name, gold.value, gold.preemption_policy) == ("gold", 8, "Never")
    [inferred] = issues(records)
    assert (inferred.kind, inferred.where) == ("inferred", "PriorityClass gold")
    assert records[2].pod_create.pod.spec.priority == 7


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59Z", "2500-01-01T00:00:00Z", "0001-01-01T00:00:00Z"]
)
def test_a_time_that_a_trace_cannot_have_is_no_time(text: str) -> None:
    """Times are ns in 63 bits."""
    assert time_ns(text) is None
    assert time_ns("2100-01-01T00:00:00Z") is not None


@pytest.mark.parametrize("value", [True, -1, 2**40, 1.5, "30", None])
def test_an_invalid_grace_period_is_absent(value: object) -> None:
    """Of a deletion, and of an eviction's options."""
    assert grace_period_s(value) is None
    assert grace_period_s(30) == 30


@pytest.mark.parametrize("kind", [{"a": 1}, ["ReplicaSet"], 5])
def test_an_owner_of_a_wrong_kind_owns_nothing(tmp_path: Path, kind: object) -> None:
    """It is not looked up."""
    pod = make_pod("p", 2)
    owner = {"kind": kind, "name": "o", "uid": "u", "apiVersion": "apps/v1", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    assert kinds(imported(tmp_path, line(0, "ADDED", pod)))[0] == "header"


@pytest.mark.parametrize(
    ("priority", "policy", "found"),
    [(2**40, "Never", []), (True, "Never", []), (7, "Bogus", [""]), (-(2**31), "Never", ["Never"])],
)
def test_a_class_is_inferred_from_valid_values_alone(
    tmp_path: Path, priority: int, policy: str, found: list[str]
) -> None:
    """A pod with others does not make the recording unreadable."""
    records = imported(tmp_path, line(0, "ADDED", _of_class("gold", 2, priority, policy)))
    assert [
        record.create.priority_class.preemption_policy
        for record in records
        if record.create.HasField("priority_class")
    ] == found


def test_a_class_that_is_not_among_the_recorded_ones_is_reported(tmp_path: Path) -> None:
    """It was deleted: its pods keep their spec.priority, and no new pod is admitted with it."""
    other = make_object("PriorityClass", "silver", 1)
    gold = imported(tmp_path, line(0, "ADDED", other), line(0, "ADDED", _of_class("gold", 2, 7)))
    assert [issue.kind for issue in issues(gold)] == ["missing-priority-class"]
    [pod] = [record.pod_create.pod for record in gold if record.HasField("pod_create")]
    assert pod.spec.priority == 7


def test_files_are_merged_by_resource_version(tmp_path: Path) -> None:
    """Arrivals of different watches differ by tens of ms; time never goes back."""
    (tmp_path / "n").write_bytes(line(1.05, "ADDED", make_object("Node", "n", 5)))
    (tmp_path / "p").write_bytes(
        line(1.0, "ADDED", make_pod("p", 6)) + b"\n" + line(1.1, "ADDED", make_pod("q", 7))
    )
    records = list(open_trace([tmp_path]))
    assert kinds(records)[1] == "create node"
    times = [(record.time_ns - T0_S * S) // 1_000_000 for record in records[1:]]
    assert times[:2] == [1050, 1050]
    assert times[-1] == 1100


def test_a_reopened_watch_gives_nothing_twice(tmp_path: Path) -> None:
    """Everything ADDED again; an object that was replaced meanwhile has been deleted."""
    other = make_pod("b", 9)
    other["metadata"]["uid"] = "uid-b2"
    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("a", 2)),
        line(0, "ADDED", make_pod("b", 3)),
        line(1, "ERROR", {"kind": "Status", "message": "too old resource version"}),
        line(2, "ADDED", make_pod("a", 2)),
        line(2, "ADDED", other),
    )
    assert [delete.object.uid for delete in deletes(records)] == ["uid-b"]
    assert sum(record.HasField("pod_create") for record in records) == 3
    assert {issue.kind for issue in issues(records)} == {
        "watch-error",
        "duplicate-event",
        "missed-deletion",
    }


def test_kubectls_own_output_is_read_without_arrivals(tmp_path: Path) -> None:
    """Pretty-printed; times are the latest in the object."""
    later = make_pod("p", 3, node="n")
    later["metadata"]["managedFields"] = [{"time": "2026-01-01T00:00:07Z"}]
    raw = [
        {"type": "ADDED", "object": _running("old", 1, conditions=[_SCHEDULED])},
        {"type": "ADDED", "object": make_pod("p", 2)},
        {"type": "MODIFIED", "object": later},
    ]
    records = imported(tmp_path, *(json.dumps(line, indent=4).encode() for line in raw))
    assert kinds(records) == [
        "header",
        "pod_create",
        "template",
        "pod_create",
        "observed scheduled",
        "issue guessed-time",
    ]
    assert records[1].pod_create.pod.metadata.name == "old"
    assert [record.time_ns // S - T0_S for record in records[:5]] == [0, 0, 0, 0, 7]


def test_a_second_recording_of_a_kind_is_left_out(tmp_path: Path) -> None:
    """The raw watch, which marks its first list, is preferred to kubectl's."""
    (tmp_path / "kubectl.jsonl").write_bytes(line(0, "ADDED", make_pod("p", 2)))
    (tmp_path / "watch.jsonl").write_bytes(
        line(0, "BOOKMARK", list_end("Pod", 1)) + b"\n" + line(0, "ADDED", make_pod("p", 2))
    )
    records = list(open_trace([tmp_path]))
    assert kinds(records) == ["header", "pod_create", "issue duplicate-source"]


def test_an_object_that_cannot_be_read_is_reported_and_left_out(tmp_path: Path) -> None:
    """One odd object does not cost the recording."""
    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("odd", 2, spec={"priority": "high"})),
        line(0, "ADDED", make_pod("p", 3)),
    )
    assert kinds(records) == ["header", "pod_create", "issue unreadable-object"]


def test_what_the_taint_manager_deleted_is_an_observation(tmp_path: Path) -> None:
    """A replay has a taint manager of its own."""
    target = ("DisruptionTarget", "True", "DeletionByTaintManager")
    records = imported(
        tmp_path,
        line(0, "ADDED", make_pod("p", 2)),
        line(1, "MODIFIED", _running("p", 3)),
        line(2, "MODIFIED", _running("p", 4, conditions=[target], metadata=_STOPS)),
    )
    assert list(deletes(records)) == []


@pytest.mark.parametrize(
    ("version", "owner_kind"),
    [
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("v1", "ReplicationController"),
    ],
)
def test_what_any_recorded_controller_made_is_expected_of_the_replay(
    tmp_path: Path, version: str, owner_kind: str
) -> None:
    """Its pods are observed, and lend their names and lives."""
    owner = {**make_object(owner_kind, "x", 2), "apiVersion": version}
    records = imported(
        tmp_path,
        line(0, "ADDED", owner),
        line(1, "ADDED", make_pod("x-0", 3, owner=owner)),
        line(3, "MODIFIED", _running("x-0", 4, owner=owner)),
    )
    expected = [record.controller_pod for record in records if record.HasField("controller_pod")]
    assert [(entry.owner.kind, entry.name) for entry in expected] == [(owner_kind, "x-0")]
    assert observed(records, "created")[0].created.owner.name == "x"
    assert not any(record.HasField("pod_create") for record in records)


def test_a_resize_of_a_controllers_pod_is_an_update_too(tmp_path: Path) -> None:
    """The replay's pod of that name is resized; statuses are left to its kubelet."""
    owner = make_replica_set(2, 1)
    resized = _running("web-1", 5, owner=owner)
    resized["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    reported = _running("web-1", 6, owner=owner)
    reported["spec"] = resized["spec"]
    container = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
    reported["status"]["containerStatuses"] = [container]
    records = imported(
        tmp_path,
        line(0, "ADDED", owner),
        line(1, "ADDED", make_pod("web-1", 3, owner=owner)),
        line(3, "MODIFIED", _running("web-1", 4, owner=owner)),
        line(4, "MODIFIED", resized),
        line(5, "MODIFIED", reported),
    )
    (update,) = [record.update.pod for record in records if record.HasField("update")]
    assert update.metadata.name == "web-1"
    assert update.spec.containers[0].resources.requests["cpu"] == "3"
