"""The devices of each class over a run: all, in use, free with their parts in use, and wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replay.kube.kinds import to_object
from replay.results.run.cluster import ClusterObjects
from replay.results.run.device_use import ClassUse, DeviceTally
from reprieve.scheduler.v1beta1 import scheduler_pb2
from tests import device_objects as k8s

BIG = {"cel": {"expression": f'device.attributes["{k8s.DRIVER}"].size == "big"'}}


class Cluster:
    """Objects as a run's history has them, and their tally."""

    def __init__(self) -> None:
        self._objects, self._tally = ClusterObjects(), DeviceTally()

    def put(self, *objects: Mapping[str, Any]) -> Mapping[str, ClassUse]:
        """Add or change objects; return the uses."""
        for raw in objects:
            change = self._objects.take(scheduler_pb2.Event(add=to_object(raw)))
            assert change is not None
            self._tally.take(change)
        return self._tally.uses

    def remove(self, raw: Mapping[str, Any]) -> Mapping[str, ClassUse]:
        """Remove an object; return the uses."""
        event = scheduler_pb2.Event()
        event.remove.kind, event.remove.name = raw["kind"], raw["metadata"]["name"]
        event.remove.namespace = raw["metadata"].get("namespace", "")
        change = self._objects.take(event)
        assert change is not None
        self._tally.take(change)
        return self._tally.uses


def part(name: str, size: str, memory: str) -> dict[str, Any]:
    """Return a part of a card."""
    return {
        "name": name,
        "attributes": {"size": {"string": size}},
        "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": memory}}}],
    }


def card() -> list[dict[str, Any]]:
    """Return the slices of a card of 40 GiB: two small parts and two big ones."""
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2}
    counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
    whole = k8s.slice_("a", [], pool=pool, sharedCounters=counters)
    whole["metadata"]["name"] = "a-card"
    parts = [
        *(part(name, "small", "10Gi") for name in ("s0", "s1")),
        *(part(name, "big", "20Gi") for name in ("b0", "b1")),
    ]
    return [whole, k8s.slice_("a", parts, pool=pool)]


def test_parts_in_use_block_others_of_their_card() -> None:
    """With b0 and s0 in use 10 GiB are left: s1 is free, b1 is not."""
    cluster = Cluster()
    uses = cluster.put(*card(), k8s.device_class(), k8s.device_class("big", selectors=[BIG]))
    assert uses == {"gpu": ClassUse(devices=4), "big": ClassUse(devices=2)}
    uses = cluster.put(k8s.claim("x", "a/b0"), k8s.claim("y", "a/s0"))
    assert uses["gpu"] == ClassUse(devices=4, in_use=2, blocked=1)
    assert uses["big"] == ClassUse(devices=2, in_use=1, blocked=1)
    uses = cluster.remove(k8s.claim("y", "a/s0"))
    assert uses["gpu"] == ClassUse(devices=4, in_use=1)


def test_unallocated_claims_want_devices_of_their_class() -> None:
    """A claim for two, until it has them; of alternatives the first; `All` counts as one."""
    cluster = Cluster()
    alternatives = [{"name": n, "deviceClassName": n, "count": 3} for n in ("big", "gpu")]
    requests = [k8s.request(count=2), {"name": "any", "firstAvailable": alternatives}]
    uses = cluster.put(
        *(k8s.gpus("a", 3), k8s.device_class(), k8s.device_class("big")),
        k8s.claim("x", requests=requests),
        k8s.claim("y", requests=[k8s.request(allocationMode="All", count=0)]),
    )
    assert (uses["gpu"].wanted, uses["big"].wanted) == (3, 3)
    uses = cluster.put(k8s.claim("x", "a/gpu-0", "a/gpu-1", requests=requests))
    assert uses["gpu"] == ClassUse(devices=3, in_use=2, wanted=1)
    assert uses["big"].wanted == 0


def test_the_newest_generation_of_a_pool_counts() -> None:
    """And what went with its slice is no device any more."""
    cluster = Cluster()
    newer = {"name": "a", "generation": 2, "resourceSliceCount": 1}
    renewed = k8s.slice_("a", [{"name": "gpu-0"}], pool=newer)
    renewed["metadata"]["name"] = "renewed"
    uses = cluster.put(k8s.gpus("a", 3), k8s.device_class(), renewed)
    assert uses["gpu"].devices == 1
    assert cluster.remove(renewed)["gpu"].devices == 3
    assert cluster.remove(k8s.gpus("a", 3))["gpu"].devices == 0
    assert cluster.remove(k8s.device_class()) == {}


def test_devices_for_administration_are_not_in_use() -> None:
    """A monitor's claim leaves them to others."""
    claim = k8s.claim("x", "a/gpu-0")
    claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    uses = Cluster().put(k8s.gpus("a", 1), k8s.device_class(), claim)
    assert uses["gpu"] == ClassUse(devices=1)
