"""Copies of pod templates for pods that an override changes.

Pods of one template can belong to several workloads. Changed pods get a changed copy of their
template; the other pods keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2


class TemplateCopies:
    """The templates of a trace that is read record by record, and the copies made so far.

    numbers: unused numbers of templates; all overrides of a trace share them.
    """

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._templates: dict[int, pod_pb2.Pod] = {}
        self._profiles: dict[int, int] = {}
        self._made: dict[tuple[int, Hashable], int] = {}

    def note(self, record: trace_pb2.Record) -> None:
        """Store a template, or the number of a template's usage profile; ignore other records."""
        match record.WhichOneof("record"):
            case "template":
                self._templates[record.template.id] = record.template.pod
            case "usage" if record.usage.template_id:
                self._profiles[record.usage.template_id] = record.usage.id

    def of(self, create: trace_pb2.PodCreate) -> pod_pb2.Pod | None:
        """Return the template of a pod; None if it has none."""
        return self._templates.get(create.template_id)

    def with_spec(
        self, record: trace_pb2.Record, key: Hashable, change: Callable[[pod_pb2.PodSpec], None]
    ) -> Iterator[trace_pb2.Record]:
        """Change the spec of a pod and yield its record, after a new copy of its template if any.

        Pods of one template and one `key` share a copy. The record belongs to the caller.
        """
        create = record.pod_create
        former, template = create.template_id, self.of(create)
        if template is None:
            change(create.pod.spec)
            yield record
            return
        made = self._made.get((former, key))
        if made is None:
            made = self._made[former, key] = next(self._numbers)
            copied = trace_pb2.Template(id=made, pod=template)
            change(copied.pod.spec)
            yield trace_pb2.Record(time_ns=record.time_ns, template=copied)
        create.template_id = made
        if not create.life.usage_id and former in self._profiles:
            create.life.usage_id = self._profiles[former]
        yield record
