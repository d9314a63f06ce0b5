"""Records that come in any order of time, given back in order.

A trace must tell how long a pod runs when it creates it, which a source tells only when the pod has
ended. Drafts are therefore gathered and sorted, on disk beyond a number, so that memory stays
bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import TracebackType

from replay.identity import object_uid
from replay.importers.records import Numbering, Templates
from replay.importers.sorting import KEPT_MAX, Sorter
from reprieve.kube.v1alpha1.pod_pb2 import Pod
from reprieve.trace.v1alpha1.trace_pb2 import Record

_COPIES = struct.Struct("<i")


class Drafts:
    """Gathers records without numbers; a context, at whose end its files are gone."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._sorter = Sorter(kept_max)

    def __enter__(self) -> Drafts:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the files."""
        self._sorter.__exit__(kind, error, traceback)

    def add(
        self, record: Record, rank: int = 0, number: int | None = None, copies: int = 0
    ) -> None:
        """Take a record; of those of one time, lower ranks come first, then lower numbers.

        `number` None counts what is added. With `copies`, a pod stands for as many, which differ
        in their names: the pod's name and a number from 0.
        """
        data = _COPIES.pack(copies) + record.SerializeToString()
        self._sorter.add(record.at_ns, rank, data, number)

    def records(self, numbering: Numbering, templates: Templates) -> Iterator[Record]:
        """Yield the records in order and numbered; what pods have in common is taken out."""
        for data in self._sorter.sorted():
            (copies,) = _COPIES.unpack_from(data)
            record = Record.FromString(data[_COPIES.size :])
            if copies:
                for pod in _copied(record.pod_create.pod, copies):
                    yield from templates.pod_create(record.at_ns, pod, record.pod_create.life)
                continue
            kind = record.WhichOneof("record") or ""
            if kind == "pod_create":
                life = record.pod_create.life if record.pod_create.HasField("life") else None
                yield from templates.pod_create(record.at_ns, record.pod_create.pod, life)
            else:
                yield numbering.record(record.at_ns, **{kind: getattr(record, kind)})


def _copied(pod: Pod, copies: int) -> Iterator[Pod]:
    for index in range(copies):
        copy = Pod()
        copy.CopyFrom(pod)
        copy.metadata.name = f"{pod.metadata.name}-{index}"
        copy.metadata.uid = object_uid("Pod", copy.metadata.namespace, copy.metadata.name)
        yield copy
