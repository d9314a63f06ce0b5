"""What a session's configuration asks for: its message, and the file that it may carry."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reprieve.queue.v1alpha1 import queue_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.config.scheduler import (
    SchedulerConfiguration,
    legacy_disable_preemption,
    read_scheduler_configuration,
)
from services.rpc.errors import FieldError
from services.scheduler.core.extenders import Extender
from services.scheduler.core.host_choice import TIES
from services.scheduler.core.options import Options
from services.scheduler.core.registry import SERVED, Registry
from services.scheduler.core.rules import QUEUE_RULES, RULES, Rules
from services.scheduler.extenders.connect import Connected, connected, without_ignored
from services.scheduler.extenders.sources import Sources
from services.scheduler.hint_profiles import hint_profiles
from services.typed import DataError

DEFAULT_RULES = "v1.34"
_FILE = "config.kube_scheduler_configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfiguration:
    """A file, read: one of v1, or the older one that switches preemption off; or none."""

    file: SchedulerConfiguration | None = None
    disable_preemption: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each thing that is known but not served."""
        return self.file.warnings if self.file is not None else ()

    def extenders(self, sources: Sources) -> tuple[Connected, ...]:
        """Return the file's extenders, which are sent objects of `sources`. Raises FieldError."""
        configs = self.file.extenders if self.file is not None else ()
        return tuple(connected(configs, sources, f"{_FILE}.extenders"))

    def refuse_extenders(self) -> None:
        """Raise FieldError where the file lists any."""
        if self.file is not None and self.file.extenders:
            text = "this service calls nobody that a client names (--no-extenders)"
            raise FieldError(f"{_FILE}.extenders", text)

    @property
    def binds_elsewhere(self) -> bool:
        """Tell whether an extender binds pods."""
        return self.file is not None and any(each.bind_verb for each in self.file.extenders)


def read_configuration(
    config: scheduler_pb2.SchedulerConfig, registry: Registry = SERVED
) -> ReadConfiguration:
    """Read the file that a configuration carries; `registry` has the plugins that it may name.

    Raises FieldError with the path in the file.
    """
    text = config.kube_scheduler_configuration
    if not text:
        return ReadConfiguration(disable_preemption=config.disable_preemption)
    try:
        disabled = legacy_disable_preemption(text)
        if disabled is not None:
            return ReadConfiguration(disable_preemption=config.disable_preemption or disabled)
        file = read_scheduler_configuration(text, registry)
    except DataError as error:
        path = f"{_FILE}.{error.field}" if error.field else _FILE
        raise FieldError(path, str(error)) from None
    return ReadConfiguration(file=file, disable_preemption=config.disable_preemption)


def options_of(
    config: scheduler_pb2.SchedulerConfig,
    read: ReadConfiguration,
    queue_mode: str,
    extenders: tuple[Extender, ...] = (),
) -> Options:
    """Return what a configuration asks for. Raises FieldError."""
    rules = _rules(config)
    if queue_mode not in QUEUE_RULES:
        raise FieldError("config.queue.mode", f"no queue of mode {queue_mode!r} is known here")
    if config.cycle_cost_ns:
        raise FieldError("config.cycle_cost_ns", "must be 0: no cost of a cycle is modelled yet")
    return Options(
        rules=rules,
        queue=QUEUE_RULES[queue_mode],
        seed=config.seed,
        profiles=(
            without_ignored(read.file.profiles, read.file.extenders)
            if read.file is not None
            else ()
        ),
        sampling=_sampling(config, read),
        disable_preemption=read.disable_preemption,
        extenders=extenders,
    )


def queue_config_of(
    config: scheduler_pb2.SchedulerConfig, read: ReadConfiguration
) -> queue_pb2.QueueConfig:
    """Return the queue's configuration, where it says nothing itself with what the file says.

    That is the backoff, and what hints have to know of profiles. The mode is that of the rules
    where it names none. Raises FieldError for rules that are not known.
    """
    queue = queue_pb2.QueueConfig()
    queue.CopyFrom(config.queue)
    queue.mode = queue.mode or _rules(config).queue_mode
    if read.file is None:
        return queue
    queue.initial_backoff_ns = queue.initial_backoff_ns or (read.file.initial_backoff_ns or 0)
    queue.max_backoff_ns = queue.max_backoff_ns or (read.file.max_backoff_ns or 0)
    rules = QUEUE_RULES.get(queue.mode)
    if rules is not None and rules.has_hints and not queue.profiles:
        queue.profiles.extend(hint_profiles(read.file.profiles))
    return queue


def _rules(config: scheduler_pb2.SchedulerConfig) -> Rules:
    name = config.rules or DEFAULT_RULES
    if name not in RULES:
        raise FieldError("config.rules", f"{name!r} is none of {', '.join(sorted(RULES))}")
    if not config.ties:
        return RULES[name]
    if config.ties not in TIES:
        raise FieldError("config.ties", f"{config.ties!r} is not one of {', '.join(TIES)}")
    return replace(RULES[name], host_choice=TIES[config.ties])


def _sampling(config: scheduler_pb2.SchedulerConfig, read: ReadConfiguration) -> int | None:
    if not config.sample_nodes:
        return None
    return (read.file.percentage_of_nodes_to_score or 0) if read.file is not None else 0
