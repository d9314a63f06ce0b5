"""Bindings that wait until a driver has made the claimed devices ready.

A device may have binding conditions, such as that it is attached. PreBind writes allocation and
reservation, and waits until the device's driver has reported each condition as true in the claim's
status; then the pod is bound. With the model `device_ready_delay_ns` drivers do so that much later.
What they report does not depend on the scheduler: after a restart of it, a pod whose claim became
ready meanwhile does not wait. Without the model devices are taken for ready, and no driver reports.

Source: kubernetes v1.36 plugins/dynamicresources/dynamicresources.go, PreBind,
isClaimReadyForBinding, hasBindingConditions (DRADeviceBindingConditions).
"""

from __future__ import annotations

from collections.abc import Iterator

from replay.world.api.cluster import Cluster
from replay.world.api.device_claims import ResourceClaim, claim_names
from replay.world.api.pod_record import PodRecord
from replay.world.state import WorldState
from replay.world.timeline import ActionKind, Timeline
from reprieve.kube.v1beta1.device_pb2 import DeviceRequestAllocationResult
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.rpc.kube.fields import set_time


class DeviceReadiness:
    """Drivers' reports that are due, by the claim's namespace/name, and bindings that wait.

    `_missing` are the claims that a binding waits for, by the pod's UID.
    """

    _due: dict[str, None]
    _waiting: dict[str, scheduler_pb2.Outcome]
    _missing: dict[str, dict[str, None]]

    def __init__(self, state: WorldState) -> None:
        self._cluster: Cluster = state.cluster
        self._timeline: Timeline = state.timeline
        self._delay_ns = state.models.device_ready_delay_ns
        self._due = {}
        self._waiting = {}
        self._missing = {}

    def holds(self, now_ns: int, pod: PodRecord, outcome: scheduler_pb2.Outcome) -> bool:
        """Return whether a binding, whose claims have been written, waits; keep it then."""
        if not self._delay_ns:
            return False
        missing = {key: None for key, claim in self._claims(pod) if any(_unmet(claim))}
        for key in missing:
            if key not in self._due:
                self._due[key] = None
                self._timeline.plan(now_ns + self._delay_ns, ActionKind.DEVICE_READY, key)
        if missing:
            self._waiting[pod.uid], self._missing[pod.uid] = outcome, missing
        return bool(missing)

    def node_of_binding(self, uid: str) -> str:
        """Return the node of a binding that waits for devices; "" if none waits."""
        outcome = self._waiting.get(uid)
        return "" if outcome is None else outcome.bind.node_name

    def due(self, now_ns: int, key: str) -> list[scheduler_pb2.Outcome]:
        """Report a claim's devices as ready; return the bindings that wait for nothing more."""
        self._due.pop(key, None)
        claim = self._cluster.device_claims.by_key.get(key)
        if claim is not None:
            unmet = list(_unmet(claim))
            for result, condition in unmet:
                _report(claim, result, condition, now_ns)
            if unmet:
                self._cluster.put_claim(now_ns, claim)
        ready = []
        for uid, missing in self._missing.items():
            if missing.pop(key, self) is None and not missing:
                ready.append(uid)
        for uid in ready:
            del self._missing[uid]
        return [self._waiting.pop(uid) for uid in ready]

    def forget(self) -> None:
        """Forget the bindings that wait: the scheduler that made them is gone."""
        self._waiting.clear()
        self._missing.clear()

    def _claims(self, pod: PodRecord) -> Iterator[tuple[str, ResourceClaim]]:
        for name in claim_names(pod.message):
            key = f"{pod.message.metadata.namespace}/{name}"
            claim = self._cluster.device_claims.by_key.get(key)
            if claim is not None:
                yield key, claim


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
