"""Selectors, pod affinity terms and topology spread constraints, and how they match.

A label selector is a conjunction of requirements; an absent one (None) matches nothing, an empty
one matches everything. A node selector is a disjunction of terms; an empty term matches nothing.

Source: kubernetes v1.34 apimachinery pkg/labels/selector.go, Requirement.Matches;
component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go; api/core/v1/types.go, PodAffinity,
PodAntiAffinity, TopologySpreadConstraint.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_Label = tuple[str, str | None]

_INT64 = re.compile(r"[+-]?[0-9]{1,4000}")  # int() accepts at most 4,300 digits
_INT64_LIMIT = 2**63


class Operator(Enum):
    """The operator by which a requirement compares a label with its values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One condition on the label `key`.

    `values` is empty for Exists and DoesNotExist, and has the text of one integer for Gt and Lt.
    """

    key: str = ""
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet the requirement; a missing key meets NotIn."""
        actual = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return actual is not None and actual in self.values
            case Operator.NOT_IN:
                return actual is None or actual not in self.values
            case Operator.EXISTS:
                return actual is not None
            case Operator.DOES_NOT_EXIST:
                return actual is None
            case Operator.GT | Operator.LT:
                return self._compares(actual)

    def _compares(self, actual: str | None) -> bool:
        if actual is None or len(self.values) != 1:
            return False
        number, bound = as_int64(actual), as_int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GT else number < bound


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """A conjunction of `requirements`; without requirements, it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)


class LabelSelectors(Generic[_K]):
    """Label selectors by key, indexed so that labels are compared only with possible matches.

    Each selector is indexed by labels of which a match must have one: all values of its first In
    requirement, or else a required label with any value. A selector without such labels is compared
    with all labels.
    """

    _filed: dict[_Label, dict[_K, LabelSelector]]
    _labels: dict[_K, tuple[_Label, ...]]
    _numbers: dict[_K, int]
    _next: int

    def __init__(self) -> None:
        self._filed = {}
        self._labels = {}
        self._numbers = {}
        self._next = 0

    def put(self, key: _K, selector: LabelSelector | None) -> None:
        """Add a selector, or replace it without changing its place; None matches nothing."""
        number = self._numbers.get(key)
        self.remove(key)
        if number is None:
            number = self._next
            self._next += 1
        self._numbers[key] = number
        if selector is None:
            return
        self._labels[key] = _needed(selector)
        for label in self._labels[key]:
            self._filed.setdefault(label, {})[key] = selector

    def remove(self, key: _K) -> None:
        """Forget a selector; an unknown one is accepted."""
        self._numbers.pop(key, None)
        for label in self._labels.pop(key, ()):
            del self._filed[label][key]
            if not self._filed[label]:
                del self._filed[label]

    def matching(self, labels: Mapping[str, str]) -> list[_K]:
        """Return the keys of the matching selectors, in the order in which they were added."""
        matching = [
            key
            for label in (_ANY, *_each(labels))
            for key, selector in self._filed.get(label, {}).items()
            if selector.matches(labels)
        ]
        return matching if len(matching) < 2 else sorted(matching, key=self._numbers.__getitem__)


_ANY: _Label = ("", None)


def _each(labels: Mapping[str, str]) -> Iterable[_Label]:
    for name, value in labels.items():
        yield name, value
        yield name, None


def _needed(selector: LabelSelector) -> tuple[_Label, ...]:
    """Return labels of which every match has at least one; a value of None means any value."""
    for requirement in selector.requirements:
        if requirement.operator is Operator.IN:
            return tuple((requirement.key, value) for value in dict.fromkeys(requirement.values))
    for requirement in selector.requirements:
        if requirement.operator not in (Operator.NOT_IN, Operator.DOES_NOT_EXIST):
            return ((requirement.key, None),)
    return (_ANY,)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTerm:
    """Conditions on a node's labels and, by `match_fields`, on its metadata.name."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        """Return whether a node meets every condition; a term without conditions matches none."""
        if not self.match_expressions and not self.match_fields:
            return False
        fields = {"metadata.name": node_name}
        return all(requirement.matches(labels) for requirement in self.match_expressions) and all(
            requirement.matches(fields) for requirement in self.match_fields
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelector:
    """A disjunction of `terms`; without terms, it matches nothing."""

    terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        """Return whether a node meets one of the terms."""
        return any(term.matches(labels, node_name) for term in self.terms)


def as_int64(text: str) -> int | None:
    """Parse a decimal int64; return None for any other text."""
    if not _INT64.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64_LIMIT <= number < _INT64_LIMIT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinityTerm:
    """A term that selects pods by label and namespace, for one topology key.

    `selector` None matches no pod. The term applies to `namespaces` and the namespaces that
    `namespace_selector` matches (None matches none, an empty one all); if both are absent, to the
    namespace of the term's pod. Selected pods must have the same values as the term's pod for the
    labels `match_label_keys`, and other values for `mismatch_label_keys`.
    """

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()

    def keyed(self, labels: Mapping[str, str]) -> PodAffinityTerm:
        """Return the term of a pod with `labels`, with its label keys merged into the selector.

        Merging a second time does not change the matches. Keys that the pod does not have are
        ignored, and an absent selector stays absent.
        Source: kubernetes v1.34 pkg/registry/core/pod/strategy.go,
        applyMatchLabelKeysAndMismatchLabelKeys (an API server does it on admission).
        """
        if self.selector is None or not (self.match_label_keys or self.mismatch_label_keys):
            return self
        added = [
            Requirement(key=key, operator=operator, values=(labels[key],))
            for keys, operator in (
                (self.match_label_keys, Operator.IN),
                (self.mismatch_label_keys, Operator.NOT_IN),
            )
            for key in keys
            if key in labels
        ]
        selector = LabelSelector(requirements=(*self.selector.requirements, *added))
        return replace(self, selector=selector, match_label_keys=(), mismatch_label_keys=())


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedPodAffinityTerm:
    """A preference with a `weight` from 1 to 100."""

    weight: int
    term: PodAffinityTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinity:
    """The terms of a pod's affinity, or of its anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[WeightedPodAffinityTerm, ...] = ()


class UnsatisfiableAction(Enum):
    """The effect of a spread constraint on a node that would violate it."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class NodeInclusionPolicy(Enum):
    """Whether a spread constraint counts nodes that the pod cannot use anyway."""

    HONOR = "Honor"
    IGNORE = "Ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpreadConstraint:
    """A bound on the difference between the pod counts of a domain and of the emptiest domain.

    `selector` selects the counted pods; None matches none. With fewer domains than `min_domains`,
    the smallest count is taken as 0. Counted pods must have the same values as the constraint's pod
    for the labels `match_label_keys`.
    """

    max_skew: int
    topology_key: str
    when_unsatisfiable: UnsatisfiableAction
    selector: LabelSelector | None = None
    min_domains: int = 1
    node_affinity_policy: NodeInclusionPolicy = NodeInclusionPolicy.HONOR
    node_taints_policy: NodeInclusionPolicy = NodeInclusionPolicy.IGNORE
    match_label_keys: tuple[str, ...] = ()

    def selector_for(self, labels: Mapping[str, str]) -> LabelSelector | None:
        """Return the selector for a pod with `labels`, with `match_label_keys` merged into it.

        Keys that the pod does not have are ignored.
        Source: kubernetes v1.34 plugins/podtopologyspread/common.go, mergeLabelSetWithSelector.
        """
        shared = tuple(
            Requirement(key=key, operator=Operator.IN, values=(labels[key],))
            for key in sorted(set(self.match_label_keys))
            if key in labels
        )
        if not shared:
            return self.selector
        requirements = () if self.selector is None else self.selector.requirements
        return LabelSelector(requirements=(*shared, *requirements))
