"""Diagnoses why a pod fits on no node, as columns and as kube-scheduler's message.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, Diagnosis and FitError.Error.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from services.framework.columns.columns import Bools, Int64s
from services.framework.columns.kernels import NO_GROUP, Int8s, Int32s
from services.framework.plugin import PreFiltered
from services.framework.preemption.outcome import CannotHelp, Nomination
from services.framework.status import Code, Status
from services.kube.devices import FreedClaims
from services.kube.value import value

NO_NODES_TEXT = "no nodes available to schedule pods"
"""The message where the snapshot has no node; upstream's ErrNoNodesAvailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreFilterOutcome:
    """The merged result of PreFilter: a `refusal` of the pod, or the only `node_names` to evaluate.

    Without either, all nodes are evaluated. `plugins` are those that named the nodes.
    """

    refusal: Status | None = None
    node_names: frozenset[str] | None = None
    plugins: tuple[str, ...] = ()

    @property
    def excluded(self) -> Status:
        """Return the status of the nodes that are not evaluated, under the first plugin's name."""
        reason = f"node(s) didn't satisfy plugin(s) {_listed(self.plugins)}"
        first = self.plugins[0] if self.plugins else ""
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code, plugin=first, reasons=(reason,))


def pre_filter_outcome(answers: Iterable[tuple[str, PreFiltered[Any]]]) -> PreFilterOutcome:
    """Merge the plugins' PreFilter results, in their order.

    An unresolvable refusal ends PreFilter; after one that preemption may resolve, the other plugins
    still run. Disjoint sets of node names refuse the pod.
    """
    refusal: Status | None = None
    names: frozenset[str] | None = None
    plugins: list[str] = []
    for plugin, answer in answers:
        if answer.refusal is not None:
            refusal = answer.refusal
            if refusal.code is not Code.UNSCHEDULABLE:
                return PreFilterOutcome(refusal=refusal)
            continue
        if answer.node_names is not None:
            plugins.append(plugin)
            names = answer.node_names if names is None else names & answer.node_names
        if names is not None and not names:
            return PreFilterOutcome(refusal=_disagreement(plugins), plugins=tuple(sorted(plugins)))
    return PreFilterOutcome(refusal=refusal, node_names=names, plugins=tuple(sorted(plugins)))


def _disagreement(plugins: list[str]) -> Status:
    if len(plugins) == 1:
        reason = f"node(s) didn't satisfy plugin {plugins[0]}"
    else:
        reason = f"node(s) didn't satisfy plugin(s) {_listed(sorted(plugins))} simultaneously"
    return Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons=(reason,))


def _listed(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"


@dataclass(frozen=True, slots=True)
class StatusCount:
    """The number of nodes with one status."""

    status: Status
    count: int


@dataclass(slots=True, kw_only=True, eq=False)
class Diagnosis:
    """The refusals of one scheduling cycle; `groups` cover every node once.

    group_of: int32[nodes], the place in `groups` of each row's, NO_GROUP where the row is not
    a node. `pre_filter` is the refusal of the whole pod, where there was one; all nodes are in one
    group with it then. `unschedulable_plugins` are sorted. Diagnoses of one equivalence class are
    equal where their `key` is the same; it is None where they must be compared.
    """

    node_count: int
    groups: tuple[StatusCount, ...]
    group_of: Int32s
    unschedulable_plugins: tuple[str, ...]
    pending_plugins: tuple[str, ...] = ()
    pre_filter: Status | None = None
    key: Hashable = None
    _codes: Int8s | None = None

    def refused_with(self, code: Code, rows: Int64s) -> Bools:
        """Return which of `rows` were refused with `code`: bool[rows]."""
        if self._codes is None:
            codes = [group.status.code for group in self.groups]
            self._codes = np.array([*codes, NO_GROUP], dtype=np.int8)
        refused: Bools = self._codes[self.group_of[rows]] == int(code)
        return refused

    def status(self, row: int) -> Status:
        """Return the status of one row; it must be a node's."""
        return self.groups[int(self.group_of[row])].status

    def unschedulable(self, outcome: Nomination | CannotHelp | None) -> Unschedulable:
        """Return the refusal of the pod, with the outcome of PostFilter if it ran."""
        message = outcome.message if isinstance(outcome, CannotHelp) else ""
        reasons = reason_counts(self)
        nominated = "" if isinstance(outcome, CannotHelp) and outcome.clear_nomination else None
        return Unschedulable(
            message=fit_error_text(self, message, reasons),
            plugins=self.unschedulable_plugins,
            pending_plugins=self.pending_plugins,
            preemption_message=message,
            nominated_node_name=outcome.node if isinstance(outcome, Nomination) else nominated,
            nomination=outcome if isinstance(outcome, Nomination) else None,
            reasons=reasons,
            freed=None if outcome is None else outcome.freed,
        )


@value(kw_only=True)
class Unschedulable:
    """The pod is unschedulable: no node fits, or Reserve, Permit, PreBind or Bind refused it.

    `message` is kube-scheduler's. `nominated_node_name` is what to write to the status: "" clears
    it, None leaves it alone. `freed` are claims for devices that are given back. `reasons` are the
    plugins' reasons with their number of nodes, most frequent first.
    """

    message: str
    plugins: tuple[str, ...] = ()
    pending_plugins: tuple[str, ...] = ()
    preemption_message: str = ""
    nominated_node_name: str | None = None
    nomination: Nomination | None = None
    reasons: Sequence[tuple[str, int]] = ()
    freed: FreedClaims | None = None


def unschedulable_when_assumed(status: Status) -> Unschedulable:
    """Return the refusal of a pod by Reserve or Permit on the node chosen for it.

    That node alone is counted, as upstream does; it has no row in the diagnosis.
    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulingCycle.
    """
    diagnosis = Diagnosis(
        node_count=1,
        groups=(StatusCount(status, 1),),
        group_of=np.zeros(0, dtype=np.int32),
        unschedulable_plugins=plugins_named([status]),
        pending_plugins=plugins_named([status] if status.code is Code.PENDING else []),
    )
    return replace(diagnosis.unschedulable(None), nominated_node_name="")


def unschedulable_in_binding(status: Status) -> Unschedulable:
    """Return the refusal of a pod by PreBind or Bind, whose events it does not wait for."""
    reasons = tuple((reason, 1) for reason in status.reasons)
    return Unschedulable(message=status.message, nominated_node_name="", reasons=reasons)


def fit_error_text(
    diagnosis: Diagnosis, post_filter: str = "", reasons: Sequence[tuple[str, int]] | None = None
) -> str:
    """Return the event's message: "0/4 nodes are available: 3 Insufficient cpu, ...".

    `post_filter` is preemption's message, appended where it is not empty. `reasons` are the
    diagnosis' `reason_counts`, computed where they are None.
    """
    text = f"0/{diagnosis.node_count} nodes are available:"
    if diagnosis.pre_filter is not None and diagnosis.pre_filter.message:
        text += f" {diagnosis.pre_filter.message}."
    else:
        counts = reason_counts(diagnosis) if reasons is None else reasons
        counted = sorted(f"{count} {reason}" for reason, count in counts)
        if counted:
            text += f" {', '.join(counted)}."
    return f"{text} {post_filter}" if post_filter else text


def reason_counts(diagnosis: Diagnosis) -> tuple[tuple[str, int], ...]:
    """Return each reason with the number of nodes that it refuses, most frequent first.

    Equally frequent ones are sorted by their texts.
    """
    counts: dict[str, int] = {}
    for group in diagnosis.groups:
        for reason in group.status.reasons:
            counts[reason] = counts.get(reason, 0) + group.count
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def plugins_named(statuses: Iterable[Status]) -> tuple[str, ...]:
    """Return the plugins that statuses name, sorted."""
    return tuple(sorted({status.plugin for status in statuses if status.plugin}))
