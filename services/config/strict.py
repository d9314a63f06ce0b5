"""Strict reading of configuration files: every field is known, occurs once, and has its type.

Paths are printed as in Kubernetes, such as `profiles[0].plugins.score`. A null field counts as
absent.

Source: kubernetes v1.34 apimachinery pkg/runtime/serializer/json/json.go, strict decoding;
pkg/util/validation/validation.go, IsQualifiedName, IsDNS1123Subdomain (names of labels).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial, singledispatch
from types import MappingProxyType
from typing import Annotated, Any

import yaml

from services.kube.time import DurationError, parse_duration_ns
from services.kube.yaml_scalars import as_kubectl
from services.typed import DataError, Read, Reading, join

Int64 = Annotated[int, 64]
"""An integer of 64 bits; a plain int has 32."""

DurationNs = Annotated[int, "ns"]
"""A duration in ns; the file has Go's notation, such as "1m30s"."""

Percentage = Annotated[int, "%"]
"""An integer from 0 to 100."""

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NONE: Mapping[Any, Any] = MappingProxyType({})
_DEPTH_MAX = 100
_NODES_MAX = 100_000
_TOO_DEEP = f"is nested more than {_DEPTH_MAX} levels deep"
_NAME_MAX = 63
_SUBDOMAIN_MAX = 253


@as_kubectl
class _Loader(yaml.SafeLoader):
    """Loads YAML as kube-scheduler and the kubelet do."""


def document(text: str) -> object:
    """Return the data of a YAML or JSON text.

    Raises DataError, also for a repeated field, more than 100 levels and more than 100,000 values.
    """
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise DataError("", f"is neither YAML nor JSON: {error}") from None
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_node(node, "", {}, 1)
        return loader.construct_document(node)
    except DataError:
        raise
    except RecursionError:
        raise DataError("", _TOO_DEEP) from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # PyYAML raises other errors for a scalar that does not match its explicit tag.
        raise DataError("", f"is neither YAML nor JSON: {error}") from None
    finally:
        loader.dispose()


def fields_of(text: str, kind: str, *api_versions: str) -> dict[str, object]:
    """Return the fields of a file with this kind and one of these versions. Raises DataError."""
    fields = document(text)
    if not isinstance(fields, dict):
        raise DataError("", f"is not a {kind}: write a mapping of its fields")
    for name, expected in (("apiVersion", api_versions), ("kind", (kind,))):
        if fields.get(name) not in expected:
            raise DataError(name, f'must be "{expected[0]}"')
    return fields


def reading(
    names: Mapping[tuple[type, str], str] = _NONE, hooks: Mapping[Any, Read] = _NONE
) -> Reading:
    """Return a Reading of a file's fields; they are in camel case, except those in `names`."""
    return Reading({**_NUMBERS, **hooks}, check=checked, names=names, rename=_camel)


@singledispatch
def checked(value: Any) -> Any:
    """Check an instance of a file's class by the rules registered for the class; return it.

    Raises DataError, with a path relative to the instance, if upstream refuses it.
    """
    return value


def within(field: str, value: int, low: int, high: int, text: str) -> None:
    """Raise DataError with `text` unless low <= value <= high."""
    if not low <= value <= high:
        raise DataError(field, text)


def check_name(name: str, path: str) -> None:
    """Raise DataError for a text that is not a qualified name."""
    problem = qualified_name_problem(name)
    if problem:
        raise DataError(path, f'"{name}": {problem}')


def qualified_name_problem(name: str) -> str:
    """Return upstream's error about a name such as "example.com/gpu"; "" for a valid name."""
    prefix, slash, rest = name.rpartition("/")
    if slash and (not prefix or "/" in prefix):
        return (
            "a qualified name must consist of alphanumeric characters, '-', '_' or '.', with an "
            "optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    if slash and (len(prefix) > _SUBDOMAIN_MAX or not _SUBDOMAIN.fullmatch(prefix)):
        return "prefix part must be a lowercase RFC 1123 subdomain (e.g. 'example.com')"
    if not rest:
        return "name part must be non-empty"
    if len(rest) > _NAME_MAX:
        return f"name part must be no more than {_NAME_MAX} characters"
    if not _NAME.fullmatch(rest):
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc')"
        )
    return ""


def _check_node(node: yaml.Node, path: str, sizes: dict[int, int], depth: int) -> int:
    """Return the number of nodes below a node, counting the target of each alias every time.

    Raises DataError for a repeated field (YAML's loader would take the last one), and for nesting
    and numbers of nodes beyond the bounds. `sizes` has the results for earlier nodes, by id.
    """
    if id(node) in sizes:
        return sizes[id(node)]
    if depth > _DEPTH_MAX:
        raise DataError("", _TOO_DEEP)
    sizes[id(node)] = size = 1
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            size += _check_node(entry, f"{path}[{index}]", sizes, depth + 1)
    elif isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            below = join(path, name if name.isidentifier() or not path else f"[{name}]")
            if name in names:
                line = key.start_mark.line + 1
                raise DataError(below, f'line {line}: "{name}" comes twice')
            names.add(name)
            size += 1 + _check_node(value, below, sizes, depth + 1)
    if size > _NODES_MAX:
        raise DataError(path, f"has more than {_NODES_MAX:,} values, aliases counted each time")
    sizes[id(node)] = size
    return size


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return "".join([first, *(other.capitalize() for other in others)])


def _whole(data: object, bits: int) -> int:
    number = Reading().read(int, data)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    within("", number, low, high, f"must lie between {low} and {high}")
    return number


def _percentage(data: object) -> int:
    percentage = Reading().read(int, data)
    within("", percentage, 0, 100, "not in valid range [0-100]")
    return percentage


def _duration(data: object) -> int:
    if not isinstance(data, str):
        raise DataError("", 'must be a duration such as "5m0s", with quotes')
    try:
        return parse_duration_ns(data)
    except DurationError as error:
        raise DataError("", str(error)) from None


_NUMBERS: Mapping[Any, Read] = {
    int: partial(_whole, bits=32),
    Int64: partial(_whole, bits=64),
    Percentage: _percentage,
    DurationNs: _duration,
}
