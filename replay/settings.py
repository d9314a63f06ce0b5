"""The settings of a replay: one value from the command line to the manifest, and back.

Each is declared once: its option, its default, its help, and where the manifest of a run has it.
Everything else is derived: the configurations of the services' sessions and the models that the
world plays with. `stored` returns the settings for the manifest and `of` reads them back, so that
a run is explained with the scheduler that decided it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import click
import yaml

from replay.bounds import yaml_value
from replay.errors import RunError, TraceError
from replay.options import DURATION, FOLDER, STORED, TEXT_FILE, ParsedParam, TextFile, option
from replay.results.run.manifest import EMBEDDED, IN_PROCESS, Manifest
from replay.rule_versions import NEWEST_RULES
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from replay.world.kubelet.annotations import UsageRule
from replay.world.models import MODELS, ModelError, Models, with_values
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import DEFAULT_SCHEDULER
from services.rpc.access import PLAIN, ClientTls
from services.rpc.version import package_version
from services.telemetry.span import Sampling

SMALL_RECORDS = 500
"""A trace of fewer records ends before child processes have started and kernels are compiled."""
_RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Stored:
    """The place of a setting in a manifest: a field, or FIELD.KEY of a mapping; and its format.

    Without a value the manifest has `absent`, or nothing where that is None.
    """

    place: str
    absent: object = ""
    show: Callable[[Any], object] = lambda value: value
    read: Callable[[Any], object] = lambda value: value


_OVERRIDES = Stored("configuration.overrides", None, dict)
_FOLLOW_UNTIL = Stored("configuration.follow_until", None)
_HAS_DEVICES = Stored("configuration.has_devices", None)
_TIES = Stored(
    "configuration.ties",
    show=lambda ties: f"TIE_BREAK_{ties.upper()}",
    read=lambda name: name.removeprefix("TIE_BREAK_").lower(),
)
_BINDING: Mapping[str, Callable[[scheduler_pb2.SchedulerConfig], object]] = {
    "--rules": lambda config: config.rules,
    "--seed": lambda config: config.seed,
    "--scheduler-config": lambda config: config.kube_scheduler_configuration,
    "--queue-rules": lambda config: config.queue.rules,
    "--disable-preemption": lambda config: config.disable_preemption,
    "--sample-nodes": lambda config: config.sample_nodes,
    "--ties": lambda config: config.ties,
}
"""The options that change a scheduler's decisions, with their values in its configuration."""
_run = partial(option, section="Run")
_rules = partial(option, section="Rules and configuration")
_assumption = partial(option, section="Assumptions")
_spans = partial(option, section="Spans")
_services = partial(option, section="Services")


def _checked_models(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    try:
        with_values(Models(), texts)
    except ModelError as error:
        raise click.BadParameter(str(error), param_hint="--model") from error
    return texts


class _Groups(TextFile):
    """The path of a file of node groups, whose value is its text, or the word infer."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text. Raises OptionError if it cannot be read."""
        from replay.autoscaling.resolve import INFER  # noqa: PLC0415 - loaded when needed

        return INFER if value == INFER else super().convert(value, param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRestart:
    """A restart of the scheduler at `at_ns`, ns since the Unix epoch.

    options: the command line's options of the scheduler that is started then. changes: the settings
    that are others from then on, by their names in ReplaySettings.
    """

    at_ns: int
    options: str
    changes: Mapping[str, Any]

    def to_mapping(self) -> dict[str, Any]:
        """Return the restart as a manifest has it."""
        return {"at_ns": self.at_ns, "options": self.options, **self.changes}

    @classmethod
    def of(cls, shown: Mapping[str, Any]) -> Self:
        """Read a restart of a manifest. Raises LookupError, TypeError and ValueError."""
        changes = {name: shown[name] for name in RESTARTABLE if name in shown}
        return cls(at_ns=int(shown["at_ns"]), options=str(shown["options"]), changes=changes)


RESTARTABLE = (
    *("rules", "queue_rules", "kube_scheduler_configuration", "disable_preemption", "ties"),
    *("sample_nodes", "seed", "scheduler_address", "no_audit"),
)
"""The settings that a restart of the scheduler may change."""
_RESTARTS = Stored(
    "configuration.restarts",
    None,
    lambda restarts: [restart.to_mapping() for restart in restarts],
    lambda shown: tuple(map(SchedulerRestart.of, shown)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The settings of a replay.

    kube_scheduler_configuration, kubelet_configuration: the text of a file; None without one.
    autoscaler: the text of a file of node groups, or INFER until the trace has been read.
    scheduler_address, eviction_address, autoscaler_address: "" starts the service: within this
    process with in_process, as a child process without, and with None as the number of records has
    it (run_replay). tls: for services at other addresses. until_ns: from the trace's first record
    on. overrides: changes that were already made to trace and configurations. usage: of pods, in
    place of the trace's.
    follow_until: until when a recording was followed; "" for a replay from its beginning.
    checkpoint_every_ns: wall time between two checkpoints, at least.
    reconnect_ns: wall time to wait for a service that is lost, 0: none, None: by what the run has
    taken so far (replay/recovery.py). resumes: the run in run_path is continued.
    default_rules: the rules where `rules` is None, which the trace's header decides (run_replay).
    restart_scheduler: restarts of the scheduler as their texts. restarts: what they change, in the
    order of time.
    has_devices: whether the trace has devices and claims, which its header says (run_replay).
    """

    version: str = field(default_factory=package_version)
    argv: tuple[str, ...] = ()
    trace_paths: tuple[Path, ...] = ()
    usage: tuple[UsageRule, ...] = ()
    resumes: bool = False
    tls: ClientTls = PLAIN
    run_path: Path | None = _run(  # noqa: RUF009 - a field
        "--run", type=FOLDER, help="The run's directory. Default: runs/TRACE-N."
    )
    force: bool = _run("--force", is_flag=True, help="Replace an existing run in --run.")
    until_ns: int | None = _run(
        "--until",
        type=DURATION,
        help="Stop after this simulated time since the trace's first record, such as 1h30m.",
    )
    seed: int = _run(
        "--seed",
        default=0,
        show_default=True,
        help="Breaks ties of nodes; orders --arrivals.",
        stored=Stored("seed"),
    )
    rules: str | None = _rules(
        "--rules",
        type=click.Choice(["v1.36", "v1.34", "v1.16"]),
        help="The Kubernetes version of the scheduling and preemption rules. Default: that of the "
        "recorded cluster where the trace has it, v1.34 for those before v1.36; else v1.36.",
        stored=Stored("rules"),
    )
    queue_rules: str | None = _rules(
        "--queue-rules",
        type=click.Choice(["v1.36", "v1.34", "v1.20", "v1.16"]),
        help="The Kubernetes version of the queue's rules. Default: that of --rules.",
        stored=Stored("configuration.queue_rules"),
    )
    kube_scheduler_configuration: str | None = _rules(
        "--scheduler-config",
        type=TEXT_FILE,
        help="A KubeSchedulerConfiguration file.",
        stored=Stored("configuration.kube_scheduler_configuration"),
    )
    kubelet_configuration: str | None = _rules(
        "--kubelet-config",
        type=TEXT_FILE,
        help="A KubeletConfiguration file.",
        stored=Stored("configuration.kubelet_configuration"),
    )
    autoscaler: str | None = _rules(
        "--autoscaler",
        type=_Groups(),
        metavar="FILE|infer",
        help="Let the cluster autoscaler make and remove nodes of the groups in a file; infer: of "
        "those that the trace shows (`reprieve node-groups` prints them).",
        stored=Stored("configuration.autoscaler", None),
    )
    disable_preemption: bool = _rules(
        "--disable-preemption",
        is_flag=True,
        help="Never preempt a pod.",
        stored=Stored("configuration.disable_preemption"),
    )
    restart_scheduler: tuple[str, ...] = _rules(
        "--restart-scheduler",
        multiple=True,
        metavar="'TIME [OPTIONS]'",
        help="Restart the scheduler at this time since the trace's first record, with other "
        "options if any: '2h --rules v1.16', '2h --scheduler HOST:PORT'. The next one lists all "
        "objects: pending pods are tried at once, without back-off, and keep their nominations. "
        "Repeatable.",
    )
    no_eviction: bool = _rules(
        "--no-eviction", is_flag=True, help="Replay without node-pressure eviction."
    )
    ties: str | None = _rules(
        "--ties",
        type=click.Choice(["hash", "name"]),
        help="How one of the nodes with the best score is selected: by a hash of seed, pod and "
        "node, or by name. Default: hash; with --rules v1.16 round-robin.",
        stored=_TIES,
    )
    sample_nodes: bool = _rules(
        "--sample-nodes",
        is_flag=True,
        help="Score only some nodes, by percentageOfNodesToScore, and try only some candidates of "
        "a preemption, by minCandidateNodes*, as kube-scheduler does.",
        stored=Stored("configuration.sample_nodes"),
    )
    budget_status: str = _rules(
        "--budget-status",
        type=click.Choice(["computed", _RECORDED]),
        default="computed",
        show_default=True,
        help="Compute the status of disruption budgets, or use the recorded status.",
    )
    batch_size: int = _rules(
        "--batch-size",
        default=0,
        type=click.IntRange(0, 100_000),
        help="Pods in one exchange of scheduler and queue. Changes the speed, never a decision.",
        stored=Stored("batch_size"),
    )
    model_values: tuple[str, ...] = _assumption(
        "--model",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_checked_models,
        help="An assumption for what the trace does not have, such as start-delay=2s or "
        "pod-gc=off; `reprieve models` lists them. Repeatable.",
    )
    start_delay_ns: int = _assumption(
        "--start-delay",
        type=DURATION,
        default="0s",
        show_default=True,
        help="Time from the binding of a pod to Running, where the trace does not have it.",
    )
    shutdown_ns: int | None = _assumption(
        "--shutdown",
        type=DURATION,
        help="Time from SIGTERM to the end of a pod, where the trace does not have it. Default: "
        "its grace period.",
    )
    sampling: Sampling = _spans(  # noqa: RUF009 - a field
        "--spans",
        type=ParsedParam("off|all|PERCENT", Sampling.parse),
        default="all",
        show_default=True,
        help="The share of pods whose spans are kept, such as 1%. Spans are written to the run, or "
        "sent to OTEL_EXPORTER_OTLP_ENDPOINT.",
        stored=Stored("spans", show=str, read=Sampling.parse),
    )
    span_clock: str = _spans(
        "--span-clock",
        type=click.Choice(["virtual", "wall"]),
        default="virtual",
        show_default=True,
        help="The times of the pods' spans: simulated time, or the wall clock of the replay.",
    )
    scheduler_address: str = _services(
        "--scheduler",
        default="",
        metavar="HOST:PORT",
        help="A running scheduler service, which has its own queue. Default: child processes.",
    )
    no_audit: bool = _services(
        "--no-audit",
        is_flag=True,
        help="With --scheduler: do not check its placements and preemptions by our filters.",
        stored=Stored("configuration.no_audit"),
    )
    eviction_address: str = _services(
        "--eviction",
        default="",
        metavar="HOST:PORT",
        help="A running eviction service. Default: a child process.",
    )
    autoscaler_address: str = _services(
        "--autoscaler-service",
        default="",
        metavar="HOST:PORT",
        help="A running autoscaler service, for --autoscaler. Default: a child process.",
    )
    in_process: bool | None = _services(
        "--in-process/--no-in-process",
        default=None,
        help="Run the services in this process, without sockets, or as child processes: the same "
        f"decisions. Default: in this process for a trace of fewer than {SMALL_RECORDS} records.",
    )
    reconnect_ns: int | None = _services(
        "--reconnect",
        type=DURATION,
        help="How long to wait for a service that is lost before the run ends; 0s: not at all. "
        "The run then goes on from its last checkpoint. Default: as long as the run has taken, "
        "10s at least and 5m at most.",
    )
    checkpoint_every_ns: int = _services(
        "--checkpoint-every",
        type=DURATION,
        default="10s",
        show_default=True,
        help="Wall time between two checkpoints, at least; they take at most 1 % of a run's time.",
    )
    keep_checkpoints: int = _run(
        "--keep-checkpoints",
        default=20,
        show_default=True,
        type=click.IntRange(0, 1000),
        metavar="COUNT",
        help="How many of its states the run keeps, spread over its simulated time, for --from and "
        "`explain`; fewer where they would take more than 3 % of its CPU time. 0: none.",
    )
    overrides: Mapping[str, object] = field(default_factory=dict, metadata={STORED: _OVERRIDES})
    follow_until: str = field(default="", metadata={STORED: _FOLLOW_UNTIL})
    restarts: tuple[SchedulerRestart, ...] = field(default=(), metadata={STORED: _RESTARTS})
    default_rules: str = NEWEST_RULES
    has_devices: bool = field(default=False, metadata={STORED: _HAS_DEVICES})

    @property
    def models(self) -> Models:
        """Return the models that the world plays with."""
        models = Models(
            start_delay_ns=self.start_delay_ns,
            shutdown_ns=self.shutdown_ns,
            eviction=not self.no_eviction,
            recorded_budget_status=self.budget_status == _RECORDED,
        )
        return with_values(models, self.model_values)

    @property
    def binding_ends_nomination(self) -> bool:
        """Return whether the API server is of a version that clears nominations at bindings."""
        return self.rules_in_force == "v1.36"

    @property
    def rules_in_force(self) -> str:
        """Return the version of the scheduler's rules, also where none was requested."""
        return self.rules or self.default_rules

    @property
    def schedulers(self) -> Sequence[Self]:
        """Return the settings of each scheduler: the first one, and those after a restart."""
        changes = itertools.accumulate(
            (restart.changes for restart in self.restarts),
            lambda former, later: {**former, **later},
            initial=dict[str, Any](),
        )
        return [replace(self, **changed) for changed in changes]

    def scheduler_at(self, at_ns: int | None) -> Self:
        """Return the settings with those of the scheduler in force after the instant `at_ns`.

        None: at the beginning.
        """
        restarted = sum(at_ns is not None and at.at_ns <= at_ns for at in self.restarts)
        return self.schedulers[restarted]

    def assuming(self, models: Models) -> Self:
        """Return the settings with the options that choose `models`."""
        return replace(
            self,
            start_delay_ns=0,
            shutdown_ns=None,
            no_eviction=False,
            budget_status=_RECORDED if models.recorded_budget_status else "computed",
            model_values=tuple(f"{name}={model.shown(models)}" for name, model in MODELS.items()),
        )

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Return the schedulerName of each profile of the scheduler's configuration, in its order.

        The default, also for a file without profiles, is default-scheduler. A file that cannot be
        read counts as one without profiles: the scheduler refuses it.
        """
        try:
            document = yaml_value(self.kube_scheduler_configuration or "", "")
        except (yaml.YAMLError, TraceError):
            return (DEFAULT_SCHEDULER,)
        profiles = document.get("profiles") if isinstance(document, dict) else None
        names = [
            str(profile.get("schedulerName") or DEFAULT_SCHEDULER)
            for profile in (profiles if isinstance(profiles, list) else ())
            if isinstance(profile, dict)
        ]
        return tuple(dict.fromkeys(names)) or (DEFAULT_SCHEDULER,)

    @property
    def scheduler(self) -> scheduler_pb2.SchedulerConfig:
        """Return the configuration of the scheduler's session."""
        return scheduler_pb2.SchedulerConfig(
            rules=self.rules_in_force,
            seed=self.seed,
            kube_scheduler_configuration=self.kube_scheduler_configuration or "",
            queue=queue_pb2.QueueConfig(rules=self.queue_rules or ""),
            batch_size=self.batch_size or None,
            disable_preemption=self.disable_preemption,
            sample_nodes=self.sample_nodes,
            ties=scheduler_pb2.TieBreak.Value(str(_TIES.show(self.ties))) if self.ties else None,
            ignore_device_claims=not self.has_devices,
        )

    def not_bound(self, reported: scheduler_pb2.SchedulerConfig) -> Sequence[str]:
        """Return the options that a scheduler does not follow, by the configuration it reports.

        A scheduler reports in Session.config what it follows. An option with its default requests
        nothing, and --batch-size changes no decision.
        """
        requested = self.scheduler
        default = ReplaySettings(default_rules=self.default_rules).scheduler
        return [
            flag
            for flag, value in _BINDING.items()
            if value(requested) not in (value(default), value(reported))
        ]

    @property
    def eviction(self) -> eviction_pb2.EvictionConfig:
        """Return the kubelets' configuration: a file, or a kubelet's defaults."""
        has_file = self.kubelet_configuration is not None
        return eviction_pb2.EvictionConfig(
            use_defaults=not has_file,
            kubelet_configuration=self.kubelet_configuration or "",
            enforce_node_allocatable=[] if has_file else ["pods"],
        )

    @property
    def autoscaling(self) -> Autoscaling | None:
        """Return the node groups that are scaled, None without any. Raises GroupsError."""
        if self.autoscaler is None:
            return None
        from replay.autoscaling.file import autoscaling, read  # noqa: PLC0415 - loaded when needed

        return autoscaling(read(self.autoscaler), self.seed)

    @property
    def audits(self) -> bool:
        """Return whether the scheduler's decisions are audited: of one that others have started."""
        return bool(self.scheduler_address) and not self.no_audit

    @property
    def services(self) -> Mapping[str, str]:
        """Return where each service runs: an address, or how this replay starts it."""
        started = IN_PROCESS if self.in_process else EMBEDDED
        services = {
            "scheduler": self.scheduler_address or started,
            "eviction": self.eviction_address or started,
        }
        if self.autoscaler is not None:
            services["autoscaler"] = self.autoscaler_address or started
        return services

    def stored(self) -> dict[str, Any]:
        """Return the settings to store in a run's manifest, by the manifest's fields."""
        kept: dict[str, Any] = {"configuration": {}}
        for setting, stored in _STORED:
            value = getattr(self, setting.name)
            is_absent = value is None or (not value and stored.absent is None)
            shown = stored.absent if is_absent else stored.show(value)
            if shown is not None:
                whole, _, key = stored.place.partition(".")
                (kept[whole] if key else kept)[key or whole] = shown
        kept["rules"] = self.rules_in_force
        return {**kept, "models": asdict(self.models), "services": dict(self.services)}

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the settings that a run had. Raises RunError for values that are not settings."""
        values: dict[str, Any] = {}
        try:
            for setting, stored in _STORED:
                whole, _, key = stored.place.partition(".")
                shown = getattr(manifest, whole)
                shown = shown.get(key, "") if key else shown
                if shown != "":
                    values[setting.name] = stored.read(shown)
            known = {model.name for model in fields(Models)} & manifest.models.keys()
            models = Models(**{name: manifest.models[name] for name in known})
            for service, address in manifest.services.items():
                values[f"{service}_address"] = "" if address in {EMBEDDED, IN_PROCESS} else address
            started = {EMBEDDED, IN_PROCESS}.intersection(manifest.services.values())
            return cls(
                version=manifest.version,
                argv=manifest.argv,
                in_process=IN_PROCESS in started if started else None,
                **values,
            ).assuming(models)
        except (AttributeError, TypeError, ValueError) as error:
            raise RunError(f"the manifest cannot be read: {error}") from error


_STORED = [
    (setting, setting.metadata[STORED])
    for setting in fields(ReplaySettings)
    if setting.metadata.get(STORED)
]
