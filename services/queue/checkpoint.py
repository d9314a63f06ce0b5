"""A session as JSON: what its checkpoint holds. Specs, which pods share, are written once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reprieve.kube.v1beta1 import pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from services.kube.pod import PodSpec
from services.queue.config_codec import config_from_message
from services.queue.core.cluster_event import Happening, happened
from services.queue.core.queued_pod import PodRef, QueuedPod
from services.queue.core.registrations import QueueConfig
from services.queue.core.rules.rules import QueueState
from services.queue.core.scheduling_queue import SchedulingQueue
from services.queue.metrics import QueueMetrics
from services.queue.reader import QueueReader
from services.rpc.kube.messages import pod_spec_to_message
from services.typed import Places, Reading, write


@dataclass(slots=True, kw_only=True)
class QueueSession:
    """What a session holds: its rules as asked for, its queue and reader, whether it is live.

    `revision` counts changes, for those who watch. In a live session at_ns may be left 0.
    """

    asked: queue_pb2.QueueConfig
    config: QueueConfig
    queue: SchedulingQueue
    reader: QueueReader
    live: bool = False
    revision: int = 0

    @classmethod
    def start(
        cls, asked: queue_pb2.QueueConfig, *, live: bool, metrics: QueueMetrics
    ) -> QueueSession:
        """Return a session with an empty queue. Raises FieldError for rules that cannot be."""
        config = _timed(config_from_message(asked, live=live), metrics)
        named = queue_pb2.QueueConfig()
        named.CopyFrom(asked)
        named.rules = config.mode  # a later version may have another default
        return cls(
            asked=named,
            config=config,
            queue=SchedulingQueue(config),
            reader=QueueReader(config),
            live=live,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """A session; pods name their spec by its place among `specs`, which are met in the state."""

    config: queue_pb2.QueueConfig
    live: bool
    state: object
    specs: Sequence[pod_pb2.PodSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedEvent:
    """A Happening: its message, or the queue's own pods that it is about."""

    source: bytes = b""
    label: str = ""
    ref: PodRef | None = None
    old: QueuedPod | None = None
    new: QueuedPod | None = None


def session_to_json(session: QueueSession) -> bytes:
    """Return the JSON that stands for the session."""
    specs = Places(pod_spec_to_message)
    saved = _Saved(
        config=session.asked, live=session.live, state=session.queue.snapshot(), specs=specs.rows
    )
    return write(saved, {PodSpec: specs.place, Happening: _saved_event})


def session_from_plain(plain: object, metrics: QueueMetrics) -> QueueSession:
    """Return the session that JSON, once loaded, stands for; `metrics` time its hints.

    Raises LookupError, TypeError or ValueError where `plain` is not what session_to_json wrote.
    """
    saved = Reading().read(_Saved, plain)
    config = _timed(config_from_message(saved.config, live=saved.live), metrics)
    reader = QueueReader(config)
    state = _read_state(saved, reader)
    _check_record(state)
    if state.mode != config.mode:
        raise ValueError(f"the state is of mode {state.mode!r}, the rules {config.mode!r}")
    queue = SchedulingQueue.restore(config, state)
    return QueueSession(
        asked=saved.config, config=config, queue=queue, reader=reader, live=saved.live
    )


def _read_state(saved: _Saved, reader: QueueReader) -> QueueState:
    specs = [reader.spec(each) for each in saved.specs]

    def event(plain: object) -> Happening:
        said = reading.read(_SavedEvent, plain)
        if said.source:
            return reader.from_source(said.source)
        return happened(said.label, said.old, said.ref or said.new)

    reading = Reading({PodSpec: specs.__getitem__, Happening: event})
    return reading.read(QueueState, saved.state)


def _saved_event(happening: Happening) -> _SavedEvent:
    if happening.source:
        return _SavedEvent(source=happening.source)
    old, new = happening.old, happening.new
    return _SavedEvent(
        label=happening.event.label,
        ref=new if isinstance(new, PodRef) else None,
        old=old if isinstance(old, QueuedPod) else None,
        new=new if isinstance(new, QueuedPod) else None,
    )


def _timed(config: QueueConfig, metrics: QueueMetrics) -> QueueConfig:
    return replace(config, registrations=metrics.timed(config.registrations))


def _check_record(state: QueueState) -> None:
    """Refuse a record that tells of pods which are not in flight, or of events out of order."""
    held = {popped.pod.uid for popped in state.in_flight}
    record, before = state.record, 0
    for uid, since in record.pods:
        if uid not in held or not before <= since <= len(record.events):
            raise ValueError(f"pod {uid!r} is in flight since no event that is remembered")
        before = since
