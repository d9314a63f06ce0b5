"""The configuration of a session: its message, and the file that it may carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.cel.selectors import DeviceSelectors
from services.framework.plugins.in_tree import SERVED, Registry
from services.framework.plugins.node_affinity.arguments import NodeAffinityArgs
from services.framework.plugins.pod_topology_spread.arguments import PodTopologySpreadArgs
from services.framework.profile import Profile
from services.kube.pod import NodeAffinity, PodSpec
from services.rpc.errors import FieldError
from services.rpc.kube.messages import pod_spec_to_message
from services.scheduler.config.file import SchedulerConfiguration, read_scheduler_configuration
from services.scheduler.core.cycle.extenders import Extender
from services.scheduler.core.cycle.host_choice import HostChoice, KeyedChoice, NamedChoice
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.session.options import RULES, SchedulerOptions, SchedulerRules
from services.scheduler.extenders.allowed import AllowedExtenders
from services.scheduler.extenders.connect import (
    ConnectedExtender,
    connect_extenders,
    without_ignored,
)
from services.scheduler.extenders.grpc_extender import ExtenderObjects
from services.scheduler.session import BATCH_SIZE_MAX
from services.typed import DataError, join

TIES: Mapping[scheduler_pb2.TieBreak.ValueType, Callable[[int], HostChoice]] = {
    scheduler_pb2.TIE_BREAK_HASH: KeyedChoice,
    scheduler_pb2.TIE_BREAK_NAME: lambda _seed: NamedChoice(),
}
"""The tie-breaks that a session can set in place of its rules' own, made from the seed."""
DEFAULT_RULES = "v1.34"
_FILE = "config.kube_scheduler_configuration"


def read_configuration(
    config: scheduler_pb2.SchedulerConfig, registry: Registry = SERVED
) -> SchedulerConfiguration:
    """Read the file that a configuration carries; `registry` has the plugins that it may name.

    Without one, all is left to defaults. Raises FieldError with the path in the file.
    """
    text = config.kube_scheduler_configuration
    try:
        file = _file_of(text, _rules(config), registry) if text else SchedulerConfiguration()
    except DataError as error:
        raise FieldError(join(_FILE, error.field), str(error)) from None
    disabled = config.disable_preemption or file.disable_preemption
    return replace(file, disable_preemption=disabled)


def _file_of(text: str, rules: SchedulerRules, registry: Registry) -> SchedulerConfiguration:
    return read_scheduler_configuration(
        text, {**registry, **rules.plugins}, rules.defaults_of_files
    )


def connected(
    file: SchedulerConfiguration, allowed: AllowedExtenders, objects: ExtenderObjects
) -> Iterator[ConnectedExtender]:
    """Yield the file's extenders, which are sent `objects`. Raises FieldError."""
    return connect_extenders(file.extenders, allowed, objects, f"{_FILE}.extenders")


def options_of(
    config: scheduler_pb2.SchedulerConfig,
    file: SchedulerConfiguration,
    queue_config: queue_pb2.QueueConfig,
    extenders: tuple[Extender, ...] = (),
) -> SchedulerOptions:
    """Return the options of a configuration, with that of its queue. Raises FieldError."""
    rules = _rules(config)
    queue_version = queue_config.rules
    if queue_version not in QUEUE_TRAITS:
        raise FieldError(
            "config.queue.rules",
            f"{queue_version!r} is not one of {', '.join(sorted(QUEUE_TRAITS))}",
        )
    if config.HasField("batch_size") and not 0 < config.batch_size <= BATCH_SIZE_MAX:
        raise FieldError(
            "config.batch_size", f"{config.batch_size} is not from 1 to {BATCH_SIZE_MAX}"
        )
    return SchedulerOptions(
        rules=rules,
        queue=QUEUE_TRAITS[queue_version],
        seed=config.seed,
        profiles=without_ignored(file.profiles, file.extenders),
        sampling=(file.percentage_of_nodes_to_score or 0) if config.sample_nodes else None,
        disable_preemption=file.disable_preemption,
        extenders=extenders,
        matches=(
            None
            if config.ignore_device_claims
            else DeviceSelectors(multiple=rules.multiple_allocations)
        ),
        queue_has_in_tree_hints=_has_in_tree_hints(queue_config),
    )


def _has_in_tree_hints(queue: queue_pb2.QueueConfig) -> bool:
    hints = queue.queueing_hints or not queue.HasField("queueing_hints")
    return QUEUE_TRAITS[queue.rules].registers_events and hints and not queue.hints


def queue_config_of(
    config: scheduler_pb2.SchedulerConfig, file: SchedulerConfiguration
) -> queue_pb2.QueueConfig:
    """Return the queue's configuration; the file's values fill in the fields that are not set.

    The file has the backoff, and what queueing hints need of the profiles. The version is that of
    the scheduler's rules where the queue's configuration has none. Raises FieldError for unknown
    rules.
    """
    queue = queue_pb2.QueueConfig()
    queue.CopyFrom(config.queue)
    queue.rules = queue.rules or _rules(config).queue_version
    if file.initial_backoff_ns and not queue.HasField("initial_backoff_duration_ns"):
        queue.initial_backoff_duration_ns = file.initial_backoff_ns
    if file.max_backoff_ns and not queue.HasField("max_backoff_duration_ns"):
        queue.max_backoff_duration_ns = file.max_backoff_ns
    traits = QUEUE_TRAITS.get(queue.rules)
    if traits is not None and traits.registers_events and not queue.profiles:
        queue.profiles.extend(hint_profiles(file.profiles))
    return queue


def _rules(config: scheduler_pb2.SchedulerConfig) -> SchedulerRules:
    name = config.rules or DEFAULT_RULES
    if name not in RULES:
        raise FieldError("config.rules", f"{name!r} is not one of {', '.join(sorted(RULES))}")
    if not config.HasField("ties"):
        return RULES[name]
    if config.ties not in TIES:
        names = " or ".join(scheduler_pb2.TieBreak.Name(tie) for tie in TIES)
        raise FieldError("config.ties", f"{config.ties} is not a tie-break: use {names}")
    return replace(RULES[name], host_choice=TIES[config.ties])


def hint_profiles(profiles: Iterable[Profile]) -> list[queue_pb2.HintProfile]:
    """Return the added node affinity and default spread constraints of profiles that have some."""
    hint_profiles: list[queue_pb2.HintProfile] = []
    for profile in profiles:
        added = pod_spec_to_message(_added_spec(profile))
        if added.HasField("affinity") or added.topology_spread_constraints:
            message = queue_pb2.HintProfile(scheduler_name=profile.scheduler_name)
            if added.HasField("affinity"):
                message.added_affinity.CopyFrom(added.affinity.node_affinity)
            message.default_constraints.extend(added.topology_spread_constraints)
            hint_profiles.append(message)
    return hint_profiles


def _added_spec(profile: Profile) -> PodSpec:
    affinity, spread = profile.args.get("NodeAffinity"), profile.args.get("PodTopologySpread")
    required = affinity.added_required if isinstance(affinity, NodeAffinityArgs) else None
    return PodSpec(
        node_affinity=None if required is None else NodeAffinity(required=required),
        topology_spread_constraints=(
            spread.default_constraints if isinstance(spread, PodTopologySpreadArgs) else ()
        ),
    )
