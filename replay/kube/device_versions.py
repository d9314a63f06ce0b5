"""Devices and claims of older versions of resource.k8s.io, read as the version that is carried, v1.

Up to v1beta1 a request had the fields of `exactly` itself, and a device those of `basic` within
that field; in v1alpha3 a capacity was a bare quantity. v1beta2 is v1 in its form.

Source: kubernetes v1.34 pkg/apis/resource/v1beta1/conversion.go,
Convert_v1beta1_DeviceRequest_To_resource_DeviceRequest, Convert_v1beta1_Device_To_resource_Device;
api/resource/v1alpha3/types.go (v1.31), BasicDevice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from replay.kube.changes import Raw, part, parts
from services.rpc.errors import FieldError

GROUP = "resource.k8s.io"
KINDS = ("ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate")
READ = ("v1", "v1beta2", "v1beta1")
"""The versions that a recorder reads, the preferred one first."""
_V1 = frozenset({"v1", "v1beta2"})
_FLAT = frozenset({"v1beta1", "v1alpha3"})
_EXACTLY = (
    *("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations"),
    "capacity",
)


def to_v1(raw: Raw) -> Raw:
    """Return an object of the group as one of v1. Raises FieldError for an older version."""
    version = str(raw.get("apiVersion") or "").rpartition("/")[2]
    if version in _V1:
        return raw
    if version not in _FLAT:
        text = f"{GROUP}/{version} has other claims than later versions: v1alpha3 is the first read"
        raise FieldError("apiVersion", text)
    spec = part(raw, "spec")
    match raw.get("kind"):
        case "ResourceSlice":
            spec = _with(spec, "devices", lambda device: _device(device, version))
        case "ResourceClaim":
            spec = _claim(spec)
        case "ResourceClaimTemplate":
            spec = {**spec, "spec": _claim(part(spec, "spec"))}
    return {**raw, "spec": spec}


def _with(holder: Raw, name: str, convert: Callable[[Raw], Raw]) -> Raw:
    """Return a mapping with each item of a list in it converted."""
    return {**holder, name: [convert(item) for item in parts(holder, name)]}


def _device(device: Raw, version: str) -> Raw:
    basic: dict[str, Any] = dict(part(device, "basic"))
    capacity = basic.get("capacity")
    if version == "v1alpha3" and isinstance(capacity, Mapping):
        basic["capacity"] = {name: {"value": amount} for name, amount in capacity.items()}
    return {**{name: value for name, value in device.items() if name != "basic"}, **basic}


def _claim(spec: Raw) -> Raw:
    return {**spec, "devices": _with(part(spec, "devices"), "requests", _request)}


def _request(request: Raw) -> Raw:
    """Return a request whose own fields are in `exactly`, unless it has alternatives."""
    exactly = {name: request[name] for name in _EXACTLY if name in request}
    rest = {name: value for name, value in request.items() if name not in _EXACTLY}
    return rest if request.get("firstAvailable") else {**rest, "exactly": exactly}
