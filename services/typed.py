"""Values of annotated classes as JSON, and the data of JSON and YAML as such values.

A dataclass or a named tuple is a mapping of its fields by name, so that a field may be added, or
moved, without another one being taken for it. Reading is strict: each value has its annotated
type, and no field is unknown. Null is an absent field where the type has no None, and a mapping
without fields where one is due. A value of several types is handed on as it is. What annotates a
type for which there is no hook is an example, which a refusal shows.
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
    """Data that is not what it should be; `field` is the path to it, "" for the whole."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field

    def below(self, step: str) -> DataError:
        """Return the error with its path continued upwards."""
        self.field = join(step, self.field)
        return self


def join(above: str, below: str) -> str:
    """Return a path: "a" and "b" are "a.b", "a" and "[0]" are "a[0]"."""
    return f"{above}.{below}" if above and below and below[0] != "[" else f"{above}{below}"


def write(value: object, hooks: Mapping[type, Write] = _NONE) -> bytes:
    """Return a value as JSON; fields that hold their default are left out.

    Classes of `hooks` are written as what the hook returns for an instance. Values are written
    depth first in the order of the fields, so that hooks may add to a list that comes later.
    """
    writers: dict[type, Write] = {bytes: bytes.hex, MappingProxyType: dict, **hooks}

    def default(value: object) -> object:
        kind = type(value)
        writer = writers.get(kind)
        if writer is None:
            writer = writers[kind] = _writer(kind)
        return writer(value)

    return orjson.dumps(value, default=default, option=_OPTIONS)


class Places(Generic[_T]):
    """Numbers objects by identity, for a hook: each is written once, elsewhere, as `rows`.

    `row` makes what is written of an object; the first places are those of `known`, which is kept
    elsewhere. The caller keeps all objects alive.
    """

    def __init__(self, row: Callable[[Any], _T], known: Iterable[object] = ()) -> None:
        self.rows: list[_T] = []
        self._row = row
        self._place_by_id = {id(each): place for place, each in enumerate(known)}

    def place(self, value: object) -> int:
        """Return the place of an object; one that is met for the first time gets the next."""
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
        found = {}
        for name, default in fields:
            each = getattr(value, name)
            if each is not default:
                found[name] = each
        return found

    return write_fields


@cache
def _fields(kind: type) -> Mapping[str, object]:
    """Return a class's fields and their defaults, MISSING where there is none."""
    if dataclasses.is_dataclass(kind):
        return {
            each.name: each.default if each.default_factory is _MISSING else each.default_factory
            for each in dataclasses.fields(kind)
        }
    if not hasattr(kind, "_field_defaults"):
        raise TypeError(f"{kind.__name__} is neither a dataclass nor a named tuple")
    return {name: kind._field_defaults.get(name, _MISSING) for name in cast("Any", kind)._fields}


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind, include_extras=True)


class Reading:
    """Reads data as annotations say.

    `hooks` read values of an annotation in their own way. `names` are fields whose name in the
    data is not their own; `rename` makes the names of all others. `check` is called with each
    instance of a class and returns what is put in its place; the path of a DataError that it
    raises is relative to the instance.
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
        """Return `data` as a `kind`, which is any annotation. Raises DataError."""
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
            kinds = [each for each in arguments if each is not NoneType]
            return _optional(self._reader(kinds[0])) if len(kinds) == 1 else _as_it_is
        if origin is tuple and arguments[-1] is not Ellipsis:
            return _row([self._reader(each) for each in arguments])
        if origin in {tuple, Sequence}:
            return _list(self._reader(arguments[0]))
        if origin is Mapping:
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
            for name, each in _entries({} if data is None else data).items():
                if name not in readers:
                    raise DataError(str(name), "is no known field")
                field, reader, null_is_absent = readers[name]
                if each is None and null_is_absent:
                    continue
                try:
                    values[field] = reader(each)
                except DataError as error:
                    raise error.below(name) from None
            for field, name in required:
                if field not in values:
                    raise DataError(name, "is required")
            found = kind(**values)
            return found if check is None else check(found)

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
        found: list[object] = []
        items = _items(data)
        try:
            for each in items:
                found.append(reader(each))
        except DataError as error:
            raise error.below(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _row(readers: Sequence[Read]) -> Read:
    def read(data: object) -> object:
        row = _items(data)
        if len(row) != len(readers):
            raise DataError("", f"must be a list of {len(readers)}")
        return tuple(reader(each) for reader, each in zip(readers, row, strict=True))

    return read


def _mapping(keys: Read, values: Read) -> Read:
    def read(data: object) -> object:
        found = {}
        for name, each in _entries(data).items():
            try:
                found[keys(name)] = values(each)
            except DataError as error:
                raise error.below(f"[{name}]") from None
        return found

    return read


def _choice(kind: type[Enum]) -> Read:
    members = {each.value: each for each in kind}
    known = ", ".join(f'"{each}"' for each in members)

    def read(data: object) -> Enum:
        member = members.get(_text(data))
        if member is None:
            raise DataError("", f'unsupported value "{data}": use {known}')
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
