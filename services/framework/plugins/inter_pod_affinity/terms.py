"""Terms of pod affinity with their namespaces resolved, and the cluster's terms that match a pod.

Source: kubernetes v1.34 kube-scheduler/framework/types.go, AffinityTerm; pkg/scheduler/framework/
types.go, NewPodInfo; plugins/interpodaffinity/plugin.go, mergeAffinityTermNamespacesIfNotEmpty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from services.framework.snapshot.catalog import Catalog
from services.framework.snapshot.pod_classes import LabelPair, PodClass, PodClasses, label_pairs
from services.kube.pod import EMPTY, Pod, PodSpec
from services.kube.selector import LabelSelector, PodAffinity, PodAffinityTerm

_NO_AFFINITY = PodAffinity()


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Pods that `selector` picks (None picks none), in `namespaces` or those that are selected."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str] = EMPTY
    ) -> bool:
        """Return whether a pod of `namespace` with `labels` is one of those meant."""
        if namespace not in self.namespaces and (
            self.namespace_selector is None or not self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector is not None and self.selector.matches(labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedTerm:
    """A term that adds `weight` to the score where it matches; less than 0 for anti-affinity."""

    term: Term
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A pod's terms: what it requires near and away, and what it prefers."""

    near: tuple[Term, ...]
    away: tuple[Term, ...]
    preferred: tuple[WeightedTerm, ...]


def terms_of(spec: PodSpec, namespace: str, labels: Mapping[str, str]) -> Terms:
    """Return a pod's terms unresolved, with its own namespace where they name none."""
    near, away = spec.pod_affinity or _NO_AFFINITY, spec.pod_anti_affinity or _NO_AFFINITY
    return Terms(
        near=tuple(_term(term, namespace, labels) for term in near.required),
        away=tuple(_term(term, namespace, labels) for term in away.required),
        preferred=tuple(
            WeightedTerm(term=_term(stated.term, namespace, labels), weight=sign * stated.weight)
            for sign, preferred in ((1, near.preferred), (-1, away.preferred))
            for stated in preferred
        ),
    )


def resolved(terms: Terms, catalog: Catalog, *, keeps_selectors: bool) -> Terms:
    """Return an incoming pod's terms, the namespaces that they select by name.

    An empty namespace selector is kept: it means every namespace, even one without an object.
    Upstream does not drop the other selectors (kubernetes#141526), and reads them without labels of
    namespaces, so that one that an absent label meets matches every namespace. With
    `keeps_selectors` so it is here; else what is documented is served.
    """

    def of(term: Term) -> Term:
        return _resolved(term, catalog, keeps_selectors=keeps_selectors)

    return Terms(
        near=tuple(map(of, terms.near)),
        away=tuple(map(of, terms.away)),
        preferred=tuple(replace(weighted, term=of(weighted.term)) for weighted in terms.preferred),
    )


def _term(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> Term:
    in_own_namespace = not term.namespaces and term.namespace_selector is None
    return Term(
        topology_key=term.topology_key,
        selector=term.keyed(labels).selector,
        namespaces=frozenset([namespace] if in_own_namespace else term.namespaces),
        namespace_selector=term.namespace_selector,
    )


def _resolved(term: Term, catalog: Catalog, *, keeps_selectors: bool) -> Term:
    selector = term.namespace_selector
    if selector is None or not selector.requirements:
        return term
    if keeps_selectors and selector.matches(EMPTY):
        return replace(term, namespace_selector=LabelSelector())
    selected = [
        namespace.name
        for namespace in catalog.namespaces.values()
        if selector.matches(namespace.labels)
    ]
    return replace(term, namespaces=term.namespaces.union(selected), namespace_selector=None)


class TermIndex:
    """Terms by number, in the order in which they were met, and the classes of pods that have them.

    holders: the numbers of those classes, ascending, for each term.
    """

    __slots__ = ("_anywhere", "_by_label", "_numbers", "holders", "terms")

    def __init__(self) -> None:
        self._numbers: dict[Term, int] = {}
        self._by_label: dict[LabelPair, list[int]] = {}
        self._anywhere: list[int] = []
        self.terms: list[Term] = []
        self.holders: list[list[int]] = []

    def number(self, term: Term) -> int:
        """Return the number of a term, which may be new."""
        number = self._numbers.setdefault(term, len(self.terms))
        if number == len(self.terms):
            self.terms.append(term)
            self.holders.append([])
            pairs = label_pairs(term.selector)
            if pairs is None:
                self._anywhere.append(number)
            else:
                for pair in pairs:
                    self._by_label.setdefault(pair, []).append(number)
        return number

    def met_by(self, pod: Pod, catalog: Catalog, first: int) -> tuple[int, ...]:
        """Return the terms from number `first` on that a pod meets, by number."""
        labels = catalog.namespace_labels(pod.namespace)
        labelled = [self._by_label.get(pair, ()) for pair in pod.labels.items()]
        maybe = {number for numbers in (self._anywhere, *labelled) for number in numbers}
        return tuple(
            number
            for number in sorted(maybe)
            if number >= first and self.terms[number].matches(pod.namespace, pod.labels, labels)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedTerms:
    """A class of pods' terms by number: what it requires near and away, what it prefers.

    `away` are numbers among `ClusterTerms.away`, the others among `ClusterTerms.scored`.
    """

    near: tuple[int, ...]
    away: tuple[int, ...]
    preferred: tuple[tuple[int, int], ...]


class ClusterTerms:
    """The terms of the pods on nodes: those that keep others away, and those that score."""

    __slots__ = ("_classes", "_generation", "_of_class", "_seen", "away", "scored")

    def __init__(self, pod_classes: PodClasses) -> None:
        self._classes = pod_classes
        self._generation = -1
        self._seen = 0
        self._of_class: dict[PodClass, NumberedTerms] = {}
        self.away = TermIndex()
        self.scored = TermIndex()

    def sync(self) -> None:
        """Read the classes of pods that are new."""
        pod_classes = self._classes
        if self._generation != pod_classes.generation:
            self._generation, self._seen = pod_classes.generation, 0
            self._of_class.clear()
            for kind in (self.away, self.scored):
                kind.holders = [[] for _ in kind.terms]
        if self._seen == len(pod_classes.classes):
            return
        for number in range(self._seen, len(pod_classes.classes)):
            terms = self.of(pod_classes.classes[number])
            if terms is not None:
                self._hold(number, terms)
        self._seen = len(pod_classes.classes)

    def of(self, other: PodClass) -> NumberedTerms | None:
        """Return the terms of a class of pods, None where it has none."""
        if other.spec is None:
            return None
        numbered = self._of_class.get(other)
        if numbered is None:
            stated = terms_of(other.spec, other.namespace, other.labels)
            numbered = self._of_class[other] = NumberedTerms(
                near=tuple(self.scored.number(term) for term in stated.near),
                away=tuple(self.away.number(term) for term in stated.away),
                preferred=tuple(
                    (self.scored.number(weighted.term), weighted.weight)
                    for weighted in stated.preferred
                ),
            )
        return numbered

    def holding(self, kind: TermIndex, numbers: Iterable[int], first: int) -> Iterable[int]:
        """Return the classes from number `first` on that have one of the terms."""
        self.sync()
        classes: set[int] = set()
        for number in numbers:
            holders = kind.holders[number]
            classes.update(holders[bisect_left(holders, first) :])
        return sorted(classes)

    def _hold(self, number: int, terms: NumberedTerms) -> None:
        scored = dict.fromkeys((*terms.near, *(term for term, _ in terms.preferred)))
        for kind, held in ((self.away, dict.fromkeys(terms.away)), (self.scored, scored)):
            for term in held:
                kind.holders[term].append(number)
