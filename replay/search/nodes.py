"""Questions about numbers of nodes: the pools of a trace, and whom too few nodes harm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from replay.overrides.inventory import TraceInventory
from replay.overrides.nodes import nodes_named
from replay.results.durations import simulated
from replay.results.run.directory import RunDirectory
from replay.search.answer import Answer, FoundBorder, reason
from replay.search.front import Point
from replay.search.knobs import Knob
from replay.whatif.facts import PodFacts, RunFacts, read_facts
from services.kube.time import SECOND_NS
from services.terminal import counted

NOBODY_WAITS = ("pending.change <= 0", "total_wait.change <= 0", "preempted.change <= 0")
"""No further pod is without a node at the end, waits until bindings add up to no more, and no
further pod is preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes that a label selector matches; "" for all. count: as the trace creates them.

    price: of a node for an hour.
    """

    selector: str
    count: int
    price: float = 1.0

    @property
    def named(self) -> str:
        """Return the pool as part of a sentence, such as " of pool=gpu"."""
        return f" of {self.selector}" if self.selector else ""

    @property
    def head(self) -> str:
        """Return what stands before an amount in --scale-nodes."""
        return f"{self.selector}:" if self.selector else ""

    def fewer(self, most: int) -> Knob:
        """Return the knob that removes 0 to `most` of its nodes."""
        return self._knob([f"-{number}" for number in range(most + 1)], most)

    def exactly(self, numbers: range) -> Knob:
        """Return the knob of its number of nodes."""
        return self._knob([f"={number}" for number in numbers])

    def _knob(self, amounts: Sequence[str], most: int | None = None) -> Knob:
        label = f"nodes{self.named}"
        return Knob(
            axis="scale-nodes",
            label=label if most is None else f"{label} that go",
            values=[self.head + amount for amount in amounts],
            shown=[amount.lstrip("=-") for amount in amounts],
        )


def pool_of(selector: str, option: str, inventory: TraceInventory, price: float = 1.0) -> Pool:
    """Return the pool of a selector. Raises NoEffectError where no node matches."""
    names = nodes_named(option, selector, inventory) if selector else list(inventory.nodes)
    return Pool(selector=selector, count=len(names), price=price)


def spare_sentences(answer: Answer, pool: Pool) -> Iterator[str]:
    """Yield which nodes can go, and whom one more harms."""
    if answer.border is None:
        last = answer.tried[-1]
        if not last.holds:
            yield f"No node{pool.named} can go: the checks fail with all of them{reason(last)}."
        else:
            yield f"{_can_go(last.removed, pool)}; no more were tried."
        return
    for border in answer.borders:
        harm = harmed(border)
        if border.holds.point > border.fails.point:
            number = border.fails.shown[0]
            yield f"Although {border.holds.shown[0]} can go, with {number} {harm}."
            continue
        yield f"{_can_go(border.holds.removed, pool)}; with {border.fails.shown[0]}, {harm}."
        if not border.is_adjacent:
            yield "Numbers between the two were not tried: the budget ended the search."


def _can_go(removed: Sequence[str], pool: Pool) -> str:
    if not removed:
        return f"No node{pool.named} can go"
    return f"{counted(len(removed), 'node')}{pool.named} can go: {', '.join(removed)}"


def harmed(border: FoundBorder) -> str:
    """Return whom the failing run of a border harms, as the end of a sentence.

    It is the pod that is left without a node, that waits longest, or that is preempted; otherwise
    the check that fails.
    """
    run_a, run_b = border.runs
    before, after = read_facts(RunDirectory.open(run_a)), read_facts(RunDirectory.open(run_b))
    failing = border.fails.failing
    for texts in (_without_node(before, after), _waiting(before, after), _preempted(before, after)):
        if texts:
            more = f" (and {counted(len(texts) - 1, 'more pod')})" if len(texts) > 1 else ""
            return texts[0] + more
    return "a check fails" if failing is None else f"{failing.assertion.text}: {failing.found}"


def _without_node(before: RunFacts, after: RunFacts) -> list[str]:
    waits = {
        key: after.end_ns - pod.pending_since_ns
        for key, pod in after.pods.items()
        if pod.pending
        and not pod.gated
        and (key not in before.pods or not before.pods[key].pending)
    }
    return [
        f"{key} waits for a node to the end, {simulated(wait_ns)}" if wait_ns else f"{key} waits"
        for key, wait_ns in _longest(waits)
    ]


def _waiting(before: RunFacts, after: RunFacts) -> list[str]:
    waits = {key: _waited_ns(pod) for key, pod in after.pods.items()}
    longer = {
        key: wait_ns
        for key, wait_ns in waits.items()
        if wait_ns - (_waited_ns(before.pods[key]) if key in before.pods else 0) > SECOND_NS
    }
    return [f"{key} waits {simulated(wait_ns)}" for key, wait_ns in _longest(longer)]


def _waited_ns(pod: PodFacts) -> int:
    return sum(pod.waited_ns)


def _longest(waits: dict[str, int]) -> Iterable[tuple[str, int]]:
    return sorted(waits.items(), key=lambda item: (-item[1], item[0]))


def _preempted(before: RunFacts, after: RunFacts) -> list[str]:
    def count(facts: RunFacts, key: str) -> int:
        return facts.pods[key].counts.decisions["preempted"] if key in facts.pods else 0

    return [f"{key} is preempted" for key in after.pods if count(after, key) > count(before, key)]


def price_of(pools: Sequence[Pool], numbers: Sequence[int]) -> float:
    """Return what numbers of nodes of some pools cost an hour."""
    return sum(pool.price * number for pool, number in zip(pools, numbers, strict=True))


def numbers_at(knobs: Sequence[Knob], point: Point) -> list[int]:
    """Return the numbers of nodes at a point of knobs made by Pool.exactly."""
    return [int(knob.shown[place]) for knob, place in zip(knobs, point, strict=True)]


def size_sentences(answer: Answer, pools: Sequence[Pool]) -> Iterator[str]:
    """Yield the cheapest numbers of nodes that hold, and whom one node fewer harms."""
    if answer.best is None:
        worst = min(answer.tried, key=lambda tried: sum(not check.holds for check in tried.checks))
        yield f"None of the numbers that were tried holds{reason(worst)}."
        return
    numbers = numbers_at(answer.knobs, answer.best.point)
    among = "all" if answer.is_exhaustive else "those that were tried"
    now = [pool.count for pool in pools]
    yield (
        f"The cheapest of {among}: {_nodes(pools, numbers)}, {price_of(pools, numbers):,.6g} an "
        f"hour; now {_nodes(pools, now)}, {price_of(pools, now):,.6g}."
    )
    for tried in answer.tried:
        steps = [b - a for a, b in zip(tried.point, answer.best.point, strict=True)]
        if not tried.holds and sorted(steps)[:-1] == [0] * (len(steps) - 1) and sum(steps) == 1:
            pool = pools[steps.index(1)]
            border = FoundBorder(holds=answer.best, fails=tried, is_adjacent=True)
            yield f"With one node{pool.named} fewer {harmed(border)}."


def _nodes(pools: Sequence[Pool], numbers: Sequence[int]) -> str:
    return ", ".join(
        counted(number, "node") + pool.named for pool, number in zip(pools, numbers, strict=True)
    )
