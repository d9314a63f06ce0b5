"""Kubernetes JSON of small clusters with devices, as kubectl prints it; what their runs hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from replay.results.run.directory import RunDirectory
from reprieve.kube.v1beta1 import device_pb2
from services.kube.quantity import parse

DRIVER = "gpu.example.com"
CREATED = "2026-01-01T00:00:00Z"
FINALIZER = "resource.kubernetes.io/delete-protection"
GROUP = "resource.k8s.io/v1"


def meta(name: str, namespace: str = "default", **more: Any) -> dict[str, Any]:
    """Return the metadata of an object that exists; a namespace "" for none."""
    made = {"name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED, **more}
    return {**made, "namespace": namespace} if namespace else made


def node(name: str, cpu: str = "8", **labels: str) -> dict[str, Any]:
    """Return a node that is ready."""
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta(name, "", labels={"kubernetes.io/hostname": name, **labels}),
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def slice_(node_name: str, devices: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """Return the slice of a node's pool, which the node owns."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": f"uid-{node_name}"}
    return {
        "apiVersion": GROUP,
        "kind": "ResourceSlice",
        "metadata": meta(f"{node_name}-slice", "", ownerReferences=[{**owner, "controller": True}]),
        "spec": {
            "driver": DRIVER,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
            **more,
        },
    }


def gpus(node_name: str, count: int, **attributes: Any) -> dict[str, Any]:
    """Return the slice of a node with so many GPUs."""
    values = {name: {"string": value} for name, value in attributes.items()}
    devices = [{"name": f"gpu-{number}", "attributes": values} for number in range(count)]
    return slice_(node_name, devices)


def device_class(name: str = "gpu", **spec: Any) -> dict[str, Any]:
    """Return the class of all devices of the driver."""
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {
        "apiVersion": GROUP,
        "kind": "DeviceClass",
        "metadata": meta(name, ""),
        "spec": {"selectors": selectors, **spec},
    }


def request(name: str = "gpu", **exactly: Any) -> dict[str, Any]:
    """Return a request for one device of the class."""
    detail = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **exactly}
    return {"name": name, "exactly": detail}


def claim(
    name: str,
    *devices: str,
    reserved_for: Sequence[str] = (),
    requests: Sequence[Mapping[str, Any]] = (),
    **metadata: Any,
) -> dict[str, Any]:
    """Return a claim; `devices` are allocated ones, "NODE/DEVICE", all of one node."""
    status: dict[str, Any] = {}
    finalizers: list[str] = []
    if devices:
        results = [
            {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device}
            for pool, device in (text.split("/") for text in devices)
        ]
        field = {"key": "metadata.name", "operator": "In", "values": [results[0]["pool"]]}
        status["allocation"] = {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
        finalizers = [FINALIZER]
    if reserved_for:
        status["reservedFor"] = [
            {"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in reserved_for
        ]
    return {
        "apiVersion": GROUP,
        "kind": "ResourceClaim",
        "metadata": meta(name, finalizers=finalizers, **metadata),
        "spec": {"devices": {"requests": list(requests) or [request()]}},
        "status": status,
    }


def owned_by(pod: str, claim_name: str = "gpu") -> dict[str, Any]:
    """Return the metadata of a claim that was made for a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}"}
    return {
        "ownerReferences": [{**owner, "controller": True}],
        "annotations": {"resource.kubernetes.io/pod-claim-name": claim_name},
    }


def template(name: str, *requests: Mapping[str, Any]) -> dict[str, Any]:
    """Return a template of claims; without requests for one device."""
    return {
        "apiVersion": GROUP,
        "kind": "ResourceClaimTemplate",
        "metadata": meta(name),
        "spec": {"spec": {"devices": {"requests": list(requests) or [request()]}}},
    }


def pod(
    name: str,
    *,
    claim: str = "",
    template: str = "",
    on: str = "",
    made: str = "",
    phase: str = "Running",
    cpu: str = "1",
    service_s: int | None = None,
    created: str = CREATED,
) -> dict[str, Any]:
    """Return a pod with a claim by its name, or from a template.

    on: its node, where it is in `phase`. made: the claim that was made from the template.
    service_s: how long it runs.
    """
    wanted: dict[str, Any] = {"name": "gpu"}
    if claim:
        wanted["resourceClaimName"] = claim
    else:
        wanted["resourceClaimTemplateName"] = template
    metadata = meta(name, creationTimestamp=created)
    if service_s is not None:
        metadata["annotations"] = {"reprieve/service-time": f"{service_s}s"}
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": {"cpu": cpu}, "claims": [{"name": "gpu"}]},
    }
    spec: dict[str, Any] = {
        "containers": [container],
        "restartPolicy": "Never",
        "resourceClaims": [wanted] if claim or template else [],
    }
    status: dict[str, Any] = {"phase": "Pending"}
    if on:
        spec["nodeName"] = on
        status = {"phase": phase}
        if phase == "Running":
            status["startTime"] = created
    if made:
        status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": made}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def written(path: Path, *objects: Mapping[str, Any]) -> Path:
    """Write a list as kubectl prints it, and return its path."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return path


# Runs


Claim = device_pb2.DeviceClaims.ResourceClaim


def claims_over_time(run: RunDirectory) -> Iterator[dict[str, Claim]]:
    """Yield the claims after each change of one of them."""
    claims: dict[str, Claim] = {}
    for round_ in run.rounds():
        for event in round_.events:
            put = event.add if event.HasField("add") else event.update
            if put.HasField("resource_claim"):
                kept = put.resource_claim
                claims[f"{kept.metadata.namespace}/{kept.metadata.name}"] = kept
                yield claims
            elif event.remove.kind == "ResourceClaim":
                claims.pop(f"{event.remove.namespace}/{event.remove.name}", None)
                yield claims


def allocated(claims: Mapping[str, Claim]) -> Counter[str]:
    """Return how many claims have each device alone, without those for administration."""
    return Counter(
        f"{result.pool}/{result.device}"
        for held in claims.values()
        for result in held.status.allocation.devices.results
        if not result.admin_access and not result.share_id
    )


def consumed(claims: Mapping[str, Claim]) -> Counter[tuple[str, str]]:
    """Return what claims consume of shared devices, by device and capacity, in billionths."""
    amounts: Counter[tuple[str, str]] = Counter()
    for held in claims.values():
        for result in held.status.allocation.devices.results:
            for name, amount in result.consumed_capacity.items():
                amounts[f"{result.pool}/{result.device}", name] += parse(amount).nano
    return amounts
