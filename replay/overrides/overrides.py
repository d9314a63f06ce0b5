"""All overrides of a run: checked against the trace, then applied to its records.

Both the original and the changed records are streams. Overrides are first resolved against an
inventory of the trace, so that an override without an effect is refused before a service starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain, count

import click

from replay.options import STORED, long_name, option
from replay.overrides.applied import Release, apply_releases, parse_apply, refuse_invalid_releases
from replay.overrides.arrivals import ArrivalTarget, arrivals_only, parse_arrivals
from replay.overrides.assignment import (
    DEVICES,
    TIMED,
    WORKLOADS,
    Assignment,
    OverrideTarget,
    parse_assignment,
    refuse_duplicates,
)
from replay.overrides.budgets import budget_changes
from replay.overrides.changes import TraceChanges, from_time
from replay.overrides.devices import device_changes
from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.files.configuration import kubelet_text, scheduler_text
from replay.overrides.files.node_groups import groups_text
from replay.overrides.inventory import TraceInventory, take_inventory
from replay.overrides.node_actions import (
    DrainRequest,
    NodeEvent,
    at_time,
    node_records,
    parse_drain,
    parse_fail,
    refuse_late,
)
from replay.overrides.nodes import (
    ORDERS,
    NodePlan,
    change_nodes,
    nodes_to_drop,
    ranked_nodes,
    scale_plan,
)
from replay.overrides.priority_classes import ClassChange, class_changes
from replay.overrides.requests import request_factors
from replay.overrides.timed import after_header, at_times
from replay.overrides.usage import (
    has_usage,
    leave_pods_out,
    parse_usage,
    refuse_unmatched,
    with_other_pods,
)
from replay.overrides.workloads import workload_changes
from replay.world.kubelet.annotations import MEMORY, UsageRule
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1 import trace_pb2

Records = Iterator[trace_pb2.Record]
_NO_OTHER_USAGE = trace_pb2.ImportIssue(
    kind="usage",
    message="the trace has no usage: pods that --usage does not select use nothing and are evicted "
    "last; --usage '* memory 200Mi' before it sets theirs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverridePlan:
    """Overrides that were checked against a trace: the changes of its records.

    `read` opens the trace. The other fields are the changes, in order of application. later:
    changes that begin at a later time, ns. usage: if several rules match a pod, the last one
    applies. assumes_no_usage: whether pods that no option selects use nothing.
    """

    read: Callable[[], Records]
    changes: TraceChanges = field(default_factory=TraceChanges)
    later: tuple[tuple[int, TraceChanges], ...] = ()
    arrivals: ArrivalTarget | None = None
    releases: tuple[Release, ...] = ()
    actions: tuple[trace_pb2.Record, ...] = ()
    start_ns: int = 0
    usage: tuple[UsageRule, ...] = ()
    assumes_no_usage: bool = False

    @property
    def removed_nodes(self) -> list[str]:
        """Return the names of the removed nodes, in the order of their removal."""
        plans = (self.changes, *(changes for _, changes in self.later))
        return list(dict.fromkeys(name for plan in plans for name in plan.nodes.removed))

    def records(self, seed: int) -> Records:
        """Return the changed trace; `seed` determines the order of arrivals."""
        arrivals = self.arrivals
        numbers = count(self.changes.inventory.templates + 1)
        # Each change reads the result of the previous changes.
        changes: tuple[tuple[object, Callable[[Records], Records]], ...] = (
            (True, lambda trace: self.changes.of(trace, numbers)),
            *((True, partial(_from, at_ns, later, numbers)) for at_ns, later in self.later),
            (arrivals, lambda trace: arrivals_only(trace, arrivals, seed) if arrivals else trace),
            (self.releases, lambda trace: apply_releases(trace, self.releases, self.start_ns)),
            (self.actions, lambda trace: at_times(trace, self.actions)),
            (self.assumes_no_usage, lambda trace: after_header(trace, issues=(_NO_OTHER_USAGE,))),
        )
        records = self.read()
        for is_needed, change in changes:
            if is_needed:
                records = change(records)
        return records


def _from(at_ns: int, changes: TraceChanges, numbers: Iterator[int], trace: Records) -> Records:
    return from_time(trace, at_ns, lambda records: changes.of(records, numbers))


_always = partial(option, stored=1)
_timed = partial(option, stored=2, multiple=True)
"""Options that take effect at a later time; a manifest has them after the other options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The what-if options: their texts, as a manifest has them, and the parsed values.

    usage_rules: rules by their texts; if several rules match a pod, the last one applies. drains,
    failures, releases: parsed options with a time. allows_no_effect: whether to ignore overrides
    that change nothing instead of raising NoEffectError. Raises OverrideError for a malformed text.
    """

    sets: tuple[str, ...] = _always(
        "--set",
        multiple=True,
        metavar="KEY=VALUE[,at=TIME]",
        help="Override one value: deployment.prod/web.replicas=30, "
        "deployment.prod/web.priorityClassName=high, priorityClass.batch.value=50, "
        "pdb.prod/web.minAvailable=2 (a new budget of the workload prod/web, if there is none), "
        "resourceslice.gpu-*.devices.half-*.count=1, deviceclass.gpu.selector=EXPRESSION, "
        "evictionHard.memory.available=500Mi, podMaxBackoffSeconds=60, "
        "plugin.NodeResourcesFit.weight=5; with --autoscaler nodeGroup.web.max=20 and "
        "autoscaler.scale-down-utilization-threshold=0.7. Objects may be set at a time: "
        "deployment.web.replicas=30,at=10m. Repeatable.",
    )
    drop_nodes: str = _always(
        "--drop-nodes",
        default="",
        metavar="NODE|SELECTOR[,at=TIME]",
        help="Remove nodes from the beginning, or at a time: one or more by name, or those that a "
        "label selector matches: zone=a, gpu in (a, b), !spot.",
    )
    scale_nodes: tuple[str, ...] = _always(
        "--scale-nodes",
        multiple=True,
        metavar="[SELECTOR:]FACTOR|+N|-N|=N[,at=TIME]",
        help="Change the number of nodes: times 0.8 or 1.5, 10 more (+10), or exactly 5 (=5); of a "
        "pool as pool=gpu:-1. Repeatable.",
    )
    scale_order: str = _always(
        "--scale-order",
        type=click.Choice(ORDERS),
        default=ORDERS[0],
        show_default=True,
        help="Which nodes --scale-nodes removes first: by a hash of their names, the least used "
        "ones, by name, or the youngest ones.",
    )
    drain: tuple[str, ...] = _timed(
        "--drain",
        metavar="NODE|SELECTOR[,OPTION...]",
        help="Drain nodes as kubectl drain does, one after the other. Options: at=10m, parallel=2, "
        "order=name|least-used|youngest, force=false, delete-emptydir-data=false; with "
        "uncordon-after=5m each node returns before the next is drained, as in an upgrade. "
        "Repeatable.",
    )
    fail: tuple[str, ...] = _timed(
        "--fail",
        metavar="NODE|SELECTOR[,at=TIME][,for=TIME]",
        help="Let nodes stop reporting at a time (default: the beginning), for ever or for some "
        "time: zone=a,at=10m,for=30m. Repeatable.",
    )
    apply: tuple[str, ...] = _timed(
        "--apply",
        metavar="PATH[,at=TIME]",
        help="Apply manifests, a file or a folder, to the objects of the trace, as kubectl apply "
        "does: release/,at=10m. Default: at the beginning. Repeatable.",
    )
    arrivals: str = _always(
        "--arrivals",
        default="",
        metavar="RESOURCE=RATIO",
        help="Create all pods at the beginning, in an order that follows from the seed, and never "
        "end them: as many (repeated, or fewer) as request RATIO times the nodes' allocatable of "
        "a resource.",
    )
    usage: tuple[str, ...] = _always(
        "--usage",
        multiple=True,
        metavar="'SELECTOR RESOURCE VALUE'",
        help="Usage of the pods with these labels (or of one, as NAMESPACE/NAME), of memory or "
        "ephemeral-storage: 200Mi, +50Mi/m on top of their recorded usage, or 200Mi+50Mi/m. "
        "Repeatable.",
    )
    allows_no_effect: bool = option(
        "--allow-no-effect",
        is_flag=True,
        help="Allow overrides that change nothing in this trace, and checks whose conditions no "
        "pod and no workload meets; by default they are refused.",
    )
    assignments: tuple[Assignment, ...] = field(init=False)
    usage_rules: Mapping[str, UsageRule] = field(init=False)
    drains: tuple[DrainRequest, ...] = field(init=False)
    failures: tuple[NodeEvent, ...] = field(init=False)
    releases: tuple[Release, ...] = field(init=False)

    def __post_init__(self) -> None:
        meanings = {
            "assignments": tuple(map(parse_assignment, self.sets)),
            "usage_rules": {text: parse_usage(text) for text in self.usage},
            "drains": tuple(map(parse_drain, self.drain)),
            "failures": tuple(map(parse_fail, self.fail)),
            "releases": tuple(map(parse_apply, self.apply)),
        }
        for name, meaning in meanings.items():
            object.__setattr__(self, name, meaning)  # The dataclass is frozen.
        refuse_duplicates(self.assignments)

    def of(self, *targets: OverrideTarget) -> tuple[Assignment, ...]:
        """Return the assignments to targets of these kinds."""
        return tuple(assignment for assignment in self.assignments if assignment.target in targets)

    @property
    def changes_records(self) -> bool:
        """Return whether the overrides change records of the trace, not only configurations."""
        named = self.of(*TIMED)
        nodes = self.drop_nodes or self.scale_nodes
        timed = self.drains or self.failures or self.releases
        return bool(named or nodes or self.arrivals or timed)

    def plan(self, read: Callable[[], Records], until_ns: int | None = None) -> OverridePlan:
        """Check the overrides against a trace; `read` opens it, and is called several times.

        `until_ns` is the time of --until. Raises OverrideError.
        """
        self._check_usage(read)
        rules = tuple(self.usage_rules.values())
        usage = rules if not rules or has_usage(read()) else with_other_pods(rules)
        is_assumed = len(usage) > len(rules) and leave_pods_out(rules, read())
        if not self.changes_records:
            return OverridePlan(read=read, usage=usage, assumes_no_usage=is_assumed)
        inventory = take_inventory(read())
        start_ns = inventory.start_ns or 0
        changes = self._changes(0, inventory, read)
        nodes = changes.nodes
        if nodes and (self.arrivals or self.drains or self.failures or self._times):
            inventory = take_inventory(change_nodes(read(), nodes))
        for at_ns, text in self._times.items():
            refuse_late(text, at_ns, inventory, until_ns)
        later = tuple(
            (start_ns + at_ns, self._changes(at_ns, inventory, read)) for at_ns in self._times
        )
        for event in (*self.drains, *self.failures):
            refuse_late(event.option, event.at_ns, inventory, until_ns)
        for release in self.releases:
            refuse_late(release.option, release.at_ns, inventory, until_ns)
        if self.releases:
            refuse_invalid_releases(read(), self.releases, inventory.start_ns or 0)
        actions: tuple[trace_pb2.Record, ...] = ()
        with self._allowing():
            actions = tuple(node_records(self.drains, self.failures, inventory))
        return OverridePlan(
            read=read,
            changes=changes,
            later=later,
            arrivals=parse_arrivals(self.arrivals, inventory) if self.arrivals else None,
            releases=self.releases,
            actions=actions,
            start_ns=start_ns,
            usage=usage,
            assumes_no_usage=is_assumed,
        )

    def _changes(
        self, at_ns: int, inventory: TraceInventory, read: Callable[[], Records]
    ) -> TraceChanges:
        """Return the changes that begin `at_ns` after the start of the trace."""

        def of(*targets: OverrideTarget) -> tuple[Assignment, ...]:
            return tuple(given for given in self.of(*targets) if given.at_ns == at_ns)

        classes = self._classes(of(OverrideTarget.PRIORITY_CLASS), inventory)
        budgets = budget_changes(
            self._effective(
                of(OverrideTarget.BUDGET), lambda chosen: budget_changes(chosen, inventory)
            ),
            inventory,
        )
        workloads = workload_changes(
            self._effective(
                of(*WORKLOADS), lambda chosen: workload_changes(chosen, inventory, classes)
            ),
            inventory,
            classes,
        )
        devices = device_changes(
            self._effective(of(*DEVICES), lambda chosen: device_changes(chosen, inventory)),
            inventory,
        )
        requests = request_factors(
            self._effective(of(OverrideTarget.PODS), lambda chosen: request_factors(chosen, read)),
            read,
        )
        return TraceChanges(
            workloads=workloads,
            classes=classes,
            budgets=budgets,
            devices=devices,
            requests=requests,
            nodes=self._node_plan(at_ns, inventory, read),
            inventory=inventory,
        )

    def added_at_ns(self, former: Overrides) -> int | None:
        """Return when the first override that `former` does not have begins, since the start.

        None if an override of `former` is missing here, or if an added option has no time.
        """
        times = list[int]()
        for setting in fields(self):
            mine, theirs = getattr(self, setting.name), getattr(former, setting.name)
            if mine == theirs or not setting.init or setting.name == "allows_no_effect":
                continue
            begins = self._begins(setting.name)
            theirs = tuple(filter(None, (theirs,))) if isinstance(theirs, str) else theirs
            if begins is None or not set(theirs) <= set(begins):
                return None
            times += [at_ns for text, at_ns in begins.items() if text not in theirs]
        return min(times, default=0)

    def _begins(self, name: str) -> Mapping[str, int] | None:
        """Return the beginning of each text of an option; None for an option without times."""
        match name:
            case "sets":
                return {given.text: given.at_ns for given in self.assignments}
            case "drop_nodes":
                dropped = self._dropped
                return {self.drop_nodes: dropped[0][1]} if dropped else {}
            case "scale_nodes":
                times = (at_ns for _, at_ns in self._scaled)
                return dict(zip(self.scale_nodes, times, strict=True))
            case "drain":
                return dict(zip(self.drain, (drain.at_ns for drain in self.drains), strict=True))
            case "fail":
                times = (failure.at_ns for failure in self.failures)
                return dict(zip(self.fail, times, strict=True))
            case "apply":
                times = (release.at_ns for release in self.releases)
                return dict(zip(self.apply, times, strict=True))
        return None

    @property
    def _times(self) -> Mapping[int, str]:
        """Return the times at which changes of objects begin, each with an option that does so."""
        times = {given.at_ns: f"--set {given.text}" for given in self.of(*TIMED)}
        times |= {at_ns: f"--drop-nodes {self.drop_nodes}" for _, at_ns in self._dropped}
        times |= {at_ns: f"--scale-nodes {text}" for text, at_ns in self._scaled}
        return {at_ns: times[at_ns] for at_ns in sorted(times) if at_ns}

    @property
    def _dropped(self) -> list[tuple[str, int]]:
        return [at_time("--drop-nodes", self.drop_nodes)] if self.drop_nodes else []

    @property
    def _scaled(self) -> list[tuple[str, int]]:
        return [at_time("--scale-nodes", text) for text in self.scale_nodes]

    def added(self) -> Iterator[trace_pb2.Record]:
        """Yield the named objects that options add: objects of `--apply`, and PriorityClasses."""
        for release in self.releases:
            for manifest in release.manifests.values():
                yield trace_pb2.Record(create=manifest.message)
        for assignment in self.of(OverrideTarget.PRIORITY_CLASS):
            made = KubernetesObject()
            made.priority_class.metadata.name = assignment.name
            yield trace_pb2.Record(create=made)

    def records(self, read: Callable[[], Records], seed: int) -> Records:
        """Return the changed trace, as `plan` and OverridePlan.records do."""
        return self.plan(read).records(seed)

    def _classes(
        self, given: tuple[Assignment, ...], inventory: TraceInventory
    ) -> Mapping[str, ClassChange]:
        """Return the changes of classes; a class that `--set` gives to a workload may be new."""
        named = {assignment.value for assignment in self.of(*WORKLOADS)}
        for assignment in given:
            if assignment.name in named:
                inventory.classes.setdefault(assignment.name, None)
        effective = self._effective(given, lambda chosen: class_changes(chosen, inventory))
        return class_changes(effective, inventory)

    def _effective(
        self, assignments: tuple[Assignment, ...], resolve: Callable[[list[Assignment]], object]
    ) -> list[Assignment]:
        """Return the assignments without those that have no effect, if these are allowed.

        `resolve` is called with each assignment alone. Errors other than NoEffectError are ignored
        here; they are raised when all assignments are resolved together.
        """
        effective = []
        for assignment in assignments:
            try:
                resolve([assignment])
            except NoEffectError:
                if not self.allows_no_effect:
                    raise
                continue
            except OverrideError:
                pass
            effective.append(assignment)
        return effective

    def kubelet(self, text: str, *, evicts: bool) -> str:
        """Return the kubelets' configuration with the assignments; "" stands for the defaults.

        Raises OverrideError for overrides of eviction where `evicts` is False.
        """
        assignments = self.of(OverrideTarget.KUBELET)
        if assignments and not evicts:
            raise OverrideError(
                f"--set {assignments[0].text} has no effect: --no-eviction is given"
            )
        for given, rule in self.usage_rules.items():
            # Without evictions, usage of memory still matters: the kernel enforces memory limits.
            if rule.resource != MEMORY and not evicts:
                raise OverrideError(f"--usage {given!r} has no effect: --no-eviction is given")
        return kubelet_text(text, assignments)

    def scheduler(self, text: str, *, samples: bool) -> str:
        """Return the scheduler's configuration with the assignments; "" stands for the defaults."""
        return scheduler_text(text, self.of(OverrideTarget.SCHEDULER), samples=samples)

    def autoscaler(self, text: str | None) -> str | None:
        """Return the file of node groups with the assignments; None without a file.

        Raises OverrideError for assignments without a file.
        """
        assignments = [*self.of(OverrideTarget.NODE_GROUP), *self.of(OverrideTarget.AUTOSCALER)]
        if text is None and assignments:
            raise assignments[0].without_effect("no node group is scaled without --autoscaler")
        return text and groups_text(text, assignments)

    def to_mapping(self) -> dict[str, object]:
        """Return the texts by their options, for the run's manifest; {} without overrides."""
        stored = [setting for setting in fields(self) if setting.metadata.get(STORED)]
        texts = {}
        stored.sort(key=lambda setting: setting.metadata[STORED])
        for setting in stored:
            text = getattr(self, setting.name)
            if text != setting.default:
                texts[long_name(setting)] = list(text) if isinstance(text, tuple) else text
        return texts

    def _check_usage(self, read: Callable[[], Records]) -> None:
        """Refuse usage rules that match no pod, and eviction settings for a trace without usage."""
        if self.usage:
            refuse_unmatched(self.usage_rules, chain(read(), self.added()))
            return
        assignments = self.of(OverrideTarget.KUBELET)
        if assignments and not self.allows_no_effect and not has_usage(read()):
            raise assignments[0].without_effect(
                "the trace has no usage, so that no pod is evicted; add usage, such as --usage "
                "'app=web memory 200Mi+50Mi/m'"
            )

    def _node_plan(
        self, at_ns: int, inventory: TraceInventory, read: Callable[[], Records]
    ) -> NodePlan:
        removed: dict[str, None] = {}
        for target, since_ns in self._dropped:
            if since_ns == at_ns:
                with self._allowing():
                    removed = dict.fromkeys(nodes_to_drop(target, inventory))
        scales = [text for text, since_ns in self._scaled if since_ns == at_ns]
        if not scales:
            return NodePlan(removed=removed)
        kept = {name: node for name, node in inventory.nodes.items() if name not in removed}
        ranked, clones = ranked_nodes(self.scale_order, kept, read()), dict[str, list[str]]()
        for scale in scales:
            with self._allowing():
                plan = scale_plan(scale, ranked, inventory)
                removed |= dict(plan.removed)
                ranked = [name for name in ranked if name not in plan.removed]
                for name, copies in plan.clones.items():
                    clones.setdefault(name, []).extend(copies)
        clones = {name: copies for name, copies in clones.items() if name not in removed}
        return NodePlan(removed=removed, clones=clones)

    def _allowing(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that suppresses NoEffectError if `allows_no_effect` is set."""
        return contextlib.suppress(*(NoEffectError,) if self.allows_no_effect else ())
