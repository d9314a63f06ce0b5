"""DynamicResources: a node must reach, or have free, the devices that the pod's claims request.

PreEnqueue holds a pod back until its claims are there. PreFilter looks them up again, and refuses a
pod of which one cannot be used. Filter asks the allocator on each node for what is not allocated
yet, and keeps the answer; Reserve takes it on the chosen node, in the scheduler's own view, and
PreBind reserves all claims for the pod. PostFilter gives back a claim whose devices are out of
reach, unless another pod uses it; preemption never frees devices, since every refusal is
unresolvable. From v1.36 on extended resources that a class serves are claimed likewise, by a claim
that the scheduler makes, and nodes are scored by how early an alternative of a request was taken.

What was found on a node stands until its devices, the node, or the pods on it change
(`Snapshot.touch`); pods whose claims request the same share it.

A claim's allocation is complete as soon as the pod is assumed: bindings take no time here, so that
no claim is "in the process of being allocated". Where upstream takes a random claim in PostFilter,
the first is taken.

Source: kubernetes v1.34 and v1.36 plugins/dynamicresources/dynamicresources.go, PreEnqueue,
PreFilter, Filter, PostFilter, Reserve, PreBind, computeScore; extendeddynamicresources.go.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import ClassVar, NamedTuple
from weakref import WeakValueDictionary

import orjson

from services.config.strict import checked
from services.framework.arguments import Arguments
from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    NOTHING_PLANNED,
    ClaimsPlugin,
    FilterPlugin,
    Normalization,
    Plain,
    PlannedClaims,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFiltered,
    ReservePlugin,
    Scope,
    ScorePlugin,
    SnapshotPlugin,
    StatefulPlugin,
)
from services.framework.plugins.dynamic_resources import extended
from services.framework.plugins.dynamic_resources.allocator import (
    V1_34,
    V1_36,
    AllocationError,
    AllocatorRules,
    Chosen,
    InvalidPools,
    TooManySteps,
    allocate,
)
from services.framework.plugins.dynamic_resources.pod_claims import (
    EXTENDED,
    ClaimsKey,
    ClaimState,
    NodeResult,
    PreparedClaims,
    UnusableClaim,
    claims_of,
    is_late,
    is_ready,
    problem_of,
)
from services.framework.plugins.dynamic_resources.pools import Pool
from services.framework.preemption.candidates import TieBreak
from services.framework.preemption.outcome import CannotHelp, Cause, FailedCycle
from services.framework.snapshot.devices import Devices, Slices, no_selectors
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.devices import (
    FINALIZER,
    Allocation,
    ClaimChanges,
    Consumer,
    FreedClaims,
    MatchDevice,
    ResourceClaim,
)
from services.kube.node import Node
from services.kube.pod import Pod, PodSpec
from services.typed import Reading, write

NOTHING_TO_DEALLOCATE = "no new claims to deallocate"
NOT_PREPARED = "not found"
NOT_AVAILABLE = "resourceclaim not available on the node"
_NOT_ALLOCATED = "cannot allocate all claims"
_LEFT_OVER = "cannot schedule extended resource claim"
_NOT_FOUND_FOR_NODE = "claim allocation not found for node"
_ALTERNATIVES_MAX = 8
"""Alternatives that a request can have (FirstAvailableDeviceRequestMaxSize)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    filter_timeout: str = ""


@checked.register
def _(_args: _Fields) -> None:
    """Nothing of them is served: a search ends by its steps."""


class _PodKey(NamedTuple):
    """The key of a pod's verdicts, with the pod's claims; `version` is that of the devices."""

    pod: Pod | None
    version: int
    now_ns: int
    key: ClaimsKey | None
    claims: tuple[ResourceClaim, ...]


class DynamicResources(
    PreEnqueuePlugin,
    FilterPlugin[PreparedClaims],
    PostFilterPlugin,
    ReservePlugin,
    PreBindPlugin,
    ClaimsPlugin,
    SnapshotPlugin,
    StatefulPlugin,
):
    """DynamicResources of v1.34; `matches` evaluates the expressions of selectors.

    Without it pods are scheduled as if they had no claims: where a cluster's devices are not known.
    """

    name = "DynamicResources"
    arguments = Arguments(kind=_Fields, has_effect=False)
    scope = Scope.PODS
    needs_pre_filter = True
    can_fail = True
    keys_follow_pod = True
    follows_from_class = True
    gate_kinds = frozenset({"ResourceClaim"})
    rules: ClassVar[AllocatorRules] = V1_34
    not_owner: ClassVar[str] = (
        "ResourceClaim {claim} was not created for pod {pod} (pod is not owner)"
    )

    def __init__(self, _args: _Fields | None = None, *, matches: MatchDevice | None = None) -> None:
        self._matches = matches or no_selectors
        self._ignores_claims = matches is None
        self._snapshot = Snapshot()
        self._prepared: WeakValueDictionary[ClaimsKey, PreparedClaims] = WeakValueDictionary()
        self._pools: dict[str, tuple[Slices, Node, tuple[Pool, ...]]] = {}
        self._changes: dict[str, ClaimChanges] = {}
        self._failures: dict[str, Status | None] = {}
        self._last = _PodKey(None, 0, 0, None, ())

    @property
    def unprepared_text(self) -> str:
        return NOT_PREPARED

    def begin(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Gate a pod until all its claims exist. Source: PreEnqueue."""
        if self._ignores_claims or not pod.spec.device_claims:
            return None
        try:
            claims_of(pod, self._snapshot.catalog.devices, self.not_owner)
        except UnusableClaim as error:
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            return Status(code=code, plugin=self.name, reasons=(str(error),))
        return None

    def gate_names(self, pod: Pod) -> Collection[str]:
        """Return the claims that the pod names; one that it does not name changes nothing."""
        if not pod.spec.device_claims:
            return ()
        named = (claim.claim_name for claim in pod.spec.device_claims)
        return [name for name in (*named, *(made for _, made in pod.claim_names)) if name]

    def skips(self, spec: PodSpec) -> bool:
        """Return whether the spec has neither claims nor resources that devices may serve."""
        if self._ignores_claims:
            return True
        may_be_served = self.rules.extended_resources and extended.requested(spec)
        return not spec.device_claims and not may_be_served

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the key of the verdicts about the pod's claims, None without claims."""
        return self._key(pod, snapshot)[0] if self._has_claims(pod, snapshot) else None

    def _has_claims(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Return whether the pod has claims to check, or devices may serve its requests."""
        if self._ignores_claims:
            return False
        return bool(pod.spec.device_claims) or self._wants_devices(pod, snapshot.catalog.devices)

    def _wants_devices(self, pod: Pod, devices: Devices) -> bool:
        """Return whether devices may serve extended resources of the pod."""
        return (
            self.rules.extended_resources
            and bool(devices.classes)
            and extended.served(pod.spec, devices)
        )

    def _key(
        self, pod: Pod, snapshot: Snapshot
    ) -> tuple[ClaimsKey | None, tuple[ResourceClaim, ...]]:
        """Return the key of the pod's verdicts, and its claims.

        Filter, Score and Reserve of one cycle ask for the same: the last answer is kept.
        """
        last, version = self._last, snapshot.catalog.devices.version
        if last.pod is not pod or (last.version, last.now_ns) != (version, snapshot.now_ns):
            key, claims = self._new_key(pod, snapshot)
            last = self._last = _PodKey(pod, version, snapshot.now_ns, key, claims)
        return last.key, last.claims

    def _new_key(
        self, pod: Pod, snapshot: Snapshot
    ) -> tuple[ClaimsKey | None, tuple[ResourceClaim, ...]]:
        devices = snapshot.catalog.devices
        try:
            claims = claims_of(pod, devices, self.not_owner)
        except UnusableClaim as error:
            return ClaimsKey(problem=str(error)), ()
        wants_devices = self._wants_devices(pod, devices)
        if not claims and not wants_devices:
            return None, ()
        states = []
        for claim in claims:
            if claim.allocation is None:
                problem, is_error = problem_of(claim, devices)
                if problem:
                    return ClaimsKey(problem=problem, is_error=is_error), claims
                states.append(ClaimState(claim.spec))
            else:
                late = self.rules.conditions and is_late(claim, snapshot.now_ns)
                freed = claim.key if _is_free_for(claim, pod) else ""
                states.append(ClaimState(None, claim.allocation.node_selector, late, freed))
        left_over = extended.left_over(pod, devices) if wants_devices else None
        key = ClaimsKey(
            states=tuple(states),
            extended=pod.spec if wants_devices else None,
            is_stale=left_over is not None and bool(left_over.spec.requests),
            left_over="" if left_over is None else left_over.key,
            class_version=devices.class_version,
        )
        return key, claims

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[PreparedClaims]:
        """Look up the claims; refuse the pod for one that cannot be used."""
        prepared = self._prepare(pod, snapshot)
        key = prepared.key
        if not key.problem:
            return PreFiltered(data=prepared)
        code = Code.ERROR if key.is_error else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        refusal = Status(code=code, plugin=self.name, reasons=(key.problem,))
        return PreFiltered(data=prepared, refusal=refusal)

    def _prepare(self, pod: Pod, snapshot: Snapshot) -> PreparedClaims:
        key, claims = self._key(pod, snapshot)
        key = key or ClaimsKey()
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepared[key] = PreparedClaims(key=key, claims=claims)
        return prepared

    def filter_node(self, data: PreparedClaims, view: NodeView) -> int:
        """Return the code of one node, which does not depend on the pods there."""
        return self._judged(data, view.node, view.snapshot).code

    def filter(self, data: PreparedClaims, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        # A row is there once for each change of its node.
        for row in dict.fromkeys(rows[snapshot.columns.alive[rows]].tolist()):
            result = data.results[row] = self._judged(data, snapshot.node(row), snapshot)
            codes[row] = result.code

    def filter_status(self, data: PreparedClaims, code: int) -> Status:
        kind, text = data.texts[code - 1]
        return Status(code=kind, plugin=self.name, reasons=(text,))

    def _judged(self, data: PreparedClaims, node: Node, snapshot: Snapshot) -> NodeResult:
        """Return the result of Filter on a node. Source: Filter."""
        key, devices = data.key, snapshot.catalog.devices
        refused = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        result = NodeResult()
        to_allocate = [claim for claim in data.claims if claim.allocation is None]
        if key.extended is not None:
            if key.is_stale:
                return NodeResult(code=data.code_of(refused, _LEFT_OVER))
            missing = extended.on_node(key.extended, node, devices)
            if missing.is_short:
                return NodeResult(code=data.code_of(refused, "cannot fit resource"))
            if not missing.amounts and not key.states:
                return result
            result.requests, result.mappings = extended.requests_of(
                key.extended, missing.amounts, devices
            )
            claim = ResourceClaim(namespace="", name=EXTENDED)
            to_allocate.append(extended.with_requests(claim, result.requests))
        available = all(
            not state.is_late
            and (state.nodes is None or state.nodes.matches(node.labels, node.name))
            for state in key.states
            if state.spec is None
        )
        if to_allocate:
            try:
                result.chosen = self._allocated(to_allocate, node, devices)
            except AllocationError as error:
                return NodeResult(code=data.code_of(Code.ERROR, str(error)))
            except InvalidPools as error:
                return NodeResult(code=data.code_of(refused, str(error)))
            except TooManySteps:
                text = "timed out trying to allocate devices"
                return NodeResult(code=data.code_of(refused, text))
            if result.chosen is None:
                return NodeResult(code=data.code_of(refused, _NOT_ALLOCATED))
        if not available:
            return NodeResult(code=data.code_of(refused, NOT_AVAILABLE))
        if result.chosen is not None:
            result.score = _score(result.chosen)
        return result

    def _allocated(
        self, claims: Sequence[ResourceClaim], node: Node, devices: Devices
    ) -> Chosen | None:
        return allocate(
            claims,
            node,
            self._pools_of(node, devices),
            rules=self.rules,
            classes=devices.classes,
            in_use=devices.in_use,
            matches=self._matches,
        )

    def _pools_of(self, node: Node, devices: Devices) -> tuple[Pool, ...]:
        slices = devices.slices
        kept = self._pools.get(node.name)
        if kept is None or kept[0] is not slices or kept[1] is not node:
            kept = self._pools[node.name] = (slices, node, self.rules.pools(slices, node))
        return kept[2]

    def post_filter(
        self,
        pod: Pod,
        cycle: FailedCycle,
        *,
        tie_break: TieBreak,  # noqa: ARG002 - nothing to choose
        now_ns: int,  # noqa: ARG002 - nothing to time
    ) -> CannotHelp:
        """Deallocate a claim that no node reaches, or return that PreFilter has not run.

        Source: PostFilter.
        """
        if not cycle.prepared(self.name):
            return _cannot_help(NOT_PREPARED, is_error=True)
        if not self._has_claims(pod, self._snapshot):
            return _cannot_help(NOTHING_TO_DEALLOCATE)
        key, claims = self._key(pod, self._snapshot)
        if key is None or key.problem:
            return _cannot_help(NOTHING_TO_DEALLOCATE)
        nodes = [
            self._snapshot.node(row)
            for row in map(self._snapshot.row, cycle.refused_by(self.name, NOT_AVAILABLE))
            if row is not None
        ]
        for state, claim in zip(key.states, claims, strict=True):
            if claim.allocation is None or not _is_free_for(claim, pod):
                continue
            if (nodes and state.is_late) or any(
                state.nodes is not None and not state.nodes.matches(node.labels, node.name)
                for node in nodes
            ):
                freed = FreedClaims(deallocated=(claim.key,))
                return _cannot_help("deallocation of ResourceClaim completed", freed)
        left_over = extended.left_over(pod, self._snapshot.catalog.devices)
        if key.extended is not None and left_over is not None:
            freed = FreedClaims(deleted=(left_over.key,))
            return _cannot_help("deletion of ResourceClaim completed", freed)
        return _cannot_help("still not schedulable")

    def planned(self, pod: Pod, row: int, snapshot: Snapshot) -> PlannedClaims:
        """Return the writes of Reserve and PreBind. Source: Reserve, PreBind, bindClaim."""
        if not self._has_claims(pod, snapshot):
            return NOTHING_PLANNED
        key, claims = self._key(pod, snapshot)
        if key is None or key.problem:
            return NOTHING_PLANNED
        prepared = self._prepared.get(key)
        result = None if prepared is None else prepared.results.get(row)
        chosen = None if result is None else result.chosen
        waiting = [claim for claim in claims if claim.allocation is None]
        if waiting and (chosen is None or not chosen.allocations):
            return PlannedClaims(changes=ClaimChanges(), failure=self._failure(_NOT_FOUND_FOR_NODE))
        allocations = iter(() if chosen is None else chosen.allocations)
        changed = [
            self._bound(
                claim, next(allocations) if claim.allocation is None else None, pod, snapshot.now_ns
            )
            for claim in claims
        ]
        written = tuple(
            after for before, after in zip(claims, changed, strict=True) if after is not before
        )
        allocation = next(allocations, None)
        created: ResourceClaim | None = None
        mappings: tuple[tuple[str, str, str], ...] = ()
        failure: Status | None = None
        if key.extended is not None and result is not None and allocation is not None:
            suffix = blake2b(pod.uid.encode(), digest_size=3).hexdigest()[:5]
            claim = extended.new_claim(pod, f"{pod.name}-extended-resources-{suffix}")
            claim = extended.with_requests(claim, result.requests or ())
            created = self._bound(claim, allocation, pod, snapshot.now_ns)
            mappings = result.mappings
            changed.append(created)
            if not mappings:
                failure = self._failure(
                    f"nil or empty request mappings, no update of pod {pod.key} "
                    "ExtendedResourceClaimStatus"
                )
        waits = self.rules.conditions and not all(map(is_ready, changed))
        return PlannedClaims(
            changes=ClaimChanges(
                claims=written, created=created, mappings=mappings, waits=waits and failure is None
            ),
            failure=failure,
            in_binding=True,
        )

    def _failure(self, text: str) -> Status:
        return Status(code=Code.ERROR, plugin=self.name, reasons=(text,))

    def _bound(
        self, claim: ResourceClaim, allocation: Allocation | None, pod: Pod, now_ns: int
    ) -> ResourceClaim:
        """Return a claim as PreBind leaves it: allocated, and reserved for the pod."""
        finalizers, reserved_for = claim.finalizers, claim.reserved_for
        if allocation is not None and FINALIZER not in finalizers:
            finalizers = (*finalizers, FINALIZER)
        allocation = allocation or claim.allocation
        if allocation is not None and not claim.is_reserved_for(pod.uid):
            reserved_for = (*reserved_for, Consumer(name=pod.name, uid=pod.uid))
            if self.rules.conditions and allocation.time_ns is None:
                allocation = replace(allocation, time_ns=now_ns)
        if allocation is claim.allocation and reserved_for is claim.reserved_for:
            return claim
        return replace(
            claim, finalizers=finalizers, allocation=allocation, reserved_for=reserved_for
        )

    def changed(self, pod: Pod) -> ClaimChanges | None:
        return self._changes.pop(pod.uid, None)

    def reserve(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:
        """Allocate the devices of the pod's claims in the scheduler's snapshot."""
        if not self._has_claims(pod, snapshot):
            return None
        planned = self.planned(pod, row, snapshot)
        if planned.failure is not None and not planned.in_binding:
            return planned.failure
        devices = snapshot.catalog.devices
        created = planned.changes.created
        after = [*planned.changes.claims, *(() if created is None else (created,))]
        for claim in after:
            devices.reserve(pod.uid, claim)
        self._changes[pod.uid] = planned.changes
        self._failures[pod.uid] = planned.failure
        return None

    def unreserve(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - wherever it was
        """Undo the reservation of the pod's claims, unless the world has confirmed it."""
        self._changes.pop(pod.uid, None)
        devices = snapshot.catalog.devices
        for key in [claim.key for uid, claim in devices.reservations() if uid == pod.uid]:
            devices.unreserve(pod.uid, key)

    def saved_state(self, snapshot: Snapshot) -> Plain:
        """Return the reservations that were not confirmed, by pod."""
        saved: Plain = orjson.loads(write(list(snapshot.catalog.devices.reservations())))
        return saved

    def restore_state(self, saved: Plain, snapshot: Snapshot) -> None:
        """Reserve the saved claims again."""
        for uid, claim in Reading().read(list[tuple[str, ResourceClaim]], saved):
            snapshot.catalog.devices.reserve(uid, claim)

    def pre_bind(self, pod: Pod, node_name: str) -> Status | None:  # noqa: ARG002 - as it was reserved
        """Return how the writes fail; devices that drivers make ready are taken for ready."""
        return self._failures.pop(pod.uid, None)


def _cannot_help(
    text: str, freed: FreedClaims | None = None, *, is_error: bool = False
) -> CannotHelp:
    return CannotHelp(
        cause=Cause.ERROR if is_error else Cause.NO_CANDIDATE,
        reason=text,
        message=text,
        clear_nomination=False,
        is_error=is_error,
        freed=freed,
    )


def _is_free_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether no other pod may use a claim."""
    return not claim.reserved_for or [user.uid for user in claim.reserved_for] == [pod.uid]


def _score(chosen: Chosen) -> int:
    """Return the more, the earlier the alternatives are. Source: computeScore."""
    return sum(
        _ALTERNATIVES_MAX - index
        for indices in chosen.alternatives
        for index in indices
        if index is not None
    )


class ScoredDynamicResources(DynamicResources, ScorePlugin[PreparedClaims]):
    """DynamicResources from v1.36 on, which scores without a PreScore of its own."""

    rules = V1_36
    not_owner = "ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)"
    has_pre_score = False
    normalization = Normalization.HIGHEST

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the filter's key: what it finds is what is scored."""
        return self.filter_key(pod, snapshot)

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> PreparedClaims:
        return self._prepare(pod, snapshot)

    def score(self, data: PreparedClaims, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        for row in rows[snapshot.columns.alive[rows]].tolist():
            result = data.results.get(row)
            scores[row] = 0 if result is None else result.score
