"""The versions of the queue, and the configuration of a session.

A session has one version: its backoff policy, its rules, its texts. QueueConfig.rules of the
contract names the version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from services.framework.cluster_event import Registration
from services.kube.time import MINUTE_NS
from services.queue.core.backoff import (
    AttemptBackoff,
    BackoffLimits,
    BackoffPolicy,
    FailureBackoff,
    PodBackoffMap,
)
from services.queue.core.queueing_hints import QueueingHintMap
from services.queue.core.results import AlreadyPresentTexts, QueueClosed, SubQueue
from services.queue.core.rules.base import QueueParts, QueueRules
from services.queue.core.rules.v120 import RulesV120
from services.queue.core.rules.v134_queueing_hints import RulesV134WithHints, RulesV134WithoutHints

_WITHOUT_GATES = frozenset({SubQueue.ACTIVE, SubQueue.BACKOFF, SubQueue.UNSCHEDULABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """A session's configuration; `version` is a key of VERSIONS.

    A leftover flush moves pods that have been unschedulable for longer than `max_unschedulable_ns`;
    None means the version's default. `pop_from_backoff_q` and `queueing_hints` are feature gates of
    v1.34, `registrations` the events and hints of its plugins. A pop's lease ends after `lease_ns`
    unless its owner renews it; 0 means that leases never end.
    """

    version: str = "v1.20"
    backoff: BackoffLimits = field(default_factory=BackoffLimits)
    max_unschedulable_ns: int | None = None
    pop_from_backoff_q: bool = True
    queueing_hints: bool = True
    registrations: tuple[Registration, ...] = ()
    lease_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueVersion:
    """One version's strategies and traits.

    backoff: creates the backoff policy. compose: creates the rules on the shared parts.
    ranked: returns, for a configuration, whether pods whose backoff ends together are ordered as in
    activeQ. compares_digests: returns whether an update compares the digests of both versions.
    settings: the optional fields of QueueConfig that this version has. backoff_ns_min: 0 if pods
    may be configured to have no backoff. sub_queues: the sub-queues that the version has.
    has_pre_enqueue: whether plugins may gate pods. has_activate: whether Activate exists.
    registers_events: whether plugins register for events, so that pods are stored with the fields
    that hints read. passes_through: whether the queue keeps no trace of a deleted pod.
    """

    name: str
    max_unschedulable_ns: int
    backoff: Callable[[QueueConfig], BackoffPolicy]
    compose: Callable[[QueueParts, QueueConfig], QueueRules]
    ranked: Callable[[QueueConfig], bool]
    closed: QueueClosed
    compares_digests: Callable[[QueueConfig], bool] = lambda _config: True
    settings: frozenset[str] = frozenset()
    backoff_ns_min: int = 1
    sub_queues: frozenset[SubQueue] = _WITHOUT_GATES
    has_pre_enqueue: bool = False
    has_activate: bool = False
    registers_events: bool = False
    passes_through: bool = True


_V1_16_TEXTS = AlreadyPresentTexts(
    active="pod is already present in the activeQ",
    backoff="pod is already present in the backoffQ",
    unschedulable="pod is already present in unschedulableQ",
)
_V1_20_TEXTS = AlreadyPresentTexts(
    active="pod: {pod} is already present in the active queue",
    backoff="pod {pod} is already present in the backoff queue",
    unschedulable="pod: {pod} is already present in unschedulable queue",
)
_V1_34_TEXTS = AlreadyPresentTexts(
    active="Pod {pod} is already present in the active queue",
    backoff="Pod {pod} is already present in the backoff queue",
    unschedulable="Pod {pod} is already present in unschedulable queue",
)


def _compose_v134(parts: QueueParts, config: QueueConfig) -> QueueRules:
    rules = RulesV134WithHints if config.queueing_hints else RulesV134WithoutHints
    hint_map = QueueingHintMap(config.registrations)
    return rules(parts, _V1_34_TEXTS, hint_map, pops_backing_off=config.pop_from_backoff_q)


V1_16 = QueueVersion(
    name="v1.16",
    max_unschedulable_ns=MINUTE_NS,
    backoff=lambda config: PodBackoffMap(config.backoff),
    compose=lambda parts, _config: RulesV120(parts, _V1_16_TEXTS),
    ranked=lambda _config: False,
    closed=QueueClosed(text="scheduling queue is closed"),
    passes_through=False,
)
"""activeQ, podBackoffQ and unschedulable pods; backoff by the PodBackoffMap."""

V1_20 = QueueVersion(
    name="v1.20",
    max_unschedulable_ns=MINUTE_NS,
    backoff=lambda config: AttemptBackoff(config.backoff),
    compose=lambda parts, _config: RulesV120(parts, _V1_20_TEXTS),
    ranked=lambda _config: False,
    closed=QueueClosed(text="scheduling queue is closed"),
)
"""The sub-queues of v1.16; backoff by the attempts since the pod was added."""

V1_34 = QueueVersion(
    name="v1.34",
    max_unschedulable_ns=5 * MINUTE_NS,
    backoff=lambda config: FailureBackoff(config.backoff, aligned=config.pop_from_backoff_q),
    compose=_compose_v134,
    ranked=lambda config: config.pop_from_backoff_q,
    closed=QueueClosed(),
    compares_digests=lambda config: not config.queueing_hints,
    settings=frozenset({"pop_from_backoff_q", "queueing_hints", "hints", "profiles"}),
    backoff_ns_min=0,
    sub_queues=frozenset(SubQueue),
    has_pre_enqueue=True,
    has_activate=True,
    registers_events=True,
)
"""Hints, gates, in-flight events, an error backoff, and pops from backoffQ."""

V1_36 = replace(V1_34, name="v1.36")
"""v1.34's queue, with the events and hints of v1.36's plugins."""

VERSIONS: Mapping[str, QueueVersion] = {
    version.name: version for version in (V1_36, V1_34, V1_20, V1_16)
}
"""The supported versions, the newest first."""
