"""Adds records to a trace: after its header, or at given times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from reprieve.kube.v1beta1 import object_pb2
from reprieve.trace.v1beta1 import trace_pb2


def after_header(
    records: Iterable[trace_pb2.Record],
    objects: Sequence[object_pb2.KubernetesObject] = (),
    issues: Sequence[trace_pb2.ImportIssue] = (),
) -> Iterator[trace_pb2.Record]:
    """Yield the records, with objects and issues at the start of the trace, renumbered."""

    def added() -> Iterator[trace_pb2.Record]:
        for record in records:
            yield record
            if record.HasField("header"):
                for message in objects:
                    yield trace_pb2.Record(time_ns=record.time_ns, create=message)
                for issue in issues:
                    yield trace_pb2.Record(time_ns=record.time_ns, issue=issue)

    return renumbered(added())


def at_times(
    records: Iterable[trace_pb2.Record], added: Sequence[trace_pb2.Record]
) -> Iterator[trace_pb2.Record]:
    """Yield the records with `added` as the last ones at their times, renumbered."""

    def merged() -> Iterator[trace_pb2.Record]:
        waiting = sorted(added, key=lambda record: record.time_ns)
        for record in records:
            while waiting and waiting[0].time_ns < record.time_ns:
                yield waiting.pop(0)
            yield record
        yield from waiting

    return renumbered(merged())


def renumbered(records: Iterable[trace_pb2.Record]) -> Iterator[trace_pb2.Record]:
    """Yield the records numbered from 1; a record whose number changes is copied."""
    for sequence, record in enumerate(records, 1):
        if record.sequence == sequence:
            yield record
        else:
            kept = trace_pb2.Record()
            kept.CopyFrom(record)
            kept.sequence = sequence
            yield kept
