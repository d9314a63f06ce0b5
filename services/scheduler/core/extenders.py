"""What an extender is: a service of somebody's own that has its say after the plugins.

A core asks extenders through the Protocol below and knows nothing of how they are reached. A call
that fails, or takes longer than it may, returns an ExtenderError: nothing here raises.

Source: kubernetes v1.34 pkg/scheduler/extender.go; staging/src/k8s.io/kube-scheduler/extender/v1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.kube.node import Node
from services.kube.pod import Container, Pod
from services.scheduler.core.preemption.preemptor import ExtenderError
from services.scheduler.core.preemption.victims import Candidate

PLUGIN = "Extender"
"""What stands for all extenders among the plugins that refused a pod.

A queue knows no hint of that name, so that any event moves the pod, as upstream has it.
Source: kubernetes v1.34 pkg/scheduler/framework/types.go, ExtenderName.
"""

SCORE_SCALE = 10
"""What an extender's score is multiplied by, beside its weight: 100 over its highest, 10.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, prioritizeNodes.
"""


_INT64_SPAN = 2**64
_INT64_LEAST = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderTerms:
    """What is agreed with an extender.

    `name` is where it is found. weight: of its scores. ignorable: whether its failures are passed
    over. managed_resources: it is asked about pods that want one of these alone; empty: about all.
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
        """Tell whether the extender has a say about `pod`."""
        if not self.managed_resources:
            return True
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        return any(not self.managed_resources.isdisjoint(_named(each)) for each in containers)


def _named(container: Container) -> tuple[str, ...]:
    return (*container.requests, *container.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterAnswer:
    """Which nodes an extender lets pass, and why it does not let others, by node name.

    It may be silent about some; it may name others than it was asked about in the reasons.
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
    """An extender as the core asks it; each call blocks until it is answered or out of time."""

    @property
    def terms(self) -> ExtenderTerms:
        """Return what is agreed with it."""

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer | ExtenderError:
        """Return which of `nodes` suit the pod; `passed` holds no other node."""

    def prioritize(
        self, pod: Pod, nodes: Sequence[Node]
    ) -> Sequence[tuple[str, int]] | ExtenderError:
        """Return scores by node name, 0 to 10 if the extender keeps to its contract."""

    def process_preemption(
        self, pod: Pod, candidates: Sequence[Candidate]
    ) -> Sequence[NodeVictims] | ExtenderError:
        """Return the candidates that it leaves."""

    def bind(self, pod: Pod, node_name: str) -> ExtenderError | None:
        """Bind the pod; None where that worked."""


def as_int64(score: int) -> int:
    """Return a score as upstream's 64 bits hold it, whatever an extender answers."""
    return (score - _INT64_LEAST) % _INT64_SPAN + _INT64_LEAST
