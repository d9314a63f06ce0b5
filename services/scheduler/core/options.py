"""How a session's scheduler decides, and the cycles that its profiles run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from services.scheduler.core.cycle import Cycle
from services.scheduler.core.extended_cycle import ExtendedCycle
from services.scheduler.core.extenders import Extender
from services.scheduler.core.extenders_chain import Extenders
from services.scheduler.core.framework import Framework
from services.scheduler.core.host_choice import HostChoice
from services.scheduler.core.preemption.preemptor import Preemptor, no_extenders
from services.scheduler.core.profile import Profile
from services.scheduler.core.registry import Registry, with_preemption
from services.scheduler.core.rules import QueueRules, Rules
from services.scheduler.core.sampling import SampledChoice, StartIndex
from services.scheduler.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a scheduler decides; `seed` keys the hash that breaks ties.

    Without `profiles`, that of the rules is in force. `sampling` is the percentage of nodes to
    score where a profile has none of its own (0 adapts); None scores all nodes and tries all
    candidates of a preemption, whatever the profiles say.
    `extenders` are asked in their order, the ignorable ones last.
    """

    rules: Rules
    queue: QueueRules
    seed: int = 0
    profiles: tuple[Profile, ...] = ()
    disable_preemption: bool = False
    sampling: int | None = None
    extenders: tuple[Extender, ...] = ()


def cycles_of(
    options: Options,
    snapshot: Snapshot,
    registry: Registry,
    stopwatch: Callable[[], int] | None,
    extenders: Extenders,
) -> tuple[HostChoice, dict[str, Cycle]]:
    """Return the host choice that all profiles share, and each one's cycle by scheduler name."""
    narrow = extenders.narrowed if extenders.narrow_preemption else no_extenders
    preemptor = Preemptor(rules=options.rules.preemption, extenders=narrow)
    registry = {**registry, **options.rules.plugins}
    served = with_preemption(
        registry,
        None if options.disable_preemption else preemptor,
        samples=options.sampling is not None and options.rules.preemption.samples_candidates,
    )
    choice = options.rules.host_choice(options.seed)
    if options.sampling is not None:
        choice = SampledChoice(choice, StartIndex(), options.sampling)
    cycles: dict[str, Cycle] = {}
    for profile in options.profiles or (options.rules.profile,):
        framework = Framework(snapshot, profile, served)
        own = _choice_of(choice, framework, extenders)
        first = options.rules.nominated_first
        cycles[profile.scheduler_name] = (
            ExtendedCycle(framework, own, extenders, nominated_first=first, stopwatch=stopwatch)
            if extenders
            else Cycle(framework, own, nominated_first=first, stopwatch=stopwatch)
        )
    return choice, cycles


def _choice_of(choice: HostChoice, framework: Framework, extenders: Extenders) -> HostChoice:
    if not isinstance(choice, SampledChoice):
        return choice
    own = framework.profile.percentage_of_nodes_to_score
    percentage = choice.percentage if own is None else own
    scores = bool(framework.weights) or extenders.look_at_nodes
    return replace(choice, percentage=percentage, scores=scores)
