"""The checks of an eviction service, on nodes with 8Gi of memory and 100Gi of disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replay.conform.contract.checks import (
    CheckedSession,
    CheckError,
    ConformanceLevel,
    ContractClient,
    NotServedError,
    ServiceContract,
    expect,
    expect_refusal,
    expect_same,
    only,
)
from replay.conform.contract.sessions import session_checks
from replay.world.response_checks import check_results
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.eviction.v1beta1 import eviction_service_pb2_grpc
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from services.kube.time import SECOND_NS

GI = 1 << 30
MEMORY = "memory.available"
PODS = ("over-high", 2.0, 1, 10), ("over-low", 1.5, 1, 0), ("within", 1.0, 2, 0)
"""Pods: name, memory usage and request in Gi, priority; the second one ranks first."""
CRITICAL = 2_000_000_000
CHECKS = session_checks(stream_level=5)


def pod(name: str, request_gi: int = 0, priority: int = 0, **spec: Any) -> pod_pb2.Pod:
    """Return an active pod; without a request it is BestEffort."""
    meta = meta_pb2.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    made = pod_pb2.Pod(metadata=meta, spec=pod_pb2.PodSpec(priority=priority, **spec))
    container = made.spec.containers.add(name="c", image="image")
    if request_gi:
        container.resources.requests["memory"] = f"{request_gi}Gi"
    return made


def seen(second: float, available_gi: float, disk_gi: int = 90) -> ev.Observations:
    """Return what a node observes, and what the pods of PODS use."""
    time_ns = int(second * SECOND_NS)
    memory = ev.MemoryStats(available_bytes=int(available_gi * GI), time_ns=time_ns)
    memory.working_set_bytes = 8 * GI - memory.available_bytes
    disk = ev.FsStats(available_bytes=disk_gi * GI, capacity_bytes=100 * GI, time_ns=time_ns)
    observations = ev.Observations(memory=memory, node_fs=disk, image_fs=disk, container_fs=disk)
    for name, used_gi, _, _ in PODS:
        used = int(used_gi * GI)
        stats = observations.pods.add(memory_working_set_bytes=used)
        stats.pod.uid, stats.pod.name, stats.pod.namespace = f"uid-{name}", name, "default"
        stats.containers.add(name="c", memory_working_set_bytes=used)
    return observations


def step(second: float, available_gi: float, on: str = "n", **more: Any) -> pb.Operation:
    """Return a step of a node with the pods of PODS."""
    disk_gi = more.pop("disk_gi", 90)
    pods = [pod(name, request, priority) for name, _, request, priority in PODS]
    return pb.Operation(
        step=pb.Step(
            node_name=on,
            time_ns=int(second * SECOND_NS),
            observations=seen(second, available_gi, disk_gi),
            **({"pods": pods} | more),
        )
    )


def _create(**config: Any) -> pb.CreateSessionRequest:
    """Return a request for nodes that evict below 1Gi of memory or 10Gi of disk."""
    hard = {MEMORY: "1Gi", "nodefs.available": "10Gi"}
    made: dict[str, Any] = {"hard": hard, "pressure_transition_duration_ns": SECOND_NS}
    made["local_storage_isolation"] = False
    return pb.CreateSessionRequest(config=ev.EvictionConfig(**(made | config)))


def _apply(session: CheckedSession, *operations: pb.Operation) -> list[pb.OperationResult]:
    """Return the results of operations; those that were left are sent again."""
    unsent, results = list(operations), []
    while unsent:
        answer = session.send(pb.ApplyRequest(operations=unsent))
        results += answer.results
        unsent = unsent[answer.applied :]
    return results


def _step(session: CheckedSession, operation: pb.Operation) -> ev.StepResult:
    result = only("results", _apply(session, operation))
    expect("results[0].result", result.WhichOneof("result"), "step")
    step_result: ev.StepResult = result.step
    return step_result


def _evicted(result: ev.StepResult) -> list[str]:
    return [eviction.pod.uid.removeprefix("uid-") for eviction in result.evictions]


@CHECKS.level(1, rule=1)
def evicts_at_a_hard_threshold(client: ContractClient) -> None:
    """Check that one pod goes in a step below it, and none above it."""
    session = client.session()
    expect("evictions on a calm node", _evicted(_step(session, step(0, 4))), [])
    evicted = _evicted(_step(session, step(10, 0.5)))
    expect("evictions below a hard threshold", len(evicted), 1)
    kept = [f"uid-{name}" for name, *_ in PODS if name not in evicted]
    again = _evicted(_step(session, step(20, 0.5, pods=[], active_uids=kept)))
    expect("evictions of pods named by uid", len(again), 1)
    expect("evictions on a calm node", _evicted(_step(session, step(30, 4))), [])


@CHECKS.level(1, rule=2)
def keeps_nodes_apart(client: ContractClient) -> None:
    """Check a batch of several nodes, and that a removed node begins without state."""
    session = client.session()
    removed = [pb.Operation(remove_node=name) for name in ("n", "nowhere")]
    results = _apply(session, step(50, 4), step(40, 0.5, "m"), *removed, step(0, 0.5))
    evictions = [(result.node_name, len(result.step.evictions)) for result in results]
    expect("evictions by node", evictions, [("n", 0), ("m", 1), ("n", 1)])


@CHECKS.level(2, rule=3)
def gives_reasons_as_the_kubelet_does(client: ContractClient) -> None:
    """Check message, reason, signal, threshold, what was available, and the rank."""
    session = client.session()
    result = _step(session, step(0, 0.5))
    eviction = only("evictions", result.evictions)
    start = "The node was low on resource: memory."
    if not eviction.message.startswith(start):
        raise CheckError(f"message is {eviction.message!r}, expected {start!r} first")
    texts = [threshold.text for threshold in session.opened.thresholds]
    expect("threshold is one of the session's", eviction.threshold in texts, expected=True)
    met = [threshold.text for threshold in result.thresholds_met]
    expect("thresholds_met", met, [eviction.threshold])
    for field, value in (
        ("reason", "Evicted"),
        ("phase", "Failed"),
        ("signal", MEMORY),
        ("available", GI // 2),
        ("capacity", 8 * GI),
        ("rank", 1),
        ("ranked_pods", len(PODS)),
    ):
        expect(f"evictions[0].{field}", getattr(eviction, field), value)


@CHECKS.level(2, rule=4)
def ranks_pods_as_the_kubelet_does(client: ContractClient) -> None:
    """Check that pods above their requests come first, then those of lower priority."""
    result = _step(client.session(), step(0, 0.5))
    ranking = [ranked.pod.uid.removeprefix("uid-") for ranked in result.ranking]
    expect("ranking", ranking, ["over-low", "over-high", "within"])
    expect("evictions", _evicted(result), ranking[:1])
    expect("ranking[0].exceeds_request", result.ranking[0].exceeds_request, expected=True)
    places = [(ranked.usage, ranked.request) for ranked in result.ranking[:1]]
    expect("ranking[0].usage and request", places, [(GI * 3 // 2, GI)])


@CHECKS.level(3, rule=5)
def waits_for_the_grace_of_a_soft_threshold(client: ContractClient) -> None:
    """Check that no pod goes before, and the bound on pods' own grace."""
    soft = {"soft": {MEMORY: "2Gi"}, "soft_grace": {MEMORY: "30s"}}
    session = client.session(_create(**soft, max_pod_grace_period_duration_ns=7 * SECOND_NS))
    for second in (0, 20):
        expect("evictions within grace", _evicted(_step(session, step(second, 1.5))), [])
    eviction = only("evictions", _step(session, step(40, 1.5)).evictions)
    name = "grace_period_override_duration_ns"
    expect(name, eviction.grace_period_override_duration_ns, 7 * SECOND_NS)


@CHECKS.level(3, rule=6)
def keeps_a_condition_for_its_transition_period(client: ContractClient) -> None:
    """Check MemoryPressure from the step that meets the threshold to the period's end."""
    session = client.session(_create(pressure_transition_duration_ns=60 * SECOND_NS))
    holds: dict[str, str] = {}
    for second, available_gi, status in ((0, 4, "False"), (10, 0.5, "True"), (40, 4, "True")):
        result = _step(session, step(second, available_gi))
        holds |= {condition.type: condition.status for condition in result.conditions}
        expect(f"conditions[MemoryPressure] at {second} s", holds.get("MemoryPressure"), status)
    result = _step(session, step(100, 4))
    holds |= {condition.type: condition.status for condition in result.conditions}
    expect("conditions[MemoryPressure] after the period", holds.get("MemoryPressure"), "False")


@CHECKS.level(3, rule=7)
def asks_for_collection_before_it_evicts(client: ContractClient) -> None:
    """Check NeedReclaim and Resume, and that the node takes no other step meanwhile."""
    session = client.session()
    resume = pb.Resume(node_name="n", observations=seen(0, 4, disk_gi=50))
    nobody_waits = [pb.Operation(resume=resume)]
    _step(session, step(0, 4))

    def send(operations: Sequence[pb.Operation]) -> object:
        return session.client.call("Apply", session.stamped(pb.ApplyRequest(operations=operations)))

    expect_refusal(lambda: send(nobody_waits), "FAILED_PRECONDITION", "PRECONDITION")
    (result,) = _apply(session, step(10, 4, disk_gi=5))
    expect("results[0].result", result.WhichOneof("result"), "need_reclaim")
    expect_refusal(lambda: send([step(20, 4)]), "FAILED_PRECONDITION", "PRECONDITION")
    (result,) = _apply(session, *nobody_waits)
    expect("evictions after a collection that was enough", _evicted(result.step), [])
    (result,) = _apply(session, step(20, 4, disk_gi=5))
    resume.observations.CopyFrom(seen(20, 4, disk_gi=5))
    (result,) = _apply(session, pb.Operation(resume=resume))
    expect("evictions after a collection that was not", len(result.step.evictions), 1)


@CHECKS.level(3, rule=8)
def admits_pods_as_the_kubelet_does(client: ContractClient) -> None:
    """Check pods on a node under memory pressure, and that an unknown node is not found."""
    session = client.session()
    _step(session, step(0, 0.5))
    critical = pod("critical", priority=CRITICAL)
    for asking, is_admitted in (
        (pod("best-effort"), False),
        (pod("asks", 1), True),
        (critical, True),
    ):
        (result,) = _apply(session, pb.Operation(admit=pb.Admit(node_name="n", pod=asking)))
        expect(f"admission.admit of {asking.metadata.name}", result.admission.admit, is_admitted)
        expect("admission.reason", result.admission.reason, "" if is_admitted else "Evicted")
    unknown = pb.Operation(admit=pb.Admit(node_name="nowhere", pod=critical))
    stamped = session.stamped(pb.ApplyRequest(operations=[unknown]))
    expect_refusal(lambda: client.call("Apply", stamped), "NOT_FOUND", "NOT_FOUND")


@CHECKS.level(3, rule=9)
def configures_a_node_by_itself(client: ContractClient) -> None:
    """Check that the other nodes keep the session's thresholds."""
    session = client.session()
    of_node = ev.EvictionConfig(hard={MEMORY: "3Gi"}, local_storage_isolation=False)
    configure = pb.Operation(configure=pb.Configure(node_name="m", config=of_node))
    configured, *steps = _apply(session, configure, step(0, 2), step(0, 2, "m"))
    signals = [
        threshold.text.startswith(f"{MEMORY}<3Gi") for threshold in configured.configured.thresholds
    ]
    expect("configured.thresholds has that of 3Gi", any(signals), expected=True)
    evictions = [len(result.step.evictions) for result in steps]
    expect("evictions by the session's and by a node's own thresholds", evictions, [0, 1])


@CHECKS.level(4, rule=10)
def shows_the_state_of_a_node(client: ContractClient) -> None:
    """Check GetState: thresholds met and since when, conditions, and a step that waits."""
    session = client.session()
    _apply(session, step(5, 0.5), step(7, 4, "m", disk_gi=5))
    states = {node.node_name: node for node in session.state().nodes}
    expect("nodes", sorted(states), ["m", "n"])
    expect("nodes[n].time_ns", states["n"].time_ns, 5 * SECOND_NS)
    expect("nodes[n].thresholds_met", len(states["n"].thresholds_met), 1)
    expect("nodes[n].first_observed", states["n"].first_observed[0].time_ns, 5 * SECOND_NS)
    under = [condition.type for condition in states["n"].conditions if condition.status == "True"]
    expect("nodes[n].conditions that hold", under, ["MemoryPressure"])
    waits = [states[name].awaits_reclaim for name in ("n", "m")]
    expect("awaits_reclaim", waits, [False, True])


@CHECKS.level(5, rule=11)
def returns_amounts_at_which_steps_change_nothing(client: ContractClient) -> None:
    """Check Calm: such steps can be left out, and what follows is the same."""
    stepped, skipping = client.session(), client.session()
    for session in (stepped, skipping):
        _step(session, step(0, 4))
        result = _step(session, step(10, 4))
    if not result.HasField("calm"):
        raise NotServedError("StepResult.calm is absent on a calm node")
    least = {signal.signal: signal.amount for signal in result.calm.min_available}
    amount = least.get(MEMORY, 0)
    if not GI <= amount <= 4 * GI:
        raise CheckError(f"calm.min_available[{MEMORY}] is {amount}, expected from 1Gi to 4Gi")
    for second in (20, 30):
        result = _step(stepped, step(second, amount / GI))
        expect("evictions of a step that could be left out", _evicted(result), [])
        changed = [condition.type for condition in result.conditions if condition.status == "True"]
        expect("conditions that hold in a step that could be left out", changed, [])
    pressed = step(40, 0.5)
    expect_same(
        "a step after others were left out", _step(skipping, pressed), _step(stepped, pressed)
    )


@CHECKS.level(5, rule=12)
def marks_quiet_steps(client: ContractClient) -> None:
    """Check that conditions are left out of a step like the one before on a calm node."""
    session = client.session()
    _step(session, step(0, 4))
    result = _step(session, step(10, 4))
    if not result.quiet:
        raise NotServedError("StepResult.quiet is never set")
    expect("conditions of a quiet step", len(result.conditions), 0)
    expect("quiet of a step that evicts", _step(session, step(20, 0.5)).quiet, expected=False)


@CHECKS.level(5, rule=13)
def returns_notification_amounts(client: ContractClient) -> None:
    """Check the amounts that kernel_memcg_notification requires."""
    result = _step(client.session(_create(kernel_memcg_notification=True)), step(0, 4))
    if not result.notify_at:
        raise NotServedError("StepResult.notify_at is empty with kernel_memcg_notification")
    amounts = [(signal.signal, signal.amount) for signal in result.notify_at]
    expect("notify_at has the threshold", (MEMORY, GI) in amounts, expected=True)


def _look(request: Any, answer: Any, sent: Sequence[Any]) -> None:
    del sent
    operations = request.operations
    if not min(1, len(operations)) <= answer.applied <= len(operations):
        raise CheckError(f"applied is {answer.applied}, expected from 1 to {len(operations)}")
    check_results(answer.results, operations[: answer.applied])


def _story() -> list[pb.ApplyRequest]:
    removed = pb.Operation(remove_node="m")
    batches = [
        [step(1, 4), step(1, 4, "m")],
        [step(10, 0.5), removed],
        [step(20, 4), step(20, 0.5, "m")],
        [step(30, 0.5)],
    ]
    return [pb.ApplyRequest(operations=batch) for batch in batches]


def _malformed() -> dict[str, pb.ApplyRequest]:
    nameless = pod("x")
    nameless.metadata.uid = ""
    operations = {
        "operations[1]": pb.Operation(),
        "operations[1].step.node_name": step(0, 4, ""),
        "operations[1].step.pods[0]": step(0, 4, "m", pods=[nameless]),
        "operations[1].remove_node": pb.Operation(remove_node=""),
    }
    return {
        field: pb.ApplyRequest(operations=[step(0, 0.5), operation])
        for field, operation in operations.items()
    }


LEVELS = (
    ConformanceLevel(
        "evicts at hard thresholds", "`replay`, while no pod meets a node under pressure"
    ),
    ConformanceLevel("gives reasons", "`explain` of an evicted pod, and `replay` as on level 1"),
    ConformanceLevel(
        "grace, conditions and admission", "`replay` of any trace and kubelet configuration"
    ),
    ConformanceLevel(
        "checkpoints and reads", "`replay`, and clients that save a session or look at it"
    ),
    ConformanceLevel(
        "steps that can be left out", "every command, with the fewest steps and messages"
    ),
)
EVICTION = ServiceContract(
    service="eviction",
    stub=eviction_service_pb2_grpc.EvictionServiceStub,
    create=_create,
    method="Apply",
    state=pb.GetStateResponse,
    look=_look,
    story=_story,
    backwards=lambda: _story()[1::-1],
    malformed=_malformed,
    levels=LEVELS,
    checks=CHECKS,
)
