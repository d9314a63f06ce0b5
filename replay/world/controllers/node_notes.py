"""Notes of a run about nodes with silent kubelets, and about nodes that do not exist.

Each is one sentence that names the first nodes, also where hundreds are meant.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, MutableMapping

from replay.world.kubelet.silence import Hold

_NAMED = 5
_NOT_READY = {
    Hold.ALL: (
        "node {} of the trace is not ready: its pods neither start nor end until it is",
        "nodes {} of the trace are not ready: their pods neither start nor end until they are",
    ),
    Hold.STARTS: (
        "the pod network of node {} of the trace is not ready: no pod starts there",
        "the pod networks of nodes {} of the trace are not ready: no pod starts there",
    ),
}
_STAYS = "ready, is deleted, or has the taint node.kubernetes.io/out-of-service"
_HELD = (
    f"pods terminate on node {{}}, whose kubelet does not act: they stay until it is {_STAYS}",
    "pods terminate on nodes {}, whose kubelets do not act: they stay until their node is "
    + _STAYS,
)
_MISSING = (
    "pods are on node {}, which is not in the trace: they run and stay as they are",
    "pods are on nodes {}, which are not in the trace: they run and stay as they are",
)


class NodeNotes:
    """Collects what is noted of nodes until the run ends.

    not_ready: nodes of the trace, by what their kubelets do not do. missing: nodes of pods that the
    trace does not have.
    """

    not_ready: dict[Hold, dict[str, None]]
    missing: dict[str, None]

    def __init__(self) -> None:
        self.not_ready = {hold: {} for hold in Hold}
        self.missing = {}

    def write(self, notes: MutableMapping[tuple[str, str], int], stuck: Mapping[str, int]) -> None:
        """Write the notes, with the number of nodes, or of pods that could not end.

        stuck: how many pods could not end, by node.
        """
        for hold, names in self.not_ready.items():
            _write(notes, "silent-node", _NOT_READY[hold], names, len(names))
        _write(notes, "silent-node", _HELD, stuck, sum(stuck.values()))
        _write(notes, "missing-node", _MISSING, self.missing, len(self.missing))


def _write(
    notes: MutableMapping[tuple[str, str], int],
    kind: str,
    texts: tuple[str, str],
    names: Collection[str],
    count: int,
) -> None:
    if names:
        notes[kind, texts[len(names) > 1].format(_listed(names))] = count


def _listed(names: Collection[str]) -> str:
    """Return "a", "a and b" or "a, b, c, d, e and 7 more"."""
    first = list(itertools.islice(names, _NAMED))
    more = len(names) - len(first)
    last = f"{more:,} more" if more else first.pop()
    return f"{', '.join(first)} and {last}" if first else last
