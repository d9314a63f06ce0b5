"""A session's checkpoint as JSON. Specs that several pods share are written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprieve.kube.v1beta1 import pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from services.framework.cluster_event import ObjectEvent
from services.kube.pod import PodSpec
from services.queue.core.queued_pod import PodRef, QueuedPod
from services.queue.core.rules.state import QueueState
from services.queue.core.scheduling_queue import SchedulingQueue
from services.queue.metrics import QueueMetrics
from services.queue.reader import QueueReader
from services.queue.session import QueueSession, timed_config
from services.rpc.kube.messages import pod_spec_to_message
from services.typed import Places, Reading, write


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedSession:
    """A QueueSession; pods in the state refer to their spec by its index in `specs`.

    `specs` is written last, because encoding `state` fills it.
    """

    config: queue_pb2.QueueConfig
    live: bool
    state: object
    specs: Sequence[pod_pb2.PodSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedEvent:
    """An ObjectEvent: its message, or its label and the queue's values of the pods."""

    source: bytes = b""
    label: str = ""
    ref: PodRef | None = None
    old: QueuedPod | None = None
    new: QueuedPod | None = None


def session_to_json(session: QueueSession) -> bytes:
    """Return the session as JSON."""
    specs = Places(pod_spec_to_message)
    saved = _SavedSession(
        config=session.requested,
        live=session.live,
        state=session.queue.snapshot(),
        specs=specs.rows,
    )
    return write(saved, {PodSpec: specs.place, ObjectEvent: _saved_event})


def _saved_event(object_event: ObjectEvent) -> _SavedEvent:
    if object_event.source:
        return _SavedEvent(source=object_event.source)
    old, new = object_event.old, object_event.new
    return _SavedEvent(
        label=object_event.event.label,
        ref=new if isinstance(new, PodRef) else None,
        old=old if isinstance(old, QueuedPod) else None,
        new=new if isinstance(new, QueuedPod) else None,
    )


def session_from_plain(plain: object, metrics: QueueMetrics) -> QueueSession:
    """Return the session in a checkpoint; `plain` is the parsed JSON, `metrics` times its hints.

    Raises LookupError, TypeError or ValueError if session_to_json did not write `plain`.
    """
    saved = Reading().read(_SavedSession, plain)
    config = timed_config(saved.config, live=saved.live, metrics=metrics)
    reader = QueueReader(config)
    state = _read_state(saved, reader)
    _check_hint_state(state)
    if state.mode != config.version:
        raise ValueError(
            f"the state is of version {state.mode!r}, the configuration {config.version!r}"
        )
    queue = SchedulingQueue.restore(config, state)
    return QueueSession(
        requested=saved.config, config=config, queue=queue, reader=reader, live=saved.live
    )


def _read_state(saved: _SavedSession, reader: QueueReader) -> QueueState:
    specs = [reader.spec(spec) for spec in saved.specs]

    def object_event(plain: object) -> ObjectEvent:
        event = reading.read(_SavedEvent, plain)
        if event.source:
            return reader.from_source(event.source)
        return ObjectEvent.of(event.label, event.old, event.ref or event.new)

    reading = Reading({PodSpec: specs.__getitem__, ObjectEvent: object_event})
    return reading.read(QueueState, saved.state)


def _check_hint_state(state: QueueState) -> None:
    """Raise ValueError for recorded pods that are not in flight, or events out of order."""
    in_flight = {popped.pod.uid for popped in state.in_flight}
    events, before = len(state.hint_state.events), 0
    for uid, since in state.hint_state.pods:
        if uid not in in_flight or not before <= since <= events:
            raise ValueError(f"pod {uid!r} is not in flight, or not since a recorded event")
        before = since
