"""A session as plain values: what its checkpoint holds.

Rows are lists in the order of the values' fields. Pods are written once each: an entry and a pop
name theirs by its place in the list of pods. Digests are left out, for only an update's own two
versions are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from reprieve.queue.v1alpha1 import queue_pb2
from services.kube.pod import PodSpec
from services.kube.selector import LabelSelector, Operator, Requirement
from services.queue.config_codec import config_from_message
from services.queue.core.backoff import NameBackoff
from services.queue.core.config import QueueConfig
from services.queue.core.entry import Entry, Failure, Popped
from services.queue.core.happening import Happening, happened
from services.queue.core.nominator import NodeNominations
from services.queue.core.pod import AffinityTerm, LabelMatcher, PodRef, QueuedPod
from services.queue.core.rules import InFlightRecord
from services.queue.core.scheduling_queue import SchedulingQueue
from services.queue.core.state import BackingOff, QueueState
from services.queue.metrics import QueueMetrics
from services.queue.reader import QueueReader
from services.rpc.kube_messages import pod_spec_to_message

Plain = dict[str, Any]
Row = list[Any]
_FROM_SOURCE, _ABOUT_REF, _ABOUT_PODS = range(3)
_COUNTERS = (
    "mode",
    "now_ns",
    "scheduling_cycle",
    "move_request_cycle",
    "sequence",
    "flushed_backoff_ns",
    "flushed_leftover_ns",
    "closed",
)


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
        named.mode = config.mode  # a later version may have another default
        return cls(
            asked=named,
            config=config,
            queue=SchedulingQueue(config),
            reader=QueueReader(config),
            live=live,
        )


def session_to_plain(session: QueueSession) -> Plain:
    """Return dicts, lists, strings, integers, booleans and None that stand for the session."""
    state = session.queue.snapshot()
    pods = _Pods()
    return {
        "config": session.asked.SerializeToString(deterministic=True).hex(),
        "live": session.live,
        "counters": {name: getattr(state, name) for name in _COUNTERS},
        "active": [_entry_to_row(entry, pods) for entry in state.active],
        "backoff": [
            [_entry_to_row(waiting.entry, pods), waiting.expiry_ns] for waiting in state.backoff
        ],
        "error_backoff": [
            [_entry_to_row(waiting.entry, pods), waiting.expiry_ns]
            for waiting in state.error_backoff
        ],
        "unschedulable": [_entry_to_row(entry, pods) for entry in state.unschedulable],
        "record": _record_to_plain(state.record, pods),
        "in_flight": [
            [_entry_to_row(popped.entry, pods), *popped[1:]] for popped in state.in_flight
        ],
        "nominations": [
            [node.node_name, [[pod.uid, pod.namespace, pod.name] for pod in node.pods]]
            for node in state.nominations
        ],
        "name_backoffs": [
            [*backoff.key, backoff.attempts, backoff.updated_ns] for backoff in state.name_backoffs
        ],
        "pods": pods.rows,
        "specs": pods.specs,
    }


def session_from_plain(plain: Plain, metrics: QueueMetrics) -> QueueSession:
    """Return the session that `plain` stands for; `metrics` time its hints.

    Raises KeyError, IndexError, TypeError or ValueError where `plain` is not what
    session_to_plain returns.
    """
    asked = queue_pb2.QueueConfig.FromString(bytes.fromhex(plain["config"]))
    config = _timed(config_from_message(asked, live=plain["live"]), metrics)
    reader = QueueReader(config)
    specs = [reader.spec(bytes.fromhex(each)) for each in plain["specs"]]
    pods = [_pod_from_row(row, specs) for row in plain["pods"]]
    state = _state_from_plain(plain, pods, reader)
    _check_record(state)
    if state.mode != config.mode:
        raise ValueError(f"the state is of mode {state.mode!r}, the rules {config.mode!r}")
    queue = SchedulingQueue.restore(config, state)
    return QueueSession(asked=asked, config=config, queue=queue, reader=reader, live=plain["live"])


def _timed(config: QueueConfig, metrics: QueueMetrics) -> QueueConfig:
    return replace(config, registrations=metrics.timed(config.registrations))


def _record_to_plain(record: InFlightRecord, pods: _Pods) -> Plain:
    return {
        "pods": [list(each) for each in record.pods],
        "events": [_happening_to_row(each, pods) for each in record.events],
        "strangers": list(record.strangers),
    }


def _record_from_plain(plain: Plain, pods: list[QueuedPod], reader: QueueReader) -> InFlightRecord:
    return InFlightRecord(
        pods=tuple((uid, since) for uid, since in plain["pods"]),
        events=tuple(_happening_from_row(row, pods, reader) for row in plain["events"]),
        strangers=tuple(plain["strangers"]),
    )


def _state_from_plain(plain: Plain, pods: list[QueuedPod], reader: QueueReader) -> QueueState:
    return QueueState(
        **plain["counters"],
        active=tuple(_entry_from_row(row, pods) for row in plain["active"]),
        backoff=tuple(
            BackingOff(entry=_entry_from_row(row, pods), expiry_ns=expiry_ns)
            for row, expiry_ns in plain["backoff"]
        ),
        error_backoff=tuple(
            BackingOff(entry=_entry_from_row(row, pods), expiry_ns=expiry_ns)
            for row, expiry_ns in plain["error_backoff"]
        ),
        unschedulable=tuple(_entry_from_row(row, pods) for row in plain["unschedulable"]),
        record=_record_from_plain(plain["record"], pods, reader),
        in_flight=tuple(
            Popped(_entry_from_row(row, pods), *rest) for row, *rest in plain["in_flight"]
        ),
        nominations=tuple(
            NodeNominations(
                node_name=node_name,
                pods=tuple(
                    PodRef(uid=uid, namespace=namespace, name=name)
                    for uid, namespace, name in nominated
                ),
            )
            for node_name, nominated in plain["nominations"]
        ),
        name_backoffs=tuple(
            NameBackoff(key=(namespace, name), attempts=attempts, updated_ns=updated_ns)
            for namespace, name, attempts, updated_ns in plain["name_backoffs"]
        ),
    )


def _check_record(state: QueueState) -> None:
    """Refuse a record that tells of pods which are not in flight, or of events out of order."""
    held = {popped.pod.uid for popped in state.in_flight}
    record, before = state.record, 0
    for uid, since in record.pods:
        if uid not in held or not before <= since <= len(record.events):
            raise ValueError(f"pod {uid!r} is in flight since no event that is remembered")
        before = since


def _happening_to_row(happening: Happening, pods: _Pods) -> Row:
    """Write an event: by its message, or by the queue's own pods that it is about."""
    if happening.source:
        return [_FROM_SOURCE, happening.source.hex()]
    label = happening.event.label
    if isinstance(happening.new, PodRef):
        ref = happening.new
        return [_ABOUT_REF, label, ref.uid, ref.namespace, ref.name]
    old = pods.place(happening.old) if isinstance(happening.old, QueuedPod) else None
    new = pods.place(happening.new) if isinstance(happening.new, QueuedPod) else None
    return [_ABOUT_PODS, label, old, new]


def _happening_from_row(row: Row, pods: list[QueuedPod], reader: QueueReader) -> Happening:
    match row:
        case [int(kind), str(source)] if kind == _FROM_SOURCE:
            return reader.from_source(bytes.fromhex(source))
        case [int(kind), str(label), str(uid), str(namespace), str(name)] if kind == _ABOUT_REF:
            return happened(label, new=PodRef(uid=uid, namespace=namespace, name=name))
        case [int(kind), str(label), old, new] if kind == _ABOUT_PODS:
            before = None if old is None else pods[old]
            return happened(label, before, None if new is None else pods[new])
    raise ValueError(f"{row!r} is no event")


class _Pods:
    """The versions of pods that a state holds and their specs, each once, as they are met."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.specs: list[str] = []
        self._place_by_id: dict[int, int] = {}
        self._spec_by_id: dict[int, int] = {}

    def place(self, pod: QueuedPod) -> int:
        """Return the pod's place in `rows`; the state keeps it alive, so its id is its own."""
        place = self._place_by_id.get(id(pod))
        if place is None:
            place = self._place_by_id[id(pod)] = len(self.rows)
            self.rows.append(_pod_to_row(pod, self._spec(pod.spec)))
        return place

    def _spec(self, spec: PodSpec | None) -> int | None:
        if spec is None:
            return None
        place = self._spec_by_id.get(id(spec))
        if place is None:
            place = self._spec_by_id[id(spec)] = len(self.specs)
            message = pod_spec_to_message(spec)
            self.specs.append(message.SerializeToString(deterministic=True).hex())
        return place


def _entry_to_row(entry: Entry, pods: _Pods) -> Row:
    failure = entry.failure
    failed = failure and [failure.plugins, failure.pending_plugins, failure.error]
    return [pods.place(entry.pod), *entry[1:5], failed, *entry[6:]]


def _entry_from_row(row: Row, pods: list[QueuedPod]) -> Entry:
    place, timestamp_ns, initial_attempt_ns, attempts, sequence, failed, *rest = row
    failure = failed and _failure_from_row(failed)
    return Entry(pods[place], timestamp_ns, initial_attempt_ns, attempts, sequence, failure, *rest)


def _failure_from_row(row: Row) -> Failure:
    plugins, pending_plugins, error = row
    return Failure(plugins=tuple(plugins), pending_plugins=tuple(pending_plugins), error=error)


def _pod_to_row(pod: QueuedPod, spec: int | None) -> Row:
    return [
        pod.uid,
        pod.namespace,
        pod.name,
        pod.priority,
        pod.nominated_node_name,
        pod.sort_key.hex(),
        pod.gates,
        [_term_to_row(term) for term in pod.affinity_terms],
        dict(pod.labels),
        spec,
        pod.spread_selector and _selector_to_row(pod.spread_selector),
    ]


def _pod_from_row(row: Row, specs: list[PodSpec]) -> QueuedPod:
    uid, namespace, name, priority, nominated_node_name, sort_key, gates, *rest = row
    terms, labels, spec, spread_by = rest
    return QueuedPod(
        uid=uid,
        namespace=namespace,
        name=name,
        priority=priority,
        nominated_node_name=nominated_node_name,
        sort_key=bytes.fromhex(sort_key),
        gates=tuple(gates),
        affinity_terms=tuple(_term_from_row(term) for term in terms),
        labels=labels,
        spec=None if spec is None else specs[spec],
        spread_selector=spread_by and _selector_from_row(spread_by),
    )


def _term_to_row(term: AffinityTerm) -> Row:
    spaces = term.namespace_selector
    return [
        term.namespaces,
        _selector_to_row(term.selector),
        None if spaces is None else _selector_to_row(spaces),
    ]


def _term_from_row(row: Row) -> AffinityTerm:
    namespaces, selector, spaces = row
    return AffinityTerm(
        namespaces=tuple(namespaces),
        selector=_selector_from_row(selector),
        namespace_selector=None if spaces is None else _selector_from_row(spaces),
    )


def _selector_to_row(selector: LabelMatcher) -> Row:
    assert isinstance(selector, LabelSelector)  # noqa: S101 - the codec makes no other
    return [[each.key, each.operator.value, each.values] for each in selector.requirements]


def _selector_from_row(row: Row) -> LabelSelector:
    return LabelSelector(
        requirements=tuple(
            Requirement(key=key, operator=Operator(operator), values=tuple(values))
            for key, operator, values in row
        )
    )
