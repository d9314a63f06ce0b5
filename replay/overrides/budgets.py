"""A disruption budget that asks for more or less.

minAvailable and maxUnavailable exclude each other, so that setting one takes the other away.

Source: kubernetes v1.34 pkg/apis/policy/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from replay.overrides.assignment import Assignment, refuse_field
from replay.overrides.errors import OverrideError, listed
from replay.overrides.inventory import Inventory
from reprieve.kube.v1alpha1 import policy_pb2
from reprieve.trace.v1alpha1 import trace_pb2
from services.rpc import kube_fields
from services.rpc.errors import FieldError

FIELDS = ("minAvailable", "maxUnavailable")


def budget_changes(
    assignments: Iterable[Assignment], inventory: Inventory
) -> Mapping[str, policy_pb2.PodDisruptionBudgetSpec]:
    """Return what is asked for by "namespace/name". Raises OverrideError where that is none's."""
    changes: dict[str, policy_pb2.PodDisruptionBudgetSpec] = {}
    for each in assignments:
        key = _key(each, inventory)
        if key in changes:
            raise OverrideError(
                f"--set {each.text}: {key} is set already; minAvailable and maxUnavailable "
                "exclude each other"
            )
        changes[key] = _asked(each)
    return changes


def change_budgets(
    records: Iterable[trace_pb2.Record],
    changes: Mapping[str, policy_pb2.PodDisruptionBudgetSpec],
) -> Iterator[trace_pb2.Record]:
    """Yield the records, with the budgets changed wherever they are created or updated."""
    for record in records:
        case = record.WhichOneof("record")
        if case not in {"create", "update"}:
            yield record
            continue
        holder = getattr(record, case)
        if holder.WhichOneof("object") != "pod_disruption_budget":
            yield record
            continue
        meta = holder.pod_disruption_budget.metadata
        asked = changes.get(f"{meta.namespace or 'default'}/{meta.name}")
        yield record if asked is None else _changed(record, case, asked)


def _key(given: Assignment, inventory: Inventory) -> str:
    """Return the one budget that is meant."""
    named = [
        key
        for key in inventory.budgets
        if given.name == key or ("/" not in given.name and key.partition("/")[2] == given.name)
    ]
    if not named:
        known = listed(inventory.budgets, "no PodDisruptionBudget at all")
        raise OverrideError(f"--set {given.text} touches nothing: the trace has {known}")
    if len(named) > 1:
        raise OverrideError(f"--set {given.text}: several are named so: {listed(named, '')}")
    return named[0]


def _asked(given: Assignment) -> policy_pb2.PodDisruptionBudgetSpec:
    spec = policy_pb2.PodDisruptionBudgetSpec()
    match given.field:
        case "minAvailable":
            value = spec.min_available
        case "maxUnavailable":
            value = spec.max_unavailable
        case _:
            raise refuse_field(given, FIELDS)
    plain = given.plain_value
    if isinstance(plain, int) and not isinstance(plain, bool):
        value.number_value = plain
    else:
        value.string_value = given.value
    try:
        kube_fields.int_or_percent(value, given.field)
    except FieldError as error:
        raise OverrideError(f"--set {given.text}: {error}") from error
    return spec


def _changed(
    record: trace_pb2.Record, case: str, asked: policy_pb2.PodDisruptionBudgetSpec
) -> trace_pb2.Record:
    changed = trace_pb2.Record()
    changed.CopyFrom(record)
    spec = getattr(changed, case).pod_disruption_budget.spec
    spec.ClearField("min_available")
    spec.ClearField("max_unavailable")
    spec.MergeFrom(asked)
    return changed
