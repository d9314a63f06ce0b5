"""The versions of the queue: what each is composed of, chosen once for a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.queue.core.backoff import AttemptBackoff, BackoffPolicy, PodBackoffMap, WindowBackoff
from services.queue.core.registrations import QueueConfig, Registrations
from services.queue.core.results import Closed, PresentTexts
from services.queue.core.rules.rules import QueueParts, QueueRules
from services.queue.core.rules.v120 import RulesV120
from services.queue.core.rules.v134_kinds import HintRules, NoHintRules

_MINUTE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMode:
    """One version's strategies.

    `backoff` says how long pods wait, `compose` makes the rules over the shared parts.
    `ranked` tells, for a session, whether pods whose backoff ends together stand as in
    activeQ. `has_gates` tells whether PreEnqueue, hints and Activate are known.
    """

    name: str
    max_unschedulable_ns: int
    backoff: Callable[[QueueConfig], BackoffPolicy]
    compose: Callable[[QueueParts, QueueConfig], QueueRules]
    ranked: Callable[[QueueConfig], bool]
    closed: Closed
    has_gates: bool


_V1_16_TEXTS = PresentTexts(
    active="pod is already present in the activeQ",
    backoff="pod is already present in the backoffQ",
    unschedulable="pod is already present in unschedulableQ",
)
_V1_20_TEXTS = PresentTexts(
    active="pod: {pod} is already present in the active queue",
    backoff="pod {pod} is already present in the backoff queue",
    unschedulable="pod: {pod} is already present in unschedulable queue",
)
_V1_34_TEXTS = PresentTexts(
    active="Pod {pod} is already present in the active queue",
    backoff="Pod {pod} is already present in the backoff queue",
    unschedulable="Pod {pod} is already present in unschedulable queue",
)


def _compose_v134(parts: QueueParts, config: QueueConfig) -> QueueRules:
    rules = HintRules if config.queueing_hints else NoHintRules
    registered = Registrations(config.registrations)
    return rules(parts, _V1_34_TEXTS, registered, pops_backing_off=config.pop_from_backoff_q)


V1_16 = QueueMode(
    name="v1.16",
    max_unschedulable_ns=_MINUTE_NS,
    backoff=lambda config: PodBackoffMap(config.backoff),
    compose=lambda parts, _config: RulesV120(parts, _V1_16_TEXTS),
    ranked=lambda _config: False,
    closed=Closed(text="scheduling queue is closed"),
    has_gates=False,
)
"""activeQ, podBackoffQ and unschedulable pods, with the PodBackoffMap."""

V1_20 = QueueMode(
    name="v1.20",
    max_unschedulable_ns=_MINUTE_NS,
    backoff=lambda config: AttemptBackoff(config.backoff),
    compose=lambda parts, _config: RulesV120(parts, _V1_20_TEXTS),
    ranked=lambda _config: False,
    closed=Closed(text="scheduling queue is closed"),
    has_gates=False,
)
"""The same, with backoff by the attempts of a stay."""

V1_34 = QueueMode(
    name="v1.34",
    max_unschedulable_ns=5 * _MINUTE_NS,
    backoff=lambda config: WindowBackoff(config.backoff, aligned=config.pop_from_backoff_q),
    compose=_compose_v134,
    ranked=lambda config: config.pop_from_backoff_q,
    closed=Closed(),
    has_gates=True,
)
"""Hints, gates, in-flight events, an error backoff, and pops from backoffQ."""

MODES: Mapping[str, QueueMode] = {mode.name: mode for mode in (V1_34, V1_20, V1_16)}
"""Every mode that is served, the newest first."""
