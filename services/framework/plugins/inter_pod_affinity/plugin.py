"""InterPodAffinity: filters and scores by the affinity and anti-affinity between pods.

A pod is judged by its own terms and by the terms of assigned pods that match it. Pods that the same
terms match share their verdicts, whatever their labels are.

Source: kubernetes v1.34 plugins/interpodaffinity/plugin.go, filtering.go, scoring.go.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    ClusterFilterPlugin,
    ClusterScorePlugin,
    Normalization,
    Normalized,
    PreFiltered,
    Scope,
)
from services.framework.plugins.inter_pod_affinity.arguments import ARGUMENTS, InterPodAffinityArgs
from services.framework.plugins.inter_pod_affinity.counts import (
    NOT_NEAR,
    AffinityCounts,
    AffinityTrial,
    RequiredTerms,
)
from services.framework.plugins.inter_pod_affinity.scores import (
    AffinityScores,
    Preferences,
    stretched,
)
from services.framework.plugins.inter_pod_affinity.terms import (
    ClusterTerms,
    Terms,
    resolved,
    terms_of,
)
from services.framework.preemption.batch_dry_run import Bounds
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod, PodSpec

_DEFAULTS = InterPodAffinityArgs()
_MATCHES_MAX = 16_384
_COUNTED_MAX = 1024
_NO_TERMS = Terms(near=(), away=(), preferred=())
_REASONS = {
    NOT_NEAR: "node(s) didn't match pod affinity rules",
    2: "node(s) didn't match pod anti-affinity rules",
    3: "node(s) didn't satisfy existing pods anti-affinity rules",
}


class _TermMatches:
    """Pods of one namespace and labels (and of one spec, if it has terms): the terms they match."""

    __slots__ = ("counts", "kept_away", "met", "own", "scores", "tried_away", "tried_scored")

    def __init__(self, own: Terms) -> None:
        self.own = own
        self.kept_away: tuple[int, ...] = ()
        self.met: tuple[int, ...] = ()
        self.tried_away = self.tried_scored = 0
        self.counts: AffinityCounts | None = None
        self.scores: AffinityScores | None = None


class InterPodAffinity(ClusterFilterPlugin[AffinityCounts], ClusterScorePlugin[AffinityScores]):
    """Filters by required terms, scores by preferred ones and by others' required affinity.

    keeps_selectors: how namespaces are selected (`resolved`).
    """

    keeps_selectors: ClassVar[bool] = False
    name = "InterPodAffinity"
    arguments = ARGUMENTS
    scope = Scope.CLUSTER
    keys_follow_pod = True
    needs_pre_filter = True
    needs_pre_score = True
    normalization = Normalization.OWN

    def __init__(self, args: InterPodAffinityArgs = _DEFAULTS) -> None:
        self._args = args
        self._snapshot: Snapshot | None = None
        self._namespace_epoch = -1
        self._nomination_epoch = -1
        self._latest: tuple[Pod | None, _TermMatches]
        self._forget()

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the required terms that matter, None where no node can be refused by them."""
        if not snapshot.affine_pods and _is_plain(pod.spec):
            return None
        return self._counts(pod, snapshot)

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[AffinityCounts]:
        counts = self._counts(pod, snapshot)
        assert counts is not None, "a pod without terms that matter is skipped"
        return PreFiltered(data=counts)

    def filter_version(self, data: AffinityCounts, snapshot: Snapshot) -> Hashable:  # noqa: ARG002 - the data knows it
        return data.version()

    def filter(
        self,
        data: AffinityCounts,
        snapshot: Snapshot,  # noqa: ARG002 - the data knows it
        rows: Int64s,  # noqa: ARG002 - all rows
        codes: Int64s,
    ) -> None:
        data.write(codes)

    def trial(self, data: AffinityCounts, snapshot: Snapshot, row: int) -> AffinityTrial:  # noqa: ARG002 - the data knows it
        return AffinityTrial(data, row)

    def bounds(self, data: AffinityCounts, snapshot: Snapshot, rows: Int64s) -> Bounds:  # noqa: ARG002 - the data knows it
        """Return the bounds on the pods that must be near or away."""
        return data.bounds(rows)

    def filter_status(self, data: AffinityCounts, code: int) -> Status:  # noqa: ARG002 - three statuses only
        """Return the refusal; deleting pods cannot bring others near."""
        unresolvable = code == NOT_NEAR
        return Status(
            code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE,
            plugin=self.name,
            reasons=(_REASONS[code],),
        )

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the preferences that matter, None where no term matches anything."""
        if not snapshot.affine_pods and _is_plain(pod.spec):
            return None
        return self._scores(pod, snapshot)

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> AffinityScores:
        scores = self._scores(pod, snapshot)
        assert scores is not None, "a pod without preferences that matter is skipped"
        return scores

    def score_version(self, data: AffinityScores, snapshot: Snapshot) -> Hashable:  # noqa: ARG002 - the data knows it
        return data.version()

    def score(
        self,
        data: AffinityScores,
        snapshot: Snapshot,  # noqa: ARG002 - the data knows it
        rows: Int64s,  # noqa: ARG002 - all rows
        scores: Int64s,
    ) -> None:
        data.write(scores)

    def normalize(
        self,
        data: AffinityScores,  # noqa: ARG002 - the raw scores say all
        snapshot: Snapshot,  # noqa: ARG002 - as above
        rows: Int64s,
        raw: Int64s,
    ) -> Normalized:
        return stretched(rows, raw)

    def _counts(self, pod: Pod, snapshot: Snapshot) -> AffinityCounts | None:
        matches = self._matches(pod, snapshot)
        terms = self._cluster.away
        if matches.tried_away != len(terms.terms) or matches.counts is None:
            met = terms.met_by(pod, snapshot.catalog, matches.tried_away)
            matches.kept_away = (*matches.kept_away, *met)
            matches.tried_away = len(terms.terms)
            matches.counts = self._required(pod, snapshot, matches)
        return None if matches.counts.is_idle() else matches.counts

    def _scores(self, pod: Pod, snapshot: Snapshot) -> AffinityScores | None:
        matches = self._matches(pod, snapshot)
        if self._args.ignore_preferred_terms_of_existing_pods and not matches.own.preferred:
            return None
        terms = self._cluster.scored
        if matches.tried_scored != len(terms.terms) or matches.scores is None:
            met = terms.met_by(pod, snapshot.catalog, matches.tried_scored)
            matches.met = (*matches.met, *met)
            matches.tried_scored = len(terms.terms)
            matches.scores = self._preferences(snapshot, matches)
        return None if matches.scores.is_idle() else matches.scores

    def _matches(self, pod: Pod, snapshot: Snapshot) -> _TermMatches:
        self._follow(snapshot)
        if pod is self._latest[0]:
            return self._latest[1]
        affine = pod.spec.has_pod_affinity
        spec = pod.spec if affine else None
        key = (spec, pod.namespace, frozenset(pod.labels.items()))
        matches = self._all_matches.get(key)
        if matches is None:
            terms = _NO_TERMS
            if affine:
                stated = terms_of(pod.spec, pod.namespace, pod.labels)
                terms = resolved(stated, snapshot.catalog, keeps_selectors=self.keeps_selectors)
            matches = self._all_matches[key] = _TermMatches(terms)
        self._latest = (pod, matches)
        return matches

    def _follow(self, snapshot: Snapshot) -> None:
        """Read the new classes of pods, and drop cached values whose inputs have changed."""
        if self._snapshot is not snapshot:
            self._snapshot = snapshot
            self._cluster = ClusterTerms(snapshot.pod_classes)
            self._forget()
        if (
            self._namespace_epoch != snapshot.catalog.namespace_epoch
            or len(self._all_matches) >= _MATCHES_MAX
            or max(len(self._all_counts), len(self._all_scores)) >= _COUNTED_MAX
        ):
            self._namespace_epoch = snapshot.catalog.namespace_epoch
            self._forget()
        if self._nomination_epoch != snapshot.nominations.epoch:
            self._nomination_epoch = snapshot.nominations.epoch
            self._classify_nominated(snapshot)
        self._cluster.sync()

    def _classify_nominated(self, snapshot: Snapshot) -> None:
        """Give nominated pods a class, so that their terms are counted before a trial adds them."""
        for pod in snapshot.nominations.all():
            if pod.spec.has_pod_affinity:
                snapshot.pod_classes.class_of(pod)

    def _forget(self) -> None:
        self._all_matches: dict[
            tuple[PodSpec | None, str, frozenset[tuple[str, str]]], _TermMatches
        ] = {}
        self._latest = (None, _TermMatches(_NO_TERMS))
        self._all_counts: dict[RequiredTerms, AffinityCounts] = {}
        self._all_scores: dict[Preferences, AffinityScores] = {}

    def _required(self, pod: Pod, snapshot: Snapshot, matches: _TermMatches) -> AffinityCounts:
        terms = matches.own
        required = RequiredTerms(
            near=terms.near,
            away=terms.away,
            self_match=bool(terms.near)
            and all(term.matches(pod.namespace, pod.labels) for term in terms.near),
            kept_away=matches.kept_away,
        )
        counts = self._all_counts.get(required)
        if counts is None:
            counts = AffinityCounts(required, self._cluster, snapshot)
            self._all_counts[required] = counts
        return counts

    def _preferences(self, snapshot: Snapshot, matches: _TermMatches) -> AffinityScores:
        preferences = Preferences(
            own=matches.own.preferred,
            met=matches.met,
            hard_weight=self._args.hard_pod_affinity_weight,
        )
        scores = self._all_scores.get(preferences)
        if scores is None:
            scores = AffinityScores(preferences, self._cluster, snapshot)
            self._all_scores[preferences] = scores
        return scores


def _is_plain(spec: PodSpec) -> bool:
    return spec.pod_affinity is None and spec.pod_anti_affinity is None


class InterPodAffinityKeepingSelectors(InterPodAffinity):
    """InterPodAffinity of v1.36, as it is: see `resolved`.

    Source: kubernetes v1.36 plugins/interpodaffinity/plugin.go,
    mergeAffinityTermNamespacesIfNotEmpty.
    """

    keeps_selectors = True
