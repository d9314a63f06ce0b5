"""Two schedulers that choose otherwise for one pod: what the rules of one say of both choices.

All decisions before are the same, so that both chose in the same cluster. The judge is the run
whose scheduler Reprieve can start again: it is sent the run up to there and evaluates every node,
and its verdicts name the plugin that refuses the rival's node, or scores it lower. The rival's
scheduler receives nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from replay.explain.explanation import PodExplanation, PreemptionReason
from reprieve.trace.v1beta1 import trace_pb2
from services.terminal import counted

_NAMED = 3
"""Victims that a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalChoice:
    """The two choices that the judge compares.

    judge, rival: the names of the runs, A and B. explained: the judge's attempt. decision: the
    rival's about the same pod at the same time.
    """

    judge: str
    rival: str
    explained: PodExplanation
    decision: trace_pb2.Decision

    def reasons(self) -> Iterator[str]:
        """Yield why the choices differ, as sentences."""
        observed, explained = self.decision.observed, self.explained
        if observed.HasField("nominated") and not observed.nominated.expected:
            yield from self._preemption()
        elif observed.HasField("scheduled"):
            yield from self._node(observed.scheduled.node_name)
        elif explained.decision == "scheduled":
            fitting = counted(explained.feasible_nodes, "node")
            message = observed.failed_scheduling.message.rstrip(".")
            attempt = f"{self.rival} found none" + (f": {message}" if message else "")
            yield f"{self._by_rules} {fitting} fit, also {explained.node}, and {attempt}."
        elif explained.preemption is not None and explained.preemption.picked:
            picked = explained.preemption.picked
            yield f"{self._by_rules} preemption makes room on {picked}; {self.rival} preempts none."

    @property
    def _by_rules(self) -> str:
        return f"By {self.judge}'s rules"

    def _node(self, node: str) -> Iterator[str]:
        """Yield what the verdicts say of the node to which the rival bound the pod."""
        explained = self.explained
        chosen = f"node {node}, which {self.rival} chose"
        refused = next((group for group in explained.refused if node in group.nodes), None)
        if refused is not None:
            reasons = "; ".join(refused.reasons)
            yield f"{self._by_rules} plugin {refused.plugin} refuses {chosen}: {reasons}."
            return
        totals = {candidate.name: candidate for candidate in explained.best}
        if node not in totals:
            yield f"{self.judge} has no {chosen}."
        elif explained.decision != "scheduled" or explained.node not in totals:
            message = f": {explained.message.rstrip('.')}" if explained.message else ""
            yield f"{self._by_rules} {chosen}, fits; {self.judge} did not bind the pod{message}."
        else:
            yield from self._scores(node)

    def _scores(self, node: str) -> Iterator[str]:
        chosen = self.explained.node
        nodes = {candidate.name: candidate for candidate in self.explained.best}
        mine, theirs = nodes[chosen], nodes[node]
        if mine.total == theirs.total:
            both = f"both nodes fit and score {mine.total:,}"
            yield f"{self._by_rules} {both}: {self.judge}'s tie-break chose {chosen}."
            return
        totals = f"{chosen} {mine.total:,} and {node} {theirs.total:,}"
        yield f"{self._by_rules} both nodes fit, and they score {totals}."
        leads = {
            plugin: score.weighted - theirs.scores[plugin].weighted
            for plugin, score in mine.scores.items()
            if plugin in theirs.scores
        }
        for plugin, lead in sorted(leads.items(), key=lambda pair: (-abs(pair[1]), pair[0])):
            if lead:
                compared = "higher" if lead > 0 else "lower"
                yield f"Plugin {plugin} scores {chosen} {abs(lead):,} {compared} than {node}."

    def _preemption(self) -> Iterator[str]:
        """Yield what the verdicts say of the node for which the rival nominated the pod."""
        nominated, reason = self.decision.observed.nominated, self.explained.preemption
        node = nominated.node_name
        chosen = f"node {node}, for which {self.rival} nominated the pod"
        if self.explained.decision == "scheduled":
            yield f"{self._by_rules} the pod fits on {self.explained.node} without preemption."
        elif reason is None or reason.disabled:
            yield f"{self.judge} does not preempt."
        elif reason.ineligible:
            yield f"{self._by_rules} the pod may not preempt: {reason.ineligible.rstrip('.')}."
        elif node not in {candidate.node for candidate in reason.candidates}:
            yield f"{self._by_rules} {chosen}, is not a candidate: {_why_not(reason, node)}."
        elif reason.picked != node:
            criterion = f" by {reason.decided_by}" if reason.decided_by else ""
            yield f"{self._by_rules} {reason.picked} is preferred to {node}{criterion}."
        else:
            victims = next(
                [victim.pod for victim in candidate.victims]
                for candidate in reason.candidates
                if candidate.node == node
            )
            theirs = [f"{victim.namespace}/{victim.name}" for victim in nominated.victims]
            yield f"{self._by_rules} the victims on {node} are {_listed(victims)}."
            yield f"{self.rival} preempts {_listed(theirs)}."


def _why_not(reason: PreemptionReason, node: str) -> str:
    for group in reason.no_candidates:
        if node in group.nodes:
            return "; ".join(group.reasons)
    return "it is not among the nodes where deleting pods could make room"


def _listed(pods: list[str]) -> str:
    more = f" and {len(pods) - _NAMED:,} more" if len(pods) > _NAMED else ""
    return (", ".join(pods[:_NAMED]) or "none") + more
