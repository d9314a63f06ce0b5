"""Claims that the scheduler has reserved for pods, until the world confirms that."""

from __future__ import annotations

from dataclasses import replace

from services.framework.snapshot.devices import Devices
from services.kube.devices import AllocatedDevice, Allocation, Consumer, DeviceId, ResourceClaim

GPU = DeviceId("d", "pool", "gpu-0")
FREE = ResourceClaim(namespace="default", name="c", uid="1", resource_version="1")
ALLOCATION = Allocation(devices=(AllocatedDevice(request="gpu", id=GPU),))


def reserved(claim: ResourceClaim, *pods: str, version: str = "1") -> ResourceClaim:
    """Return the claim with the device, reserved for pods."""
    users = tuple(Consumer(name=pod, uid=pod) for pod in pods)
    return replace(claim, allocation=ALLOCATION, reserved_for=users, resource_version=version)


def users(devices: Devices) -> list[str]:
    """Return for whom the claim is reserved, as the scheduler sees it."""
    return [consumer.uid for consumer in devices.claims["default/c"].reserved_for]


def test_an_update_from_before_does_not_undo_a_reservation() -> None:
    """Otherwise another claim could get the device while the binding is under way."""
    devices = Devices()
    devices.put(FREE)
    devices.reserve("p", reserved(FREE, "p"))
    devices.put(replace(FREE, resource_version="2"))
    assert devices.in_use.has(GPU)
    assert users(devices) == ["p"]
    devices.unreserve("p", "default/c")
    assert not devices.in_use.has(GPU)
    assert devices.claims["default/c"].resource_version == "2"
    assert not list(devices.reservations())


def test_a_confirmed_reservation_stays() -> None:
    """It is no longer the scheduler's to undo."""
    devices = Devices()
    devices.put(FREE)
    devices.reserve("p", reserved(FREE, "p"))
    devices.put(reserved(FREE, "p", version="2"))
    assert not list(devices.reservations())
    devices.unreserve("p", "default/c")
    assert devices.in_use.has(GPU)
    devices.put(replace(FREE, resource_version="3"))
    assert not devices.in_use.has(GPU)


def test_pods_that_share_a_claim_are_confirmed_one_by_one() -> None:
    """And undone one by one, in any order."""
    devices = Devices()
    devices.put(FREE)
    devices.reserve("p", reserved(FREE, "p"))
    devices.reserve("q", reserved(FREE, "p", "q"))
    devices.put(reserved(FREE, "p", version="2"))
    assert users(devices) == ["p", "q"]
    assert [uid for uid, _ in devices.reservations()] == ["q"]
    devices.unreserve("q", "default/c")
    assert users(devices) == ["p"]
    assert devices.in_use.devices == {GPU: 1}


def test_an_event_has_the_claim_as_received() -> None:
    """A queueing hint compares it with the update that confirms the reservation."""
    devices = Devices()
    devices.put(FREE)
    devices.reserve("p", reserved(FREE, "p"))
    assert devices.held("ResourceClaim", "default/c") is FREE
    devices.put(reserved(FREE, "p", version="2"))
    assert devices.held("ResourceClaim", "default/c") == devices.claims["default/c"]


def test_a_claim_that_the_scheduler_makes_goes_if_its_binding_fails() -> None:
    """It was never received."""
    devices = Devices()
    devices.reserve("p", reserved(FREE, "p"))
    assert devices.held("ResourceClaim", "default/c") is None
    devices.unreserve("p", "default/c")
    assert not devices.claims
    assert not devices.in_use.has(GPU)


def test_a_confirmation_of_what_is_reserved_touches_no_node() -> None:
    """The devices in use are the same."""
    devices = Devices()
    devices.put(FREE)
    devices.reserve("p", reserved(FREE, "p"))
    touched: list[object] = []
    devices.changed = touched.append
    devices.put(reserved(FREE, "p", version="2"))
    assert not touched
