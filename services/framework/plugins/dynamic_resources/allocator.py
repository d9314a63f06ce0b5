"""Allocates devices of a node to a pod's claims: the first solution of upstream's search.

Claims are allocated one after the other, of each claim all requests, of each request one device
after the other: the next one in the order of pools, slices and devices that is not in use, meets
the selectors, is tolerated, and satisfies constraints, counters and capacities. Where the search
cannot go on, the latest device is given back. Devices of one request are tried as combinations, not
in every order. Of a request with alternatives the first that leads to a solution is taken.

A search that takes more than STEPS_MAX steps ends without one: upstream has a time-out (10 s).

An allocator is for one moment: `InUse` says what claims have. Nothing here changes that.

Source: kubernetes v1.36 dynamic-resource-allocation/structured/internal/incubating,
allocator_incubating.go; v1.34 .../experimental, allocator_experimental.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from services.framework.plugins.dynamic_resources.capacity import consumed_by, fits, nano
from services.framework.plugins.dynamic_resources.constraints import Constraint, make_constraint
from services.framework.plugins.dynamic_resources.pools import (
    Pool,
    pools_by_all_slices,
    pools_by_nodes_slices,
)
from services.framework.snapshot.devices import Amounts, InUse, Slices
from services.kube.devices import (
    RESULTS_MAX,
    AllocatedConfiguration,
    AllocatedDevice,
    Allocation,
    AllocationMode,
    Device,
    DeviceClass,
    DeviceId,
    MatchDevice,
    RequestDetail,
    ResourceClaim,
    ResourceSlice,
    SelectorError,
)
from services.kube.node import Node
from services.kube.selector import NodeSelector, NodeSelectorTerm, Operator, Requirement

STEPS_MAX = 1_000_000
"""Calls of the search for one node, after which it ends: some seconds."""
SHARE_ID = "any"
"""Stands for the identifier of a share, which upstream draws at random."""
_PREVENTING = frozenset({"NoExecute", "NoSchedule"})


class AllocationError(Exception):
    """Raised for an invalid claim, class or pool: the cycle ends in an error."""


class InvalidPools(Exception):  # noqa: N818 - a refusal of one node, not an error of the cycle
    """The node has no solution, and pools that cannot be used."""


class TooManySteps(Exception):  # noqa: N818 - a refusal of one node, not an error of the cycle
    """The search took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorRules:
    """The differences between versions.

    extended_resources: whether devices serve extended resources of a class.
    partitionable, capacities, tainted, conditions: whether counters, consumable capacity, taints
    and binding conditions are on. all_slices: a pool is complete where all slices are there.
    refuses_invalid: an invalid pool is passed over, and refuses the node where nothing else fits;
    otherwise meeting one is an error. keeps_alternative: the second device of an alternative that
    wants all is of the same alternative (v1.34 goes on with the first one's).
    config_names_requests: configuration of a class names its requests.
    """

    extended_resources: bool = False
    admin_access: bool = True
    alternatives: bool = True
    partitionable: bool = False
    capacities: bool = False
    tainted: bool = False
    conditions: bool = False
    all_slices: bool = False
    refuses_invalid: bool = False
    keeps_alternative: bool = False
    config_names_requests: bool = False

    def pools(self, slices: Slices, node: Node) -> tuple[Pool, ...]:
        """Return the pools that a node reaches."""
        if not self.all_slices:
            return pools_by_nodes_slices(slices, node)
        return pools_by_all_slices(slices, node, partitionable=self.partitionable)


V1_34 = AllocatorRules()
V1_36 = AllocatorRules(
    extended_resources=True,
    partitionable=True,
    capacities=True,
    tainted=True,
    conditions=True,
    all_slices=True,
    refuses_invalid=True,
    keeps_alternative=True,
    config_names_requests=True,
)


Classes = Mapping[str, DeviceClass]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The allocations of claims on a node, in the order of the claims.

    alternatives: for each claim the index of the alternative that each request got, None for an
    exact request.
    """

    allocations: tuple[Allocation, ...]
    alternatives: tuple[tuple[int | None, ...], ...]


def allocate(
    claims: Sequence[ResourceClaim],
    node: Node,
    pools: Sequence[Pool],
    *,
    rules: AllocatorRules,
    classes: Classes,
    in_use: InUse,
    matches: MatchDevice,
) -> Chosen | None:
    """Return the claims' allocations on a node that reaches `pools`, None if they do not fit.

    Raises AllocationError, InvalidPools, TooManySteps.
    """
    search = _Search(claims, node, pools, rules, classes, in_use, matches)
    search.prepare()
    try:
        found = search.run()
    except RecursionError:
        raise TooManySteps from None
    if found:
        return search.chosen()
    if rules.refuses_invalid and any(pool.invalid for pool in pools):
        raise InvalidPools("invalid resource pools were encountered")
    return None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A device in its slice and pool."""

    device: Device
    slice: ResourceSlice
    pool: Pool
    id: DeviceId


@dataclass(slots=True, kw_only=True)
class _Want:
    """A request, or one alternative of it (`parent` is the request's name then).

    number: how many devices. everything: the devices of a request for all, in their order.
    requested: amounts of capacities.
    """

    detail: RequestDetail
    parent: str
    cls: DeviceClass
    number: int = 0
    everything: list[_Candidate] | None = None
    requested: Mapping[str, str] = field(default_factory=dict)
    selectable: dict[DeviceId, bool] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name that results have."""
        return f"{self.parent}/{self.detail.name}" if self.parent else self.detail.name

    @property
    def base_name(self) -> str:
        """Return the request's name."""
        return self.parent or self.detail.name

    @property
    def alternative(self) -> str:
        """Return the alternative's name, "" for an exact request."""
        return self.detail.name if self.parent else ""


class _ResultsExceeded(Exception):  # noqa: N818 - tells the search to go on elsewhere
    """A claim would get more devices than it can have."""


_Counts = dict[str, dict[str, int]]


class _Search:
    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        node: Node,
        pools: Sequence[Pool],
        rules: AllocatorRules,
        classes: Classes,
        in_use: InUse,
        matches: MatchDevice,
    ) -> None:
        self._claims = claims
        self._node = node
        self._pools = pools
        self._rules = rules
        self._classes = classes
        self._in_use = in_use
        self._matches = matches
        self._steps = 0
        # For each claim and request the wants: one, or one for each alternative.
        self._wants: list[list[list[_Want]]] = []
        self._picked: list[list[int]] = []
        self._constraints: list[list[Constraint]] = []
        self._results: list[list[tuple[_Want, _Candidate, dict[str, str] | None]]] = []
        # Devices that are being allocated, with the claims they are for.
        self._allocating: dict[DeviceId, set[int]] = {}
        self._allocating_amounts: dict[DeviceId, Amounts] = {}
        # Counters by the pool's name: upstream's key, which drivers may share.
        self._available: dict[str, _Counts] = {}
        self._consumed: dict[str, _Counts] = {}
        self._candidates = [
            _Candidate(device, slice_, pool, DeviceId(pool.driver, pool.name, device.name))
            for pool in pools
            for slice_ in pool.slices
            for device in slice_.devices
        ]

    def prepare(self) -> None:
        """Check the claims, and how many devices each wants at least. Raises AllocationError.

        Source: Allocate and validateDeviceRequest.
        """
        for claim in self._claims:
            wants = self._prepared(claim)
            self._wants.append(wants)
            self._picked.append([0] * len(wants))
            self._results.append([])
            constraints = []
            least = sum(min(want.number for want in wanted) for wanted in wants)
            if least > RESULTS_MAX:
                raise AllocationError(
                    f"claim {claim.key}: number of requested devices {least} exceeds the claim "
                    f"limit of {RESULTS_MAX}"
                )
            for index, constraint in enumerate(claim.spec.constraints):
                made = make_constraint(constraint)
                if made is None:
                    raise AllocationError(
                        f"claim {claim.key}, constraint #{index}: empty constraint (unsupported "
                        "constraint type?)"
                    )
                constraints.append(made)
            self._constraints.append(constraints)

    def _prepared(self, claim: ResourceClaim) -> list[list[_Want]]:
        wants = []
        for request in claim.spec.requests:
            if request.first_available:
                if not self._rules.alternatives:
                    raise AllocationError(
                        f"claim {claim.key}, request {request.name}: has subrequests, but the "
                        "DRAPrioritizedList feature is disabled"
                    )
                details = [(detail, request.name) for detail in request.first_available]
            else:
                details = [(request.exactly or RequestDetail(name=request.name, class_name=""), "")]
            if not self._rules.capacities:
                for detail, parent in details:
                    if detail.capacity is not None:
                        kind = "subrequest" if parent else "request"
                        raise AllocationError(
                            f"claim {claim.key}, {kind} {detail.name}: has capacity requests, but "
                            "the DRAConsumableCapacity feature is disabled"
                        )
            wants.append([self._want(claim, detail, parent) for detail, parent in details])
        return wants

    def _want(self, claim: ResourceClaim, detail: RequestDetail, parent: str) -> _Want:
        place = f"claim {claim.key}, request {detail.name}"
        for index, selector in enumerate(detail.selectors):
            if selector is None:
                raise AllocationError(
                    f"{place}, selector #{index}: CEL expression empty (unsupported selector type?)"
                )
        if not self._rules.admin_access and detail.admin_access is not None:
            raise AllocationError(
                f"{place}: admin access is requested, but the feature is disabled"
            )
        if not detail.class_name:
            raise AllocationError(f"{place}: missing device class name (unsupported request type?)")
        cls = self._classes.get(detail.class_name)
        if cls is None:
            raise AllocationError(
                f"{place}: could not retrieve device class {detail.class_name}: "
                f'deviceclass.resource.k8s.io "{detail.class_name}" not found'
            )
        want = _Want(detail=detail, parent=parent, cls=cls, requested=dict(detail.capacity or ()))
        if detail.mode == AllocationMode.EXACT_COUNT.value:
            want.number = detail.count
        elif detail.mode == AllocationMode.ALL.value:
            want.everything = self._all(claim, want, place)
            want.number = len(want.everything)
        else:
            raise AllocationError(f"{place}: unsupported count mode {detail.mode}")
        return want

    def _all(self, claim: ResourceClaim, want: _Want, place: str) -> list[_Candidate]:
        everything = []
        for pool in self._pools:
            state = "being updated" if pool.is_incomplete else "invalid" if pool.invalid else ""
            if state:
                raise AllocationError(
                    f"{place}: asks for all devices, but resource pool {pool} is currently {state}"
                )
            everything += [
                candidate
                for candidate in self._candidates
                if candidate.pool is pool
                and self._is_selectable(claim, want, candidate)
                and self._has_capacity(want, candidate)
            ]
        return everything

    def run(self) -> bool:
        """Search, and return whether there is a solution. Raises AllocationError, TooManySteps."""
        try:
            return self._request(0, 0)
        except _ResultsExceeded:
            raise AllocationError("allocation max size exceeded") from None

    def _step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise TooManySteps

    def _request(self, claim: int, request: int) -> bool:
        """Allocate everything from a request on. Source: allocateOne, its first half."""
        self._step()
        if claim == len(self._claims):
            return True
        wants = self._wants[claim]
        if request == len(wants):
            try:
                return self._request(claim + 1, 0)
            except _ResultsExceeded:
                # Another choice in this claim may leave the later ones fewer devices to take.
                return False
        alternatives = wants[request]
        if not alternatives[0].parent:
            return self._device(claim, request, 0, 0, 0)
        exceeded = True
        for index in range(len(alternatives)):
            try:
                found = self._device(claim, request, index, 0, 0)
            except _ResultsExceeded:
                continue
            exceeded = False
            if found:
                self._picked[claim][request] = index
                return True
        if exceeded:
            raise _ResultsExceeded
        return False

    def _device(self, claim: int, request: int, index: int, number: int, start: int) -> bool:
        """Allocate everything from one device of a request on, at `start` of the candidates."""
        self._step()
        want = self._wants[claim][request][index]
        everything = want.everything
        if everything is not None and not everything:
            return False
        if number >= want.number:
            return self._request(claim, request + 1)
        if len(self._results[claim]) + want.number - number > RESULTS_MAX:
            raise _ResultsExceeded
        if everything is not None:
            give_back = self._take(claim, want, everything[number], must=True)
            if give_back is None:
                return False
            following = index if self._rules.keeps_alternative else 0
            return self._go_on(claim, request, following, number + 1, 0, give_back)
        for place in self._places(claim, want, start):
            give_back = self._take(claim, want, self._candidates[place], must=False)
            if give_back is not None and self._go_on(
                claim, request, index, number + 1, place + 1, give_back
            ):
                return True
        return False

    def _places(self, claim: int, want: _Want, start: int) -> Iterator[int]:
        """Yield the candidates from `start` on that are free and selectable."""
        for place in range(start, len(self._candidates)):
            candidate = self._candidates[place]
            pool = candidate.pool
            if pool.invalid or pool.is_incomplete:
                if self._rules.refuses_invalid:
                    continue
                if pool.invalid:
                    raise AllocationError(f"pool {pool.name} is invalid: {pool.invalid}")
            if (
                not self._is_taken(claim, want, candidate.id)
                and self._is_selectable(self._claims[claim], want, candidate)
                and self._has_capacity(want, candidate)
            ):
                yield place

    def _go_on(
        self,
        claim: int,
        request: int,
        index: int,
        number: int,
        start: int,
        give_back: Callable[[], None],
    ) -> bool:
        try:
            found = self._device(claim, request, index, number, start)
        except _ResultsExceeded:
            give_back()
            raise
        if not found:
            give_back()
        return found

    def _is_taken(self, claim: int, want: _Want, device: DeviceId) -> bool:
        allocating = self._allocating.get(device)
        if want.detail.admin_access:
            return allocating is not None and claim in allocating
        return device in self._in_use.devices or bool(allocating)

    def _is_selectable(self, claim: ResourceClaim, want: _Want, candidate: _Candidate) -> bool:
        """Return whether a device meets the selectors, of class and request.

        Source: isSelectable.
        """
        selectable = want.selectable.get(candidate.id)
        if selectable is None:
            selectable = self._meets(claim, want, candidate)
            want.selectable[candidate.id] = selectable
        return selectable

    def _meets(self, claim: ResourceClaim, want: _Want, candidate: _Candidate) -> bool:
        device = candidate.device
        if not self._rules.conditions and device.binding_conditions:
            return False
        for place, selectors in (
            (f"class {want.cls.name}", want.cls.selectors),
            (f"claim {claim.key}", want.detail.selectors),
        ):
            for number, expression in enumerate(selectors):
                try:
                    # A selector of no known kind has no expression, as an empty one.
                    met = self._matches(expression or "", device, candidate.pool.driver)
                except SelectorError as error:
                    raise AllocationError(f"{place}: selector #{number}: {error}") from None
                if not met:
                    return False
        return not candidate.slice.per_device or device.nodes.reaches(
            self._node.name, self._node.labels
        )

    def _has_capacity(self, want: _Want, candidate: _Candidate) -> bool:
        return not self._rules.capacities or fits(
            want.requested,
            candidate.device.capacity,
            self._in_use.consumed.get(candidate.id, {}),
            self._allocating_amounts.get(candidate.id, {}),
        )

    def _take(
        self, claim: int, want: _Want, candidate: _Candidate, *, must: bool
    ) -> Callable[[], None] | None:
        """Allocate a device; return the function that frees it, None if it is not available.

        `must`: the request wants this very device, so that a violated constraint is an error.
        What a refusal after the counters' check leaves counted there stays counted, as upstream
        leaves it. Source: allocateDevice.
        """
        device, id_ = candidate.device, candidate.id
        shares = self._rules.capacities and device.allows_multiple
        if not self._is_available(claim, want, candidate, shares=shares):
            return None
        if not self._satisfies(claim, want, candidate, must=must):
            return None
        if not self._has_capacity(want, candidate):
            return None
        if not shares:
            self._allocating.setdefault(id_, set()).add(claim)
        consumed = consumed_by(want.requested, device.capacity) if shares else None
        if consumed is not None:
            self._change_amounts(id_, consumed, 1)
        self._results[claim].append((want, candidate, consumed))

        def give_back() -> None:
            for constraint in self._constraints[claim]:
                constraint.remove(want.base_name, want.alternative)
            self._results[claim].pop()
            if consumed is not None:
                self._change_amounts(id_, consumed, -1)
                return
            self._allocating[id_].discard(claim)
            if device.consumes:
                self._add_counters(candidate, -1)

        return give_back

    def _satisfies(self, claim: int, want: _Want, candidate: _Candidate, *, must: bool) -> bool:
        constraints = self._constraints[claim]
        request, alternative = want.base_name, want.alternative
        for number, constraint in enumerate(constraints):
            if constraint.add(request, alternative, candidate.device, candidate.pool.driver):
                continue
            if must:
                raise AllocationError(
                    f"claim {self._claims[claim].key}, request {want.detail.name}: cannot add "
                    f"device {candidate.id} because a claim constraint would not be satisfied"
                )
            for added in constraints[:number]:
                added.remove(request, alternative)
            return False
        return True

    def _is_available(
        self, claim: int, want: _Want, candidate: _Candidate, *, shares: bool
    ) -> bool:
        """Return whether a device is free, its counters suffice, and its taints are tolerated."""
        device, id_ = candidate.device, candidate.id
        if not (shares and want.detail.admin_access) and self._is_taken(claim, want, id_):
            return False
        if device.consumes:
            if not self._rules.partitionable:
                return False
            in_part = id_ in self._in_use.consumed or id_ in self._allocating_amounts
            if not (shares and in_part) and not self._consume_counters(candidate):
                return False
        return not (self._rules.tainted and _is_kept_off(want.detail, device))

    def _change_amounts(self, device: DeviceId, consumed: Mapping[str, str], sign: int) -> None:
        if not consumed:
            return
        amounts = self._allocating_amounts.setdefault(device, {})
        for name, text in consumed.items():
            amounts[name] = amounts.get(name, 0) + sign * nano(text)
        if sign < 0 and not any(amounts.values()):
            del self._allocating_amounts[device]

    def _consume_counters(self, candidate: _Candidate) -> bool:
        """Consume the counters of a device; return False, unchanged, if one is insufficient.

        Source: checkAvailableCounters.
        """
        self._add_counters(candidate, 1)
        consumed = self._consumed[candidate.pool.name]
        for name, amounts in self._available_counters(candidate.pool).items():
            taken = consumed.get(name, {})
            if any(amount < taken.get(counter, 0) for counter, amount in amounts.items()):
                self._add_counters(candidate, -1)
                return False
        return True

    def _add_counters(self, candidate: _Candidate, sign: int) -> None:
        consumed = self._consumed.setdefault(candidate.pool.name, {})
        for name, amounts in candidate.device.consumes:
            taken = consumed.setdefault(name, {})
            for counter, text in amounts.items():
                taken[counter] = taken.get(counter, 0) + sign * nano(text)

    def _available_counters(self, pool: Pool) -> _Counts:
        """Return the counters of a pool that allocated devices leave free; they may be below 0."""
        available = self._available.get(pool.name)
        if available is None:
            available = {
                name: {counter: nano(text) for counter, text in amounts.items()}
                for name, amounts in pool.counters.items()
            }
            for slice_ in (*pool.slices, *pool.elsewhere):
                for device in slice_.devices:
                    id_ = DeviceId(slice_.driver, slice_.pool, device.name)
                    if not device.consumes or not self._in_use.has(id_):
                        continue
                    for name, amounts in device.consumes:
                        for counter, text in amounts.items():
                            if counter in available.get(name, {}):
                                available[name][counter] -= nano(text)
            self._available[pool.name] = available
        return available

    def chosen(self) -> Chosen:
        """Return the solution."""
        return Chosen(
            allocations=tuple(self._allocation(number) for number in range(len(self._claims))),
            alternatives=tuple(
                tuple(
                    index if wanted[0].parent else None
                    for index, wanted in zip(picked, wants, strict=True)
                )
                for picked, wants in zip(self._picked, self._wants, strict=True)
            ),
        )

    def _allocation(self, number: int) -> Allocation:
        results = self._results[number]
        devices = []
        for want, candidate, consumed in results:
            device = candidate.device
            devices.append(
                AllocatedDevice(
                    request=want.name,
                    id=candidate.id,
                    admin_access=True if want.detail.admin_access else None,
                    tolerations=want.detail.tolerations,
                    binding_conditions=device.binding_conditions if self._rules.conditions else (),
                    binding_failure_conditions=(
                        device.binding_failure_conditions if self._rules.conditions else ()
                    ),
                    share_id=None if consumed is None else SHARE_ID,
                    consumed=tuple((consumed or {}).items()),
                )
            )
        claim = self._claims[number]
        return Allocation(
            devices=tuple(devices),
            config=(*self._class_config(number), *self._claim_config(claim, number)),
            node_selector=_node_selector(
                [candidate for _, candidate, _ in results], self._node.name, claim.name
            ),
        )

    def _class_config(self, number: int) -> Iterable[AllocatedConfiguration]:
        """Return the configurations of the classes; each class brings its own once.

        In v1.34 a class brings it once for every request, for all of them.
        """
        wants = [
            wanted[index]
            for index, wanted in zip(self._picked[number], self._wants[number], strict=True)
        ]
        if not self._rules.config_names_requests:
            for want in wants:
                for opaque in want.cls.config:
                    yield AllocatedConfiguration(source="FromClass", opaque=opaque)
            return
        names: dict[str, list[str]] = {}
        for want in wants:
            names.setdefault(want.cls.name, []).append(want.name)
        for name, requests in names.items():
            for opaque in self._classes[name].config:
                yield AllocatedConfiguration(
                    source="FromClass", requests=tuple(requests), opaque=opaque
                )

    def _claim_config(self, claim: ResourceClaim, number: int) -> Iterable[AllocatedConfiguration]:
        """Return the claim's configurations, each once for every request that it names."""
        for config in claim.spec.config:
            added = AllocatedConfiguration(
                source="FromClaim", requests=config.requests, opaque=config.opaque
            )
            if not config.requests:
                yield added
                continue
            for request, index in zip(claim.spec.requests, self._picked[number], strict=True):
                names = {request.name}
                if request.first_available:
                    names.add(f"{request.name}/{request.first_available[index].name}")
                if not names.isdisjoint(config.requests):
                    yield added


def _is_kept_off(detail: RequestDetail, device: Device) -> bool:
    return any(
        taint.effect in _PREVENTING
        and not any(toleration.tolerates(taint) for toleration in detail.tolerations)
        for taint in device.taints
    )


def _node_selector(
    candidates: Sequence[_Candidate], node_name: str, claim_name: str
) -> NodeSelector | None:
    """Return which nodes reach the devices, None for all. Source: createNodeSelector."""
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    for candidate in candidates:
        slice_, device = candidate.slice, candidate.device
        nodes = device.nodes if slice_.per_device else slice_.nodes
        if nodes.node_name or device.binds_to_node:
            only = Requirement(key="metadata.name", operator=Operator.IN, values=(node_name,))
            return NodeSelector(terms=(NodeSelectorTerm(match_fields=(only,)),))
        if nodes.selector is None or not nodes.selector.terms:
            continue
        if len(nodes.selector.terms) > 1:
            count = len(nodes.selector.terms)
            raise AllocationError(
                f"create NodeSelector for claim {claim_name}: unsupported "
                f"ResourceSlice.NodeSelector with {count} terms"
            )
        term = nodes.selector.terms[0]
        _add_new(term.match_fields, fields)
        _add_new(term.match_expressions, expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(terms=(term,))


def _add_new(requirements: Iterable[Requirement], held: list[Requirement]) -> None:
    for requirement in requirements:
        values = frozenset(requirement.values)
        if not any(
            other.key == requirement.key
            and other.operator is requirement.operator
            and frozenset(other.values) == values
            for other in held
        ):
            held.append(requirement)
