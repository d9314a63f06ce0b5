"""PreFilter's outcome for a pod: go on with all nodes, with some, or not at all.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go, RunPreFilterPlugins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from services.scheduler.core.plugin import PreFiltered
from services.scheduler.core.status import Code, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class PreFilterOutcome:
    """`refusal` of the whole pod, or the only `node_names` to look at, and who named them.

    Without either, all nodes are looked at.
    """

    refusal: Status | None = None
    node_names: frozenset[str] | None = None
    plugins: tuple[str, ...] = ()

    @property
    def excluded(self) -> Status:
        """Return the status of the nodes that are not looked at, under the first plugin's name."""
        reason = f"node(s) didn't satisfy plugin(s) {_listed(self.plugins)}"
        first = self.plugins[0] if self.plugins else ""
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code, plugin=first, reasons=(reason,))


def pre_filter_outcome(answers: Iterable[tuple[str, PreFiltered[Any]]]) -> PreFilterOutcome:
    """Join the plugins' answers, in their order.

    An unresolvable refusal ends PreFilter; after one that preemption may cure, the others are
    still asked. Node names that no two plugins agree on refuse the pod.
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
