"""Why the devices of a node do not meet a pod's claims: in use, not selected, tainted.

Each device is judged alone, as the cluster was at that moment. Constraints across devices, and
capacities that claims share, are not: a device that they refuse counts as free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from replay.results.run.cluster import ClusterObjects
from replay.results.run.directory import RunDirectory
from reprieve.kube.v1beta1 import device_pb2, node_pb2, pod_pb2
from services.cel.selectors import DeviceSelectors
from services.framework.snapshot.devices import Slices
from services.kube.devices import (
    Device,
    DeviceClass,
    DeviceId,
    RequestDetail,
    ResourceClaim,
    ResourceSlice,
    SelectorError,
)
from services.kube.node import Node
from services.kube.quantity import parse
from services.rpc.kube import devices as decode
from services.rpc.kube.codec import node_from_message

PLUGIN = "DynamicResources"
FREE = "free"
IN_USE = "in use"
_PREVENTING = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReason:
    """Devices of a node that one thing keeps from a request.

    `devices` are the first ones, by name, and `holders` the claims that have them, in their order.
    """

    why: str
    count: int
    devices: tuple[str, ...]
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOnNode:
    """A request of a pod's claim on a node: how many devices it wants, and why each is not one.

    `wanted` is 0 for all devices.
    """

    node: str
    claim: str
    request: str
    device_class: str
    wanted: int
    reached: int
    reasons: tuple[DeviceReason, ...]


def device_refusals(
    run: RunDirectory, uid: str, at_ns: int, nodes: Sequence[str], rules: str, top: int
) -> tuple[RequestOnNode, ...]:
    """Return the requests of a pod's unallocated claims on `nodes` that refused it for devices."""
    if not nodes:
        return ()
    state = _State(run, at_ns, newest=rules == "v1.36")
    claims = state.claims_of(uid)
    found = []
    for name in nodes:
        for claim, request, detail in _requests(claims) if name in state.nodes else ():
            reasons = state.reasons(state.nodes[name], detail, top)
            found.append(
                RequestOnNode(
                    node=name,
                    claim=claim.key,
                    request=request,
                    device_class=detail.class_name,
                    wanted=detail.count,
                    reached=sum(reason.count for reason in reasons),
                    reasons=reasons,
                )
            )
    return tuple(found)


def _requests(
    claims: Iterable[ResourceClaim],
) -> Iterator[tuple[ResourceClaim, str, RequestDetail]]:
    for claim in claims:
        for request in claim.spec.requests if claim.allocation is None else ():
            if request.exactly is not None:
                yield claim, request.name, request.exactly
            for alternative in request.first_available:
                yield claim, f"{request.name}/{alternative.name}", alternative


class _State:
    """The devices, classes and claims of a run at a moment."""

    def __init__(self, run: RunDirectory, at_ns: int, *, newest: bool) -> None:
        self.nodes: dict[str, Node] = {}
        self._pods: dict[str, pod_pb2.Pod] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._claims: dict[str, ResourceClaim] = {}
        slices: list[ResourceSlice] = []
        for message in _objects_at(run, at_ns):
            match message:
                case node_pb2.Node():
                    self.nodes[message.metadata.name] = node_from_message(message)
                case pod_pb2.Pod():
                    self._pods[message.metadata.uid] = message
                case device_pb2.ResourceSlice():
                    slices.append(decode.resource_slice_from_message(message))
                case device_pb2.DeviceClass():
                    made = decode.device_class_from_message(message)
                    self._classes[made.name] = made
                case device_pb2.DeviceClaims.ResourceClaim():
                    claim = decode.resource_claim_from_message(message)
                    self._claims[claim.key] = claim
        self._newest = newest
        self._slices = Slices(slices)
        self._devices = {
            DeviceId(slice_.driver, slice_.pool, device.name): device
            for slice_ in slices
            for device in slice_.devices
        }
        self._counters = {
            (slice_.driver, slice_.pool, name): {
                counter: parse(amount).nano for counter, amount in counters.items()
            }
            for slice_ in slices
            for name, counters in slice_.shared_counters
        }
        self._matches = DeviceSelectors(multiple=newest)
        self._holders = dict(_holders(self._claims.values()))
        self._consume()

    def _consume(self) -> None:
        """Take what devices in use consume out of the counters."""
        for id_ in self._holders:
            device = self._devices.get(id_)
            for name, amounts in device.consumes if device is not None else ():
                counters = self._counters.get((id_.driver, id_.pool, name), {})
                for counter, amount in amounts.items():
                    counters[counter] = counters.get(counter, 0) - parse(amount).nano

    def claims_of(self, uid: str) -> list[ResourceClaim]:
        """Return the claims that a pod names and that exist."""
        pod = self._pods.get(uid)
        if pod is None:
            return []
        made = {status.name: status for status in pod.status.resource_claim_statuses}
        keys = [
            f"{pod.metadata.namespace}/"
            + (claim.resource_claim_name or made[claim.name].resource_claim_name)
            for claim in pod.spec.resource_claims
            if claim.resource_claim_name or claim.name in made
        ]
        return [self._claims[key] for key in keys if key in self._claims]

    def reasons(self, node: Node, detail: RequestDetail, top: int) -> tuple[DeviceReason, ...]:
        """Return why the devices that a node reaches do not meet a request, most devices first."""
        by_reason: dict[str, list[DeviceId]] = {}
        for device, id_, driver in self._slices.devices_of(node):
            by_reason.setdefault(self._why(device, id_, driver, detail), []).append(id_)
        return tuple(
            DeviceReason(
                why=why,
                count=len(ids),
                devices=tuple(id_.device for id_ in ids[:top]),
                holders=tuple(self._holders[id_] for id_ in ids[:top]) if why == IN_USE else (),
            )
            for why, ids in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
        )

    def _why(self, device: Device, id_: DeviceId, driver: str, detail: RequestDetail) -> str:
        class_ = self._classes.get(detail.class_name)
        if class_ is None:
            return f"device class {detail.class_name} does not exist"
        for whose, selectors in (
            (f"class {class_.name}", class_.selectors),
            ("the request", detail.selectors),
        ):
            for expression in selectors:
                try:
                    if not self._matches(expression or "", device, driver):
                        return f"not selected by {whose}: {expression}"
                except SelectorError as error:
                    return f"the selector of {whose} fails: {error}"
        if id_ in self._holders and not detail.admin_access:
            return IN_USE
        if not self._newest:
            return "parts of devices are not served by these rules" if device.consumes else FREE
        for taint in device.taints:
            is_tolerated = any(one.tolerates(taint) for one in detail.tolerations)
            if taint.effect in _PREVENTING and not is_tolerated:
                return f"has the taint {taint.key}={taint.value}:{taint.effect}"
        return self._short_of(device, id_) or FREE

    def _short_of(self, device: Device, id_: DeviceId) -> str:
        for name, amounts in device.consumes:
            counters: Mapping[str, int] = self._counters.get((id_.driver, id_.pool, name), {})
            for counter, amount in amounts.items():
                if parse(amount).nano > counters.get(counter, 0):
                    return f"its parts are in use: counter {name}/{counter}"
        return ""


def _holders(claims: Iterable[ResourceClaim]) -> Iterator[tuple[DeviceId, str]]:
    """Yield the devices that one claim each has, with the claim's namespace/name."""
    for claim in claims:
        for held in claim.allocation.devices if claim.allocation is not None else ():
            if not held.admin_access and held.share_id is None:
                yield held.id, claim.key


def _objects_at(run: RunDirectory, at_ns: int) -> Iterable[Message]:
    """Return the objects of a run after all rounds up to a moment."""
    cluster = ClusterObjects()
    for round_ in run.rounds():
        if round_.time_ns > at_ns:
            break
        for event in round_.events:
            cluster.take(event)
    return cluster.objects.values()
