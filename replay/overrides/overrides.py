"""All overrides of a run: checked against the trace, then applied to its records.

The records are a stream before and after. Overrides are first resolved with an inventory of the
trace, so that an override without an effect is refused before anything is started.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from replay.overrides.assignment import (
    Assignment,
    NoEffectError,
    OverrideError,
    OverrideTarget,
    TraceInventory,
    kubelet_text,
    parse_assignment,
    parse_selector,
    refuse_duplicates,
    scheduler_text,
    take_inventory,
)
from replay.overrides.named_objects import (
    budget_changes,
    change_budgets,
    change_classes,
    class_changes,
)
from replay.overrides.nodes import NodePlan, change_nodes, nodes_to_drop, scale_plan
from replay.overrides.usage import (
    arrivals_only,
    has_usage,
    parse_arrivals,
    parse_usage,
    refuse_unmatched,
)
from replay.world.kubelet.annotations import UsageRule
from reprieve.trace.v1beta1 import trace_pb2

Records = Iterator[trace_pb2.Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The values of the options --set, --drop-nodes, --scale-nodes, --arrivals and --usage.

    drop_nodes: a label selector. scale_nodes: "0.8", "1.5", "+10", "-10" or "=5", applied after
    drop_nodes. arrivals: "RESOURCE=RATIO". usage: rules by their texts; of several rules that match
    a pod, the last one counts. allows_no_effect: leave overrides that change nothing out, where
    NoEffectError would be raised.
    """

    assignments: tuple[Assignment, ...] = ()
    drop_nodes: str = ""
    scale_nodes: str = ""
    arrivals: str = ""
    usage: Mapping[str, UsageRule] = field(default_factory=dict)
    allows_no_effect: bool = False

    @classmethod
    def parse(
        cls,
        sets: tuple[str, ...],
        drop_nodes: str,
        scale_nodes: str,
        arrivals: str,
        usage: tuple[str, ...] = (),
        allows_no_effect: bool = False,
    ) -> Overrides:
        """Return the overrides. Raises OverrideError for a malformed `--set` or `--usage`."""
        assignments = tuple(map(parse_assignment, sets))
        refuse_duplicates(assignments)
        return cls(
            assignments=assignments,
            drop_nodes=drop_nodes,
            scale_nodes=scale_nodes,
            arrivals=arrivals,
            usage={text: parse_usage(text) for text in usage},
            allows_no_effect=allows_no_effect,
        )

    def of(self, target: OverrideTarget) -> tuple[Assignment, ...]:
        """Return the assignments to one kind of target."""
        return tuple(each for each in self.assignments if each.target is target)

    @property
    def changes_records(self) -> bool:
        """Return whether the records of the trace change, not only the configuration."""
        named = (*self.of(OverrideTarget.PRIORITY_CLASS), *self.of(OverrideTarget.BUDGET))
        return bool(named or self.drop_nodes or self.scale_nodes or self.arrivals)

    def records(self, read: Callable[[], Records], seed: int) -> Records:
        """Return the changed trace; `read` opens the trace, and is called several times.

        `seed` is that of the order of arrivals. Raises OverrideError before the first record.
        """
        self._check_usage(read)
        if not self.changes_records:
            return read()
        inventory = take_inventory(read())
        classes = class_changes(
            self._effective(OverrideTarget.PRIORITY_CLASS, class_changes, inventory), inventory
        )
        budgets = budget_changes(
            self._effective(OverrideTarget.BUDGET, budget_changes, inventory), inventory
        )
        plan = self._node_plan(inventory)
        records = read()
        if classes:
            records = change_classes(records, classes)
        if budgets:
            records = change_budgets(records, budgets)
        if plan.removed or plan.clones:
            records = change_nodes(records, plan)
            inventory = take_inventory(change_nodes(read(), plan)) if self.arrivals else inventory
        if self.arrivals:
            records = arrivals_only(records, parse_arrivals(self.arrivals, inventory), seed)
        return records

    def _effective(
        self, target: OverrideTarget, resolve: Callable[..., object], inventory: TraceInventory
    ) -> list[Assignment]:
        """Return the assignments to a target, without those that `resolve` alone finds no use for.

        Every other problem is left to a call with all of them.
        """
        found = []
        for each in self.of(target):
            try:
                resolve([each], inventory)
            except NoEffectError:
                if not self.allows_no_effect:
                    raise
                continue
            except OverrideError:
                pass
            found.append(each)
        return found

    def kubelet(self, text: str, *, evicts: bool) -> str:
        """Return the kubelets' configuration with assignments, "" for their defaults.

        Raises OverrideError for overrides of eviction where `evicts` is False.
        """
        assignments = self.of(OverrideTarget.KUBELET)
        if assignments and not evicts:
            problem = "has no effect: --no-eviction is given"
            raise OverrideError(f"--set {assignments[0].text} {problem}")
        if self.usage and not evicts:
            rule = next(iter(self.usage))
            raise OverrideError(f"--usage {rule!r} has no effect: --no-eviction is given")
        return kubelet_text(text, assignments)

    def scheduler(self, text: str, *, samples: bool) -> str:
        """Return the scheduler's configuration with assignments, "" for its defaults."""
        return scheduler_text(text, self.of(OverrideTarget.SCHEDULER), samples=samples)

    def to_mapping(self) -> dict[str, object]:
        """Return the overrides for the run's manifest; {} without overrides."""
        overrides = {
            "set": [each.text for each in self.assignments],
            "drop_nodes": self.drop_nodes,
            "scale_nodes": self.scale_nodes,
            "arrivals": self.arrivals,
            "usage": list(self.usage),
        }
        return {name: value for name, value in overrides.items() if value}

    def _check_usage(self, read: Callable[[], Records]) -> None:
        """Refuse usage rules that match no pod, and eviction settings for a trace without usage."""
        if self.usage:
            refuse_unmatched(self.usage, read())
            return
        assignments = self.of(OverrideTarget.KUBELET)
        if assignments and not self.allows_no_effect and not has_usage(read()):
            raise NoEffectError(
                f"--set {assignments[0].text} has no effect: the trace has no usage, so that no "
                "pod is evicted; add usage, such as --usage 'app=web memory 200Mi+50Mi/m'"
            )

    def _node_plan(self, inventory: TraceInventory) -> NodePlan:
        dropped: frozenset[str] = frozenset()
        if self.drop_nodes:
            selector = parse_selector(self.drop_nodes)
            with self._allowing():
                dropped = nodes_to_drop(selector, self.drop_nodes, inventory)
        plan = NodePlan()
        if self.scale_nodes:
            kept = [name for name in inventory.nodes if name not in dropped]
            with self._allowing():
                plan = scale_plan(self.scale_nodes, kept)
        return dataclasses.replace(plan, removed=plan.removed | dropped)

    def _allowing(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that ends at an override without an effect, where that is allowed."""
        return contextlib.suppress(*(NoEffectError,) if self.allows_no_effect else ())
