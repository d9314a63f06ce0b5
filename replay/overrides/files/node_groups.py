"""Overrides node groups and autoscaler flags in the file of --autoscaler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from replay.autoscaling.errors import GroupsError
from replay.autoscaling.file import AutoscalerFile, autoscaling, read, written
from replay.overrides.assignment import Assignment, OverrideTarget, unknown_field_error
from replay.overrides.names import closest, shown_names

FIELDS = ("min", "max", "price", "provisioningDelay")


def groups_text(text: str, assignments: Sequence[Assignment]) -> str:
    """Return a file of node groups with the fields and flags set. Raises OverrideError.

    text: a complete file; every group in it has a template. The autoscaler refuses flags that it
    does not support.
    """
    if not assignments:
        return text
    file = read(text)
    for assignment in assignments:
        if assignment.target is OverrideTarget.AUTOSCALER:
            flags = {**file.flags, assignment.name: assignment.value}
            file = replace(file, flags=flags)
        else:
            file = _with_group(file, assignment)
    changed = written(file)
    try:
        autoscaling(read(changed), 0)
    except GroupsError as error:
        raise assignments[-1].refused(str(error)) from None
    return changed


def _with_group(file: AutoscalerFile, assignment: Assignment) -> AutoscalerFile:
    names = [group.name for group in file.groups]
    if assignment.name not in names:
        raise assignment.without_effect(
            f"there is no node group {assignment.name}{closest(assignment.name, names)}; the "
            f"groups are {shown_names(names, 'none')}"
        )
    if assignment.field not in FIELDS:
        raise unknown_field_error(assignment, FIELDS)
    place = names.index(assignment.name)
    group = replace(file.groups[place], **_field(assignment))
    return replace(file, groups=[*file.groups[:place], group, *file.groups[place + 1 :]])


def _field(assignment: Assignment) -> dict[str, Any]:
    field, value = assignment.field, assignment.plain_value
    if field == "provisioningDelay":
        return {"provisioning_delay": value if isinstance(value, list) else assignment.value}
    if field == "price":
        if type(value) not in (int, float):
            raise assignment.refused("the price must be a number")
        return {field: value}
    if assignment.whole_number is None:
        raise assignment.refused(f"{field} must be a whole number")
    return {field: value}
