"""Overrides the devices of ResourceSlices, their pools' counters, and DeviceClasses.

A slice's key goes on with a field of its spec, in which names choose elements of lists, as in
`resourceslice.NAME.devices.DEVICE.capacity.memory`. Slices belong to nodes, and their drivers name
them; so names of slices, devices and counter sets may be patterns with `*`. The changed devices are
as if they had always been so: claims that the trace shows as allocated keep their devices.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

from replay.overrides.assignment import Assignment, OverrideTarget, unknown_field_error
from replay.overrides.inventory import TraceInventory
from replay.overrides.names import closest, shown_names, unknown_name
from reprieve.kube.v1beta1 import device_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity
from services.rpc.errors import FieldError
from services.rpc.kube import json_codec

SLICE_FIELDS = (
    "devices",
    "devices.DEVICE.count",
    "devices.DEVICE.capacity.NAME",
    "devices.DEVICE.attributes.NAME",
    "devices.DEVICE.consumesCounters.SET.COUNTER",
    "devices.DEVICE.taints.KEY",
    "sharedCounters.SET.COUNTER",
)
CLASS_FIELDS = ("selector", "extendedResourceName")
_EFFECTS = ("None", "NoSchedule", "NoExecute")
DEVICES_MAX = 128
"""The largest number of devices of a slice (ResourceSliceMaxDevices)."""
_OF_DEVICE = re.compile(
    r"devices\.(?P<device>[^.]+)\."
    r"(?P<what>count|capacity\.(?P<capacity>.+)|attributes\.(?P<attribute>.+)"
    r"|taints\.(?P<taint>.+)"
    r"|consumesCounters\.(?P<set>[^.]+)\.(?P<counter>[^.]+))"
)
_OF_COUNTER = re.compile(r"sharedCounters\.(?P<set>[^.]+)\.(?P<counter>[^.]+)")

_Slice = device_pb2.ResourceSlice
_Change = Callable[[_Slice], bool]
"""Changes a slice; returns whether it has what is to be changed."""


@dataclass(frozen=True, slots=True)
class DeviceChanges:
    """Changes of slices, each with a pattern of their names, and of classes by name."""

    slices: tuple[tuple[str, _Change], ...] = ()
    classes: tuple[tuple[str, Callable[[device_pb2.DeviceClass], None]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.slices or self.classes)


def device_changes(assignments: Iterable[Assignment], inventory: TraceInventory) -> DeviceChanges:
    """Return the changes. Raises OverrideError, also if nothing in the trace has the names."""
    slices: list[tuple[str, _Change]] = []
    classes: list[tuple[str, Callable[[device_pb2.DeviceClass], None]]] = []
    for given in assignments:
        if given.target is OverrideTarget.DEVICE_CLASS:
            if given.name not in inventory.device_classes:
                problem = unknown_name("DeviceClass", given.name, inventory.device_classes)
                raise given.without_effect(problem)
            classes.append((given.name, _class_change(given)))
            continue
        change = _slice_change(given)
        named = [slice_ for name, slice_ in inventory.slices.items() if _is(name, given.name)]
        if not named:
            problem = unknown_name("ResourceSlice", given.name, inventory.slices)
            raise given.without_effect(problem)
        changed = [copy.deepcopy(slice_) for slice_ in named]
        applied = [change(slice_) for slice_ in changed]
        if not any(applied):
            raise given.without_effect(_nothing_named(given, named))
        for slice_ in changed:
            _check_names(given, slice_)
        slices.append((given.name, change))
    return DeviceChanges(tuple(slices), tuple(classes))


def change_devices(
    records: Iterable[trace_pb2.Record], changes: DeviceChanges
) -> Iterator[trace_pb2.Record]:
    """Yield the records with the changes in each creation and update of a slice or a class."""
    for record in records:
        case = record.WhichOneof("record")
        match getattr(record, case).WhichOneof("object") if case in {"create", "update"} else None:
            case "resource_slice":
                yield _with_slice(record, str(case), changes)
            case "device_class":
                yield _with_class(record, str(case), changes)
            case _:
                yield record


def _with_slice(record: trace_pb2.Record, case: str, changes: DeviceChanges) -> trace_pb2.Record:
    changed = copy.deepcopy(record)
    slice_ = getattr(changed, case).resource_slice
    for pattern, change in changes.slices:
        if _is(slice_.metadata.name, pattern):
            change(slice_)
    return changed


def _with_class(record: trace_pb2.Record, case: str, changes: DeviceChanges) -> trace_pb2.Record:
    changed = copy.deepcopy(record)
    class_ = getattr(changed, case).device_class
    for name, change in changes.classes:
        if class_.metadata.name == name:
            change(class_)
    return changed


def _is(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern)


def _class_change(given: Assignment) -> Callable[[device_pb2.DeviceClass], None]:
    match given.field:
        case "selector":
            return partial(_select, given.value)
        case "extendedResourceName":
            return partial(_serve, given.value)
    raise unknown_field_error(given, CLASS_FIELDS)


def _select(expression: str, class_: device_pb2.DeviceClass) -> None:
    del class_.spec.selectors[:]
    class_.spec.selectors.add().cel.expression = expression


def _serve(resource: str, class_: device_pb2.DeviceClass) -> None:
    class_.spec.extended_resource_name = resource


def _slice_change(given: Assignment) -> _Change:
    if given.field == "devices":
        return partial(_replace_devices, _devices(given))
    if found := _OF_COUNTER.fullmatch(given.field):
        return partial(_set_counter, found["set"], found["counter"], _quantity(given))
    found = _OF_DEVICE.fullmatch(given.field)
    if found is None:
        raise unknown_field_error(given, SLICE_FIELDS)
    if found["what"] == "count":
        number = given.whole_number
        if number is None or not 0 <= number <= DEVICES_MAX:
            raise given.refused(f"write a number of devices from 0 to {DEVICES_MAX}")
        return partial(_repeat, found["device"], number)
    if found["capacity"]:
        change = partial(_set_capacity, found["capacity"], _quantity(given))
    elif found["attribute"]:
        change = partial(_set_attribute, found["attribute"], _attribute(given))
    elif found["taint"]:
        change = partial(_taint, _taint_of(given, found["taint"]))
    else:
        change = partial(_consume, found["set"], found["counter"], _quantity(given))
    return partial(_of_devices, found["device"], change)


def _quantity(given: Assignment) -> str:
    try:
        quantity.parse(given.value)
    except ValueError as error:
        raise given.refused("write a quantity, such as 20Gi") from error
    return given.value


def _attribute(given: Assignment) -> device_pb2.DeviceAttribute:
    """Return a value of the type that it has in YAML; a semantic version is taken for a text."""
    match given.plain_value:
        case bool() as truth:
            return device_pb2.DeviceAttribute(bool_value=truth)
        case int() as number:
            return device_pb2.DeviceAttribute(int_value=number)
        case _:
            return device_pb2.DeviceAttribute(string_value=given.value)


def _taint_of(given: Assignment, key: str) -> device_pb2.DeviceTaint:
    value, colon, effect = given.value.rpartition(":")
    if effect not in _EFFECTS:
        raise given.refused(f"write [VALUE:]EFFECT, of which EFFECT is {' or '.join(_EFFECTS)}")
    return device_pb2.DeviceTaint(key=key, value=value if colon else "", effect=effect)


def _devices(given: Assignment) -> Sequence[device_pb2.Device]:
    value = given.plain_value
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise given.refused("write a list of devices, such as [{name: a}, {name: b}]")
    try:
        return [json_codec.parse(device_pb2.Device, item) for item in value]
    except FieldError as error:
        raise given.refused(str(error)) from error


def _nothing_named(given: Assignment, named: Sequence[_Slice]) -> str:
    if found := _OF_DEVICE.fullmatch(given.field):
        names = {device.name for slice_ in named for device in slice_.spec.devices}
        kind, wanted = "device", found["device"]
    else:
        names = {counters.name for slice_ in named for counters in slice_.spec.shared_counters}
        kind, wanted = "counter set", given.field.split(".")[1]
    hint = closest(wanted, names)
    return f"no slice named so has a {kind} {wanted}{hint}; it has {shown_names(names, 'none')}"


def _check_names(given: Assignment, slice_: _Slice) -> None:
    names = [device.name for device in slice_.spec.devices]
    if len(names) > DEVICES_MAX:
        raise given.refused(f"a slice has at most {DEVICES_MAX} devices, not {len(names)}")
    if len(set(names)) < len(names) or not all(names):
        raise given.refused("each device of a slice needs a name of its own")


def _replace_devices(devices: Sequence[device_pb2.Device], slice_: _Slice) -> bool:
    del slice_.spec.devices[:]
    slice_.spec.devices.extend(devices)
    return True


def _set_counter(set_name: str, counter: str, amount: str, slice_: _Slice) -> bool:
    named = [held for held in slice_.spec.shared_counters if _is(held.name, set_name)]
    for held in named:
        held.counters[counter].value = amount
    return bool(named)


def _repeat(pattern: str, count: int, slice_: _Slice) -> bool:
    """Have `count` devices like each that is named; the first keeps its name, others get numbers.

    Names that other devices have are passed over.
    """
    before = [copy.deepcopy(device) for device in slice_.spec.devices]
    taken = {device.name for device in before}
    del slice_.spec.devices[:]
    for device in before:
        if not _is(device.name, pattern):
            slice_.spec.devices.append(device)
            continue
        number = 2
        for place in range(count):
            made = slice_.spec.devices.add()
            made.CopyFrom(device)
            if not place:
                continue
            while f"{device.name}-{number}" in taken:
                number += 1
            made.name = f"{device.name}-{number}"
            taken.add(made.name)
    return any(_is(device.name, pattern) for device in before)


def _of_devices(
    pattern: str, change: Callable[[device_pb2.Device], object], slice_: _Slice
) -> bool:
    named = [device for device in slice_.spec.devices if _is(device.name, pattern)]
    for device in named:
        change(device)
    return bool(named)


def _set_capacity(name: str, amount: str, device: device_pb2.Device) -> None:
    device.capacity[name].value = amount


def _set_attribute(name: str, value: device_pb2.DeviceAttribute, device: device_pb2.Device) -> None:
    device.attributes[name].CopyFrom(value)


def _taint(taint: device_pb2.DeviceTaint, device: device_pb2.Device) -> None:
    kept = [held for held in device.taints if held.key != taint.key]
    del device.taints[:]
    device.taints.extend([*kept, taint])


def _consume(set_name: str, counter: str, amount: str, device: device_pb2.Device) -> None:
    for consumed in device.consumes_counters:
        if _is(consumed.counter_set, set_name):
            consumed.counters[counter].value = amount
            return
    added = device.consumes_counters.add(counter_set=set_name)
    added.counters[counter].value = amount
