"""The extenders of a session: what one is, and how they are called one after the other.

A core asks extenders through the Protocol below and knows nothing of how they are reached. A call
that fails, or takes longer than it may, returns an ExtenderError: nothing here raises.

Source: kubernetes v1.34 pkg/scheduler/extender.go; staging/src/k8s.io/kube-scheduler/extender/v1.

The extenders of a session, asked one after the other.

What a failure means depends on the call: a score that is missing is passed over; elsewhere the
failure of an ignorable extender is, and any other ends the cycle. What is passed over is kept as
a warning until the decision that it belongs to takes it along.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, findNodesThatPassExtenders,
prioritizeNodes, extendersBinding; pkg/scheduler/framework/preemption/preemption.go, callExtenders;
pkg/scheduler/scheduler.go, buildExtenders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from services.kube.node import Node
from services.kube.pod import Container, Pod
from services.scheduler.core.preemption.preemptor import ExtenderError
from services.scheduler.core.preemption.victims import Candidate
from services.scheduler.core.snapshot.snapshot import Snapshot
from services.scheduler.core.status import Code, Status

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


_WARNINGS_MAX = 20
_STRANGERS_MAX = 100
_TEXT_MAX = 512
"""What is kept of what an extender says, so that no answer of its outgrows a message of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """The nodes that all extenders let pass, in the order asked, and what was said of others."""

    nodes: tuple[Node, ...]
    statuses: Mapping[str, Status]


class Extenders:
    """All extenders of a session, the ignorable ones last; `snapshot` has the pods of nodes."""

    def __init__(self, extenders: Iterable[Extender], snapshot: Snapshot) -> None:
        given = tuple(extenders)
        self._snapshot = snapshot
        self._extenders = (
            *(each for each in given if not each.terms.ignorable),
            *(each for each in given if each.terms.ignorable),
        )
        self._warnings: list[str] = []

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self._extenders)

    @property
    def look_at_nodes(self) -> bool:
        """Tell whether any of them filters or scores."""
        return any(each.terms.filters or each.terms.prioritizes for each in self._extenders)

    @property
    def narrow_preemption(self) -> bool:
        """Tell whether any of them narrows the candidates of a preemption."""
        return any(each.terms.preempts for each in self._extenders)

    def judge(self, pod: Pod) -> bool:
        """Tell whether any of them filters or scores nodes for `pod`."""
        terms = (each.terms for each in self._extenders)
        return any((e.filters or e.prioritizes) and e.is_interested(pod) for e in terms)

    def take_warnings(self) -> tuple[str, ...]:
        """Return what was passed over since this was last asked."""
        taken, self._warnings = tuple(self._warnings), []
        return taken

    def note(self, error: ExtenderError) -> None:
        """Keep a failure that is passed over."""
        if len(self._warnings) < _WARNINGS_MAX:
            self._warnings.append(_cut(error.message))

    def passed(self, pod: Pod, nodes: Sequence[Node]) -> Passed | ExtenderError:
        """Return which of `nodes`, in their order, all extenders let pass.

        Of a later extender's word about a node, the last counts.
        """
        statuses: dict[str, Status] = {}
        left = tuple(nodes)
        for extender in self._extenders:
            if not left:
                break
            if not extender.terms.filters or not extender.terms.is_interested(pod):
                continue
            answer = extender.filter(pod, left)
            if isinstance(answer, ExtenderError):
                if not extender.terms.ignorable:
                    return ExtenderError(message=_cut(answer.message))
                self.note(answer)
                continue
            statuses |= self._statuses(answer, extender.terms)
            names = frozenset(answer.passed)
            left = tuple(node for node in left if node.name in names)
        return Passed(nodes=left, statuses=statuses)

    def scores(self, pod: Pod, nodes: Sequence[Node]) -> dict[str, int]:
        """Return what the extenders add to the nodes' totals, by name; failures add nothing."""
        total: dict[str, int] = {}
        for extender in self._extenders:
            terms = extender.terms
            if not terms.prioritizes or not terms.is_interested(pod):
                continue
            answer = extender.prioritize(pod, nodes)
            if isinstance(answer, ExtenderError):
                self.note(answer)
                continue
            for name, score in answer:
                added = total.get(name, 0) + score * terms.weight * SCORE_SCALE
                total[name] = as_int64(added)
        return total

    def bind(self, pod: Pod, node_name: str) -> bool | ExtenderError:
        """Have the extender that binds do so; False where none of them does."""
        for extender in self._extenders:
            if not extender.terms.binds or not extender.terms.is_interested(pod):
                continue
            error = extender.bind(pod, node_name)
            if error is None:
                return True
            if not extender.terms.ignorable:
                return ExtenderError(message=_cut(error.message))
            self.note(error)
        return False

    def narrowed(
        self, pod: Pod, candidates: tuple[Candidate, ...]
    ) -> tuple[Candidate, ...] | ExtenderError:
        """Return the candidates of a preemption that the extenders leave, in their order.

        A node that an extender brings itself comes last. Victims stand in the extender's order.
        """
        left = candidates
        for extender in self._extenders:
            terms = extender.terms
            if not left:
                break
            if not terms.preempts or not terms.is_interested(pod):
                continue
            answer = extender.process_preemption(pod, left)
            found = answer if isinstance(answer, ExtenderError) else self._read(answer, left, terms)
            if isinstance(found, ExtenderError):
                if not terms.ignorable:
                    return ExtenderError(message=_cut(found.message))
                self.note(found)
                continue
            left = found
        return left

    def _statuses(self, answer: FilterAnswer, terms: ExtenderTerms) -> dict[str, Status]:
        """Return what is said of nodes, and of some that are none.

        What no deletion cures beats the other.
        """
        said = [
            (answer.failed, Code.UNSCHEDULABLE),
            (answer.unresolvable, Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
        ]
        found: dict[str, Status] = {}
        strangers = 0
        for reasons, code in said:
            for name, reason in sorted(reasons.items()):
                strangers += self._snapshot.row(name) is None
                if strangers <= _STRANGERS_MAX or self._snapshot.row(name) is not None:
                    found[name] = Status(code=code, plugin=PLUGIN, reasons=(_cut(reason),))
        if strangers > _STRANGERS_MAX:
            text = f'extender "{terms.name}" gives reasons for {strangers} nodes that are not known'
            self.note(ExtenderError(message=text))
        return found

    def _read(
        self, answer: Sequence[NodeVictims], asked: tuple[Candidate, ...], terms: ExtenderTerms
    ) -> tuple[Candidate, ...] | ExtenderError:
        known = {each.node: each for each in asked}
        found: dict[str, Candidate] = {}
        for said in sorted(answer, key=lambda each: each.node_name):
            if not said.pod_uids:
                text = f'expected at least one victim pod on node "{said.node_name}"'
                if not terms.ignorable:
                    return ExtenderError(message=text)
                self.note(ExtenderError(message=f'extender "{terms.name}": {text}'))
                continue
            victims = self._victims(said, terms)
            if isinstance(victims, ExtenderError):
                return victims
            before = known.get(said.node_name) or Candidate(node=said.node_name, victims=())
            gone = frozenset(said.pod_uids)
            found[said.node_name] = replace(
                before,
                victims=victims,
                violating=tuple(each for each in before.violating if each.uid in gone),
                stated_violations=said.budget_violations,
            )
        order = [*(name for name in known if name in found), *(n for n in found if n not in known)]
        return tuple(found[name] for name in order)

    def _victims(self, said: NodeVictims, terms: ExtenderTerms) -> tuple[Pod, ...] | ExtenderError:
        """Return the victims that an extender names: any pods of the node."""
        row = self._snapshot.row(said.node_name)
        if row is None:
            text = f'extender "{terms.name}" claims to preempt on node "{said.node_name}", which'
            return ExtenderError(message=f"{text} is not known")
        here = {pod.uid: pod for pod in self._snapshot.pods_on(row)}
        for uid in said.pod_uids:
            if uid not in here:
                text = (
                    f'extender "{terms.name}" claims to preempt pod (UID: {uid}) on node: '
                    f"{said.node_name}, but the pod is not found on that node"
                )
                return ExtenderError(message=text)
        return tuple(here[uid] for uid in said.pod_uids)


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 4]} ..."
