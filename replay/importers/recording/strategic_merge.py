"""Strategic merge patches of the objects that a trace carries.

A null removes a field, a mapping is merged, a list with a merge key is merged element by element,
and other lists are replaced. Directives: `$patch: delete` and `$patch: replace`,
`$deleteFromPrimitiveList/F`, `$setElementOrder/F` and `$retainKeys`.

Source: kubernetes v1.34 apimachinery pkg/util/strategicpatch/patch.go, mergeMap; the merge keys are
the patchMergeKey tags of the fields in api/core/v1, apps/v1 and policy/v1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Raw = Mapping[str, Any]
MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "hostIPs": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "resourceClaimStatuses": ("name",),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""The merge keys of lists, by their fields.

Of two keys, the first one that an element has counts: ports of containers and of services are
merged by different fields.
"""
_MERGED_PRIMITIVES = frozenset({"finalizers", "podCIDRs"})
_DELETE_FROM, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


def merged(old: Raw, patch: Raw) -> dict[str, Any]:
    """Return `old` with the patch applied; neither is changed."""
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    result = dict(old)
    kept = patch.get("$retainKeys")
    if isinstance(kept, list):
        result = {name: value for name, value in result.items() if name in kept}
    for name, value in patch.items():
        if not isinstance(name, str):
            result[name] = value  # a key of YAML that no field of an object has
        elif name.startswith(_DELETE_FROM):
            field = name.removeprefix(_DELETE_FROM)
            gone, before = value or (), result.get(field)
            if isinstance(before, list) and isinstance(gone, list):
                result[field] = [item for item in before if item not in gone]
        elif name[:1] == "$":
            continue
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = _value(name, result.get(name), value)
    for name, order in patch.items():
        field = str(name).removeprefix(_ORDER)
        if field != name and isinstance(result.get(field), list) and isinstance(order, list):
            result[field] = _ordered(field, result[field], order)
    return result


def _value(name: str, old: object, value: object) -> object:
    if isinstance(value, dict):
        return merged(old if isinstance(old, dict) else {}, value)
    if isinstance(value, list) and name in _MERGED_PRIMITIVES:
        before = old if isinstance(old, list) else []
        return [*before, *(item for item in value if item not in before)]
    if isinstance(value, list) and name in MERGE_KEYS:
        return _list(name, old if isinstance(old, list) else [], value)
    return value


def _list(name: str, old: Sequence[Any], patch: Sequence[Any]) -> list[Any]:
    if not all(isinstance(item, dict) for item in [*old, *patch]):
        return list(patch)
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(old)
    for item in patch:
        key = _key(name, item)
        place = next((at for at, one in enumerate(result) if _key(name, one) == key), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(merged({}, item))
        else:
            result[place] = merged(result[place], item)
    return result


def _ordered(name: str, values: Sequence[Any], order: Sequence[Any]) -> list[Any]:
    keys = [_key(name, item) for item in order]
    return sorted(
        values,
        key=lambda value: keys.index(key) if (key := _key(name, value)) in keys else len(keys),
    )


def _key(name: str, element: object) -> object:
    """Return the element's merge key, or the element itself where it is not a mapping."""
    if not isinstance(element, dict):
        return element
    for field in MERGE_KEYS.get(name, ()):
        if field in element:
            return field, element[field]
    return None
