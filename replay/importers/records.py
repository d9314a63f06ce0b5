"""Numbering records, and taking out what pods have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from reprieve.kube.v1alpha1.pod_pb2 import Pod
from reprieve.trace.v1alpha1.trace_pb2 import (
    Header,
    ImportIssue,
    PodCreate,
    PodLife,
    Record,
    Template,
)


class Numbering:
    """Makes records in order: each gets the next number, and no time before the last one's."""

    def __init__(self) -> None:
        self._sequence = 0
        self._at_ns = -(2**63)

    @property
    def at_ns(self) -> int:
        """Return the last record's time."""
        return self._at_ns

    @property
    def sequence(self) -> int:
        """Return the last record's number, 0 before the first."""
        return self._sequence

    def record(self, at_ns: int, **content: Any) -> Record:
        """Return the next record; `content` is one field of its oneof by name."""
        self._sequence += 1
        self._at_ns = max(self._at_ns, at_ns)
        return Record(at_ns=self._at_ns, sequence=self._sequence, **content)

    def header(self, header: Header) -> Record:
        """Return the header's record, at the trace's start."""
        header.format_version = 1
        return self.record(header.start_ns, header=header)

    def issues(self, issues: Iterable[ImportIssue]) -> Iterator[Record]:
        """Return a record for each issue, at the time of the last record."""
        for each in issues:
            yield self.record(self._at_ns, issue=each)


class Templates:
    """Takes out what pods share: their labels, annotations and spec (without nodeName).

    A shape becomes a template when it comes for the second time, so that pods of which each is
    different cost nothing; what is remembered of a shape is its digest.
    """

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._ids: dict[bytes, int] = {}
        self._count = 0

    def pod_create(self, at_ns: int, pod: Pod, life: PodLife | None = None) -> Iterator[Record]:
        """Yield the pod's record, preceded by its template's where that is new."""
        shape = _shape(pod)
        digest = blake2b(shape.SerializeToString(deterministic=True), digest_size=16).digest()
        template_id = self._ids.get(digest)
        if template_id is None:
            self._ids[digest] = 0
            yield self._numbering.record(at_ns, pod_create=PodCreate(pod=pod, life=life))
            return
        if template_id == 0:
            self._count += 1
            template_id = self._ids[digest] = self._count
            template = Template(id=template_id, pod=shape)
            yield self._numbering.record(at_ns, template=template)
        create = PodCreate(template_id=template_id, pod=_difference(pod), life=life)
        yield self._numbering.record(at_ns, pod_create=create)


def _shape(pod: Pod) -> Pod:
    shape = Pod(spec=pod.spec)
    shape.spec.ClearField("node_name")
    shape.metadata.labels.MergeFrom(pod.metadata.labels)
    shape.metadata.annotations.MergeFrom(pod.metadata.annotations)
    return shape


def _difference(pod: Pod) -> Pod:
    rest = Pod(metadata=pod.metadata)
    rest.metadata.ClearField("labels")
    rest.metadata.ClearField("annotations")
    if pod.spec.node_name:
        rest.spec.node_name = pod.spec.node_name
    if pod.HasField("status"):
        rest.status.CopyFrom(pod.status)
    return rest
