"""NodeAffinity: required and preferred node labels, and spec.nodeSelector.

Where every required term names nodes by metadata.name, no other node is evaluated. A profile may
add an affinity to that of every pod.

Source: kubernetes v1.34 plugins/nodeaffinity/node_affinity.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from services.framework.columns.columns import Int64s
from services.framework.plugin import FilterPlugin, Normalization, PreFiltered, Scope, ScorePlugin
from services.framework.plugins.node_affinity.arguments import ARGUMENTS, NodeAffinityArgs
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.node import Node
from services.kube.pod import Pod, PreferredSchedulingTerm
from services.kube.selector import NodeSelector, NodeSelectorTerm, Operator

_NOTHING_ADDED = NodeAffinityArgs()
_POD, _ADDED = 1, 2
_OWN = "node(s) didn't match Pod's node affinity/selector"
_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
_CONFLICT = "pod affinity terms conflict"

RequiredAffinity = tuple[Mapping[str, str], NodeSelector | None]
PreferredAffinity = tuple[PreferredSchedulingTerm, ...]


class NodeAffinity(FilterPlugin[RequiredAffinity], ScorePlugin[PreferredAffinity]):
    """Filters by required terms, scores by the weights of preferred ones."""

    name = "NodeAffinity"
    arguments = ARGUMENTS
    scope = Scope.NODE
    normalization = Normalization.HIGHEST

    def __init__(self, args: NodeAffinityArgs = _NOTHING_ADDED) -> None:
        self._added_required = args.added_required
        self._added_preferred = args.added_preferred

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return nodeSelector and required terms, None without any."""
        labels, required = _required(pod)
        if not labels and required is None and self._added_required is None:
            return None
        return (tuple(sorted(labels.items())), required)

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[RequiredAffinity]:  # noqa: ARG002 - unused
        """Limit the nodes to those named in matchFields, if all terms name some."""
        data = _required(pod)
        names = _named_nodes(data[1])
        if names is not None and not names:
            return PreFiltered(data=data, refusal=self._refusal(_CONFLICT))
        return PreFiltered(data=data, node_names=names)

    def filter_node(self, data: RequiredAffinity, view: NodeView) -> int:
        """Refuse a node that does not match."""
        return self._code(data, view.node)

    def filter(
        self, data: RequiredAffinity, snapshot: Snapshot, rows: Int64s, codes: Int64s
    ) -> None:
        """Refuse the rows that do not match."""
        alive = snapshot.columns.alive
        for row in rows.tolist():
            codes[row] = self._code(data, snapshot.node(row)) if alive[row] else 0

    def filter_status(self, data: RequiredAffinity, code: int) -> Status:  # noqa: ARG002 - the code says it
        """Return the refusal, which names whose affinity the node does not match."""
        return self._refusal(_ENFORCED if code == _ADDED else _OWN)

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return the preferred terms, None where there are none."""
        return (*self._added_preferred, *_preferred(pod)) or None

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> PreferredAffinity:  # noqa: ARG002 - unused
        """Return the preferred terms."""
        return (*self._added_preferred, *_preferred(pod))

    def score(
        self, data: PreferredAffinity, snapshot: Snapshot, rows: Int64s, scores: Int64s
    ) -> None:
        """Add up the weights of the terms that match."""
        alive = snapshot.columns.alive
        for row in rows.tolist():
            scores[row] = _weight(data, snapshot.node(row)) if alive[row] else 0

    def _code(self, data: RequiredAffinity, node: Node) -> int:
        added = self._added_required
        if added is not None and not added.matches(node.labels, node.name):
            return _ADDED
        labels, required = data
        return 0 if node.matches(labels.items(), required) else _POD

    def _refusal(self, reason: str) -> Status:
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code, plugin=self.name, reasons=(reason,))


def _required(pod: Pod) -> RequiredAffinity:
    affinity = pod.spec.node_affinity
    return (pod.spec.node_selector, affinity.required if affinity is not None else None)


def _preferred(pod: Pod) -> PreferredAffinity:
    affinity = pod.spec.node_affinity
    return affinity.preferred if affinity is not None else ()


def _named_nodes(required: NodeSelector | None) -> frozenset[str] | None:
    if required is None or not required.terms:
        return None
    named: set[str] = set()
    for term in required.terms:
        names = _named_by(term)
        if names is None:
            return None
        named |= names
    return frozenset(named)


def _named_by(term: NodeSelectorTerm) -> set[str] | None:
    names: set[str] | None = None
    for field in term.match_fields:
        if field.key == "metadata.name" and field.operator is Operator.IN:
            values = set(field.values)
            names = values if names is None else names & values
    return names


def _weight(preferred: PreferredAffinity, node: Node) -> int:
    return sum(term.weight for term in preferred if term.term.matches(node.labels, node.name))
