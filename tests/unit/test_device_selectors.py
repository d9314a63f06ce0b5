"""CEL expressions over a device: values, default domains, and refusals."""

from __future__ import annotations

import pytest

from services.cel.selectors import DeviceSelectors
from services.kube.devices import Device, DeviceCapacity, SelectorError, Version

GPU = Device(
    name="gpu-0",
    attributes={
        "model": "a100",
        "healthy": True,
        "index": 3,
        "driverVersion": Version("1.2.3"),
        "other.io/zone": "z1",
    },
    capacity={"memory": DeviceCapacity(value="40Gi")},
)
ATTRIBUTES, MEMORY = 'device.attributes["gpu"]', 'device.capacity["gpu"].memory'


def matches(expression: str) -> bool:
    """Evaluate an expression over the device, of the driver "gpu"."""
    return DeviceSelectors(multiple=True)(expression, GPU, "gpu")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu"', True),
        (f'{ATTRIBUTES}.model == "a100"', True),
        (f"{ATTRIBUTES}.model == 1", False),
        (f"{ATTRIBUTES}.healthy", True),
        (f"{ATTRIBUTES}.index > 2.5", True),
        ("device.attributes[device.driver].index == 3", True),
        ('device.attributes["other.io"].zone == "z1"', True),
        (f"cel.bind(a, {ATTRIBUTES}, a.healthy && a.index == 3)", True),
        (f'{ATTRIBUTES}.?nosuch.orValue("none") == "none"', True),
        ('device.attributes["nosuch.io"].?x.orValue("none") == "none"', True),
        ('"nosuch.io" in device.attributes', False),
        ('"nosuch.io" in device.attributes || device.attributes["nosuch.io"].size() > 0', False),
        ('"gpu" in device.attributes', True),
        ("has(device.attributes.gpu.nosuch)", False),
        ("device.allowMultipleAllocations", False),
        (f'{MEMORY}.compareTo(quantity("40Gi")) == 0', True),
        (f'{MEMORY} == quantity("40960Mi")', True),
        (f'{MEMORY}.isGreaterThan(quantity("20G"))', True),
        ('quantity("1k").add(24).sub(quantity("1Ki")).asInteger() == 0', True),
        ('sign(quantity("-1")) == -1 && !isQuantity("1X") && !quantity("0.5").isInteger()', True),
        (f'{ATTRIBUTES}.driverVersion.isLessThan(semver("2.0.0"))', True),
        (f'{ATTRIBUTES}.driverVersion == semver("1.2.3+build")', True),
        ('semver("1.0.0-alpha.9").isLessThan(semver("1.0.0-alpha.10"))', True),
        ('semver("v01.2", true).minor() == 2 && !isSemver("1.2")', True),
    ],
)
def test_an_expression_has_upstreams_value(expression: str, expected: bool) -> None:
    """With Kubernetes' functions, and an empty map for a domain that is looked up."""
    assert matches(expression) is expected


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("noSuchVar", "compile error: compilation failed: .*noSuchVar"),
        ("device.nosuch", "compile error: compilation failed: .*device.nosuch"),
        ("device.driver ==", "compile error: compilation failed: .*Syntax error"),
        ("1 + 1", "compile error: must evaluate to bool or the unknown type, not int"),
        ("[1, 2].isSorted()", "compile error: compilation failed: .*isSorted"),
        (f"{MEMORY}.compareTo(1) == 0", "compile error: compilation failed: .*compareTo"),
        (f"{ATTRIBUTES}.nosuch == 1", "runtime error: no such key: nosuch$"),
        (f"{ATTRIBUTES}.index / 0 == 1", "runtime error: division by zero$"),
        (f"{ATTRIBUTES}.index % 0 == 1", "runtime error: modulus by zero$"),
        ("[1][2] == 1", "runtime error: index out of bounds: 2$"),
        (f"{ATTRIBUTES}.index", "runtime error: CEL result of type int could not be converted"),
        ('quantity("1X").isInteger()', "runtime error: quantities must match the regular"),
    ],
)
def test_an_expression_without_a_value_is_an_error(expression: str, text: str) -> None:
    """At compile time or for this device, with what is wrong."""
    with pytest.raises(SelectorError, match=f"(?s){text}"):
        matches(expression)


def test_an_attribute_of_an_unknown_kind_is_an_error() -> None:
    """Whatever the expression reads, as upstream converts all attributes."""
    device = Device(name="d", attributes={"list": None})
    with pytest.raises(SelectorError, match="attribute list: unsupported attribute value"):
        DeviceSelectors(multiple=True)('device.driver == "gpu"', device, "gpu")


def test_an_expression_is_evaluated_once_for_a_device() -> None:
    """However often it is asked, and again for a device that took its place."""
    selectors = DeviceSelectors(multiple=False)
    for _ in range(3):
        selectors('device.driver == "gpu"', GPU, "gpu")
    selectors('device.driver == "gpu"', Device(name="gpu-0"), "gpu")
    assert selectors.evaluations == 2


def test_several_allocations_are_not_declared_without_their_feature() -> None:
    """v1.34 has no such part of a device."""
    with pytest.raises(SelectorError, match="allowMultipleAllocations"):
        DeviceSelectors(multiple=False)("device.allowMultipleAllocations", GPU, "gpu")
