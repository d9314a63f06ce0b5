"""The log of usage beside the frames: every so often, what each node and pod uses.

Lines {"arrival": TIME, "nodes": {NAME: AMOUNTS}, "pods": {UID: AMOUNTS}}. A node's amounts are what
is used beside its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event

from replay.record.errors import RecordError
from replay.record.frames import LineFile, arrival
from replay.record.redact import Redactor
from replay.record.roster import Roster
from replay.record.usage import AMOUNTS, Amounts, NodeUsage, UsageSource, summed


class UsageLog:
    """Samples a source until `ending` is set; `run` is a thread's.

    `samples` counts those that told anything; `problem` is what went wrong last, "" for nothing.
    """

    def __init__(
        self,
        source: UsageSource,
        *,
        file: LineFile,
        roster: Roster,
        redactor: Redactor | None,
        ending: Event,
        now_ns: Callable[[], int],
        every_s: float,
    ) -> None:
        self.samples = 0
        self._asked: set[str] = set()
        self._told: set[str] = set()
        self.problem = ""
        self._source = source
        self._file = file
        self._roster = roster
        self._redactor = redactor
        self._ending = ending
        self._now_ns = now_ns
        self._every_s = every_s

    def run(self) -> None:
        """Sample at once and then every so often; what fails is tried again the next time."""
        while not self._ending.is_set():
            nodes = self._roster.nodes()
            if nodes:
                self._sample(nodes)
            # Until the nodes are known there is nobody to ask.
            self._ending.wait(self._every_s if nodes else min(0.1, self._every_s))

    def silent(self) -> list[str]:
        """Return the nodes of which nothing was ever told."""
        return sorted(self._asked - self._told)

    def _sample(self, nodes: Sequence[str]) -> None:
        self._asked.update(nodes)
        try:
            found = self._source.sample(nodes)
            line = self._line(found)
            self._told.update(each.node for each in found if each.whole)
            if line["nodes"] or line["pods"]:
                self._file.write({"arrival": arrival(self._now_ns()), **line})
                self.samples += 1
            self.problem = ""
        except (RecordError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            # What a source answers is not ours to trust, and no reason to end a recording.
            self.problem = f"usage ({self._source.name}): {error}"

    def _line(self, found: Sequence[NodeUsage]) -> dict[str, dict[str, dict[str, int]]]:
        pods: dict[str, dict[str, int]] = {}
        by_node: dict[str, list[Amounts]] = {}
        for each in found:
            for (namespace, name), amounts in each.pods.items():
                pod = self._roster.pod(namespace, name)
                if pod is None:
                    continue
                pods[self._shown(pod.uid)] = amounts.told()
                by_node.setdefault(each.node or pod.node, []).append(amounts)
        nodes = {
            self._shown(each.node): beside(each.whole, summed(by_node.get(each.node, ())))
            for each in found
            if each.node and each.whole
        }
        return {"nodes": nodes, "pods": pods}

    def _shown(self, text: str) -> str:
        return self._redactor.text(text) if self._redactor else text


def beside(whole: Amounts, pods: Amounts) -> dict[str, int]:
    """Return what is used beside the pods: never less than nothing."""
    told: Mapping[str, int] = pods.told()
    return {
        name: max(0, value - told.get(name, 0))
        for name, value in whole.told().items()
        if name in AMOUNTS
    }
