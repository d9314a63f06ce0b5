"""What goes on beside the operations of a test case: churn, and deletions at a rate.

Source: kubernetes v1.36 test/integration/scheduler_perf/executor.go, runChurnOp, runDeletePodsOp.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence

from replay.importers.perf.workload import Operation
from replay.trace.errors import TraceError
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef
from reprieve.trace.v1alpha1.trace_pb2 import Record

MILLISECOND_NS = 1_000_000
_DEFAULT_MS = 500
Tick = tuple[int, Iterator[Record]]
Create = Callable[[str, list[ObjectRef]], Iterator[Record]]
DeleteOne = Callable[[ObjectRef], Iterator[Record]]


class Background:
    """Activities, each a series of (when, what) in order of time."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Iterator[Record], Iterator[Tick]]] = []
        self._numbers = itertools.count()

    def begin(self, ticks: Iterator[Tick]) -> None:
        """Begin an activity."""
        if (tick := next(ticks, None)) is not None:
            heapq.heappush(self._due, (tick[0], next(self._numbers), tick[1], ticks))

    def next_before(self, end_ns: int) -> Tick | None:
        """Return what comes next until `end_ns`, and when; None where nothing does."""
        if not self._due or self._due[0][0] > end_ns:
            return None
        at_ns, _, records, ticks = heapq.heappop(self._due)
        self.begin(ticks)
        return at_ns, records


def churn(operation: Operation, start_ns: int, create: Create, delete: DeleteOne) -> Iterator[Tick]:
    """Yield the ticks of a churn; with mode "create" and no number it has no end.

    Raises TraceError for a mode that is none.
    """
    mode, number = operation.text("mode"), operation.number("number")
    templates = operation.texts("templatePaths")
    if mode not in {"create", "recreate"} or not templates or (mode == "recreate" and not number):
        problem = "churn: mode create or recreate, templatePaths, and a number for recreate"
        raise TraceError(operation.where, f"{problem} are wanted")
    interval_ns = (operation.number("intervalMilliseconds") or _DEFAULT_MS) * MILLISECOND_NS
    return _ticks(mode, number, templates, (start_ns, interval_ns), create, delete)


def _ticks(
    mode: str,
    number: int,
    templates: Sequence[str],
    times: tuple[int, int],
    create: Create,
    delete: DeleteOne,
) -> Iterator[Tick]:
    slots: dict[tuple[str, int], list[ObjectRef]] = {}

    def turn(slot: int) -> Iterator[Record]:
        for template in templates:
            made = slots.setdefault((template, slot), [])
            if made and mode == "recreate":
                yield from delete(made.pop())
            else:
                made.clear()
                yield from create(template, made)

    start_ns, interval_ns = times
    for count in itertools.count():
        if mode == "create" and number and count >= number:
            return
        slot = count % number if mode == "recreate" else 0
        yield start_ns + (count + 1) * interval_ns, turn(slot)


def deletions(
    refs: Sequence[ObjectRef], start_ns: int, interval_ns: int, delete: DeleteOne
) -> Iterator[Tick]:
    """Yield a tick for each deletion, the first after one interval."""
    for count, ref in enumerate(refs, 1):
        yield start_ns + count * interval_ns, delete(ref)
