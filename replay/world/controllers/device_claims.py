"""The ResourceClaim controller: it makes claims for pods from templates, and frees unused ones.

- A pod whose claim comes from a template gets a claim of its own, which its status names. While the
  template is missing it gets none, and no scheduler tries it.
- A reservation ends with its pod: when that has ended, was removed, or was deleted before it was
  bound. A claim that nobody uses any more is deallocated, and other claims may get its devices.
- A claim that was made for a pod is deleted when the pod is done, or has gone (which upstream's
  garbage collector sees to).
- An allocated claim of a pod that was bound without a scheduler is reserved for it. Until then the
  kubelet does not start the pod.
- A claim whose deletion was requested goes when nobody uses it any more.

The slices of a node go with it: they are its dependents, which the garbage collector deletes.

Source: kubernetes v1.34 pkg/controller/resourceclaim/controller.go, syncPod, handleClaim,
syncClaim, podNeedsClaims; pkg/registry/resource/resourceclaim/strategy.go, PrepareForUpdate (what
a user's update changes); pkg/controller/garbagecollector/garbagecollector.go, attemptToDeleteItem.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from replay.hashing import name_suffix, object_uid
from replay.world.api.cluster import Changed
from replay.world.api.device_claims import (
    ResourceClaim,
    claim_names,
    deallocate,
    is_reserved,
    key_of,
    release_finalizer,
    uses_claims,
)
from replay.world.api.owned_pods import drop
from replay.world.api.pod_record import PodRecord, controller_of
from replay.world.controller import Controller, Ending
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.state import WorldState
from reprieve.kube.v1beta1 import device_pb2, meta_pb2, object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.devices import FINALIZER, POD_CLAIM_ANNOTATION
from services.kube.requests import is_extended
from services.rpc.kube import devices
from services.rpc.kube.fields import set_time

_BASE_MAX = 57
"""Characters of the generated base of a claim's name, from pod and claim."""
_NAMED = 3
_LISTED = {
    "ResourceClaimTemplate": "pods wait for ResourceClaimTemplates that do not exist",
    "ResourceClaim": "pods wait for ResourceClaims that do not exist",
    "deletion": "pods wait for ResourceClaims that are being deleted",
}


class DeviceClaims(Controller):
    """Keeps claims, templates and slices, and follows pods that use claims.

    `_users` has the UIDs of the pods that use a claim, by its namespace/name; `_waiting` those that
    wait for a template, likewise. `_slices` has the node that owns a slice, "" for none.
    """

    keeps = frozenset({"ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"})
    watches = frozenset({"DeviceClass"})
    reads = frozenset({"header"})
    _templates: dict[str, device_pb2.ResourceClaimTemplate]
    _slices: dict[str, str]
    _classes: dict[str, None]
    _users: dict[str, dict[str, None]]
    _waiting: dict[str, dict[str, None]]
    _came: dict[str, None]

    def __init__(self, state: WorldState, lifecycle: PodLifecycle) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._claims = state.cluster.device_claims

    def read(self, _now_ns: int, record: trace_pb2.Record) -> None:
        """Take from the header whether the trace has devices."""
        self._claims.are_simulated = record.header.has_devices

    # Objects of the trace

    def put(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        """Add or replace an object. Raises FieldError for an invalid one."""
        match message.WhichOneof("object"):
            case "resource_claim":
                self._put_claim(now_ns, message.resource_claim)
            case "resource_claim_template":
                self._put_template(now_ns, message)
            case "resource_slice":
                self._put_slice(now_ns, message)
            case "device_class":
                self._classes[message.device_class.metadata.name] = None

    def _put_claim(self, now_ns: int, claim: ResourceClaim) -> None:
        meta = claim.metadata
        meta.namespace = meta.namespace or "default"
        devices.resource_claim_from_message(claim)
        stored = self._claims.by_key.get(key_of(claim))
        if stored is None:
            meta.uid = meta.uid or object_uid("ResourceClaim", meta.namespace, meta.name)
            self._cluster.put_claim(now_ns, claim)
        else:
            self._cluster.put_claim(now_ns, _updated(stored, claim))

    def _put_template(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        template = message.resource_claim_template
        meta = template.metadata
        meta.namespace = meta.namespace or "default"
        devices.claim_spec_from_message(template.spec.spec, "resource_claim_template.spec.spec")
        key = f"{meta.namespace}/{meta.name}"
        self._journal.object_put(now_ns, message, is_new=key not in self._templates)
        self._templates[key] = template
        self._came[key] = None

    def _put_slice(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        meta = message.resource_slice.metadata
        devices.resource_slice_from_message(message.resource_slice)
        owner = controller_of(meta)
        is_new = meta.name not in self._slices
        self._slices[meta.name] = owner.name if owner is not None and owner.kind == "Node" else ""
        self._cluster.put_other(now_ns, message, is_new=is_new)

    def remove(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Delete an object; a claim that is in use goes when it is not any more."""
        key = f"{ref.namespace or 'default'}/{ref.name}"
        match ref.kind:
            case "ResourceClaim":
                self._delete(now_ns, key)
            case "ResourceClaimTemplate":
                if self._templates.pop(key, None) is not None:
                    self._journal.object_removed(now_ns, ref)
            case "ResourceSlice":
                if self._slices.pop(ref.name, None) is not None:
                    self._cluster.remove_other(now_ns, ref)
            case "DeviceClass":
                self._classes.pop(ref.name, None)

    # The control loop

    def concerns(self, pod: PodRecord) -> bool:
        """Return whether the pod uses claims, or may get one for its extended resources."""
        if not self._claims.are_simulated:
            return False
        spec = pod.message.spec
        if spec.resource_claims:
            return True
        return bool(self._classes) and any(
            is_extended(name)
            for container in (*spec.containers, *spec.init_containers)
            for name in (*container.resources.requests, *container.resources.limits)
        )

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Sync the pods that have changed and use claims, and the claims that have."""
        if not self._claims.are_simulated:
            return
        for name in changed.nodes:
            if name not in self._cluster.nodes:
                self._drop_slices(now_ns, name)
        pods: dict[str, None] = {}
        claims = dict(changed.claims)
        for key in self._came:
            pods.update(self._waiting.pop(key, {}))
        self._came.clear()
        for uid, message in changed.pods.items():
            if uses_claims(message):
                self._follow(uid, message, pods, claims)
        for key in claims:
            self._sync_claim(now_ns, key)
            pods.update(self._users.get(key, {}))
        for uid in pods:
            pod = self._cluster.pods.get(uid)
            if pod is not None and pod.is_active:
                self._sync_pod(now_ns, pod)

    def _follow(
        self, uid: str, message: pod_pb2.Pod, pods: dict[str, None], claims: dict[str, None]
    ) -> None:
        """Note which claims a pod uses; add the pod or its claims to those that are synced."""
        keys = list(_keys(message))
        pod = self._cluster.pods.get(uid)
        for key in keys:
            if pod is None:
                drop(self._users, key, uid)
            else:
                self._users.setdefault(key, {})[uid] = None
        if pod is None:
            for key in _template_keys(message):
                drop(self._waiting, key, uid)
        if pod is not None and not _is_done(pod):
            pods[uid] = None
            return
        claims.update(dict.fromkeys(keys))
        claims.update(self._claims.made_for.get(uid, {}))

    def _drop_slices(self, now_ns: int, node_name: str) -> None:
        for name in [name for name, owner in self._slices.items() if owner == node_name]:
            del self._slices[name]
            ref = meta_pb2.ObjectReference(kind="ResourceSlice", name=name)
            self._cluster.remove_other(now_ns, ref)

    # A claim

    def _sync_claim(self, now_ns: int, key: str) -> None:
        """Take out the reservations of pods that are done, and free a claim that nobody uses."""
        claim = self._claims.by_key.get(key)
        if claim is None:
            return
        meta, users = claim.metadata, claim.status.reserved_for
        if any(user.resource != "pods" or user.api_group for user in users):
            return
        valid = [user for user in users if self._is_needed_by(user.uid)]
        has_finalizer = FINALIZER in meta.finalizers
        is_deleted = meta.HasField("deletion_timestamp")
        if len(valid) < len(users) or (has_finalizer and is_deleted and not valid):
            del users[:]
            users.extend(valid)
            if not valid and has_finalizer:
                deallocate(claim)
                release_finalizer(claim)
            self._cluster.put_claim(now_ns, claim)
        if valid:
            return
        owner = controller_of(meta)
        is_of_pod = owner is not None and owner.kind == "Pod"
        is_left = is_of_pod and owner is not None and not self._is_needed_by(owner.uid)
        if is_deleted or is_left:
            self._delete(now_ns, key)

    def _is_needed_by(self, uid: str) -> bool:
        """Return whether a pod exists and may run or runs."""
        pod = self._cluster.pods.get(uid)
        return pod is not None and not _is_done(pod)

    def _delete(self, now_ns: int, key: str) -> None:
        """Request a claim's deletion, which finalizers delay; an unknown one is accepted."""
        claim = self._claims.by_key.get(key)
        if claim is None:
            return
        if not claim.metadata.finalizers:
            self._cluster.remove_claim(now_ns, key)
        elif not claim.metadata.HasField("deletion_timestamp"):
            set_time(claim.metadata.deletion_timestamp, now_ns)
            self._cluster.put_claim(now_ns, claim)

    # A pod

    def _sync_pod(self, now_ns: int, pod: PodRecord) -> None:
        """Make a pod's missing claims, and reserve allocated ones for a pod that has a node."""
        if not self._make_claims(now_ns, pod):
            return
        if not pod.node_name:
            return
        for key in _keys(pod.message):
            claim = self._claims.by_key.get(key)
            if claim is None:
                return
            if claim.status.HasField("allocation") and not is_reserved(claim, pod.uid):
                meta = pod.message.metadata
                claim.status.reserved_for.add(resource="pods", name=meta.name, uid=meta.uid)
                self._cluster.put_claim(now_ns, claim)
        if self._claims.may_run(pod):
            self._lifecycle.claims_prepared(now_ns, pod)

    def _make_claims(self, now_ns: int, pod: PodRecord) -> bool:
        """Make the claims of a pod that its templates ask for; return False if one is missing."""
        message, new = pod.message, dict[str, str]()
        made = {status.name: status for status in message.status.resource_claim_statuses}
        namespace = message.metadata.namespace
        for pod_claim in message.spec.resource_claims:
            if not pod_claim.HasField("resource_claim_template_name"):
                continue
            status = made.get(pod_claim.name)
            if status is not None:
                if not status.HasField("resource_claim_name"):
                    continue
                claim = self._claims.by_key.get(f"{namespace}/{status.resource_claim_name}")
                owner = None if claim is None else controller_of(claim.metadata)
                if owner is not None and owner.uid == pod.uid:
                    continue
            name = self._made_before(pod, pod_claim.name)
            if not name:
                key = f"{namespace}/{pod_claim.resource_claim_template_name}"
                template = self._templates.get(key)
                if template is None:
                    self._waiting.setdefault(key, {})[pod.uid] = None
                    return False
                former = "" if status is None else status.resource_claim_name
                name = self._make(now_ns, pod, pod_claim.name, template, former)
            new[pod_claim.name] = name
        if new:
            self._name_claims(now_ns, pod, new)
        return True

    def _made_before(self, pod: PodRecord, claim_name: str) -> str:
        """Return the name of a claim that the pod owns and its status lacks, "" without one."""
        for key in self._claims.made_for.get(pod.uid, {}):
            meta = self._claims.by_key[key].metadata
            if meta.annotations.get(POD_CLAIM_ANNOTATION) == claim_name:
                return meta.name
        return ""

    def _make(
        self,
        now_ns: int,
        pod: PodRecord,
        claim_name: str,
        template: device_pb2.ResourceClaimTemplate,
        former: str,
    ) -> str:
        """Make a claim and return its name, which is not the one of a `former` claim."""
        meta = pod.message.metadata
        claim = ResourceClaim()
        claim.spec.CopyFrom(template.spec.spec)
        claim.metadata.labels.update(template.spec.metadata.labels)
        claim.metadata.annotations.update(template.spec.metadata.annotations)
        claim.metadata.annotations[POD_CLAIM_ANNOTATION] = claim_name
        claim.metadata.namespace = meta.namespace
        claim.metadata.owner_references.add(
            api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True
        )
        base = claim.metadata.generate_name = _base(meta.name, claim_name)
        identity = f"{pod.uid}/{claim_name}"
        names = (base + name_suffix(identity, number) for number in count())
        name = next(
            name
            for name in names
            if name != former and f"{meta.namespace}/{name}" not in self._claims.by_key
        )
        claim.metadata.name = name
        claim.metadata.uid = object_uid("ResourceClaim", meta.namespace, name, identity)
        self._cluster.put_claim(now_ns, claim)
        return name

    def _name_claims(self, now_ns: int, pod: PodRecord, new: dict[str, str]) -> None:
        """Write the names of new claims to a pod's status, by their names in the pod."""
        status = pod.message.status
        names = {
            made.name: made.resource_claim_name
            for made in status.resource_claim_statuses
            if made.HasField("resource_claim_name")
        }
        names.update(new)
        del status.resource_claim_statuses[:]
        for name in sorted(names):
            status.resource_claim_statuses.add(name=name, resource_claim_name=names[name])
        self._cluster.status_changed(now_ns, pod)
        for key in _keys(pod.message):
            self._users.setdefault(key, {})[pod.uid] = None

    # The end

    def conclude(self, _ending: Ending) -> None:
        """Note what pods wait for whose claims cannot be used."""
        if not self._claims.are_simulated:
            return
        waiting: dict[str, dict[str, list[str]]] = {}
        for pod in self._cluster.pods.values():
            if pod.is_active and not pod.node_name and pod.message.spec.resource_claims:
                for kind, key in self._missing(pod):
                    waiting.setdefault(kind, {}).setdefault(key, []).append(pod.key)
        for kind, by_object in waiting.items():
            shown = "; ".join(f"{key} ({_some(keys)})" for key, keys in by_object.items())
            self._journal.note("device-claims", f"{_LISTED[kind]}: {shown}")

    def _missing(self, pod: PodRecord) -> Iterator[tuple[str, str]]:
        message = pod.message
        made = {status.name for status in message.status.resource_claim_statuses}
        namespace = message.metadata.namespace
        for pod_claim in message.spec.resource_claims:
            if pod_claim.HasField("resource_claim_template_name") and pod_claim.name not in made:
                key = f"{namespace}/{pod_claim.resource_claim_template_name}"
                if key not in self._templates:
                    yield "ResourceClaimTemplate", key
        for key in _keys(message):
            claim = self._claims.by_key.get(key)
            if claim is None:
                yield "ResourceClaim", key
            elif claim.metadata.HasField("deletion_timestamp"):
                yield "deletion", key


def _keys(pod: pod_pb2.Pod) -> Iterator[str]:
    """Yield namespace/name of each claim of a pod that has a name."""
    for name in claim_names(pod):
        if name is not None:
            yield f"{pod.metadata.namespace}/{name}"


def _template_keys(pod: pod_pb2.Pod) -> Iterator[str]:
    """Yield namespace/name of each template that a pod names."""
    for pod_claim in pod.spec.resource_claims:
        if pod_claim.HasField("resource_claim_template_name"):
            yield f"{pod.metadata.namespace}/{pod_claim.resource_claim_template_name}"


def _is_done(pod: PodRecord) -> bool:
    """Return whether none of a pod's containers runs, and none will. Source: isPodDone."""
    return pod.is_terminal or (pod.is_terminating and not pod.node_name)


def _updated(stored: ResourceClaim, update: ResourceClaim) -> ResourceClaim:
    """Return a claim with a user's or a driver's update.

    A spec does not change; allocation and reservations are the replay's own. What drivers report
    counts for devices that are allocated here.
    """
    claim = ResourceClaim()
    claim.CopyFrom(stored)
    meta = claim.metadata
    meta.ClearField("labels")
    meta.labels.update(update.metadata.labels)
    meta.ClearField("annotations")
    meta.annotations.update(update.metadata.annotations)
    kept = [name for name in update.metadata.finalizers if name != FINALIZER]
    meta.finalizers[:] = kept + [name for name in meta.finalizers if name == FINALIZER]
    allocated = {
        (result.driver, result.pool, result.device)
        for result in claim.status.allocation.devices.results
    }
    if update.status.devices:
        del claim.status.devices[:]
        claim.status.devices.extend(
            device
            for device in update.status.devices
            if (device.driver, device.pool, device.device) in allocated
        )
    return claim


def _base(pod_name: str, claim_name: str) -> str:
    """Return the beginning of a generated claim's name: of pod and claim, both cut in proportion.

    Source: kubernetes v1.34 pkg/controller/resourceclaim/controller.go, handleClaim.
    """
    base = f"{pod_name}-{claim_name}-"
    if len(base) <= _BASE_MAX:
        return base
    cut_pod = pod_name[: len(pod_name) * _BASE_MAX // len(base)]
    return f"{cut_pod}-{claim_name[: len(claim_name) * _BASE_MAX // len(base)]}"


def _some(keys: list[str]) -> str:
    more = len(keys) - _NAMED
    return ", ".join(keys[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
