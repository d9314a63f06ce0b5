"""The options and rules of a session's scheduler, and its state between rounds.

`SchedulerRules` are the strategies in which versions differ, chosen once when a session opens.
`SchedulerState` is the part of a scheduler's state between two rounds that its snapshot does not
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from services.framework.plugin import Plain, Plugin
from services.framework.plugins.in_tree import (
    CHANGED_IN_V1_36,
    DEFAULT_PROFILE,
    UNSCORED_PROFILE,
    V1_36_PROFILE,
    Registry,
    with_preemption,
    with_selectors,
)
from services.framework.preemption import rules
from services.framework.preemption.rules import PreemptionRules
from services.framework.profile import Profile
from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.framework.waiting_pods import Deadline, WaitingPods
from services.kube.devices import MatchDevice
from services.scheduler.core.cycle.attempt import ProfileCycles
from services.scheduler.core.cycle.extenders import Extender, Extenders
from services.scheduler.core.cycle.host_choice import (
    HostChoice,
    KeyedChoice,
    RoundRobinChoice,
    SampledChoice,
    StartIndex,
)
from services.scheduler.core.decisions import Decision
from services.scheduler.core.queueing.mirror import QueueTraits
from services.scheduler.core.queueing.steps import PopId


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """The options of a scheduler; `seed` keys the hash that breaks ties.

    Without `profiles`, that of the rules is in force. `sampling` is the percentage of nodes to
    score where a profile has none of its own (0 adapts); None scores all nodes and tries all
    candidates of a preemption, whatever the profiles say.
    `extenders` are called in their order, the ignorable ones last. `matches` evaluates the
    expressions that select devices; without it none can be evaluated. `queue_has_in_tree_hints`:
    the queue asks the in-tree plugins' queueing hints and no others.
    """

    rules: SchedulerRules
    queue: QueueTraits
    seed: int = 0
    profiles: tuple[Profile, ...] = ()
    disable_preemption: bool = False
    sampling: int | None = None
    extenders: tuple[Extender, ...] = ()
    matches: MatchDevice | None = None
    queue_has_in_tree_hints: bool = False


def make_cycles(
    options: SchedulerOptions,
    snapshot: Snapshot,
    registry: Registry,
    extenders: Extenders | None,
    waiting: WaitingPods,
) -> tuple[HostChoice, dict[str, ProfileCycles]]:
    """Return the host choice that all profiles share, and each one's cycle by scheduler name."""
    registry = with_selectors({**registry, **options.rules.plugins}, options.matches)
    served = with_preemption(
        registry,
        None if options.disable_preemption else options.rules.preemption,
        narrow=extenders.narrowed if extenders is not None and extenders.any_preempts else None,
        samples=options.sampling is not None and options.rules.preemption.samples_candidates,
    )
    choice = options.rules.host_choice(options.seed)
    if options.sampling is not None:
        choice = SampledChoice(choice, StartIndex(), options.sampling)
    cycles: dict[str, ProfileCycles] = {}
    for profile in options.profiles or (options.rules.profile,):
        framework = Framework(snapshot, profile, served, waiting)
        choice_of_profile = _choice_of(choice, framework, extenders)
        first = options.rules.nominated_first
        cycles[profile.scheduler_name] = ProfileCycles(
            framework, choice_of_profile, extenders, nominated_first=first
        )
    return choice, cycles


def _choice_of(choice: HostChoice, framework: Framework, extenders: Extenders | None) -> HostChoice:
    if not isinstance(choice, SampledChoice):
        return choice
    of_profile = framework.profile.percentage_of_nodes_to_score
    percentage = choice.percentage if of_profile is None else of_profile
    by_extenders = extenders is not None and extenders.any_filters_or_scores
    scores = bool(framework.weights) or by_extenders
    return replace(choice, percentage=percentage, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRules:
    """A version's preemption and its choice among the best nodes (made from the seed).

    nominated_first: a nominated pod is tried on its node alone before any other.
    profile: the one in force where no configuration names any. defaults_of_files: the profile
    whose plugins those of a configuration file begin with.
    queue_version: that of the queue where no configuration names any.
    multiple_allocations: whether selectors know of devices that several claims may share.
    plugins: what makes the plugins, by name, that differ from v1.34's.
    pod_level_resizes: a resize in place changes the requests of a pod as a whole, too.
    nominates_expected: a pod whose binding waits is nominated to its node meanwhile.
    """

    name: str
    preemption: PreemptionRules
    nominated_first: bool
    host_choice: Callable[[int], HostChoice]
    profile: Profile
    queue_version: str
    defaults_of_files: Profile = DEFAULT_PROFILE
    multiple_allocations: bool = False
    plugins: Mapping[str, Callable[..., Plugin]] = field(default_factory=dict)
    pod_level_resizes: bool = False
    nominates_expected: bool = False


_V1_34 = SchedulerRules(
    name="v1.34",
    preemption=rules.V1_34,
    nominated_first=True,
    host_choice=KeyedChoice,
    profile=DEFAULT_PROFILE,
    queue_version="v1.34",
)

RULES = {
    version.name: version
    for version in (
        _V1_34,
        replace(
            _V1_34,
            name="v1.36",
            profile=V1_36_PROFILE,
            defaults_of_files=V1_36_PROFILE,
            queue_version="v1.36",
            plugins=CHANGED_IN_V1_36,
            multiple_allocations=True,
            pod_level_resizes=True,
            nominates_expected=True,
        ),
        SchedulerRules(
            name="v1.16",
            preemption=rules.V1_16,
            nominated_first=False,
            host_choice=lambda _seed: RoundRobinChoice(),
            profile=UNSCORED_PROFILE,
            queue_version="v1.16",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPod:
    """A pod that waits at Permit: its decision with the binding that follows, and the plugins."""

    decision: Decision
    plugins: Mapping[str, Deadline]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerState:
    """A scheduler's state between two rounds, beside its snapshot and its pods.

    `held_back` are pods that a gate keeps out of a queue without gates. `unanswered` decisions are
    in the order in which they were made; `preempting` are those whose deletions are on their way
    while time goes on. `pending` are the UIDs of the pending pods, and whether
    other pods may make each schedulable, as judged when it was added or last changed. `movable` are
    those that an event may move, and whether events of pods may. `plugins` are the states of
    stateful plugins, by scheduler name and plugin.
    """

    latest_cycle: int
    choice_mark: int
    held_back: tuple[str, ...]
    unanswered: tuple[Decision, ...]
    preempting: tuple[PopId, ...]
    held: tuple[HeldPod, ...]
    pending: tuple[tuple[str, bool], ...]
    movable: tuple[tuple[str, bool], ...]
    plugins: Mapping[str, Mapping[str, Plain]]
