"""Overrides the creation times of pods: `--arrivals`.

With this option, a replay shows how full a scheduling policy can make a cluster, even if the
recorded load is low. All pods are created at the start, in an order drawn with the seed, and never
end. If they request less than the target, more pods are drawn with replacement; if they request
more, some are left out.

Source: the arrivals of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023, section 6.1);
hkust-adsl/kubernetes-scheduler-simulator pkg/simulator/simulator.go, TunePodsByNodeTotalResource.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from replay.hashing import KeyedRandom, object_uid
from replay.overrides.errors import OverrideError
from replay.overrides.inventory import TraceInventory
from replay.overrides.names import shown_names
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.requests import pod_requests
from services.rpc.errors import FieldError
from services.rpc.kube.spec import PodSpecInterner

_FORM = re.compile(r"(?P<resource>[^=]+)=(?P<ratio>\d+(\.\d+)?)")
_RATIO_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalTarget:
    """The sum of all pods' requests: `amount` of `resource` ("cpu" in millicores)."""

    resource: str
    amount: int


def parse_arrivals(text: str, inventory: TraceInventory) -> ArrivalTarget:
    """Return the target of "RESOURCE=RATIO", a ratio of the allocatable of all nodes.

    Raises OverrideError for any other text, and if no node has the resource.
    """
    match = _FORM.fullmatch(text)
    if match is None or not 0 < float(match["ratio"]) <= _RATIO_MAX:
        raise OverrideError(f"--arrivals {text}: write RESOURCE=RATIO, such as cpu=1.3")
    resource = match["resource"]
    capacity = inventory.allocatable[resource]
    if not capacity:
        names = shown_names((name for name, n in inventory.allocatable.items() if n), "nothing")
        raise OverrideError(f"--arrivals {text}: the nodes have no {resource}; they have {names}")
    return ArrivalTarget(resource=resource, amount=round(float(match["ratio"]) * capacity))


@dataclass(frozen=True, slots=True)
class _Arrival:
    template_id: int
    pod: pod_pb2.Pod
    amount: int


class _Requests:
    """The requests of pods for one resource."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._specs = PodSpecInterner()

    def of(self, message: pod_pb2.PodSpec) -> int:
        """Return the request; 0 for an invalid pod, which the replay refuses."""
        try:
            return pod_requests(self._specs.spec(message)).get(self._resource, 0)
        except FieldError:
            return 0


def arrivals_only(
    records: Iterable[trace_pb2.Record], target: ArrivalTarget, seed: int
) -> Iterator[trace_pb2.Record]:
    """Yield a trace's other objects, then its pods, all at the start of the trace.

    Updates, deletions and ends are left out. All pods are held in memory. Raises OverrideError if
    no pod requests the resource.
    """
    pods: list[_Arrival] = []
    templates: dict[int, pod_pb2.Pod] = {}
    requests = _Requests(target.resource)
    sequence, start_ns = 0, None
    for record in records:
        start_ns = record.time_ns if start_ns is None else start_ns
        case = record.WhichOneof("record")
        if case == "template":
            templates[record.template.id] = record.template.pod
        if case == "pod_create":
            create = record.pod_create
            pods.append(_arrival(create.template_id, create.pod, templates, requests))
        elif case == "create" and record.create.HasField("pod"):
            pods.append(_arrival(0, record.create.pod, templates, requests))
        elif case in {"header", "template", "create", "issue"}:
            sequence += 1
            kept = copy.deepcopy(record)
            kept.sequence, kept.time_ns = sequence, start_ns
            if case == "header":
                kept.header.ClearField("window_end_time_ns")
                kept.header.ClearField("counts")
            yield kept
    for arrival in _drawn(pods, target, KeyedRandom(seed)):
        sequence += 1
        create = trace_pb2.PodCreate(template_id=arrival.template_id, pod=arrival.pod)
        yield trace_pb2.Record(time_ns=start_ns or 0, sequence=sequence, pod_create=create)


def _arrival(
    template_id: int, given: pod_pb2.Pod, templates: dict[int, pod_pb2.Pod], requests: _Requests
) -> _Arrival:
    pod = copy.deepcopy(given)
    pod.spec.ClearField("node_name")
    pod.ClearField("status")
    pod.metadata.ClearField("creation_timestamp")
    spec = templates[template_id].spec if template_id in templates else pod.spec
    return _Arrival(template_id, pod, requests.of(spec))


def _drawn(
    pods: Sequence[_Arrival], target: ArrivalTarget, draw: KeyedRandom
) -> Iterator[_Arrival]:
    """Yield the pods in order of creation, as upstream: all pods, shuffled, then drawn pods."""
    total = sum(pod.amount for pod in pods)
    if not total:
        raise OverrideError(f"--arrivals {target.resource}: no pod of the trace requests it")
    order = sorted(range(len(pods)), key=lambda index: draw.share("order", index))
    if total > target.amount:
        left_out = set()
        for index in sorted(order, key=lambda index: draw.share("left out", index)):
            if total <= target.amount:
                break
            left_out.add(index)
            total -= pods[index].amount
        order = [index for index in order if index not in left_out]
    for index in order:
        yield pods[index]
    number = 0
    while total < target.amount:
        drawn = pods[draw.below(len(pods), "drawn", number)]
        if total + drawn.amount > target.amount:
            return
        total += drawn.amount
        yield _copied(drawn, number)
        number += 1


def _copied(drawn: _Arrival, number: int) -> _Arrival:
    """Return a copy of the pod with another name and UID."""
    pod = copy.deepcopy(drawn.pod)
    meta = pod.metadata
    meta.name = f"{meta.name}-again-{number}"
    meta.uid = object_uid("Pod", meta.namespace, meta.name)
    return _Arrival(drawn.template_id, pod, drawn.amount)
