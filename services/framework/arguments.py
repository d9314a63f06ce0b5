"""Declares how the arguments of a plugin are read from a configuration.

A plugin with arguments has them in its room, with their defaults and checks: a class of the file's
fields, for which `services.config.strict.checked` has a rule that makes the plugin's own value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.typed import Read


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The types and defaults by which a plugin's pluginConfig is read.

    kind: the class of the file's fields; what `checked` makes of it is passed to the plugin, unless
    it is None. names: fields with another name in the file, by class and name. hooks: what reads
    values of a class. has_effect: whether any of them changes a decision; where not, a
    configuration with such arguments has a warning.
    """

    kind: type
    names: Mapping[tuple[type, str], str] = field(default_factory=dict)
    hooks: Mapping[Any, Read] = field(default_factory=dict)
    has_effect: bool = True
