"""Decisions that wait for an answer, as rows: what the answer is taken by.

Steps and what an undo needs are left out, for between rounds nothing is undone any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from services.kube.pod import Pod
from services.scheduler.core.decisions import Binding, Decision, Refused, Verdict
from services.scheduler.core.preemption.outcome import Nominate
from services.scheduler.core.preemption.pick import DecidedBy
from services.scheduler.core.queue_steps import Head, PopId

Row = list[Any]
_BINDING, _REFUSED = "binding", "refused"
_POD_FIELDS = ("victims", "deletions", "violating", "cleared_nominations", "reprieved")


def to_row(
    decision: Decision,
    place: Callable[[Pod], int],
    places: Callable[[Sequence[Pod]], list[int]],
) -> Row:
    """Return the row of a decision; `place` and `places` number pods."""
    (uid, cycle), *times = decision.head
    verdict = decision.verdict
    pod = place(decision.bound_pod)
    match verdict:
        case Binding():
            said = [_BINDING, _binding_to_row(verdict)]
        case Refused():
            said = [_REFUSED, _refused_to_row(verdict, places)]
        case _:
            raise TypeError(f"{verdict!r} waits for no answer")
    return [uid, cycle, *times, pod, *said]


def from_row(row: Row, pods: Sequence[Pod]) -> Decision:
    """Return the decision of a row. Raises LookupError, TypeError or ValueError for a wrong one."""
    uid, cycle, attempts, first_enqueued_ns, queued_ns, pod, kind, said = row
    return Decision(
        head=Head(PopId(uid, cycle), attempts, first_enqueued_ns, queued_ns),
        pod=pods[pod],
        verdict=_verdict(kind, said, pods),
        steps=(),
    )


def _verdict(kind: str, said: Row, pods: Sequence[Pod]) -> Verdict:
    return _binding_from_row(said) if kind == _BINDING else _refused_from_row(said, pods)


def _binding_to_row(binding: Binding) -> Row:
    return [
        binding.node_name,
        binding.row,
        binding.evaluated,
        binding.feasible,
        binding.tied,
        binding.total,
    ]


def _binding_from_row(row: Row) -> Binding:
    node_name, at_row, evaluated, feasible, tied, total = row
    return Binding(
        node_name=node_name,
        row=at_row,
        evaluated=evaluated,
        feasible=feasible,
        tied=tied,
        total=total,
    )


def _refused_to_row(refused: Refused, places: Callable[[Sequence[Pod]], list[int]]) -> Row:
    nomination = refused.nomination
    return [
        refused.message,
        refused.plugins,
        refused.pending_plugins,
        refused.preemption_message,
        refused.nominated_node_name,
        refused.reasons,
        None if nomination is None else _nomination_to_plain(nomination, places),
    ]


def _refused_from_row(row: Row, pods: Sequence[Pod]) -> Refused:
    message, plugins, pending, preemption_message, node_name, reasons, nomination = row
    return Refused(
        message=message,
        plugins=tuple(plugins),
        pending_plugins=tuple(pending),
        preemption_message=preemption_message,
        nominated_node_name=node_name,
        nomination=None if nomination is None else _nomination_from_plain(nomination, pods),
        reasons=tuple((reason, nodes) for reason, nodes in reasons),
    )


def _nomination_to_plain(
    nomination: Nominate, places: Callable[[Sequence[Pod]], list[int]]
) -> dict[str, Any]:
    return {
        "node": nomination.node,
        "decided_by": nomination.decided_by.value,
        "ties": nomination.ties,
        "candidates": nomination.candidates,
        "clears_last": nomination.clears_last,
        **{name: places(getattr(nomination, name)) for name in _POD_FIELDS},
    }


def _nomination_from_plain(plain: dict[str, Any], pods: Sequence[Pod]) -> Nominate:
    named = {name: tuple(pods[place] for place in plain[name]) for name in _POD_FIELDS}
    return Nominate(
        node=plain["node"],
        decided_by=DecidedBy(plain["decided_by"]),
        ties=tuple(plain["ties"]),
        candidates=plain["candidates"],
        clears_last=plain["clears_last"],
        **named,
    )
