"""A recorded change of an object, and readers of its Kubernetes JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from services.kube.time import SECOND_NS
from services.rpc.kube import rfc3339

Raw = Mapping[str, Any]
_VERSION_LENGTH_MAX = 256
_NOTHING: Raw = {}
_CONDITION_TIMES = ("lastTransitionTime", "lastHeartbeatTime", "lastProbeTime", "lastUpdateTime")
_STATUS_TIMES = ("startTime", "completionTime", "lastScheduleTime", "lastSuccessfulTime")
_TERMINATED_TIMES = ("startedAt", "finishedAt")
_GRACE_MAX_S = 2**31
_REJECTED = "Pod was rejected: "
_TIME_NS_MAX = 2**62
"""The latest time of the contract, in 2116."""


class ChangeType(Enum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange:
    """A change at `at_ns` since 1970; `initial` for an object that existed before the recording.

    `actor` is the user of the API who requested it, "" if the recording does not have one.
    `unknown` names the resources of which changes before this one may be missing, as in a gap of a
    recording; "" if all are known.
    """

    at_ns: int
    type: ChangeType
    raw: Raw
    initial: bool
    where: str
    actor: str = ""
    unknown: str = ""


def time_ns(text: object) -> int | None:
    """Return a time in RFC 3339 as ns since 1970; None for any other value, and beyond 2116.

    RFC 3339 allows "t", "z" and a space, too, which Kubernetes does not write.
    """
    if not isinstance(text, str):
        return None
    at_ns = rfc3339.parse_ns(text.upper().replace(" ", "T"))
    return at_ns if at_ns is not None and abs(at_ns) <= _TIME_NS_MAX else None


def part(raw: Raw, name: str) -> Raw:
    """Return a mapping within `raw`; an empty one where it is absent."""
    value = raw.get(name)
    return value if isinstance(value, dict) else _NOTHING


def parts(raw: Raw, name: str) -> list[Raw]:
    """Return the mappings of a list within `raw`; [] if it is absent."""
    value = raw.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def meta(raw: Raw) -> Raw:
    """Return metadata; an empty mapping where it is absent."""
    return part(raw, "metadata")


def kind(raw: Raw) -> str:
    """Return the kind, "" if it is absent."""
    return str(raw.get("kind") or "")


def key(raw: Raw) -> tuple[str, str, str]:
    """Return kind, namespace and name."""
    metadata = meta(raw)
    return kind(raw), str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def uid(raw: Raw) -> str:
    """Return metadata.uid, or "KIND/NAMESPACE/NAME" where it is absent."""
    return str(meta(raw).get("uid") or "/".join(key(raw)))


def version(raw: Raw) -> str:
    """Return metadata.resourceVersion, "" if it is absent."""
    return str(meta(raw).get("resourceVersion") or "")


def version_number(raw: Raw) -> int | None:
    """Return metadata.resourceVersion as a number, None if it is not one of an API server."""
    text = version(raw)
    return int(text) if text.isdecimal() and len(text) <= _VERSION_LENGTH_MAX else None


def ref(raw: Raw) -> ObjectReference:
    """Return a reference to the object."""
    object_kind, namespace, name = key(raw)
    return ObjectReference(
        kind=object_kind, namespace=namespace, name=name, uid=str(meta(raw).get("uid") or "")
    )


def controller(raw: Raw) -> Raw | None:
    """Return the owner reference of the controller, None without a controller."""
    for owner_reference in parts(meta(raw), "ownerReferences"):
        if owner_reference.get("controller") is True:
            return owner_reference
    return None


def conditions(raw: Raw) -> Iterator[Raw]:
    """Yield status.conditions."""
    return iter(parts(part(raw, "status"), "conditions"))


def condition(raw: Raw, type_: str) -> Raw:
    """Return a condition by its type; an empty mapping where it is absent."""
    return next(
        (candidate for candidate in conditions(raw) if candidate.get("type") == type_), _NOTHING
    )


def phase(raw: Raw) -> str:
    """Return a pod's status.phase, "" if it is absent."""
    return str(part(raw, "status").get("phase") or "")


def node_name(raw: Raw) -> str:
    """Return the node that a pod is bound to, "" for a pod without a node."""
    return str(part(raw, "spec").get("nodeName") or "")


def nominated_node(raw: Raw) -> str:
    """Return the nominated node of a pod, "" without a nomination."""
    return str(part(raw, "status").get("nominatedNodeName") or "")


def disruption(raw: Raw) -> str:
    """Return the reason of a pod's condition DisruptionTarget, "" if it is not True."""
    target = condition(raw, "DisruptionTarget")
    return str(target.get("reason") or "") if target.get("status") == "True" else ""


def rejection(raw: Raw) -> str:
    """Return why a kubelet did not admit a pod, in its words; "" for any other pod.

    Source: kubernetes v1.34 pkg/kubelet/kubelet.go, rejectPod.
    """
    message = str(part(raw, "status").get("message") or "")
    return message.removeprefix(_REJECTED) if message.startswith(_REJECTED) else ""


def ended_by_kubelet(raw: Raw) -> bool:
    """Return whether a pod that has ended was rejected or ended by its kubelet.

    A kubelet evicts, ends pods for a critical one, and ends pods as its node shuts down.
    """
    is_evicted = part(raw, "status").get("reason") == "Evicted"
    return is_evicted or bool(rejection(raw)) or disruption(raw) == "TerminationByKubelet"


def is_being_deleted(raw: Raw) -> bool:
    """Return whether the object has a deletionTimestamp."""
    return bool(meta(raw).get("deletionTimestamp"))


def finalizers(raw: Raw) -> list[str]:
    """Return metadata.finalizers; [] if it is absent."""
    names = meta(raw).get("finalizers")
    return [str(name) for name in names] if isinstance(names, list) else []


def grace_s(raw: Raw) -> int | None:
    """Return the grace period of an object's deletion; None if it is absent or invalid."""
    return grace_period_s(meta(raw).get("deletionGracePeriodSeconds"))


def grace_period_s(value: object) -> int | None:
    """Return a grace period, s; None for what is not one."""
    return value if type(value) is int and 0 <= value < _GRACE_MAX_S else None


def deletion_requested_ns(raw: Raw) -> int | None:
    """Return when the deletion was requested: deletionTimestamp minus the grace period."""
    deadline_ns = time_ns(meta(raw).get("deletionTimestamp"))
    return None if deadline_ns is None else deadline_ns - (grace_s(raw) or 0) * SECOND_NS


def without_status(raw: Raw) -> Raw:
    """Return the object without its status."""
    return {name: value for name, value in raw.items() if name != "status"}


def desired_state(raw: Raw) -> tuple[object, ...]:
    """Return what users and controllers set: labels, and all but metadata and status."""
    rest = {
        name: value for name, value in raw.items() if name not in {"metadata", "status", "kind"}
    }
    return meta(raw).get("labels") or {}, rest


def latest_ns(raw: Any) -> int:
    """Return the latest time in an object, ns since 1970; 0 without any.

    The times of its creation, of changes, conditions, heartbeats, taints, starts and ends, and of
    the request of its deletion; never a deadline.
    """
    metadata, status = meta(raw), part(raw, "status")
    times = [metadata.get("creationTimestamp")]
    times += [managed_field.get("time") for managed_field in parts(metadata, "managedFields")]
    times += [condition_.get(name) for condition_ in conditions(raw) for name in _CONDITION_TIMES]
    times += [status.get(name) for name in _STATUS_TIMES]
    for name in ("initContainerStatuses", "containerStatuses"):
        for container in parts(status, name):
            for state in (part(container, "state"), part(container, "lastState")):
                times.append(part(state, "running").get("startedAt"))
                times += [
                    part(state, "terminated").get(terminated_time)
                    for terminated_time in _TERMINATED_TIMES
                ]
    times += [taint.get("timeAdded") for taint in parts(part(raw, "spec"), "taints")]
    times_ns = [deletion_requested_ns(raw), *map(time_ns, times)]
    return max((ns for ns in times_ns if ns is not None), default=0)
