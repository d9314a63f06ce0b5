"""A configuration file read strictly: each field once, none that is unknown, each of its type.

Paths are those that Kubernetes prints, such as `profiles[0].plugins.score`.

Source: kubernetes v1.34 apimachinery pkg/runtime/serializer/json/json.go, strict decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeGuard

import yaml

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)


class ConfigError(ValueError):
    """A file that is refused; `field` is the path in it, empty for the whole."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def document(text: str) -> object:
    """Return what a YAML or JSON text holds. Raises ConfigError, for a repeated field too."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_repeated(node, "", set())
        return loader.construct_document(node)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError("", f"is neither YAML nor JSON: {error}") from None
    finally:
        loader.dispose()


def _refuse_repeated(node: yaml.Node, path: str, seen: set[int]) -> None:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, each in enumerate(node.value):
            _refuse_repeated(each, f"{path}[{index}]", seen)
    elif isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in names:
                raise ConfigError(below(path, name), "comes twice")
            names.add(name)
            _refuse_repeated(value, below(path, name), seen)


def below(path: str, name: str) -> str:
    """Return the path of a field."""
    return f"{path}.{name}" if path else name


class Fields:
    """A mapping of the file; `end` refuses the fields that nobody asked for.

    A field that is null counts as absent.
    """

    def __init__(self, path: str, value: object) -> None:
        if value is None:
            value = {}
        if not _is_mapping(value):
            raise ConfigError(path, "must be a mapping of fields")
        self.path = path
        self._values = value
        self._left = set(value)

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return below(self.path, name)

    def has(self, name: str) -> bool:
        """Tell whether a field is there and not null."""
        return self._values.get(name) is not None

    def text(self, name: str) -> str | None:
        """Return a text."""
        value = self._take(name)
        if value is not None and not isinstance(value, str):
            raise ConfigError(self.at(name), "must be a text")
        return value

    def flag(self, name: str) -> bool | None:
        """Return true or false."""
        value = self._take(name)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(self.at(name), "must be true or false")
        return value

    def integer(self, name: str, *, wide: bool = False) -> int | None:
        """Return a whole number of 32 bits, or 64 where it is `wide`."""
        value = self._take(name)
        if value is None:
            return None
        least, most = _INT64 if wide else _INT32
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(self.at(name), "must be a whole number")
        if not least <= value <= most:
            raise ConfigError(self.at(name), f"must lie between {least} and {most}")
        return value

    def number(self, name: str) -> float | None:
        """Return a number."""
        value = self._take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ConfigError(self.at(name), "must be a number")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts, empty where it is absent."""
        values = tuple(self._list(name))
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise ConfigError(f"{self.at(name)}[{index}]", "must be a text")
        return tuple(str(value) for value in values)

    def fields(self, name: str) -> Fields | None:
        """Return a mapping below this one."""
        value = self._take(name)
        return None if value is None else Fields(self.at(name), value)

    def mapping(self, name: str) -> Mapping[str, object]:
        """Return a mapping as it is, whatever its fields; an empty one where it is absent."""
        value = self._take(name)
        return {} if value is None else Fields(self.at(name), value)._values

    def each(self, name: str) -> Iterator[Fields]:
        """Yield the mappings of a list, none where it is absent."""
        for index, value in enumerate(self._list(name)):
            yield Fields(f"{self.at(name)}[{index}]", value)

    def end(self) -> None:
        """Refuse what was not asked for."""
        for name in self._values:
            if name in self._left:
                raise ConfigError(self.at(name), "is no known field")

    def _take(self, name: str) -> object:
        self._left.discard(name)
        return self._values.get(name)

    def _list(self, name: str) -> list[object]:
        value = self._take(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ConfigError(self.at(name), "must be a list")
        return value


def _is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value)
