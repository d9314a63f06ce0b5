"""Explains why two runs differ about an object: differences of it, its node and its controller.

Both runs' objects are rebuilt up to the first difference. Nothing is guessed: a sentence names a
value that differs at that moment, and where none does, there is no sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from replay.results.durations import simulated
from replay.results.run.cluster import ClusterObjects, ObjectKey
from replay.results.run.directory import RunDirectory
from replay.world.api.cluster import replicas
from replay.world.api.pod_record import controller_of
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import TERMINAL_PHASES
from services.kube.requests import pod_requests
from services.rpc.kube.codec import budget_from_message
from services.rpc.kube.fields import time_ns
from services.rpc.kube.spec import PodSpecInterner
from services.terminal import counted

_Value = TypeVar("_Value")
_NAMED = 3
"""Pods that a sentence names."""
_SCALED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")


@dataclass(slots=True)
class Moment:
    """A run's objects at a moment, `offset_ns` after its start.

    `refused` has the API server's message for each pod that it refused by then, and
    `refused_by_owner` for each controller, as (kind, namespace, name).
    """

    name: str
    start_ns: int
    offset_ns: int
    objects: dict[ObjectKey, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    refused_by_owner: dict[ObjectKey, str] = field(default_factory=dict)

    def pod(self, key: str) -> pod_pb2.Pod | None:
        """Return a pod by namespace/name, None if it does not exist."""
        pod: pod_pb2.Pod | None = self.objects.get(("Pod", *_split(key)))
        return pod

    def node(self, name: str) -> node_pb2.Node | None:
        """Return a node, None if it does not exist."""
        node: node_pb2.Node | None = self.objects.get(("Node", "", name))
        return node


def moment_of(name: str, run: RunDirectory, start_ns: int, offset_ns: int) -> Moment:
    """Return the objects of run `name` (A or B) after the changes up to a moment.

    Raises RunError if the run cannot be read.
    """
    moment = Moment(name, start_ns, offset_ns)
    at_ns = start_ns + offset_ns
    recorded, sent = ClusterObjects(), ClusterObjects()
    _apply(recorded, run.object_rounds(), at_ns)
    _apply(sent, run.rounds(), at_ns)
    moment.objects = {**sent.objects, **recorded.objects}
    for decision in run.decisions():
        observed = decision.observed
        if decision.time_ns > at_ns:
            break
        if observed.HasField("refused"):
            _note_refusal(moment, observed)
    return moment


def _apply(held: ClusterObjects, rounds: Iterable[scheduler_pb2.Round], at_ns: int) -> None:
    for round_ in rounds:
        for event in round_.events:
            if event.time_ns > at_ns:
                return
            held.take(event)


def _note_refusal(moment: Moment, observed: trace_pb2.Observed) -> None:
    ref, owner = observed.object, observed.refused.owner
    moment.refused[f"{ref.namespace}/{ref.name}"] = observed.refused.message
    if observed.refused.HasField("owner"):
        moment.refused_by_owner[owner.kind, owner.namespace, owner.name] = observed.refused.message


def pod_differences(a: Moment, b: Moment, key: str) -> Iterator[str]:
    """Yield what differs about a pod, its node and its controller, the most direct first."""
    one, other = a.pod(key), b.pod(key)
    if one is None or other is None:
        if one is not other:
            yield from _missing(a, b, key)
        return
    yield from _termination(a, b, key)
    yield from _given(a, b, key, allowed=True)
    if one.spec.node_name != other.spec.node_name:
        places = (side.spec.node_name or "no node" for side in (one, other))
        yield "{} has {} in A and {} in B.".format(key, *places)
    if one.status.phase != other.status.phase:
        yield f"{key} is {one.status.phase} in A and {other.status.phase} in B."


def given_differences(a: Moment, b: Moment, key: str) -> Iterator[str]:
    """Yield the differences of a pod's inputs, not of what a decision about it changes."""
    for moment, other in ((a, b), (b, a)):
        if key in moment.refused and key not in other.refused:
            yield from _admission(a, b, _split(key)[0])
            yield f"In {moment.name} admission refused {key}: {moment.refused[key]}."
    # What a budget allows follows from decisions of this very moment.
    yield from _given(a, b, key, allowed=False)


def _given(a: Moment, b: Moment, key: str, *, allowed: bool) -> Iterator[str]:
    """Yield differences of a pod's spec, its node, its controller and its budgets.

    allowed: also in how many disruptions a budget allows.
    """
    one, other = a.pod(key), b.pod(key)
    if one is not None and other is not None:
        mine, theirs = one.spec.priority, other.spec.priority
        if mine != theirs:
            yield f"The priority of {key} is {mine:,} in A and {theirs:,} in B."
        yield from _requests(one, other, key)
        yield from _limits(one, other, key)
    either = one or other
    if either is None:
        return
    for name in _nodes(one, other):
        yield from node_differences(a, b, name)
    for owner in _owners(a if one is not None else b, either.metadata):
        yield from _controller(a, b, owner)
    yield from _budgets(a, b, either, allowed=allowed)


def node_differences(a: Moment, b: Moment, name: str) -> Iterator[str]:
    """Yield what differs about a node: its presence, conditions, taints and resources."""
    one, other = a.node(name), b.node(name)
    if one is None or other is None:
        if one is not other:
            yield f"{'A' if one is None else 'B'} has no node {name}."
        return
    statuses = [_conditions(side) for side in (one, other)]
    types = dict.fromkeys(["Ready", *statuses[0], *statuses[1]])
    for type_, mine, theirs in _different(statuses, "not set", types):
        yield f"Condition {type_} of node {name} is {mine} in A and {theirs} in B."
    taints = [[f"{t.key}:{t.effect}" for t in side.spec.taints] for side in (one, other)]
    for run, taints_here, others in (("A", *taints), ("B", *taints[::-1])):
        only = [taint for taint in taints_here if taint not in others]
        if only:
            yield f"Only in {run} node {name} has the taint {', '.join(only)}."
    if one.spec.unschedulable != other.spec.unschedulable:
        yield f"Node {name} is cordoned only in {'A' if one.spec.unschedulable else 'B'}."
    allocatable = (side.status.allocatable for side in (one, other))
    for resource, mine, theirs in _different(allocatable, "0"):
        yield f"Node {name} has {mine} {resource} in A and {theirs} in B."


def _different(
    sides: Iterable[Mapping[str, _Value]], absent: _Value, names: Iterable[str] = ()
) -> Iterator[tuple[str, _Value, _Value]]:
    """Yield each name with another value in A than in B, and both; `names` are their order."""
    one, other = sides
    for name in names or sorted({*one, *other}):
        mine, theirs = one.get(name, absent), other.get(name, absent)
        if mine != theirs:
            yield name, mine, theirs


def node_pod_differences(a: Moment, b: Moment, name: str) -> Iterator[str]:
    """Yield which pods a node has in one run alone."""
    pods = [
        [
            f"{key[1]}/{key[2]}"
            for key, held in moment.objects.items()
            if key[0] == "Pod"
            and held.spec.node_name == name
            and held.status.phase not in TERMINAL_PHASES
        ]
        for moment in (a, b)
    ]
    for run, here, there in (("A", *pods), ("B", *pods[::-1])):
        only = sorted({*here} - {*there})
        if only:
            more = f" and {len(only) - _NAMED:,} more" if len(only) > _NAMED else ""
            yield f"Only in {run} node {name} has {', '.join(only[:_NAMED])}{more}."


def _admission(a: Moment, b: Moment, namespace: str) -> Iterator[str]:
    """Yield which quotas and LimitRanges of a namespace differ."""
    for key in dict.fromkeys([*a.objects, *b.objects]):
        if key[0] not in ("ResourceQuota", "LimitRange") or key[1] != namespace:
            continue
        one, other = a.objects.get(key), b.objects.get(key)
        text = f"{key[0]} {key[1]}/{key[2]}"
        if one is None or other is None:
            yield f"Only {'B' if one is None else 'A'} has {text}."
        elif one.spec != other.spec:
            yield f"{text} differs."


def _limits(one: pod_pb2.Pod, other: pod_pb2.Pod, key: str) -> Iterator[str]:
    """Yield the limits of containers that differ; containers pair by name."""
    limits = [
        {
            container.name: dict(container.resources.limits)
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        }
        for pod in (one, other)
    ]
    for name in (container for container in limits[0] if container in limits[1]):
        for resource, mine, theirs in _different((of_pod[name] for of_pod in limits), "none"):
            text = f"is {mine} in A and {theirs} in B."
            yield f"The {resource} limit of container {name} of {key} {text}"


def _missing(a: Moment, b: Moment, key: str) -> Iterator[str]:
    """Yield that one run alone has a pod, and why the other one does not have it."""
    has, lacks = (b, a) if a.pod(key) is None else (a, b)
    yield f"Only {has.name} has pod {key} at this time."
    pod = has.pod(key)
    assert pod is not None  # noqa: S101 - the run has it
    if key in lacks.refused:
        yield from _admission(a, b, pod.metadata.namespace)
        yield f"In {lacks.name} admission refused it: {lacks.refused[key]}."
    for kind, namespace, name in _owners(has, pod.metadata):
        message = lacks.refused_by_owner.get((kind, namespace, name))
        if message:
            yield f"In {lacks.name} admission refused pods of {kind} {namespace}/{name}: {message}."
        yield from _controller(a, b, (kind, namespace, name))


def _controller(a: Moment, b: Moment, key: ObjectKey) -> Iterator[str]:
    one, other = a.objects.get(key), b.objects.get(key)
    text = f"{key[0]} {key[1]}/{key[2]}"
    if one is None or other is None:
        if one is not other:
            yield f"Only {'B' if one is None else 'A'} has {text} at this time."
        return
    if key[0] in _SCALED and replicas(one.spec) != replicas(other.spec):
        counts = f"{replicas(one.spec):,} in A and {replicas(other.spec):,} in B"
        yield f"The desired replicas of {text} are {counts}."
    if hasattr(one.spec, "template") and one.spec.template != other.spec.template:
        yield f"The pod template of {text} differs."


def _owners(moment: Moment, meta: meta_pb2.ObjectMeta) -> Iterator[ObjectKey]:
    """Yield the controller of an object, then the controller of that, as far as they exist."""
    owner = controller_of(meta)
    while owner is not None:
        key = (owner.kind, meta.namespace, owner.name)
        yield key
        held = moment.objects.get(key)
        if held is None:
            return
        owner = controller_of(held.metadata)


def _termination(a: Moment, b: Moment, key: str) -> Iterator[str]:
    """Yield that a pod terminates in one run alone, or since another time."""
    since = []
    for moment in (a, b):
        pod = moment.pod(key)
        stamp = pod.metadata if pod is not None else meta_pb2.ObjectMeta()
        has = stamp.HasField("deletion_timestamp")
        since.append(time_ns(stamp.deletion_timestamp) - moment.start_ns if has else None)
    one, other = since
    if one is not None and other is not None:
        if one != other:
            times = simulated(max(0, one)), simulated(max(0, other))
            yield "{} terminates since {} in A and since {} in B.".format(key, *times)
    elif one is not None:
        yield f"{key} terminates since {simulated(max(0, one))} in A, and not in B."
    elif other is not None:
        yield f"{key} terminates since {simulated(max(0, other))} in B, and not in A."


def _nodes(*pods: pod_pb2.Pod | None) -> list[str]:
    names = (pod.spec.node_name for pod in pods if pod is not None)
    return [name for name in dict.fromkeys(names) if name]


def _budgets(a: Moment, b: Moment, pod: pod_pb2.Pod, *, allowed: bool = True) -> Iterator[str]:
    """Yield which budgets only one run has for a pod, and what they allow where that differs."""
    for key in dict.fromkeys([*a.objects, *b.objects]):
        if key[0] != "PodDisruptionBudget" or key[1] != pod.metadata.namespace:
            continue
        one, other = a.objects.get(key), b.objects.get(key)
        selector = budget_from_message(a.objects[key] if one else b.objects[key]).selector
        if selector is None or not selector.matches(pod.metadata.labels):
            continue
        name = f"PodDisruptionBudget {key[1]}/{key[2]}"
        if one is None or other is None:
            yield f"Only {'B' if one is None else 'A'} has {name}."
            continue
        mine, theirs = (side.status.disruptions_allowed for side in (one, other))
        if allowed and mine != theirs:
            yield f"{name} allows {counted(mine, 'disruption')} in A and {theirs:,} in B."


def _requests(one: pod_pb2.Pod, other: pod_pb2.Pod, key: str) -> Iterator[str]:
    interner = PodSpecInterner()
    amounts = [pod_requests(interner.spec(side.spec)) for side in (one, other)]
    for resource, mine, theirs in _different(amounts, 0):
        unit = "m" if resource == "cpu" else ""
        yield f"{key} requests {mine:,}{unit} {resource} in A and {theirs:,}{unit} in B."


def _conditions(node: node_pb2.Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


def _split(key: str) -> tuple[str, str]:
    namespace, _, name = key.rpartition("/")
    return namespace, name
