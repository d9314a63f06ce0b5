"""Columns and cells of each type's table, as kubectl v1.34 prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.message import Message

from replay.results.kubectl.events import KubeEvent
from replay.results.kubectl.resources import ALL
from replay.results.kubectl.tables import TABLES, cells
from replay.results.kubectl.workload_rows import selector_text
from reprieve.kube.v1beta1 import (
    device_pb2,
    meta_pb2,
    node_pb2,
    object_pb2,
    pod_pb2,
    service_pb2,
    storage_pb2,
    workloads_pb2,
)
from services.rpc.kube import json_codec
from services.rpc.kube.fields import time_ns

_NOW = "2026-01-01T01:00:00Z"
_UPSTREAM = {
    "Pod": "NAME|READY|STATUS|RESTARTS|AGE|+IP|+NODE|+NOMINATED NODE|+READINESS GATES",
    "Node": "NAME|STATUS|ROLES|AGE|VERSION|+INTERNAL-IP|+EXTERNAL-IP|+OS-IMAGE|+KERNEL-VERSION|"
    "+CONTAINER-RUNTIME|+CONDITIONS",
    "Deployment": "NAME|READY|UP-TO-DATE|AVAILABLE|AGE|+CONTAINERS|+IMAGES|+SELECTOR",
    "ReplicaSet": "NAME|DESIRED|CURRENT|READY|AGE|+CONTAINERS|+IMAGES|+SELECTOR",
    "ReplicationController": "NAME|DESIRED|CURRENT|READY|AGE|+CONTAINERS|+IMAGES|+SELECTOR",
    "StatefulSet": "NAME|READY|AGE|+CONTAINERS|+IMAGES",
    "DaemonSet": "NAME|DESIRED|CURRENT|READY|UP-TO-DATE|AVAILABLE|NODE SELECTOR|AGE|+CONTAINERS|"
    "+IMAGES|+SELECTOR",
    "Job": "NAME|STATUS|COMPLETIONS|DURATION|AGE|+CONTAINERS|+IMAGES|+SELECTOR",
    "CronJob": "NAME|SCHEDULE|TIMEZONE|SUSPEND|ACTIVE|LAST SCHEDULE|AGE|+CONTAINERS|+IMAGES|"
    "+SELECTOR",
    "PodDisruptionBudget": "NAME|MIN AVAILABLE|MAX UNAVAILABLE|ALLOWED DISRUPTIONS|AGE",
    "PriorityClass": "NAME|VALUE|GLOBAL-DEFAULT|AGE|PREEMPTIONPOLICY",
    "ResourceQuota": "NAME|REQUEST|LIMIT|AGE",
    "LimitRange": "NAME|CREATED AT",
    "RuntimeClass": "NAME|HANDLER|AGE",
    "Namespace": "NAME|STATUS|AGE",
    "Service": "NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE|+SELECTOR",
    "PersistentVolume": "NAME|CAPACITY|ACCESS MODES|RECLAIM POLICY|STATUS|CLAIM|STORAGECLASS|"
    "VOLUMEATTRIBUTESCLASS|REASON|AGE|+VOLUMEMODE",
    "PersistentVolumeClaim": "NAME|STATUS|VOLUME|CAPACITY|ACCESS MODES|STORAGECLASS|"
    "VOLUMEATTRIBUTESCLASS|AGE|+VOLUMEMODE",
    "StorageClass": "NAME|PROVISIONER|RECLAIMPOLICY|VOLUMEBINDINGMODE|ALLOWVOLUMEEXPANSION|AGE",
    "CSINode": "NAME|DRIVERS|AGE",
    "VolumeAttachment": "NAME|ATTACHER|PV|NODE|ATTACHED|AGE",
    "ResourceClaim": "NAME|STATE|AGE",
    "ResourceClaimTemplate": "NAME|AGE",
    "ResourceSlice": "NAME|NODE|DRIVER|POOL|AGE",
    "DeviceClass": "NAME|AGE",
    "Event": "LAST SEEN|TYPE|REASON|OBJECT|+SUBOBJECT|+SOURCE|MESSAGE|+FIRST SEEN|+COUNT|+NAME",
}
"""AddHandlers of printers.go; + before those of -o wide. CONDITIONS is ours."""


def _cells(kind: str, message: Message | KubeEvent) -> dict[str, str]:
    pod = json_codec.parse(pod_pb2.Pod, {"metadata": {"creationTimestamp": _NOW}})
    now_ns = time_ns(pod.metadata.creation_timestamp)
    found = cells(kind, message, now_ns, shows_phase=True)
    return dict(zip(TABLES[kind].shown(wide=True), found, strict=True))


def _shown(message_type: type[Message], mapping: Mapping[str, Any]) -> dict[str, str]:
    return _cells(message_type.DESCRIPTOR.name, json_codec.parse(message_type, mapping))


@pytest.mark.parametrize("kind", [rule.kind for rule in ALL])
def test_a_table_has_upstreams_columns_in_upstreams_order(kind: str) -> None:
    """Columns of -o wide are at upstream's positions, for Events between other columns."""
    named = _UPSTREAM[kind].split("|")
    assert list(TABLES[kind].shown(wide=True)) == [name.removeprefix("+") for name in named]
    narrow = [name for name in named if not name.startswith("+")]
    assert list(TABLES[kind].shown(wide=False)) == narrow


@pytest.mark.parametrize("kind", [rule.kind for rule in ALL if rule.kind != "Event"])
def test_a_row_has_a_cell_for_each_column(kind: str) -> None:
    """Also that of an object without anything."""
    fields = object_pb2.KubernetesObject.DESCRIPTOR.fields
    (field,) = [field for field in fields if field.message_type and field.message_type.name == kind]
    message = getattr(object_pb2.KubernetesObject(), field.name)
    assert _cells(kind, message)["NAME"] == ""


def _pod(status: Mapping[str, Any], **spec: Any) -> dict[str, str]:
    metadata = {"name": "p"}
    return _shown(pod_pb2.Pod, {"metadata": metadata, "spec": spec, "status": status})


_RESTARTED = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:55:00Z"}}
_EARLIER = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:50:00Z"}}


def test_restarts_show_when_the_last_one_was() -> None:
    """The end of the container that ended last; without such a time only the number."""
    one = {"name": "a", "restartCount": 2, "lastState": _RESTARTED}
    other = {"name": "b", "restartCount": 1, "lastState": _EARLIER}
    assert _pod({"containerStatuses": [one, other]})["RESTARTS"] == "3 (5m ago)"
    assert _pod({"containerStatuses": [{"name": "a", "restartCount": 2}]})["RESTARTS"] == "2"
    once = {"name": "a", "restartCount": 0, "lastState": _RESTARTED}
    assert _pod({"containerStatuses": [once]})["RESTARTS"] == "0"


def test_a_pod_that_initializes_shows_the_restarts_of_its_init_containers() -> None:
    """Up to the first unfinished one; later ones have not begun."""
    done = {"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}}
    waits = {"name": "j", "restartCount": 2, "lastState": _RESTARTED}
    later = {"name": "k", "restartCount": 4}
    shown = _pod(
        {
            "initContainerStatuses": [done, waits, later],
            "containerStatuses": [{"name": "c", "restartCount": 8}],
        },
        initContainers=[{"name": name} for name in "ijk"],
    )
    assert (shown["STATUS"], shown["RESTARTS"]) == ("Init:1/3", "3 (5m ago)")


def test_an_initialized_pod_counts_its_containers_while_a_sidecar_restarts() -> None:
    """Initialized is True, so that the sidecar that is down does not hide the others."""
    ready = {"name": "c", "ready": True, "state": {"running": {}}, "restartCount": 1}
    shown = _pod(
        {
            "conditions": [{"type": "Initialized", "status": "True"}],
            "initContainerStatuses": [{"name": "s", "started": False, "restartCount": 2}],
            "containerStatuses": [ready],
        },
        containers=[{"name": "c"}],
        initContainers=[{"name": "s", "restartPolicy": "Always"}],
    )
    assert (shown["READY"], shown["RESTARTS"]) == ("1/2", "3")


@pytest.mark.parametrize(
    ("metadata", "conditions", "shown"),
    [
        ({}, [], "Running"),
        ({}, ["Suspended"], "Suspended"),
        ({}, ["FailureTarget"], "FailureTarget"),
        ({}, ["FailureTarget", "Failed"], "Failed"),
        ({"deletionTimestamp": _NOW}, ["Suspended"], "Terminating"),
        ({"deletionTimestamp": _NOW}, ["Complete"], "Complete"),
    ],
)
def test_a_job_shows_its_end_before_anything_else(
    metadata: Mapping[str, str], conditions: list[str], shown: str
) -> None:
    """Then its deletion, its suspension and a failure that is on its way."""
    holding = [{"type": condition, "status": "True"} for condition in conditions]
    job = {"metadata": metadata, "status": {"conditions": holding}}
    assert _shown(workloads_pb2.Job, job)["STATUS"] == shown


def test_a_selector_is_sorted_by_key() -> None:
    """Labels and expressions together, as a parsed selector holds them."""
    selector = json_codec.parse(
        meta_pb2.LabelSelector,
        {
            "matchLabels": {"c": "1", "a": "2"},
            "matchExpressions": [
                {"key": "d", "operator": "Exists"},
                {"key": "b", "operator": "NotIn", "values": ["y", "x"]},
            ],
        },
    )
    assert selector_text(selector) == "a=2,b notin (x,y),c=1,d"


def test_volumes_and_claims_have_the_api_servers_defaults() -> None:
    """A manifest leaves them out; the class may be an annotation."""
    old = {"volume.beta.kubernetes.io/storage-class": "slow"}
    volume = _shown(storage_pb2.PersistentVolume, {"metadata": {"annotations": old}})
    expected = {
        "CAPACITY": "0",
        "RECLAIM POLICY": "Retain",
        "STATUS": "Pending",
        "STORAGECLASS": "slow",
        "VOLUMEATTRIBUTESCLASS": "<unset>",
        "VOLUMEMODE": "Filesystem",
    }
    assert volume.items() >= expected.items()
    deleted = {"annotations": old, "deletionTimestamp": _NOW}
    claim = _shown(storage_pb2.PersistentVolumeClaim, {"metadata": deleted})
    expected = {"STATUS": "Terminating", "STORAGECLASS": "slow", "VOLUMEMODE": "Filesystem"}
    assert claim.items() >= expected.items()
    beta = {"storageclass.beta.kubernetes.io/is-default-class": "true"}
    named = {"metadata": {"name": "fast", "annotations": beta}}
    assert _shown(storage_pb2.StorageClass, named)["NAME"] == "fast (default)"


def test_what_a_trace_does_not_have_of_a_service_is_unknown() -> None:
    """A Service has ports, which are not recorded; <none> would be wrong."""
    inside = _shown(service_pb2.Service, {"spec": {"clusterIP": "10.0.0.1"}})
    assert (inside["EXTERNAL-IP"], inside["PORT(S)"]) == ("<none>", "<unknown>")
    outside = _shown(service_pb2.Service, {"spec": {"type": "LoadBalancer"}})
    assert (outside["CLUSTER-IP"], outside["EXTERNAL-IP"]) == ("<none>", "<unknown>")


def test_a_node_shows_what_its_kubelet_reports() -> None:
    """Addresses that it does not report are <none>, the rest is <unknown>."""
    status = {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}
    shown = _shown(node_pb2.Node, {"metadata": {"name": "n"}, "status": status})
    assert (shown["INTERNAL-IP"], shown["EXTERNAL-IP"]) == ("10.0.0.2", "<none>")
    assert (shown["ROLES"], shown["OS-IMAGE"]) == ("<none>", "<unknown>")


def test_the_state_of_a_claim_for_devices_is_kubectls() -> None:
    """A deleted one without devices is deleted only; pending is one that is not."""
    allocated: dict[str, Any] = {"allocation": {"devices": {}}}
    reserved = {**allocated, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    deleted: dict[str, Any] = {"deletionTimestamp": _NOW}
    for metadata, status, state in (
        ({}, {}, "pending"),
        ({}, allocated, "allocated"),
        ({}, reserved, "allocated,reserved"),
        (deleted, {}, "deleted"),
        (deleted, reserved, "deleted,allocated,reserved"),
    ):
        claim = {"metadata": metadata, "status": status}
        shown = _shown(device_pb2.DeviceClaims.ResourceClaim, claim)
        assert shown["STATE"] == state
