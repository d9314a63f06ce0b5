"""Tests of audit logs."""

from __future__ import annotations

from pathlib import Path

import orjson

from replay.importers.registry import open_trace, recognise
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests import device_objects as k8s
from tests.unit.importers.builders import (
    T0_S,
    Raw,
    S,
    at,
    deletes,
    issues,
    kinds,
    make_object,
    make_pod,
    observed,
)

_PLURALS = {
    "Pod": "pods",
    "Node": "nodes",
    "Deployment": "deployments",
    "ResourceSlice": "resourceslices",
    "DeviceClass": "deviceclasses",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
}
_STATUS: Raw = {"kind": "Status", "apiVersion": "v1", "status": "Success"}


def _entry(
    second: float,
    verb: str,
    raw: Raw,
    *,
    answer: Raw | None = None,
    subresource: str = "",
    request: Raw | None = None,
    user: str = "admin",
    code: int = 200,
) -> bytes:
    named = {"resource": _PLURALS[raw["kind"]]}
    if "namespace" in raw["metadata"]:
        named["namespace"] = raw["metadata"]["namespace"]
    if verb != "create" or subresource:
        named["name"] = raw["metadata"]["name"]
    if subresource:
        named["subresource"] = subresource
    entry = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "objectRef": named,
        "responseStatus": {"code": code},
        "requestObject": request,
        "responseObject": raw if answer is None else answer,
        "stageTimestamp": at(second),
    }
    return orjson.dumps(entry)


def _imported(path: Path, *lines: bytes) -> list[Record]:
    file = path / "audit.log"
    file.write_bytes(b"\n".join(lines))
    assert recognise(file) == "audit"
    return list(open_trace([file]))


def _binding(second: float, pod: Raw, node: str) -> bytes:
    request = {"kind": "Binding", "target": {"kind": "Node", "name": node}}
    return _entry(
        second,
        "create",
        pod,
        answer=_STATUS,
        subresource="binding",
        request=request,
        user="system:kube-scheduler",
        code=201,
    )


def test_a_create_is_taken_from_the_answer_and_a_binding_from_the_request(tmp_path: Path) -> None:
    """The reference has no name when a pod is created."""
    pod = make_pod("p-x7k2", 2)
    running = make_pod("p-x7k2", 4, node="n", phase="Running")
    records = _imported(
        tmp_path,
        _entry(1, "create", pod, code=201),
        _binding(2, pod, "n"),
        _entry(5, "patch", running, subresource="status", user="kubelet"),
    )
    assert kinds(records) == ["header", "pod_create", "observed scheduled", "observed started"]
    assert records[1].pod_create.pod.metadata.name == "p-x7k2"
    assert records[1].pod_create.life.start_delay_duration_ns == 3 * S
    assert observed(records, "scheduled")[0].scheduled.node_name == "n"
    assert records[1].time_ns == (T0_S + 1) * S


def test_reads_failures_and_other_stages_are_passed_over(tmp_path: Path) -> None:
    """Only what was written counts."""
    pod = make_pod("p", 2)
    received = orjson.loads(_entry(1, "create", pod))
    received["stage"] = "RequestReceived"
    records = _imported(
        tmp_path,
        orjson.dumps(received),
        _entry(1, "get", pod),
        _entry(1, "create", pod, code=409, answer={"kind": "Status", "code": 409}),
    )
    assert kinds(records) == ["header"]


def test_deletions_set_the_timestamp_first_and_remove_the_object_last(tmp_path: Path) -> None:
    """A pod without a grace period to go is removed at once."""
    stops = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30}
    last = {**stops, "deletionGracePeriodSeconds": 0}
    running = make_pod("p", 2, node="n", phase="Running")
    records = _imported(
        tmp_path,
        _entry(0, "create", make_object("Node", "n", 1)),
        _entry(0, "create", running),
        _entry(3, "delete", make_pod("p", 3, node="n", phase="Running", metadata=stops)),
        _entry(8, "delete", make_pod("p", 4, node="n", phase="Running", metadata=last)),
        _entry(9, "delete", make_object("Node", "n", 1), answer=_STATUS),
    )
    assert [(delete.object.kind, delete.cause) for delete in deletes(records)] == [
        ("Pod", "user"),
        ("Node", "user"),
    ]
    assert len(observed(records, "removed")) == 1
    assert records[2].pod_create.life.shutdown_duration_ns == 5 * S


def test_an_eviction_requests_the_pods_deletion(tmp_path: Path) -> None:
    """Its answer is a Status alone."""
    pod = make_pod("p", 2, node="n", phase="Running")
    eviction = {"kind": "Eviction", "metadata": {"name": "p"}}
    records = _imported(
        tmp_path,
        _entry(0, "create", pod),
        _entry(
            2, "create", pod, answer=_STATUS, subresource="eviction", request=eviction, code=201
        ),
    )
    assert [delete.cause for delete in deletes(records)] == ["drain"]


def test_a_log_without_responses_is_reported(tmp_path: Path) -> None:
    """At the levels Metadata and Request there are no objects."""
    records = _imported(tmp_path, _entry(0, "create", make_pod("p", 2), answer={}))
    assert [issue.kind for issue in issues(records)] == ["audit-level"]


def test_the_requester_of_a_deletion_decides_its_meaning(tmp_path: Path) -> None:
    """A pod of an owner that no replay serves is deleted by its owner's collector."""
    owner = make_object("StatefulSet", "db", 1)
    pod = make_pod("db-0", 2, owner=owner)
    collector = "system:serviceaccount:kube-system:generic-garbage-collector"
    records = _imported(
        tmp_path, _entry(0, "create", pod), _entry(1, "delete", pod, user=collector)
    )
    assert [delete.cause for delete in deletes(records)] == ["owner"]


def test_a_resize_is_an_update_with_the_new_resources(tmp_path: Path) -> None:
    """Of the subresource `resize`; what the kubelet says of it is its own doing."""
    pod = make_pod("p", 2)
    running = make_pod("p", 4, node="n", phase="Running")
    resized = make_pod("p", 5, node="n", phase="Running")
    resized["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    deferred = make_pod(
        "p", 6, node="n", phase="Running", conditions=[("PodResizePending", "True", "Deferred")]
    )
    deferred["spec"] = resized["spec"]
    records = _imported(
        tmp_path,
        _entry(1, "create", pod, code=201),
        _binding(2, pod, "n"),
        _entry(5, "patch", running, subresource="status", user="kubelet"),
        _entry(7, "patch", resized, subresource="resize"),
        _entry(8, "patch", deferred, subresource="status", user="kubelet"),
    )
    assert kinds(records)[-2:] == ["update pod", "issue status-only"]
    (update,) = [record.update.pod for record in records if record.HasField("update")]
    assert update.spec.containers[0].resources.requests["cpu"] == "3"
    assert not update.spec.node_name


def test_claims_of_users_and_what_drivers_report_are_inputs(tmp_path: Path) -> None:
    """Allocations, and the claims that their controller makes, are the recorded cluster's own."""
    scheduler, controller = "system:kube-scheduler", "system:serviceaccount:kube-system:claims"
    shared = k8s.claim("shared")
    allocated = k8s.claim("shared", "a/gpu-0", reserved_for=["p"])
    ready = k8s.claim("shared", "a/gpu-0", reserved_for=["p"])
    conditions = [{"type": "Ready", "status": "True"}]
    place = {"driver": k8s.DRIVER, "pool": "a", "device": "gpu-0"}
    ready["status"]["devices"] = [{**place, "conditions": conditions}]
    deleted = {**ready, "metadata": {**ready["metadata"], "deletionTimestamp": at(9)}}
    pod = k8s.pod("p", claim="shared")
    records = _imported(
        tmp_path,
        _entry(1, "create", k8s.gpus("a", 1), code=201),
        _entry(1, "create", k8s.device_class(), code=201),
        _entry(1, "create", k8s.template("one"), code=201),
        _entry(2, "create", shared, code=201),
        _entry(2, "create", k8s.claim("q-gpu-x", **k8s.owned_by("q")), user=controller, code=201),
        _entry(3, "create", pod, code=201),
        _entry(4, "update", allocated, user=scheduler),
        _entry(4, "update", allocated, subresource="status", user=scheduler),
        _binding(5, pod, "a"),
        _entry(6, "patch", ready, subresource="status", user="driver"),
        _entry(9, "delete", deleted),
    )
    assert records[0].header.has_devices
    assert [kind for kind in kinds(records) if not kind.startswith("issue")] == [
        "header",
        "create resource_slice",
        "create device_class",
        "create resource_claim_template",
        "create resource_claim",
        "pod_create",
        "observed scheduled",
        "update resource_claim",
        "delete ResourceClaim user",
    ]
    created, updated = records[4].create.resource_claim, records[7].update.resource_claim
    assert created.metadata.name == "shared"
    assert not created.status.HasField("allocation")
    assert updated.status.devices[0].conditions[0].type == "Ready"
