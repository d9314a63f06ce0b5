"""Pods that are admitted before their time, so that rounds which create them can be foreseen.

Admission reads templates, priority classes, namespaces, runtime classes and limit ranges, which
only records of the trace change, and quotas, which every pod changes. Look-ahead stops at a record
of any such object and leaves out namespaces with a quota: so admission gives the same result now as
at the record's time.
"""

from __future__ import annotations

from replay.world.api.admission.chain import Admission
from replay.world.api.admission.refusal import AdmissionError
from replay.world.kubelet.pod_lifecycle import AdmittedPod, PodLifecycle
from replay.world.loop.inputs import RecordFeed, RequestedPod
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.errors import FieldError


class AdmittedAhead:
    """Admits the pods of coming records; the feed takes each in place of admitting it again."""

    def __init__(self, inputs: RecordFeed, lifecycle: PodLifecycle, admission: Admission) -> None:
        self._lifecycle = lifecycle
        self._admission = admission
        self._request = inputs.request
        # By the record's identity; the record is kept, so that no other takes its place.
        self._requested: dict[int, tuple[trace_pb2.Record, RequestedPod]] = {}
        inputs.request = self._take

    def admit(self, at_ns: int, record: trace_pb2.Record) -> AdmittedPod | None:
        """Return the pod that a record will create, None for one that will be refused.

        The cluster is not changed. Records are admitted in their order; another call for the same
        record returns the same pod.
        """
        if id(record) in self._requested:
            return self._requested[id(record)][1].admitted
        try:
            requested = self._request(record)
            if requested is None or self._lifecycle.is_taken(requested.message):
                return None
            if self._admission.quotas.covers(requested.message.metadata.namespace):
                return None
            admitted = self._lifecycle.admitted(at_ns, requested.message, requested.life)
        except (AdmissionError, FieldError):
            return None
        self._requested[id(record)] = record, requested._replace(admitted=admitted)
        return admitted

    def _take(self, record: trace_pb2.Record) -> RequestedPod | None:
        ahead = self._requested.pop(id(record), None)
        return self._request(record) if ahead is None else ahead[1]
