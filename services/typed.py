"""Values of annotated classes as JSON, and the data of JSON and YAML as such values.

A dataclass or a named tuple is a mapping of its fields by name, so that a field may be added or
moved without being confused with another one. Reading is strict: each value has its annotated type,
and unknown fields are errors. Null is an absent field where the type does not allow None, and an
empty mapping where a mapping is required. A value of a union type is returned as it is. The
metadata of an Annotated type without a hook is an example, which errors show.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import orjson
from google.protobuf.message import Message

Read = Callable[[Any], Any]
Write = Callable[[Any], object]
_T = TypeVar("_T")
_NONE: Mapping[Any, Any] = MappingProxyType({})
_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_NON_STR_KEYS
_MISSING = dataclasses.MISSING


class DataError(ValueError):
    """Data of a wrong form; `field` is its path, "" for the whole."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field

    def below(self, step: str) -> DataError:
        """Prepend `step` to the path, and return the error."""
        self.field = join(step, self.field)
        return self


def join(above: str, below: str) -> str:
    """Return the path of `below` in `above`: "a" and "b" make "a.b", "a" and "[0]" "a[0]"."""
    return f"{above}.{below}" if above and below and below[0] != "[" else f"{above}{below}"


def write(value: object, hooks: Mapping[type, Write] = _NONE) -> bytes:
    """Return a value as JSON, without the fields that have their default.

    An instance of a class in `hooks` is written as what its hook returns. Values are written depth
    first in the order of the fields, so that hooks may append to a list that is written later.
    """
    writers: dict[type, Write] = {bytes: bytes.hex, MappingProxyType: dict, set: sorted, **hooks}

    def default(value: object) -> object:
        kind = type(value)
        writer = writers.get(kind)
        if writer is None:
            writer = writers[kind] = _writer(kind)
        return writer(value)

    return orjson.dumps(value, default=default, option=_OPTIONS)


class Places(Generic[_T]):
    """Numbers objects by identity, for a hook, so that each is written once, in `rows`.

    `row` makes an object's row. The objects of `known` have the first numbers, and no rows. The
    caller must keep all objects alive.
    """

    def __init__(self, row: Callable[[Any], _T], known: Iterable[object] = ()) -> None:
        self.rows: list[_T] = []
        self._row = row
        self._place_by_id = {id(known_value): place for place, known_value in enumerate(known)}

    def place(self, value: object) -> int:
        """Return the number of an object; a new one gets the next number and a row."""
        places = self._place_by_id
        place = places.get(id(value))
        if place is None:
            place = places[id(value)] = len(places)
            self.rows.append(self._row(value))
        return place


def _writer(kind: type) -> Write:
    if Message in kind.__mro__:
        return lambda message: message.SerializeToString(deterministic=True).hex()
    fields = tuple(_fields(kind).items())

    def write_fields(value: object) -> dict[str, object]:
        fields_set = {}
        for name, default in fields:
            content = getattr(value, name)
            if content is not default:
                fields_set[name] = content
        return fields_set

    return write_fields


@cache
def _fields(kind: type) -> Mapping[str, object]:
    """Return a class's fields and their defaults, _MISSING for a required one."""
    if dataclasses.is_dataclass(kind):
        return {
            field.name: field.default
            if field.default_factory is _MISSING
            else field.default_factory
            for field in dataclasses.fields(kind)
        }
    if not hasattr(kind, "_field_defaults"):
        raise TypeError(f"{kind.__name__} is neither a dataclass nor a named tuple")
    return {name: kind._field_defaults.get(name, _MISSING) for name in cast("Any", kind)._fields}


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind, include_extras=True)


class Reading:
    """Reads data by annotations.

    `hooks` are functions that read values of an annotation. `names` are the names in the data of
    some fields, and `rename` makes those of all others. `check` is called with each instance and
    returns what replaces it; the path of a DataError that it raises is relative to the instance.
    """

    def __init__(
        self,
        hooks: Mapping[Any, Read] = _NONE,
        *,
        check: Read | None = None,
        names: Mapping[tuple[type, str], str] = _NONE,
        rename: Callable[[str], str] = str,
    ) -> None:
        self._readers: dict[Any, Read] = {**_SIMPLE, **hooks}
        self._check, self._names, self._rename = check, names, rename

    def read(self, kind: type[_T], data: object) -> _T:
        """Return `data` as a value of `kind`, which is any annotation. Raises DataError."""
        return cast("_T", self._reader(kind)(data))

    def _reader(self, kind: Any) -> Read:
        reader = self._readers.get(kind)
        if reader is None:
            reader = self._readers[kind] = self._made(kind)
        return reader

    def _made(self, kind: Any) -> Read:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return _with_example(self._reader(arguments[0]), arguments[1])
        if origin in {Union, UnionType}:
            kinds = [argument for argument in arguments if argument is not NoneType]
            return _optional(self._reader(kinds[0])) if len(kinds) == 1 else _as_it_is
        if origin is tuple and arguments[-1] is not Ellipsis:
            return _row([self._reader(argument) for argument in arguments])
        if origin in {tuple, Sequence}:
            return _list(self._reader(arguments[0]))
        if origin in {list, set}:
            listed, kind = _list(self._reader(arguments[0])), origin
            return lambda data: kind(listed(data))
        if origin in {Mapping, dict}:
            return _mapping(self._reader(arguments[0]), self._reader(arguments[1]))
        if issubclass(kind, Enum):
            return _choice(kind)
        if issubclass(kind, Message):
            return lambda data: kind.FromString(_bytes(data))
        return self._instance(kind)

    def _instance(self, kind: type) -> Read:
        hints = _hints(kind)
        readers, required = {}, []
        for field, default in _fields(kind).items():
            name = self._names.get((kind, field)) or self._rename(field)
            hint = hints[field]
            null_is_absent = default is not _MISSING and NoneType not in get_args(hint)
            readers[name] = (field, self._reader(hint), null_is_absent)
            if default is _MISSING:
                required.append((field, name))
        check = self._check

        def read(data: object) -> object:
            values = {}
            for name, content in _entries({} if data is None else data).items():
                if name not in readers:
                    raise DataError(str(name), "is not a known field")
                field, reader, null_is_absent = readers[name]
                if content is None and null_is_absent:
                    continue
                try:
                    values[field] = reader(content)
                except DataError as error:
                    raise error.below(name) from None
            for field, name in required:
                if field not in values:
                    raise DataError(name, "is required")
            instance = kind(**values)
            return instance if check is None else check(instance)

        return read


def _of(kinds: Collection[type], expected: str) -> Read:
    def read(data: object) -> object:
        if type(data) in kinds:
            return data
        raise DataError("", f"must be {expected}")

    return read


def _text(data: object) -> str:
    if type(data) is str:
        return data
    is_plain = isinstance(data, int | float)
    hint = f': write "{str(data).lower()}", with quotes' if is_plain else ""
    raise DataError("", f"must be a text{hint}")


def _bytes(data: object) -> bytes:
    try:
        return bytes.fromhex(_text(data))
    except ValueError:
        raise DataError("", "must be bytes in hex") from None


def _with_example(reader: Read, example: object) -> Read:
    def read(data: object) -> object:
        try:
            return reader(data)
        except DataError as error:
            raise (
                DataError("", f"{error}, such as {example}") if not error.field else error
            ) from None

    return read


def _optional(reader: Read) -> Read:
    return lambda data: None if data is None else reader(data)


def _list(reader: Read) -> Read:
    def read(data: object) -> object:
        values: list[object] = []
        items = _items(data)
        try:
            for item in items:
                values.append(reader(item))
        except DataError as error:
            raise error.below(f"[{len(values)}]") from None
        return tuple(values)

    return read


def _row(readers: Sequence[Read]) -> Read:
    def read(data: object) -> object:
        row = _items(data)
        if len(row) != len(readers):
            raise DataError("", f"must be a list of {len(readers)}")
        return tuple(reader(item) for reader, item in zip(readers, row, strict=True))

    return read


def _mapping(keys: Read, values: Read) -> Read:
    def read(data: object) -> object:
        readers = {}
        for name, content in _entries(data).items():
            try:
                readers[keys(name)] = values(content)
            except DataError as error:
                raise error.below(f"[{name}]") from None
        return readers

    return read


def _choice(kind: type[Enum]) -> Read:
    members = {member.value: member for member in kind}
    values = ", ".join(f'"{value}"' for value in members)

    def read(data: object) -> Enum:
        member = members.get(_text(data))
        if member is None:
            raise DataError("", f'unsupported value "{data}": use {values}')
        return member

    return read


def _as_it_is(data: object) -> object:
    return data


_entries, _items = _of({dict}, "a mapping of fields"), _of({list}, "a list")
_SIMPLE: Mapping[Any, Read] = {
    str: _text,
    bytes: _bytes,
    bool: _of({bool}, "true or false"),
    int: _of({int}, "a whole number"),
    float: _of({int, float}, "a number"),
    object: _as_it_is,
}
