"""Arrivals only: the pods without their times, shuffled, until enough of a resource is asked for.

A sparse recording fills no cluster. To see how full a policy can make one, its pods all come at the
beginning, in an order of the seed; where they ask for less than wanted, more of them are drawn with
replacement, and where they ask for more, some are left out. None of them ever ends.

Source: the arrivals of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023, section 6.1);
hkust-adsl/kubernetes-scheduler-simulator pkg/simulator/simulator.go, TunePodsByNodeTotalResource.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from replay.generate.draw import Draw
from replay.identity import object_uid
from replay.overrides.assignment import OverrideError, listed
from replay.overrides.inventory import Inventory
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.requests import pod_requests
from services.rpc.errors import FieldError
from services.rpc.kube_spec import PodSpecInterner

_FORM = re.compile(r"(?P<resource>[^=]+)=(?P<ratio>\d+(\.\d+)?)")
_RATIO_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What is to be asked for in all: `wanted` of `resource` ("cpu" in thousandths of a core)."""

    resource: str
    wanted: int


def arrivals(text: str, inventory: Inventory) -> Arrivals:
    """Return what "RESOURCE=RATIO" asks for, the ratio of what the nodes have in all.

    Raises OverrideError where the nodes have nothing of the resource.
    """
    match = _FORM.fullmatch(text)
    if match is None or not 0 < float(match["ratio"]) <= _RATIO_MAX:
        raise OverrideError(f"--arrivals {text}: write RESOURCE=RATIO, such as cpu=1.3")
    resource = match["resource"]
    capacity = inventory.allocatable[resource]
    if not capacity:
        known = listed((name for name, n in inventory.allocatable.items() if n), "nothing")
        raise OverrideError(f"--arrivals {text}: the nodes have no {resource}, but {known}")
    return Arrivals(resource=resource, wanted=round(float(match["ratio"]) * capacity))


@dataclass(frozen=True, slots=True)
class _Arrival:
    template_id: int
    pod: pod_pb2.Pod
    amount: int


class _Requests:
    """What pods request of one resource."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._specs = PodSpecInterner()

    def of(self, message: pod_pb2.PodSpec) -> int:
        """Return the amount; 0 for a pod that cannot be read, which the replay refuses."""
        try:
            return pod_requests(self._specs.spec(message)).get(self._resource, 0)
        except FieldError:
            return 0


def only_arrivals(
    records: Iterable[trace_pb2.Record], asked: Arrivals, seed: int
) -> Iterator[trace_pb2.Record]:
    """Yield a trace whose pods all come after its first instant's other objects, for good.

    What happens later in the trace is left out. All pods are held in memory. Raises OverrideError
    where no pod asks for the resource.
    """
    pods: list[_Arrival] = []
    templates: dict[int, pod_pb2.Pod] = {}
    requests = _Requests(asked.resource)
    sequence, start_ns = 0, None
    for record in records:
        start_ns = record.at_ns if start_ns is None else start_ns
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
            kept.sequence, kept.at_ns = sequence, start_ns
            if case == "header":
                kept.header.ClearField("window_end_ns")
                kept.header.ClearField("counts")
            yield kept
    for arrival in _drawn(pods, asked, Draw(seed)):
        sequence += 1
        create = trace_pb2.PodCreate(template_id=arrival.template_id, pod=arrival.pod)
        yield trace_pb2.Record(at_ns=start_ns or 0, sequence=sequence, pod_create=create)


def _arrival(
    template_id: int, given: pod_pb2.Pod, templates: dict[int, pod_pb2.Pod], requests: _Requests
) -> _Arrival:
    pod = copy.deepcopy(given)
    pod.spec.ClearField("node_name")
    pod.ClearField("status")
    pod.metadata.ClearField("creation_timestamp")
    spec = templates[template_id].spec if template_id in templates else pod.spec
    return _Arrival(template_id, pod, requests.of(spec))


def _drawn(pods: Sequence[_Arrival], asked: Arrivals, draw: Draw) -> Iterator[_Arrival]:
    """Yield the arrivals in their order.

    As upstream does, pods are first shuffled, then others drawn and put behind them.
    """
    total = sum(each.amount for each in pods)
    if not total:
        raise OverrideError(f"--arrivals {asked.resource}: no pod of the trace asks for it")
    order = sorted(range(len(pods)), key=lambda index: draw.share("order", index))
    if total > asked.wanted:
        left_out = set()
        for index in sorted(order, key=lambda index: draw.share("left out", index)):
            if total <= asked.wanted:
                break
            left_out.add(index)
            total -= pods[index].amount
        order = [index for index in order if index not in left_out]
    for index in order:
        yield pods[index]
    number = 0
    while total < asked.wanted:
        drawn = pods[draw.below(len(pods), "drawn", number)]
        if total + drawn.amount > asked.wanted:
            return
        total += drawn.amount
        yield _again(drawn, number)
        number += 1


def _again(drawn: _Arrival, number: int) -> _Arrival:
    """Return a pod of its own that asks for the same."""
    pod = copy.deepcopy(drawn.pod)
    meta = pod.metadata
    meta.name = f"{meta.name}-again-{number}"
    meta.uid = object_uid("Pod", meta.namespace, meta.name)
    return _Arrival(drawn.template_id, pod, drawn.amount)
