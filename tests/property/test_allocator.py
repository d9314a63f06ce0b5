"""The allocator against a plain twin, which tries every choice of devices in order.

Upstream's search leaves counters counted when a device is refused for a taint or a constraint, and
keeps one value of a distinct attribute for each request; the twin has neither, so that problems
have counters or constraints and taints, and a distinct attribute for requests of one device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from services.framework.plugins.dynamic_resources.allocator import (
    V1_34,
    V1_36,
    AllocatorRules,
    allocate,
)
from services.framework.snapshot.devices import InUse, Slices
from services.kube.devices import (
    ClaimSpec,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceConstraint,
    DeviceId,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    NodeChoice,
    RequestDetail,
    ResourceClaim,
    ResourceSlice,
)
from services.kube.node import Node
from services.kube.quantity import value

NODE = Node(name="n")
CLASSES = {name: DeviceClass(name=name, selectors=(name,)) for name in ("any", "red", "blue")}
TAINTS = (DeviceTaint(key="k", effect="NoSchedule"),)
TOLERATIONS = (DeviceToleration(operator="Exists"),)
RULES = (replace(V1_34, keeps_alternative=True), V1_36)
"""v1.34 goes on with another alternative where one wants all devices: a fault of its own."""


def matches(expression: str, device: Device, driver: str) -> bool:  # noqa: ARG001 - as selectors are called
    """Return whether a device has a colour; no selector here is CEL."""
    return expression in {"any", device.attributes["colour"]}


class Problem(NamedTuple):
    """Claims to allocate, and the available devices."""

    rules: AllocatorRules
    claims: list[ResourceClaim]
    slices: list[ResourceSlice]
    in_use: InUse


# Plain functions of `draw`: a strategy for each part takes longer than drawing it.
def a_device(draw: st.DrawFn, name: str, rules: AllocatorRules, counters: bool) -> Device:
    """Return a device of one of two colours; it may be divided, tainted or shared."""
    plain = counters or not rules.tainted
    return Device(
        name=name,
        attributes={
            "colour": draw(st.sampled_from(["red", "blue"])),
            "numa": draw(st.integers(0, 2)),
        },
        capacity={"memory": DeviceCapacity(value=str(draw(st.integers(1, 4))))},
        consumes=(("set", {"slots": str(draw(st.integers(1, 3)))}),) if counters else (),
        taints=() if plain or draw(st.integers(0, 4)) else TAINTS,
        allows_multiple=not plain and draw(st.booleans()),
    )


def a_detail(
    draw: st.DrawFn, name: str, rules: AllocatorRules, constraint: str, exact: bool
) -> RequestDetail:
    """Return a request of one class for some devices, or for all."""
    everything = constraint == "none" and draw(st.integers(0, 5)) == 0
    amount = draw(st.integers(0, 3)) if rules.capacities else 0
    return RequestDetail(
        name=name,
        class_name=draw(st.sampled_from(sorted(CLASSES))),
        mode="All" if everything else "ExactCount",
        count=1 if constraint == "distinct" else draw(st.integers(1, 2)),
        admin_access=True if exact and draw(st.integers(0, 6)) == 0 else None,
        tolerations=TOLERATIONS if draw(st.booleans()) else (),
        capacity=(("memory", str(amount)),) if amount else None,
    )


def a_claim(draw: st.DrawFn, name: str, rules: AllocatorRules, counters: bool) -> ResourceClaim:
    """Return a claim of one request or two, exact ones and lists of alternatives."""
    constraint = "none" if counters else draw(st.sampled_from(["none", "match", "distinct"]))
    requests = []
    for number in range(draw(st.integers(1, 2))):
        label = f"r{number}"
        if draw(st.integers(0, 2)):
            exactly = a_detail(draw, label, rules, constraint, exact=True)
            requests.append(DeviceRequest(name=label, exactly=exactly))
            continue
        alternatives = tuple(
            a_detail(draw, f"s{index}", rules, constraint, exact=False) for index in range(2)
        )
        requests.append(DeviceRequest(name=label, first_available=alternatives))
    constraints = {
        "none": (),
        "match": (DeviceConstraint(match_attribute="driver/numa"),),
        "distinct": (DeviceConstraint(distinct_attribute="driver/numa"),),
    }
    spec = ClaimSpec(requests=tuple(requests), constraints=constraints[constraint])
    return ResourceClaim(namespace="ns", name=name, spec=spec)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Return one pool or two of up to three devices each, and one claim or two."""
    rules = draw(st.sampled_from(RULES))
    counters = rules.partitionable and draw(st.booleans())
    slices = []
    in_use = InUse()
    for number in range(draw(st.integers(1, 2))):
        pool = f"p{number}"
        held = tuple(
            a_device(draw, f"d{index}", rules, counters) for index in range(draw(st.integers(1, 3)))
        )
        reached = NodeChoice(node_name="n")
        first = ResourceSlice(
            name="a", driver="driver", pool=pool, slice_count=1, nodes=reached, devices=held
        )
        if counters:
            sets = (("set", {"slots": str(draw(st.integers(2, 5)))}),)
            first = replace(first, slice_count=2)
            slices.append(replace(first, name="b", devices=(), shared_counters=sets))
        slices.append(first)
        for device in held:
            if not device.allows_multiple and draw(st.integers(0, 4)) == 0:
                in_use.devices[DeviceId("driver", pool, device.name)] = 1
    wanted = [
        a_claim(draw, f"c{number}", rules, counters) for number in range(draw(st.integers(1, 2)))
    ]
    return Problem(rules, wanted, slices, in_use)


class Pick(NamedTuple):
    """The devices that one request gets."""

    claim: ResourceClaim
    detail: RequestDetail
    devices: tuple[DeviceId, ...]


class Twin:
    """Tries alternatives and combinations in order, and judges each choice as a whole."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.devices = {
            DeviceId("driver", slice_.pool, device.name): device
            for slice_ in sorted(problem.slices, key=lambda slice_: slice_.pool)
            for device in slice_.devices
        }
        self.requests = [
            (claim, request) for claim in problem.claims for request in claim.spec.requests
        ]

    def solution(self, picks: tuple[Pick, ...] = ()) -> tuple[Pick, ...] | None:
        """Return the first choice after `picks` that holds, None without any."""
        if len(picks) == len(self.requests):
            return picks
        claim, request = self.requests[len(picks)]
        exactly = () if request.exactly is None else (request.exactly,)
        for detail in request.first_available or exactly:
            for combination in self._combinations(detail):
                chosen = (*picks, Pick(claim, detail, combination))
                found = self.solution(chosen) if self._holds(chosen) else None
                if found is not None:
                    return found
        return None

    def _combinations(self, detail: RequestDetail) -> Iterator[tuple[DeviceId, ...]]:
        fitting = [
            id_
            for id_, device in self.devices.items()
            if matches(detail.class_name, device, "driver") and self._is_large(detail, device)
        ]
        if detail.mode == "ExactCount":
            yield from combinations(fitting, detail.count)
        elif fitting:
            yield tuple(fitting)

    def _is_large(self, detail: RequestDetail, device: Device) -> bool:
        requested = dict(detail.capacity or ()).get("memory", "0")
        return value(requested) <= value(device.capacity["memory"].value)

    def _holds(self, picks: tuple[Pick, ...]) -> bool:
        return (
            all(map(self._is_free, picks, range(len(picks)), [picks] * len(picks)))
            and all(map(self._tolerates, picks))
            and self._has_memory(picks)
            and self._has_slots(picks)
            and all(self._is_constrained(claim, picks) for claim in self.problem.claims)
        )

    def _is_shared(self, id_: DeviceId) -> bool:
        return self.problem.rules.capacities and self.devices[id_].allows_multiple

    def _is_free(self, pick: Pick, number: int, picks: tuple[Pick, ...]) -> bool:
        """Return whether nothing before this pick has its devices."""
        for id_ in pick.devices:
            if self._is_shared(id_):
                continue
            earlier = [other for other in picks[:number] if id_ in other.devices]
            if pick.detail.admin_access:
                if any(other.claim is pick.claim for other in earlier):
                    return False
            elif earlier or id_ in self.problem.in_use.devices:
                return False
        return True

    def _tolerates(self, pick: Pick) -> bool:
        return bool(pick.detail.tolerations) or not any(
            self.problem.rules.tainted and self.devices[id_].taints for id_ in pick.devices
        )

    def _has_memory(self, picks: tuple[Pick, ...]) -> bool:
        taken = Counter[DeviceId]()
        for pick in picks:
            for id_ in filter(self._is_shared, pick.devices):
                whole = self.devices[id_].capacity["memory"].value
                taken[id_] += value(dict(pick.detail.capacity or ()).get("memory", whole))
        return all(
            amount <= value(self.devices[id_].capacity["memory"].value)
            for id_, amount in taken.items()
        )

    def _has_slots(self, picks: tuple[Pick, ...]) -> bool:
        taken = Counter[str]()
        for id_ in (*self.problem.in_use.devices, *(id_ for pick in picks for id_ in pick.devices)):
            for _, amounts in self.devices[id_].consumes:
                taken[id_.pool] += value(amounts["slots"])
        # A pool is judged when a device of it is taken, not before.
        pools = {id_.pool for pick in picks for id_ in pick.devices}
        return all(
            taken[slice_.pool] <= value(amounts["slots"])
            for slice_ in self.problem.slices
            for _, amounts in slice_.shared_counters
            if slice_.pool in pools
        )

    def _is_constrained(self, claim: ResourceClaim, picks: tuple[Pick, ...]) -> bool:
        values = [
            self.devices[id_].attributes["numa"]
            for pick in picks
            if pick.claim is claim
            for id_ in pick.devices
        ]
        for constraint in claim.spec.constraints:
            if constraint.match_attribute and len(set(values)) > 1:
                return False
            if constraint.distinct_attribute and len(set(values)) < len(values):
                return False
        return True


@settings(max_examples=2000, deadline=None)
@given(problem=problems())
def test_the_search_agrees_with_its_twin(problem: Problem) -> None:
    """The same first solution, or none in both."""
    chosen = allocate(
        problem.claims,
        NODE,
        problem.rules.pools(Slices(problem.slices), NODE),
        rules=problem.rules,
        classes=CLASSES,
        in_use=problem.in_use,
        matches=matches,
    )
    expected = Twin(problem).solution()
    if expected is None or chosen is None:
        assert (chosen, expected) == (None, None)
        return
    allocated = [[device.id for device in allocation.devices] for allocation in chosen.allocations]
    assert allocated == [
        [id_ for pick in expected if pick.claim is claim for id_ in pick.devices]
        for claim in problem.claims
    ]
