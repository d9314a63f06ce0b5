"""The device taint manager: it deletes pods whose claims have devices with NoExecute taints.

A claim's devices are those of its allocation, which also has the tolerations of its requests. A
taint counts unless one of them, with the effect NoExecute itself, tolerates it for ever; if they
tolerate it for some seconds, the shortest time counts, from when the taint was added. So a pod that
comes later has no time of its own. A taint without a time was added when its slice came, as the API
server's default has it. Only pods with a node are deleted, and only for claims that their spec
names and that are reserved for them. When a taint goes before its time is over, nothing happens.

The controller is on by default from v1.36 on, where API servers keep taints of devices;
DeviceTaintRules are not simulated, and are off by default there.

Source: kubernetes v1.36 pkg/controller/devicetainteviction/device_taint_eviction.go,
claimEvictionTime, podEvictionTime, handleSliceChange, maybeDeletePod; pkg/apis/resource/v1/
defaults.go, SetDefaults_DeviceTaint; pkg/features/kube_features.go, DRADeviceTaints,
DRADeviceTaintRules.
"""

from __future__ import annotations

from collections.abc import Iterator

from replay.world.api.cluster import Changed
from replay.world.api.conditions import mark_disrupted
from replay.world.api.device_claims import ResourceClaim, is_reserved
from replay.world.api.pod_record import PodRecord, controller_uid
from replay.world.controller import Controller
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import device_pb2, meta_pb2, object_pb2
from services.kube.devices import DeviceTaint
from services.kube.time import SECOND_NS
from services.rpc.kube import devices
from services.rpc.kube.fields import optional_time_ns

_NO_EXECUTE = "NoExecute"
_Taint = tuple[str, str, int]
"""A NoExecute taint: key, value, and when it was added, ns."""


class DeviceTaintEviction(Controller):
    """The device taint manager.

    `_generations` has the slices of each pool with their generations, `_taints` the NoExecute
    taints of devices by slice and device, `_tainted` the pools in which a taint has changed.
    """

    watches = frozenset({"ResourceSlice"})
    actions = frozenset({ActionKind.DEVICE_TAINT})
    _generations: dict[str, dict[str, int]]
    _pool_of: dict[str, str]
    _taints: dict[str, dict[str, tuple[_Taint, ...]]]
    _tainted: dict[str, None]

    def __init__(self, state: WorldState, lifecycle: PodLifecycle) -> None:
        super().__init__(state)
        self._claims = state.cluster.device_claims
        self._lifecycle = lifecycle

    def put(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        """Note the taints of a slice's devices."""
        slice_ = message.resource_slice
        name, spec = slice_.metadata.name, slice_.spec
        self._forget(name)
        pool = self._pool_of[name] = f"{spec.driver}/{spec.pool.name}"
        self._generations.setdefault(pool, {})[name] = spec.pool.generation
        taints = {device.name: tuple(_no_execute(device, now_ns)) for device in spec.devices}
        if any(taints.values()):
            self._taints[name] = {device: found for device, found in taints.items() if found}
            self._tainted[pool] = None

    def remove(self, _now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Forget a slice."""
        self._forget(ref.name)

    def _forget(self, name: str) -> None:
        pool = self._pool_of.pop(name, None)
        if pool is None:
            return
        del self._generations[pool][name]
        if not self._generations[pool]:
            del self._generations[pool]
        if self._taints.pop(name, None):
            self._tainted[pool] = None

    def concerns(self, pod: PodRecord) -> bool:
        """Return whether a device has a NoExecute taint, and the pod may get it."""
        return bool(self._taints) and bool(pod.message.spec.resource_claims)

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Process the pods whose claims have devices of changed pools, or have changed."""
        if not (self._taints or self._tainted):
            return
        uids: dict[str, None] = {}
        for claim in self._claims.by_key.values() if self._tainted else ():
            if any(
                f"{result.driver}/{result.pool}" in self._tainted
                for result in claim.status.allocation.devices.results
            ):
                uids.update(_users(claim))
        self._tainted.clear()
        for key in changed.claims:
            if key in self._claims.by_key:
                uids.update(_users(self._claims.by_key[key]))
        for uid, message in changed.pods.items():
            if message.spec.resource_claims:
                uids[uid] = None
        for uid in uids:
            pod = self._cluster.pods.get(uid)
            if pod is not None and pod.is_active and not pod.is_terminating:
                self._process(now_ns, pod)

    def act(self, now_ns: int, action: Action) -> None:
        """Delete a pod whose toleration of its devices' taints has ended, if it still has."""
        pod = self._cluster.pods.get(action.key)
        if pod is not None and pod.is_active and not pod.is_terminating:
            self._process(now_ns, pod)

    def _process(self, now_ns: int, pod: PodRecord) -> None:
        due_ns = min(self._due_ns(pod), default=None)
        if due_ns is None:
            self._timeline.cancel(ActionKind.DEVICE_TAINT, pod.uid)
        elif due_ns > now_ns:
            self._timeline.plan(due_ns, ActionKind.DEVICE_TAINT, pod.uid)
        else:
            why = "Device Taint manager: deleting due to NoExecute taint"
            mark_disrupted(pod.message.status, now_ns, "DeletionByDeviceTaintManager", why)
            self._lifecycle.delete(now_ns, pod, None, "taint")

    def _due_ns(self, pod: PodRecord) -> Iterator[int]:
        """Yield until when a pod with a node may use each device with a taint, ns."""
        if not pod.node_name:
            return
        message = pod.message
        made = {
            status.name: status.resource_claim_name
            for status in message.status.resource_claim_statuses
        }
        for pod_claim in message.spec.resource_claims:
            name = pod_claim.resource_claim_name or made.get(pod_claim.name, "")
            claim = self._claims.by_key.get(f"{message.metadata.namespace}/{name}")
            if claim is None or not is_reserved(claim, pod.uid):
                continue
            if not pod_claim.resource_claim_name and controller_uid(claim.metadata) != pod.uid:
                continue
            for result in claim.status.allocation.devices.results:
                tolerations = [
                    toleration
                    for toleration in devices.tolerations_from_messages(result.tolerations)
                    if toleration.effect == _NO_EXECUTE
                ]
                for key, value, added_ns in self._taints_of(result):
                    taint = DeviceTaint(key=key, value=value, effect=_NO_EXECUTE)
                    tolerated = [one for one in tolerations if one.tolerates(taint)]
                    bounds = [one.seconds for one in tolerated if one.seconds is not None]
                    if len(bounds) == len(tolerated):
                        yield added_ns + max(0, min(bounds, default=0)) * SECOND_NS

    def _taints_of(self, result: device_pb2.DeviceRequestAllocationResult) -> Iterator[_Taint]:
        """Yield the NoExecute taints of a device in the newest generation of its pool."""
        generations = self._generations.get(f"{result.driver}/{result.pool}", {})
        newest = max(generations.values(), default=0)
        for name, generation in generations.items():
            if generation == newest:
                yield from self._taints.get(name, {}).get(result.device, ())


def _no_execute(device: device_pb2.Device, now_ns: int) -> Iterator[_Taint]:
    for taint in device.taints:
        if taint.effect == _NO_EXECUTE:
            added_ns = optional_time_ns(taint, "time_added")
            yield taint.key, taint.value, now_ns if added_ns is None else added_ns


def _users(claim: ResourceClaim) -> dict[str, None]:
    """Return the UIDs of the pods that a claim is reserved for."""
    return {
        user.uid: None
        for user in claim.status.reserved_for
        if user.resource == "pods" and not user.api_group
    }
