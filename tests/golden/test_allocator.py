"""The allocator against upstream's own test cases, which are kept beside the project."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprieve.kube.v1beta1 import device_pb2, node_pb2
from services.cel.selectors import DeviceSelectors
from services.framework.plugins.dynamic_resources.allocator import (
    V1_36,
    AllocationError,
    Chosen,
    InvalidPools,
    allocate,
)
from services.framework.plugins.dynamic_resources.capacity import nano
from services.framework.snapshot.devices import InUse, Slices
from services.kube.devices import DeviceId
from services.rpc.kube import devices
from services.rpc.kube.codec import node_from_message
from services.rpc.kube.json_codec import parse, to_json

VECTORS = Path(__file__).parents[2].parent / "shared" / "golden" / "allocator-v1.36-dev.jsonl.gz"
ALPHA = "DRAListTypeAttributes"
"""A feature that is off by default in every version, so that it is not served."""


def vectors() -> Iterator[Any]:
    """Yield the vectors whose features are served; none where the file is not there."""
    if VECTORS.exists():
        with gzip.open(VECTORS, "rt", encoding="utf-8") as lines:
            for line in lines:
                vector = json.loads(line)
                if ALPHA not in vector["scenario"]["features"]:
                    yield pytest.param(vector, id=vector["scenario"]["id"])


def device_id(text: str) -> DeviceId:
    """Return the device that driver/pool/device names."""
    return DeviceId(*text.split("/")[:3])


@pytest.mark.skipif(not VECTORS.exists(), reason="the vectors are kept beside the project")
@pytest.mark.parametrize("vector", list(vectors()))
def test_the_allocator_agrees_with_upstreams_cases(vector: Any) -> None:
    """Every result in full: devices in order, configuration, node selector, amounts."""
    scenario, expected = vector["scenario"], vector["expected"]
    features = set(scenario["features"])
    rules = replace(
        V1_36,
        admin_access="DRAAdminAccess" in features,
        alternatives="DRAPrioritizedList" in features,
        partitionable="DRAPartitionableDevices" in features,
        capacities="DRAConsumableCapacity" in features,
        tainted="DRADeviceTaints" in features,
        conditions=any("DRADeviceBindingConditions" in feature for feature in features),
    )
    node = node_from_message(parse(node_pb2.Node, scenario["node"]))
    slices = Slices(
        devices.resource_slice_from_message(parse(device_pb2.ResourceSlice, plain))
        for plain in scenario.get("resourceSlices", ())
    )
    claims = [
        devices.resource_claim_from_message(parse(device_pb2.DeviceClaims.ResourceClaim, plain))
        for plain in scenario.get("claims", ())
    ]
    classes = {
        plain["metadata"]["name"]: devices.device_class_from_message(
            parse(device_pb2.DeviceClass, plain)
        )
        for plain in scenario.get("deviceClasses", ())
    }
    in_use = InUse(
        devices=dict.fromkeys(map(device_id, scenario.get("allocatedDevices", ())), 1),
        shared=dict.fromkeys(map(device_id, scenario.get("allocatedSharedDevices", ())), 1),
        consumed={
            device_id(name): {key: nano(text) for key, text in amounts.items()}
            for name, amounts in scenario.get("consumedCapacity", {}).items()
        },
    )
    selectors = DeviceSelectors(multiple=rules.capacities)

    def allocated() -> Chosen | None:
        return allocate(
            claims,
            node,
            rules.pools(slices, node),
            rules=rules,
            classes=classes,
            in_use=in_use,
            matches=selectors,
        )

    if "error" in expected:
        with pytest.raises((AllocationError, InvalidPools)):
            allocated()
        return
    chosen = allocated()
    allocations = () if chosen is None else chosen.allocations
    results = [to_json(devices.allocation_to_message(allocation)) for allocation in allocations]
    assert results == (expected["results"] or [])
