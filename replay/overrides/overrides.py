"""All overrides of a run: what is asked for, checked against the trace, and carried out.

The records are a stream before and after; what is asked for is settled beforehand from an inventory
of the trace, so that an override which would touch nothing is refused before anything is started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from replay.overrides.assignment import (
    Assignment,
    Inventory,
    OverrideError,
    Target,
    kubelet_text,
    parse_assignment,
    parse_selector,
    refuse_twice,
    scheduler_text,
    take_inventory,
)
from replay.overrides.named_objects import (
    budget_changes,
    change_budgets,
    change_classes,
    class_changes,
)
from replay.overrides.nodes import NodePlan, change_nodes, dropped, scaled
from replay.overrides.usage import (
    arrivals,
    only_arrivals,
    parse_usage,
    refuse_untouched,
    tells_usage,
)
from replay.world.kubelet.annotations import UsageRule
from reprieve.trace.v1beta1 import trace_pb2

Records = Iterator[trace_pb2.Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What a user asked for, in the command line's own words.

    drop_nodes: a label selector. scale_nodes: "0.8", "1.5", "+10" or "-10", of the nodes that are
    left. arrivals: "RESOURCE=RATIO". usage: what pods use, by its text; of
    several that match a pod the last counts.
    """

    assignments: tuple[Assignment, ...] = ()
    drop_nodes: str = ""
    scale_nodes: str = ""
    arrivals: str = ""
    usage: Mapping[str, UsageRule] = field(default_factory=dict)

    @classmethod
    def parse(
        cls,
        sets: tuple[str, ...],
        drop_nodes: str,
        scale_nodes: str,
        arrivals: str,
        usage: tuple[str, ...] = (),
    ) -> Overrides:
        """Return the overrides. Raises OverrideError for a malformed `--set` or `--usage`."""
        assignments = tuple(map(parse_assignment, sets))
        refuse_twice(assignments)
        return cls(
            assignments=assignments,
            drop_nodes=drop_nodes,
            scale_nodes=scale_nodes,
            arrivals=arrivals,
            usage={text: parse_usage(text) for text in usage},
        )

    def of(self, target: Target) -> tuple[Assignment, ...]:
        """Return the assignments to one kind of thing."""
        return tuple(each for each in self.assignments if each.target is target)

    @property
    def changes_records(self) -> bool:
        """Tell whether the trace itself is changed, not its configuration alone."""
        named = (*self.of(Target.PRIORITY_CLASS), *self.of(Target.BUDGET))
        return bool(named or self.drop_nodes or self.scale_nodes or self.arrivals)

    def records(self, read: Callable[[], Records], seed: int) -> Records:
        """Return the changed trace; `read` opens it, once more for each survey of it.

        `seed` orders and draws arrivals. Raises OverrideError before the first record.
        """
        self._check_usage(read)
        if not self.changes_records:
            return read()
        inventory = take_inventory(read())
        classes = class_changes(self.of(Target.PRIORITY_CLASS), inventory)
        budgets = budget_changes(self.of(Target.BUDGET), inventory)
        plan = self._node_plan(inventory)
        records = read()
        if classes:
            records = change_classes(records, classes)
        if budgets:
            records = change_budgets(records, budgets)
        if plan.gone or plan.clones:
            records = change_nodes(records, plan)
            inventory = take_inventory(change_nodes(read(), plan)) if self.arrivals else inventory
        if self.arrivals:
            records = only_arrivals(records, arrivals(self.arrivals, inventory), seed)
        return records

    def kubelet(self, text: str, *, evicts: bool) -> str:
        """Return the kubelets' configuration, "" where they have their defaults."""
        given = self.of(Target.KUBELET)
        if given and not evicts:
            raise OverrideError(f"--set {given[0].text} touches nothing: --no-eviction is given")
        if self.usage and not evicts:
            asked = next(iter(self.usage))
            raise OverrideError(f"--usage {asked!r} touches nothing: --no-eviction is given")
        return kubelet_text(text, given)

    def scheduler(self, text: str, *, samples: bool) -> str:
        """Return the scheduler's configuration, "" where it has its defaults."""
        return scheduler_text(text, self.of(Target.SCHEDULER), samples=samples)

    def to_mapping(self) -> dict[str, object]:
        """Return what a manifest keeps; empty where nothing is overridden."""
        found = {
            "set": [each.text for each in self.assignments],
            "drop_nodes": self.drop_nodes,
            "scale_nodes": self.scale_nodes,
            "arrivals": self.arrivals,
            "usage": list(self.usage),
        }
        return {name: value for name, value in found.items() if value}

    def _check_usage(self, read: Callable[[], Records]) -> None:
        """Refuse what touches no pod, and kubelet settings where eviction is not judged."""
        if self.usage:
            refuse_untouched(self.usage, read())
            return
        given = self.of(Target.KUBELET)
        if given and not tells_usage(read()):
            raise OverrideError(
                f"--set {given[0].text} touches nothing: the trace holds no usage, so eviction is "
                "not judged; add some, as by --usage 'app=web memory 200Mi+50Mi/m'"
            )

    def _node_plan(self, inventory: Inventory) -> NodePlan:
        gone: frozenset[str] = frozenset()
        if self.drop_nodes:
            gone = dropped(parse_selector(self.drop_nodes), self.drop_nodes, inventory)
        if not self.scale_nodes:
            return NodePlan(gone=gone)
        plan = scaled(self.scale_nodes, [name for name in inventory.nodes if name not in gone])
        return dataclasses.replace(plan, gone=plan.gone | gone)
