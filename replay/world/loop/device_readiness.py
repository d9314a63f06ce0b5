"""Bindings that wait until a driver has made the claimed devices ready.

A device may have binding conditions, such as that it is attached. PreBind writes allocation and
reservation, and looks every five seconds whether the device's driver has reported each condition as
true in the claim's status; then the pod is bound. After ten minutes the binding fails. With the
model `device_ready_delay_ns` drivers report that much after the allocation. What they report does
not depend on the scheduler: after a restart of it, a pod whose claim became ready meanwhile does
not wait. Without the model devices are taken for ready, and no driver reports.

A run does not go on for a second wait of a pod that will fail as its first one did.

Source: kubernetes v1.36 plugins/dynamicresources/dynamicresources.go, PreBind,
isPodReadyForBinding, isClaimReadyForBinding, hasBindingConditions (DRADeviceBindingConditions).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from replay.world.api.cluster import Cluster
from replay.world.api.device_claims import ResourceClaim, key_of
from replay.world.api.pod_record import PodRecord
from replay.world.state import WorldState
from replay.world.timeline import ActionKind, Timeline
from reprieve.kube.v1beta1.device_pb2 import DeviceRequestAllocationResult
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.devices import BINDING_TIMEOUT_NS
from services.kube.time import SECOND_NS
from services.rpc.kube.fields import set_time, time_ns

_POLL_NS = 5 * SECOND_NS


class EndedWait(NamedTuple):
    """The end of a binding's wait: whether its devices are ready, or it fails."""

    outcome: scheduler_pb2.Outcome
    is_ready: bool


class DeviceReadiness:
    """Drivers' reports that are due, by the claim's namespace/name, and bindings that wait.

    `_due` are the times of reports, `_ends` those at which waits end, by the pod's UID, and
    `_failed` the pods of which one has failed.
    """

    _due: dict[str, int]
    _waiting: dict[str, scheduler_pb2.Outcome]
    _ends: dict[str, int]
    _failed: dict[str, None]

    def __init__(self, state: WorldState) -> None:
        self._cluster: Cluster = state.cluster
        self._timeline: Timeline = state.timeline
        self._delay_ns = state.models.device_ready_delay_ns
        self._due = {}
        self._waiting = {}
        self._ends = {}
        self._failed = {}

    def holds(self, now_ns: int, pod: PodRecord, outcome: scheduler_pb2.Outcome) -> bool:
        """Return whether a binding, whose claims have been written, waits; keep it then."""
        if not self._delay_ns:
            return False
        claims = self._cluster.device_claims.used_by(pod)
        missing = {key_of(claim): claim for claim in claims if any(_unmet(claim))}
        if not missing:
            return False
        ready_ns = {key: self._ready_ns(now_ns, claim) for key, claim in missing.items()}
        polls = -((now_ns - max(ready_ns.values())) // _POLL_NS)
        end_ns = now_ns + min(polls * _POLL_NS, BINDING_TIMEOUT_NS)
        fails_again = end_ns == now_ns + BINDING_TIMEOUT_NS and pod.uid in self._failed
        for key, at_ns in ready_ns.items():
            if self._due.get(key) != at_ns:
                self._due[key] = at_ns
                self._timeline.plan(at_ns, ActionKind.DEVICE_READY, key, idle=fails_again)
        self._waiting[pod.uid], self._ends[pod.uid] = outcome, end_ns
        self._timeline.plan(end_ns, ActionKind.DEVICE_WAIT, pod.uid, idle=fails_again)
        return True

    def _ready_ns(self, now_ns: int, claim: ResourceClaim) -> int:
        """Return when a claim's drivers report, which may have been allocated before."""
        allocation = claim.status.allocation
        allocated_ns = now_ns
        if allocation.HasField("allocation_timestamp"):
            allocated_ns = time_ns(allocation.allocation_timestamp, "allocation_timestamp")
        return max(now_ns, allocated_ns + self._delay_ns)

    def node_of_binding(self, uid: str) -> str:
        """Return the node of a binding that waits for devices; "" if none waits."""
        outcome = self._waiting.get(uid)
        return "" if outcome is None else outcome.bind.node_name

    def report(self, now_ns: int, key: str) -> None:
        """Report a claim's devices as ready, if it has been allocated as long as that takes."""
        if self._due.get(key) != now_ns:
            return
        del self._due[key]
        claim = self._cluster.device_claims.by_key.get(key)
        unmet = [] if claim is None else list(_unmet(claim))
        if claim is not None and unmet:
            for result, condition in unmet:
                _report(claim, result, condition, now_ns)
            self._cluster.put_claim(now_ns, claim)

    def ended(self, now_ns: int, uid: str) -> EndedWait | None:
        """Return a binding whose wait ends now, None where the scheduler that made it is gone."""
        if self._ends.get(uid) != now_ns:
            return None
        del self._ends[uid]
        outcome = self._waiting.pop(uid)
        pod = self._cluster.pods.get(uid)
        claims = () if pod is None else self._cluster.device_claims.used_by(pod)
        is_ready = not any(any(_unmet(claim)) for claim in claims)
        if is_ready:
            self._failed.pop(uid, None)
        else:
            self._failed[uid] = None
        return EndedWait(outcome, is_ready)

    def forget(self) -> None:
        """Forget the bindings that wait: the scheduler that made them is gone."""
        self._waiting.clear()
        self._ends.clear()


def _unmet(claim: ResourceClaim) -> Iterator[tuple[DeviceRequestAllocationResult, str]]:
    """Yield the binding conditions of a claim's devices that are not reported as true."""
    for result in claim.status.allocation.devices.results:
        reported = {
            condition.type
            for status in claim.status.devices
            if (status.driver, status.pool, status.device)
            == (result.driver, result.pool, result.device)
            for condition in status.conditions
            if condition.status == "True"
        }
        for condition in result.binding_conditions:
            if condition not in reported:
                yield result, condition


def _report(
    claim: ResourceClaim, result: DeviceRequestAllocationResult, condition: str, now_ns: int
) -> None:
    """Set a condition of a device in the claim's status to true."""
    place = (result.driver, result.pool, result.device)
    for held in claim.status.devices:
        if (held.driver, held.pool, held.device) == place:
            status = held
            break
    else:
        status = claim.status.devices.add(
            driver=result.driver, pool=result.pool, device=result.device
        )
    kept = [held for held in status.conditions if held.type != condition]
    del status.conditions[:]
    status.conditions.extend(kept)
    set_time(
        status.conditions.add(type=condition, status="True", reason="Ready").last_transition_time,
        now_ns,
    )
