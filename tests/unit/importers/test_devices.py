"""Devices and claims in lists, manifests and recordings; older versions of their group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replay.importers.recording.interpreter import interpret
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.kube.changes import ChangeType, RecordedChange
from replay.kube.kinds import read_object, to_object
from reprieve.kube.v1beta1 import device_pb2
from reprieve.trace.v1beta1.trace_pb2 import Header, Record
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError
from tests import device_objects as k8s


def of_version(raw: dict[str, Any], version: str) -> dict[str, Any]:
    """Return an object with another version of its group."""
    return {**raw, "apiVersion": f"resource.k8s.io/{version}"}


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
def test_a_device_of_an_older_version_has_its_fields_in_basic(version: str) -> None:
    """And in v1alpha3 capacities without a mapping around each."""
    amount: Any = "40Gi" if version == "v1alpha3" else {"value": "40Gi"}
    basic = {"attributes": {"model": {"string": "A100"}}, "capacity": {"memory": amount}}
    old = k8s.slice_("a", [{"name": "gpu-0", "basic": basic}])
    new = k8s.slice_("a", [{"name": "gpu-0", **basic, "capacity": {"memory": {"value": "40Gi"}}}])
    assert to_object(of_version(old, version)) == to_object(new)


def test_a_request_of_an_older_version_is_exact_unless_it_has_alternatives() -> None:
    """In claims and in templates."""
    flat = {"name": "gpu", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    one = {"name": "big", "deviceClassName": "gpu", "count": 1}
    either = {"name": "any", "firstAvailable": [one]}
    old: list[dict[str, Any]] = [flat, either]
    new: list[dict[str, Any]] = [k8s.request(count=2), either]
    pairs = [
        (k8s.claim("c", requests=old), k8s.claim("c", requests=new)),
        (k8s.template("t", *old), k8s.template("t", *new)),
    ]
    for before, now in pairs:
        assert to_object(of_version(before, "v1beta1")) == to_object(now)
        assert to_object(of_version(now, "v1beta2")) == to_object(now)


def test_a_version_with_other_claims_is_refused_by_name() -> None:
    """Those of v1alpha2 named a resource class."""
    with pytest.raises(FieldError, match="v1alpha2"):
        to_object(of_version(k8s.claim("c"), "v1alpha2"))


def imported(tmp_path: Path, *objects: dict[str, Any]) -> list[Record]:
    """Return the trace of a list."""
    return list(open_trace([k8s.written(tmp_path / "x.json", *objects)]))


def test_a_header_says_whether_a_list_has_devices(tmp_path: Path) -> None:
    """One object of the four kinds is enough."""
    assert not imported(tmp_path, k8s.node("a"))[0].header.has_devices
    assert imported(tmp_path, k8s.node("a"), k8s.device_class())[0].header.has_devices


def test_a_new_claim_has_the_defaults_of_an_api_server(tmp_path: Path) -> None:
    """One device where neither mode nor count is given, and tolerations are Equal."""
    detail = {"deviceClassName": "gpu", "tolerations": [{"key": "k", "value": "v"}]}
    alternatives = [{"name": "all", "deviceClassName": "gpu", "allocationMode": "All"}]
    requests: list[dict[str, Any]] = [
        {"name": "a", "exactly": detail},
        {"name": "b", "firstAvailable": alternatives},
    ]
    new = k8s.claim("c", requests=requests)
    del new["metadata"]["creationTimestamp"]
    claim = imported(tmp_path, k8s.node("a"), new)[-1].create.resource_claim
    exact, either = claim.spec.devices.requests
    assert (exact.exactly.allocation_mode, exact.exactly.count) == ("ExactCount", 1)
    assert exact.exactly.tolerations[0].operator == "Equal"
    assert (either.first_available[0].allocation_mode, either.first_available[0].count) == (
        "All",
        0,
    )


class Log:
    """Changes of a recording, one a second."""

    def __init__(self) -> None:
        self.changes: list[RecordedChange] = []

    def add(self, raw: dict[str, Any], type_: str = "ADDED", *, initial: bool = False) -> None:
        """Add the next change."""
        number = len(self.changes) + 1
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(number)}}
        self.changes.append(
            RecordedChange(
                at_ns=number * SECOND_NS,
                type=ChangeType(type_),
                raw=raw,
                initial=initial,
                where="log",
            )
        )

    def records(self) -> list[Record]:
        """Return the trace."""
        return list(interpret(lambda _issues: self.changes, Header(), ImportOptions()))


def of_claims(records: list[Record]) -> list[tuple[str, str]]:
    """Return what happens to claims: the kind of each record and the claim's name."""
    found: list[tuple[str, str]] = []
    for record in records:
        kind = record.WhichOneof("record") or ""
        if kind in ("create", "update") and getattr(record, kind).HasField("resource_claim"):
            found.append((kind, getattr(record, kind).resource_claim.metadata.name))
        elif record.delete.object.kind == "ResourceClaim":
            found.append((kind, record.delete.object.name))
    return found


def test_of_a_recording_only_what_users_and_drivers_do_with_claims_is_an_input() -> None:
    """The first list is as it was: allocations too. Later ones are decisions, and left out."""
    log = Log()
    held = k8s.claim("held-x", "a/gpu-0", reserved_for=["held"], **k8s.owned_by("held"))
    log.add(k8s.node("a"), initial=True)
    log.add(held, initial=True)
    log.add(k8s.claim("shared"))
    log.add(k8s.claim("new-y", **k8s.owned_by("new")))
    log.add(k8s.claim("shared", "a/gpu-1", reserved_for=["new"]), "MODIFIED")
    reported = k8s.claim("shared", "a/gpu-1", reserved_for=["new"])
    ready = {"type": "Ready", "status": "True"}
    place = {"driver": k8s.DRIVER, "pool": "a", "device": "gpu-1"}
    reported["status"]["devices"] = [{**place, "conditions": [ready]}]
    log.add(reported, "MODIFIED")
    log.add({**held, "status": {}}, "DELETED")
    deleted = k8s.claim("shared", deletionTimestamp="2026-01-01T00:01:00Z")
    deleted["status"] = reported["status"]
    log.add(deleted, "MODIFIED")
    log.add(deleted, "DELETED")
    records = log.records()
    assert records[0].header.has_devices
    assert of_claims(records) == [
        ("create", "held-x"),
        ("create", "shared"),
        ("update", "shared"),
        ("delete", "shared"),
    ]
    created = [record.create.resource_claim for record in records if record.HasField("create")]
    first, second = (claim for claim in created if claim.metadata.name)
    assert first.status.HasField("allocation")
    assert not second.HasField("status")
    (updated,) = (record.update.resource_claim for record in records if record.HasField("update"))
    assert not updated.status.HasField("allocation")
    assert updated.status.devices[0].conditions[0].type == "Ready"


def test_every_field_of_a_slice_is_read() -> None:
    """One of each, by its name in JSON."""
    counters = [{"name": "set", "counters": {"memory": {"value": "80Gi"}}}]
    device = {
        "name": "gpu-0",
        "attributes": {"a": {"int": 1}, "b": {"bool": True}, "c": {"version": "1.2.3"}},
        "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "40Gi"}}}],
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "bindingConditions": ["Ready"],
        "allowMultipleAllocations": True,
    }
    raw = k8s.slice_("a", [device], sharedCounters=counters)
    slice_: device_pb2.ResourceSlice = read_object("x", raw).resource_slice
    (read,) = slice_.spec.devices
    assert slice_.spec.shared_counters[0].counters["memory"].value == "80Gi"
    assert (read.attributes["a"].int_value, read.attributes["b"].bool_value) == (1, True)
    assert read.consumes_counters[0].counters["memory"].value == "40Gi"
    assert read.allow_multiple_allocations
    assert list(read.binding_conditions) == ["Ready"]
