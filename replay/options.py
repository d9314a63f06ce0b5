"""Options of the command line, declared with the values that they become.

A field of a dataclass that is made by `option` is also an option: its name, type, default and help
are stated once, beside what they mean. `takes` adds the options of a class to a command, which
receives one value of the class. Tests and programs make the same value by its constructor and get
the same defaults; an option that is added to a class reaches every command that takes it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import click

from replay.durations import duration_ns

_T = TypeVar("_T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
TITLES: WeakKeyDictionary[click.Parameter, str] = WeakKeyDictionary()
"""The section of a long command's help that an option is listed in."""
_OPTION = "option"
STORED = "stored"


class OptionError(click.ClickException):
    """A file that an option names cannot be used."""

    exit_code = 2


class ParsedParam(click.ParamType[_T], Generic[_T]):
    """A parameter type of a function that reads a text; the text of its ValueError is shown."""

    def __init__(self, name: str, read: Callable[[str], _T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _T:
        """Return the value of a text; a default of another type is returned as it is."""
        if not isinstance(value, str):
            default: _T = value
            return default
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TextFile(click.Path):
    """The path of an existing file, whose value is the file's text."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text. Raises OptionError if it cannot be read."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise OptionError(f"{path}: is not UTF-8: {error.reason}") from error
        except OSError as error:
            raise OptionError(f"{path}: {error.strerror or error}") from error


DURATION = ParsedParam("duration", duration_ns)
"""A duration such as "1h30m", "2.5s" or "500ms"; its value is in ns."""
FOLDER = click.Path(file_okay=False, path_type=Path)
TEXT_FILE = TextFile()


def option(*names: str, section: str = "", stored: object = None, **attributes: Any) -> Any:
    """Declare a field that is also the option `names`; `attributes` are those of click.option.

    The field has the option's default. section: of a long command's help. stored: where a run's
    manifest has the value; None if it has not.
    """
    kind, default = attributes.get("type"), attributes.get("default")
    if attributes.get("multiple"):
        default = ()
    elif attributes.get("is_flag"):
        default = False
    elif isinstance(kind, ParsedParam):
        default = kind.convert(default, None, None)
    if "callback" in attributes:
        default = attributes["callback"](None, None, default)
    metadata = {_OPTION: (names, section, attributes), STORED: stored}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def takes(name: str, kind: type[Any], make: Callable[..., object] | None = None) -> Decorator:
    """Return a decorator that adds a class's options; the command receives `name`, a value of it.

    make: makes the value in place of the class itself.
    """
    declared = [field for field in dataclasses.fields(kind) if _OPTION in field.metadata]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def gathered(**values: Any) -> Any:
            chosen = {field.name: values.pop(field.name) for field in declared}
            return command(**{name: (make or kind)(**chosen)}, **values)

        functools.update_wrapper(gathered, command)
        # The last decorator of a function has the first option of its help.
        for field in reversed(declared):
            names, title, attributes = field.metadata[_OPTION]
            gathered = click.option(*names, field.name, **attributes)(gathered)
            if title:
                TITLES[parameters(gathered)[-1]] = title
        return gathered

    return decorate


def long_name(field: dataclasses.Field[Any]) -> str:
    """Return the name of a field's option as in a manifest: "scale_nodes" of --scale-nodes."""
    names, _, _ = field.metadata[_OPTION]
    return str(names[-1]).removeprefix("--").replace("-", "_")


def parameters(command: Callable[..., Any]) -> list[click.Parameter]:
    """Return the parameters that decorators have added to a function so far."""
    added: list[click.Parameter] = getattr(command, "__click_params__", [])
    return added
