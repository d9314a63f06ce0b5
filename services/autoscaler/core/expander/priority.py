r"""priority: the groups that a config map gives the highest priority.

The map has regular expressions by priority; a group's priority is the highest of which one is found
in its name. Without a map, with one that cannot be read, and where no group has a priority, all
options stay. A negative priority counts for nothing.

A regular expression is Go's (RE2). What Python's `re` reads otherwise is left to it: `\z` is an
error here, and look-around, which RE2 refuses, works.

Source: kubernetes/autoscaler 1.36 expander/priority/priority.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import yaml

from services.autoscaler.core.expander.options import ExpanderContext, ExpansionOption
from services.kube.yaml_scalars import as_kubectl

_NONE = -1
_Priorities = Mapping[int, Sequence[re.Pattern[str]]]


@as_kubectl
class _Loader(yaml.SafeLoader):
    """Reads YAML as kubectl does."""


def best(options: Sequence[ExpansionOption], context: ExpanderContext) -> list[ExpansionOption]:
    """Return the options of the highest priority."""
    priorities = _read(context.priorities)
    if not priorities:
        return list(options)
    by_option = [_priority(option.group.name, priorities) for option in options]
    highest = max(by_option, default=_NONE)
    if highest == _NONE:
        return list(options)
    return [
        option for option, priority in zip(options, by_option, strict=True) if priority == highest
    ]


def _priority(group: str, priorities: _Priorities) -> int:
    return max(
        (
            priority
            for priority, patterns in priorities.items()
            if any(pattern.search(group) for pattern in patterns)
        ),
        default=_NONE,
    )


def _read(text: str | None) -> _Priorities:
    """Return the expressions by priority, none for a text that cannot be read."""
    if not text:
        return {}
    try:
        read = yaml.load(text, _Loader)  # noqa: S506 - it is a safe loader
        return {
            _number(priority): [re.compile(pattern) for pattern in _texts(patterns)]
            for priority, patterns in dict(read).items()
        }
    except (yaml.YAMLError, re.error, TypeError, ValueError):
        return {}


def _number(priority: object) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int | str):
        raise TypeError("a priority is a number")
    return int(priority)


def _texts(patterns: object) -> list[str]:
    if patterns is None:
        return []
    if not isinstance(patterns, list) or not all(isinstance(text, str) for text in patterns):
        raise TypeError("expressions are a list of texts")
    return patterns
