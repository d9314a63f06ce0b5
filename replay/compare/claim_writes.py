"""Writes that precede a recorded decision about a pod with claims for devices, and belong to it.

A scheduler writes more than a binding. Before it, PreBind writes to each claim its allocation and
the pod's reservation, creates the claim for extended resources that devices serve, and, from v1.36
on, the pod's status names the node first (NominatedNodeNameForExpectation). A failed attempt may
give back a claim's devices in PostFilter before the refusal is written. A decision was made in the
state before the first of these writes: after it, the devices would lead to the recorded node alone.
Source: kubernetes v1.36 plugins/dynamicresources/dynamicresources.go, PreBind, bindClaim,
PostFilter; pkg/scheduler/schedule_one.go, bindingCycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from replay.compare.recorded import DecisionKind, RecordedDecision, RecordedEvent
from reprieve.kube.v1beta1.device_pb2 import DeviceClaims
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from services.kube.devices import EXTENDED_RESOURCE_ANNOTATION

_GIVEN_BACK = ("deallocation of ResourceClaim completed", "deletion of ResourceClaim completed")
_Claim = DeviceClaims.ResourceClaim
_Key = tuple[str, ...]


def with_claim_writes(
    decisions: Sequence[RecordedDecision],
    events: Sequence[RecordedEvent],
    unrefused: Container[int],
) -> list[RecordedDecision]:
    """Return the decisions with the positions at which they were made, and their claims' writes.

    `unrefused` are the positions of nominations that came without a new refusal. One of them that
    has no victim, and whose pod is bound to that node next, is part of the binding.
    """
    former = _former(decisions)
    expectations = {
        before
        for place, before in former.items()
        if _is_expectation(decisions[before], decisions[place], unrefused)
    }
    reservations = _Reservations(events)
    result: list[RecordedDecision] = []
    for place, decision in enumerate(decisions):
        if place in expectations:
            continue
        before = former.get(place)
        since = -1 if before is None else decisions[before].written
        writes: tuple[int, ...] = ()
        first = [decision.position]
        if decision.kind is DecisionKind.BIND:
            writes = reservations.before(decision)
            first += writes
            if before in expectations:
                first.append(since)
        elif any(text in decision.message for text in _GIVEN_BACK):
            first += _given_back(events, decision, since)
        result.append(replace(decision, position=min(first), writes=writes))
    return result


def _former(decisions: Sequence[RecordedDecision]) -> dict[int, int]:
    """Return the index of the pod's decision before each that has one."""
    result: dict[int, int] = {}
    latest: dict[str, int] = {}
    for place in sorted(range(len(decisions)), key=lambda place: decisions[place].written):
        uid = decisions[place].pod.uid
        if uid in latest:
            result[place] = latest[uid]
        latest[uid] = place
    return result


def _is_expectation(
    nomination: RecordedDecision, bind: RecordedDecision, unrefused: Container[int]
) -> bool:
    return (
        nomination.kind is DecisionKind.PREEMPTION
        and bind.kind is DecisionKind.BIND
        and nomination.written in unrefused
        and nomination.node == bind.node
        and not nomination.victims
    )


class _Reservations:
    """Where claims were reserved for a pod, and where those for extended resources were made.

    The first list shows objects as they were: nothing in it is a write.
    """

    def __init__(self, events: Sequence[RecordedEvent]) -> None:
        self._made: dict[_Key, int] = {}
        self._reserved: dict[str, dict[_Key, list[int]]] = defaultdict(dict)
        for place, event in enumerate(events):
            claim, old = _claim(event.new), _claim(event.old)
            if claim is None or not event.at_ns:
                continue
            if old is None and _is_for_extended_resources(claim):
                self._made[event.key] = place
            before = {user.uid for user in old.status.reserved_for} if old is not None else set()
            for user in claim.status.reserved_for:
                if user.uid not in before:
                    self._reserved[user.uid].setdefault(event.key, []).append(place)

    def before(self, bind: RecordedDecision) -> tuple[int, ...]:
        """Return the positions of a binding's writes: of each claim's last reservation before it.

        Earlier ones are those of bindings that failed.
        """
        places: list[int] = []
        for key, reserved in self._reserved.get(bind.pod.uid, {}).items():
            earlier = [place for place in reserved if place < bind.written]
            if earlier:
                places.append(earlier[-1])
                if key in self._made:
                    places.append(self._made[key])
        return tuple(sorted(places))


def _given_back(
    events: Sequence[RecordedEvent], refusal: RecordedDecision, since: int
) -> Iterator[int]:
    """Yield the last position after `since` at which a refused pod's claim lost its devices."""
    written = events[refusal.written].new
    if written is None:
        return
    pod = written.pod
    names = {claim.resource_claim_name for claim in pod.spec.resource_claims}
    names |= {claim.resource_claim_name for claim in pod.status.resource_claim_statuses}
    for place in range(refusal.written - 1, since, -1):
        event = events[place]
        old, new = _claim(event.old), _claim(event.new)
        if old is None or event.ref.namespace != refusal.pod.namespace:
            continue
        owners = {owner.uid for owner in old.metadata.owner_references}
        is_own = _is_for_extended_resources(old) and refusal.pod.uid in owners
        had_devices = event.ref.name in names and old.status.HasField("allocation")
        has_devices = new is not None and new.status.HasField("allocation")
        if (is_own or had_devices) and not has_devices:
            yield place
            return


def _is_for_extended_resources(claim: _Claim) -> bool:
    return claim.metadata.annotations.get(EXTENDED_RESOURCE_ANNOTATION) == "true"


def _claim(carried: KubernetesObject | None) -> _Claim | None:
    if carried is None or not carried.HasField("resource_claim"):
        return None
    return carried.resource_claim
