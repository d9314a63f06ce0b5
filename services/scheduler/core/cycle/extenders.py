"""The extenders of a session: the interface of one, and how they are called one after the other.

The core calls extenders through the Protocol below and does not know their transport. A call that
fails or exceeds its timeout returns an ExtenderError: nothing here raises. What a failure means
depends on the call: a missing score is ignored; elsewhere the failure of an ignorable extender is
ignored, and any other ends the cycle. An ignored failure becomes a warning of the decision.

A cycle (`attempt.py`) calls them in five places: for the pod's nominated node alone (filter), for
the nodes that passed the filters (filter), for the scores of those that are left (prioritize), for
the candidates of a preemption (process preemption; DefaultPreemption receives a function for it),
and for the binding of an assumed pod (bind).

Source: kubernetes v1.34 pkg/scheduler/extender.go; staging/src/k8s.io/kube-scheduler/extender/v1;
pkg/scheduler/schedule_one.go, findNodesThatPassExtenders, prioritizeNodes, extendersBinding;
pkg/scheduler/framework/preemption/preemption.go, callExtenders; pkg/scheduler/scheduler.go,
buildExtenders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from services.framework.columns.columns import Bools, Int64s
from services.framework.columns.kernels import NO_GROUP, OVERRIDDEN, Int8s
from services.framework.preemption.candidates import Candidate
from services.framework.preemption.outcome import ExtenderError
from services.framework.runtime.diagnosis import Diagnosis, PreFilterOutcome, StatusCount
from services.framework.runtime.verdicts import EQUAL_SCORE
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import SUCCESS, Code, Status
from services.kube.node import Node
from services.kube.pod import Container, Pod
from services.scheduler.core.cycle.host_choice import NormalizedTotals

EXTENDER_PLUGIN = "Extender"
"""The name of all extenders among the plugins that refused a pod.

No queueing hint has that name, so any event moves the pod, as upstream.
Source: kubernetes v1.34 pkg/scheduler/framework/types.go, ExtenderName.
"""

SCORE_SCALE = 10
"""What an extender's score is multiplied by, beside its weight: 100 over its highest, 10.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, prioritizeNodes.
"""

_ABSENT = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""The status of a node that was not evaluated: unresolvable, without a reason."""

_INT64_SPAN = 2**64
_INT64_LEAST = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderTerms:
    """The configuration of an extender, as the cycle uses it.

    `name` is where it is found. weight: of its scores. ignorable: whether its failures are passed
    over. managed_resources: it is called only for pods that request one of these; empty: for all.
    The flags say which calls it serves.
    """

    name: str
    filters: bool = False
    prioritizes: bool = False
    preempts: bool = False
    binds: bool = False
    weight: int = 1
    ignorable: bool = False
    managed_resources: frozenset[str] = frozenset()

    def is_interested(self, pod: Pod) -> bool:
        """Return whether the extender is called for `pod`."""
        if not self.managed_resources:
            return True
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        return any(
            not self.managed_resources.isdisjoint(_named(container)) for container in containers
        )


def _named(container: Container) -> tuple[str, ...]:
    return (*container.requests, *container.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterAnswer:
    """A filter response: the nodes that pass, and the reasons for others, by node name.

    Some nodes may have neither; the reasons may name nodes that it was not sent.
    """

    passed: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVictims:
    """A node that an extender leaves as a candidate: its victims' UIDs, and violated budgets."""

    node_name: str
    pod_uids: tuple[str, ...]
    budget_violations: int


class Extender(Protocol):
    """An extender as the core calls it; each call blocks until its response or its timeout."""

    @property
    def terms(self) -> ExtenderTerms:
        """Return the configuration of the extender."""

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer | ExtenderError:
        """Return which of `nodes` pass; `passed` has no other node."""

    def prioritize(
        self, pod: Pod, nodes: Sequence[Node]
    ) -> Sequence[tuple[str, int]] | ExtenderError:
        """Return scores by node name, 0 to 10 if the extender keeps to its contract."""

    def process_preemption(
        self, pod: Pod, candidates: Sequence[Candidate]
    ) -> Sequence[NodeVictims] | ExtenderError:
        """Return the candidates that remain."""

    def bind(self, pod: Pod, node_name: str) -> ExtenderError | None:
        """Bind the pod; None on success."""


def as_int64(score: int) -> int:
    """Return a score wrapped to the 64 bits that upstream holds it in."""
    return (score - _INT64_LEAST) % _INT64_SPAN + _INT64_LEAST


_WARNINGS_MAX = 20
_UNKNOWN_NODES_MAX = 100
_TEXT_MAX = 512
"""Limits to what is kept of an extender's response, so that it fits into our messages."""


class Extenders:
    """All extenders of a session that has some; `snapshot` has the pods of nodes.

    They are called in their order, the ignorable ones last.
    """

    def __init__(self, extenders: Iterable[Extender], snapshot: Snapshot) -> None:
        all_extenders = tuple(extenders)
        self._snapshot = snapshot
        self._extenders = (
            *(extender for extender in all_extenders if not extender.terms.ignorable),
            *(extender for extender in all_extenders if extender.terms.ignorable),
        )
        self._warnings: list[str] = []

    @property
    def any_filters_or_scores(self) -> bool:
        """Return whether any of them filters or scores."""
        return any(
            extender.terms.filters or extender.terms.prioritizes for extender in self._extenders
        )

    @property
    def any_preempts(self) -> bool:
        """Return whether any of them narrows the candidates of a preemption."""
        return any(extender.terms.preempts for extender in self._extenders)

    def filters_or_scores(self, pod: Pod) -> bool:
        """Return whether any of them filters or scores nodes for `pod`."""
        all_terms = (extender.terms for extender in self._extenders)
        return any(
            (terms.filters or terms.prioritizes) and terms.is_interested(pod) for terms in all_terms
        )

    def take_warnings(self) -> tuple[str, ...]:
        """Return the failures that were ignored since the last call."""
        taken, self._warnings = tuple(self._warnings), []
        return taken

    def warn(self, error: ExtenderError) -> None:
        """Keep an ignored failure as a warning."""
        if len(self._warnings) < _WARNINGS_MAX:
            self._warnings.append(_cut(error.message))

    def send(self, pod: Pod, sample: Int8s) -> SentNodes | ExtenderError:
        """Call Filter with the nodes of a cycle that passed the filters.

        sample: int8[nodes], 0 for the nodes to send. Where several extenders return a status of one
        node, the last one counts.
        """
        listed = self._snapshot.rows_in_order()
        rows: list[int] = listed[sample[listed] == 0].tolist()
        sent = [self._snapshot.node(row) for row in rows]
        passed = self._filter(pod, sent)
        if isinstance(passed, ExtenderError):
            return passed
        return SentNodes(self, self._snapshot, pod, sample, rows, *passed)

    def _filter(
        self, pod: Pod, nodes: Sequence[Node]
    ) -> tuple[Sequence[Node], dict[str, Status]] | ExtenderError:
        """Return the nodes that pass all extenders, in the order sent, and others' statuses."""
        statuses: dict[str, Status] = {}
        remaining = tuple(nodes)
        for extender in self._extenders:
            if not remaining:
                break
            if not extender.terms.filters or not extender.terms.is_interested(pod):
                continue
            answer = extender.filter(pod, remaining)
            if isinstance(answer, ExtenderError):
                if not extender.terms.ignorable:
                    return ExtenderError(message=_cut(answer.message))
                self.warn(answer)
                continue
            statuses |= self._statuses(answer, extender.terms)
            names = frozenset(answer.passed)
            remaining = tuple(node for node in remaining if node.name in names)
        return remaining, statuses

    def refusals_of_row(self, pod: Pod, row: int) -> dict[int, Status] | None:
        """Return the refusal of one node, by row; None where it passes.

        A failure is kept as a warning, and the node counts as one that was not sent.
        """
        passed = self._filter(pod, [self._snapshot.node(row)])
        if isinstance(passed, ExtenderError):
            self.warn(passed)
            return {}
        nodes, statuses = passed
        return None if nodes else self.by_row(statuses)

    def by_row(self, statuses: Mapping[str, Status]) -> dict[int, Status]:
        """Return the statuses of the snapshot's nodes by row, without those of unknown nodes."""
        rows = ((self._snapshot.row(name), status) for name, status in statuses.items())
        return {row: status for row, status in rows if row is not None}

    def scores(self, pod: Pod, nodes: Sequence[Node]) -> dict[str, int]:
        """Return the extenders' weighted scores of nodes, by name; a failed one adds none."""
        total: dict[str, int] = {}
        for extender in self._extenders:
            terms = extender.terms
            if not terms.prioritizes or not terms.is_interested(pod):
                continue
            answer = extender.prioritize(pod, nodes)
            if isinstance(answer, ExtenderError):
                self.warn(answer)
                continue
            for name, score in answer:
                added = total.get(name, 0) + score * terms.weight * SCORE_SCALE
                total[name] = as_int64(added)
        return total

    def bind(self, pod: Pod, node_name: str) -> Status | None:
        """Bind by the extender that binds; None if none does."""
        for extender in self._extenders:
            if not extender.terms.binds or not extender.terms.is_interested(pod):
                continue
            error = extender.bind(pod, node_name)
            if error is None:
                return SUCCESS
            if not extender.terms.ignorable:
                reasons = (_cut(error.message),)
                return Status(code=Code.ERROR, plugin=EXTENDER_PLUGIN, reasons=reasons)
            self.warn(error)
        return None

    def narrowed(
        self, pod: Pod, candidates: tuple[Candidate, ...]
    ) -> tuple[Candidate, ...] | ExtenderError:
        """Return the candidates of a preemption that the extenders leave, in their order.

        A node that an extender adds comes last. Victims are in the extender's order.
        """
        remaining = candidates
        for extender in self._extenders:
            terms = extender.terms
            if not remaining:
                break
            if not terms.preempts or not terms.is_interested(pod):
                continue
            answer = extender.process_preemption(pod, remaining)
            kept = (
                answer
                if isinstance(answer, ExtenderError)
                else self._read(answer, remaining, terms)
            )
            if isinstance(kept, ExtenderError):
                if not terms.ignorable:
                    return ExtenderError(message=_cut(kept.message))
                self.warn(kept)
                continue
            remaining = kept
        return remaining

    def _statuses(self, answer: FilterAnswer, terms: ExtenderTerms) -> dict[str, Status]:
        """Return the statuses by name, of unknown nodes up to a limit.

        An unresolvable status takes precedence.
        """
        by_code = [
            (answer.failed, Code.UNSCHEDULABLE),
            (answer.unresolvable, Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
        ]
        statuses: dict[str, Status] = {}
        unknown = 0
        for reasons, code in by_code:
            for name, reason in sorted(reasons.items()):
                unknown += self._snapshot.row(name) is None
                if unknown <= _UNKNOWN_NODES_MAX or self._snapshot.row(name) is not None:
                    statuses[name] = Status(
                        code=code, plugin=EXTENDER_PLUGIN, reasons=(_cut(reason),)
                    )
        if unknown > _UNKNOWN_NODES_MAX:
            text = f'extender "{terms.name}" gives reasons for {unknown} nodes that are not known'
            self.warn(ExtenderError(message=text))
        return statuses

    def _read(
        self, answer: Sequence[NodeVictims], candidates: tuple[Candidate, ...], terms: ExtenderTerms
    ) -> tuple[Candidate, ...] | ExtenderError:
        sent = {candidate.node: candidate for candidate in candidates}
        kept: dict[str, Candidate] = {}
        for node_victims in sorted(answer, key=lambda entry: entry.node_name):
            if not node_victims.pod_uids:
                text = f'expected at least one victim pod on node "{node_victims.node_name}"'
                if not terms.ignorable:
                    return ExtenderError(message=text)
                self.warn(ExtenderError(message=f'extender "{terms.name}": {text}'))
                continue
            victims = self._victims(node_victims, terms)
            if isinstance(victims, ExtenderError):
                return victims
            before = sent.get(node_victims.node_name) or Candidate(
                node=node_victims.node_name, victims=()
            )
            gone = frozenset(node_victims.pod_uids)
            kept[node_victims.node_name] = replace(
                before,
                victims=victims,
                violating=tuple(pod for pod in before.violating if pod.uid in gone),
                stated_violations=node_victims.budget_violations,
            )
        order = [*(name for name in sent if name in kept), *(n for n in kept if n not in sent)]
        return tuple(kept[name] for name in order)

    def _victims(
        self, node_victims: NodeVictims, terms: ExtenderTerms
    ) -> tuple[Pod, ...] | ExtenderError:
        """Return the victims that an extender names: any pods of the node."""
        row = self._snapshot.row(node_victims.node_name)
        if row is None:
            claim = f'extender "{terms.name}" claims to preempt on node "{node_victims.node_name}"'
            return ExtenderError(message=f"{claim}, which is not known")
        here = {pod.uid: pod for pod in self._snapshot.pods_on(row)}
        for uid in node_victims.pod_uids:
            if uid not in here:
                text = (
                    f'extender "{terms.name}" claims to preempt pod (UID: {uid}) on node: '
                    f"{node_victims.node_name}, but the pod is not found on that node"
                )
                return ExtenderError(message=text)
        return tuple(here[uid] for uid in node_victims.pod_uids)


@dataclass(frozen=True, slots=True)
class ScoredByExtenders:
    """The totals of an equivalence class with the scores of extenders, int64[nodes]."""

    totals: NormalizedTotals
    added: Int64s

    def normalized_totals(self, refuser: Int8s) -> Int64s:
        """Return the totals, int64[nodes], of the rows that `refuser` spares."""
        return self.totals.normalized_totals(refuser) + self.added


class SentNodes:
    """The nodes of one cycle that were sent to its extenders, and the responses.

    Nodes are sent in the snapshot's order. An extender may refuse a node with a status, drop it
    without one, and give reasons for nodes that the snapshot does not have.

    sample: int8[nodes], 0 for the nodes sent, whose `rows` are in order. nodes: those that all
    extenders let pass. statuses: by node name.
    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, findNodesThatFitPod,
    findNodesThatPassExtenders, prioritizeNodes.
    """

    def __init__(
        self,
        extenders: Extenders,
        snapshot: Snapshot,
        pod: Pod,
        sample: Int8s,
        rows: Sequence[int],
        nodes: Sequence[Node],
        statuses: Mapping[str, Status],
    ) -> None:
        self._extenders = extenders
        self._snapshot = snapshot
        self._pod = pod
        self.sample = sample
        self.rows = rows
        self._nodes = nodes
        self._passed = frozenset(node.name for node in nodes)
        self._statuses = statuses
        self._scores: Mapping[str, int] | None = None

    @property
    def refuser(self) -> Int8s:
        """Return the sample with OVERRIDDEN where a node that was sent has not passed."""
        refuser = self.sample.copy()
        refuser[[*self.refusals(_ABSENT)]] = OVERRIDDEN
        return refuser

    def refusals(self, silent: Status) -> dict[int, Status]:
        """Return the statuses of sent nodes that have not passed, by row; `silent` without one."""
        names = ((row, self._snapshot.name(row)) for row in self.rows)
        return {
            row: self._statuses.get(name, silent) for row, name in names if name not in self._passed
        }

    @property
    def unanswered(self) -> int:
        """Return how many nodes were dropped without a status, which upstream does not count."""
        return sum(status is _ABSENT for status in self.refusals(_ABSENT).values())

    def prioritize(self) -> Mapping[str, int]:
        """Return extenders' scores of the nodes that passed, by name; a single node has none.

        They are called once.
        """
        if self._scores is None:
            several = len(self._nodes) > 1
            self._scores = self._extenders.scores(self._pod, self._nodes) if several else {}
        return self._scores

    def scored(self, totals: NormalizedTotals, *, any_plugin_scores: bool) -> ScoredByExtenders:
        """Return the totals with the scores of extenders.

        Where no plugin scores, nodes are worth 0, not the 1 that they are without extenders.
        """
        added: Int64s = np.zeros(len(self.sample), dtype=np.int64)
        if not any_plugin_scores:
            added -= EQUAL_SCORE
        scores = self.prioritize()
        for row in self.rows:
            added[row] += scores.get(self._snapshot.name(row), 0)
        return ScoredByExtenders(totals, added)

    def diagnosis(self, by_filters: Diagnosis, pre_filter: PreFilterOutcome) -> Diagnosis:
        """Return why no node is left, beside the nodes that filters refused."""
        snapshot = self._snapshot
        return _with_extenders(
            by_filters,
            by_row=self._extenders.by_row(self._statuses),
            unknown_nodes=[
                status for name, status in self._statuses.items() if snapshot.row(name) is None
            ],
            any_sent=bool(self.rows),
            silent=pre_filter.excluded if pre_filter.node_names is not None else _ABSENT,
            alive=snapshot.columns.alive,
        )


def _with_extenders(
    diagnosis: Diagnosis,
    *,
    by_row: Mapping[int, Status],
    unknown_nodes: Sequence[Status],
    any_sent: bool,
    silent: Status,
    alive: Bools,
) -> Diagnosis:
    """Return `diagnosis` with the statuses that extenders gave, by row.

    An extender's status of a node replaces a filter's. It may drop a node without a status, which
    counts as a node that was never evaluated, and it may name nodes that are not in the snapshot,
    whose reasons are counted as well.
    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, findNodesThatFitPod,
    findNodesThatPassExtenders; pkg/scheduler/framework/types.go, NodeToStatus, FitError.Error.

    unknown_nodes: the statuses of names that are not in the snapshot. any_sent: whether any node
    was sent to extenders, of which none is left; a nominated node sent alone does not count.
    silent: the status of nodes without one. alive: bool[nodes].
    """
    group_of = diagnosis.group_of.copy()
    statuses = [group.status for group in diagnosis.groups]
    places: dict[Status, int] = {}

    def place(status: Status) -> int:
        if status not in places:
            places[status] = len(statuses)
            statuses.append(status)
        return places[status]

    for row, status in by_row.items():
        group_of[row] = place(status)
    without_status = alive & (group_of == NO_GROUP)
    if without_status.any():
        group_of[without_status] = place(silent)
    counts = np.bincount(group_of[group_of != NO_GROUP], minlength=len(statuses)).tolist()
    groups = [StatusCount(status, n) for status, n in zip(statuses, counts, strict=True)]
    plugins = {*diagnosis.unschedulable_plugins} - {EXTENDER_PLUGIN} | (
        {EXTENDER_PLUGIN} if any_sent else set()
    )
    return replace(
        diagnosis,
        groups=(*groups, *(StatusCount(status, 1) for status in unknown_nodes)),
        group_of=group_of,
        unschedulable_plugins=tuple(sorted(plugins)),
        key=None,
        _codes=None,
    )


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 4]} ..."
