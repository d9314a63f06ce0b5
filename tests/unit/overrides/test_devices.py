"""Overrides of slices, devices and their classes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replay.kube.kinds import to_object
from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.overrides import Overrides
from reprieve.kube.v1beta1.device_pb2 import DeviceClass, ResourceSlice
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube.json_codec import to_json
from tests import device_objects as k8s
from tests.unit.results.test_device_use import card


def trace() -> Iterator[trace_pb2.Record]:
    """Yield a node a with a card in parts, a node b with two GPUs, a class, and a later slice."""
    yield trace_pb2.Record(header=trace_pb2.Header(format_version=2, window_end_time_ns=99))
    first = [k8s.node("a"), k8s.node("b"), *card(), k8s.gpus("b", 2), k8s.device_class()]
    for number, raw in enumerate(first, 1):
        yield trace_pb2.Record(time_ns=1, sequence=number, create=to_object(raw))
    later = to_object(k8s.gpus("b", 3))
    yield trace_pb2.Record(time_ns=50, sequence=9, update=later)


def changed(*sets: str) -> list[trace_pb2.Record]:
    """Return the trace with overrides."""
    return list(Overrides(sets=sets).records(trace, 0))


def slices(*sets: str) -> dict[str, ResourceSlice]:
    """Return the slices at the end of the trace with overrides."""
    by_name = {}
    for record in changed(*sets):
        put = record.update if record.HasField("update") else record.create
        if put.HasField("resource_slice"):
            by_name[put.resource_slice.metadata.name] = put.resource_slice
    return by_name


def names(slice_: ResourceSlice) -> list[str]:
    """Return the names of a slice's devices."""
    return [device.name for device in slice_.spec.devices]


def test_a_device_is_there_as_often_as_is_set() -> None:
    """The first one keeps its name, others get numbers; without any it is gone."""
    found = slices("resourceslice.a-slice.devices.s*.count=3")["a-slice"]
    assert names(found) == ["s0", "s0-2", "s0-3", "s1", "s1-2", "s1-3", "b0", "b1"]
    assert found.spec.devices[1].consumes_counters == found.spec.devices[0].consumes_counters
    assert names(slices("resourceslice.a-slice.devices.b1.count=0")["a-slice"])[-1] == "b0"


def test_amounts_and_attributes_of_devices_are_set_by_pattern() -> None:
    """What matches no pattern stays as it is."""
    found = slices(
        "resourceslice.a-slice.devices.s*.consumesCounters.card.memory=5Gi",
        "resourceslice.*.devices.s0.capacity.memory=5Gi",
        "resourceslice.*.devices.b0.attributes.gpu.example.com/index=7",
        "resourceslice.*.devices.b0.attributes.fast=true",
        "resourceslice.*.devices.b0.attributes.size=huge",
        "resourceslice.a-card.sharedCounters.card.memory=80Gi",
    )
    s0, s1, b0, b1 = found["a-slice"].spec.devices
    consumed = [device.consumes_counters[0].counters["memory"].value for device in (s0, s1, b0)]
    assert consumed == ["5Gi", "5Gi", "20Gi"]
    assert s0.capacity["memory"].value == "5Gi"
    assert not s1.capacity
    assert to_json(b0)["attributes"] == {
        "size": {"string": "huge"},
        "fast": {"bool": True},
        "gpu.example.com/index": {"int": 7},
    }
    assert to_json(b1)["attributes"] == {"size": {"string": "big"}}
    counters = found["a-card"].spec.shared_counters[0].counters
    assert counters["memory"].value == "80Gi"


def test_every_version_of_a_slice_is_changed() -> None:
    """The list of devices is replaced in the update, too."""
    found = slices("resourceslice.b-slice.devices=[{name: x}, {name: z, allNodes: true}]")
    assert names(found["b-slice"]) == ["x", "z"]
    assert found["b-slice"].spec.devices[1].all_nodes


def test_a_slice_changes_at_a_time() -> None:
    """Before that it is as it was recorded."""
    records = changed("resourceslice.b-slice.devices.gpu-0.count=0,at=10ns")
    of_b = [
        names(put.resource_slice)
        for record in records
        for put in (record.create, record.update)
        if put.resource_slice.metadata.name == "b-slice"
    ]
    assert of_b == [["gpu-0", "gpu-1"], ["gpu-1"], ["gpu-1", "gpu-2"]]


def test_a_class_gets_another_selector_and_resource() -> None:
    """Its former selectors go; an expression may have equals signs."""
    expression = 'device.driver == "other.example.com"'
    records = changed(
        f"deviceclass.gpu.selector={expression}", "deviceclass.gpu.extendedResourceName=x.com/gpu"
    )
    (found,) = (record.create for record in records if record.create.HasField("device_class"))
    class_: DeviceClass = found.device_class
    assert [selector.cel.expression for selector in class_.spec.selectors] == [expression]
    assert class_.spec.extended_resource_name == "x.com/gpu"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("resourceslice.c*.devices=[]", "the trace has no ResourceSlice c*"),
        ("resourceslice.a-slice.devices.b9.count=2", "a device b9; it has b0, b1, s0, s1"),
        ("resourceslice.a-card.sharedCounters.cart.memory=1", "counter set cart; did you mean"),
        ("deviceclass.gpus.selector=true", "the trace has no DeviceClass gpus; did you mean gpu?"),
    ],
)
def test_what_names_nothing_has_no_effect(text: str, problem: str) -> None:
    """The names that there are stand in the message."""
    with pytest.raises(NoEffectError) as refused:
        changed(text)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("resourceslice.a-slice.colour=5", "'colour' cannot be set; fields of resourceslice"),
        ("resourceslice.a-slice.devices.s0.colour=5", "'devices.s0.colour' cannot be set"),
        ("resourceslice.a-slice.devices.s0.count=200", "a number of devices from 0 to 128"),
        ("resourceslice.a-slice.devices.*.count=100", "at most 128 devices, not 400"),
        ("resourceslice.a-slice.devices.s0.capacity.memory=much", "write a quantity"),
        ("resourceslice.a-slice.devices=5", "write a list of devices"),
        ("resourceslice.a-slice.devices=[{name: x}, {name: x}]", "a name of its own"),
        ("resourceslice.a-slice.devices=[{name: x, capacity: 5}]", "capacity"),
        ("deviceclass.gpu.colour=5", "'colour' cannot be set; fields of deviceclass"),
    ],
)
def test_what_cannot_be_set_is_refused(text: str, problem: str) -> None:
    """With what could be."""
    with pytest.raises(OverrideError) as refused:
        changed(text)
    assert problem in str(refused.value)
