"""Overrides PodDisruptionBudgets of the trace, and adds new ones for its workloads.

If the trace does not have the named budget, a new budget is created at the start of the trace, for
the workload of the same namespace and name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from replay.hashing import object_uid
from replay.overrides.assignment import Assignment, unknown_field_error
from replay.overrides.inventory import TraceInventory, Workload
from replay.overrides.names import closest, shown_names
from replay.overrides.timed import after_header
from reprieve.kube.v1beta1 import object_pb2, policy_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.errors import FieldError
from services.rpc.kube import fields

FIELDS = ("minAvailable", "maxUnavailable")


@dataclass(slots=True)
class BudgetChanges:
    """New specs for the trace's budgets, by "namespace/name", and new budgets."""

    specs: dict[str, policy_pb2.PodDisruptionBudgetSpec] = field(default_factory=dict)
    made: dict[str, policy_pb2.PodDisruptionBudget] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.specs or self.made)


def budget_changes(assignments: Iterable[Assignment], inventory: TraceInventory) -> BudgetChanges:
    """Return the changes. Raises OverrideError if no budget and no workload has the name.

    minAvailable and maxUnavailable exclude each other: setting one removes the other.
    Source: kubernetes v1.34 pkg/apis/policy/validation/validation.go.
    """
    changes = BudgetChanges()
    for assignment in assignments:
        key = assignment.only_named(inventory.budgets, "budgets")
        workload = _workload(assignment, inventory) if not key else None
        key = workload.key if workload is not None else key
        if key in changes.specs or key in changes.made:
            raise assignment.refused(
                f"{key} is set already; minAvailable and maxUnavailable exclude each other"
            )
        if workload is None:
            changes.specs[key] = _new_spec(assignment)
        else:
            changes.made[key] = _new_budget(assignment, workload, inventory)
    return changes


def change_budgets(
    records: Iterable[trace_pb2.Record], changes: BudgetChanges
) -> Iterator[trace_pb2.Record]:
    """Yield the records with the changes in each creation and update of a budget."""
    made = [
        object_pb2.KubernetesObject(pod_disruption_budget=budget)
        for budget in changes.made.values()
    ]
    for record in after_header(records, made) if made else records:
        case = record.WhichOneof("record")
        if case in {"create", "update"} and getattr(record, case).HasField("pod_disruption_budget"):
            meta = getattr(record, case).pod_disruption_budget.metadata
            spec = changes.specs.get(f"{meta.namespace or 'default'}/{meta.name}")
            yield record if spec is None else _changed(record, case, spec)
        else:
            yield record


def _workload(given: Assignment, inventory: TraceInventory) -> Workload:
    """Return the workload with the assignment's name. Raises OverrideError."""
    top = {
        workload.key: workload
        for (kind, _), workload in inventory.workloads.items()
        if not workload.owner_uid and kind != "CronJob"
    }
    key = given.only_named(top, "workloads")
    if not key:
        hint = closest(given.name, (*inventory.budgets, *top))
        raise given.without_effect(
            f"no budget and no workload has this name{hint}; "
            f"budgets: {shown_names(inventory.budgets, 'none')}; workloads: "
            f"{shown_names(top, 'none')}"
        )
    return top[key]


def _new_budget(
    given: Assignment, workload: Workload, inventory: TraceInventory
) -> policy_pb2.PodDisruptionBudget:
    """Return a new budget for a workload's pods. Raises OverrideError if a budget covers them.

    The Eviction API never evicts a pod that two budgets cover.
    """
    namespace, _, name = workload.key.partition("/")
    for key, budget in inventory.budgets.items():
        if key.partition("/")[0] == namespace and _covers(budget, workload):
            raise given.refused(
                f"the budget {key} covers the pods of {workload.kind} {workload.key} already: "
                f"write pdb.{key}.{given.field}={given.value}"
            )
    made = policy_pb2.PodDisruptionBudget(spec=_new_spec(given))
    made.metadata.namespace, made.metadata.name = namespace, name
    made.metadata.uid = object_uid("PodDisruptionBudget", namespace, name)
    made.spec.selector.CopyFrom(workload.selector)
    return made


def _covers(budget: policy_pb2.PodDisruptionBudget, workload: Workload) -> bool:
    if not budget.spec.HasField("selector"):
        return False
    try:
        selector = fields.label_selector(budget.spec.selector, "spec.selector")
    except FieldError:
        return False
    return selector.matches(workload.labels)


def _new_spec(given: Assignment) -> policy_pb2.PodDisruptionBudgetSpec:
    spec = policy_pb2.PodDisruptionBudgetSpec()
    match given.field:
        case "minAvailable":
            value = spec.min_available
        case "maxUnavailable":
            value = spec.max_unavailable
        case _:
            raise unknown_field_error(given, FIELDS)
    number = given.whole_number
    if number is not None and abs(number) < 2**31:
        value.int_value = number
    else:
        value.string_value = given.value
    try:
        fields.int_or_percent(value, given.field)
    except FieldError as error:
        raise given.refused(str(error)) from error
    return spec


def _changed(
    record: trace_pb2.Record, case: str, new_spec: policy_pb2.PodDisruptionBudgetSpec
) -> trace_pb2.Record:
    changed = copy.deepcopy(record)
    spec = getattr(changed, case).pod_disruption_budget.spec
    spec.ClearField("min_available")
    spec.ClearField("max_unavailable")
    spec.MergeFrom(new_spec)
    return changed
