"""The state of a replay as bytes, and back: data whose types are declared in our code.

The bytes are MessagePack and name no class, function or module. The annotation of the attribute
that a value is read into decides its type; anything else is refused. So an untrusted checkpoint can
do no more than a JSON file: it makes values of declared types, and nothing in it is imported or
called.

- A value is an instance of a class whose annotations are its fields: dataclasses, named tuples, and
  classes that hold nothing else. Where the constructor takes the fields, it makes the value again;
  what it derives from them is not saved. Enums are saved by name, messages of the contract as
  protobuf.
- A part is one of the objects that a replay is made of, such as its controllers. The reader makes
  all of them as for a new run, with everything that connects them; only the attributes that a
  part's class annotates are saved, by the part's path from the replay.
- What is referred to twice is written once: the first time as a list, a map or bytes, later as its
  number, in the order in which they were complete. Tuples, sets of values and read-only mappings
  have no identity and no number. Values do not refer to each other in a circle.

Reading is bounded by the size of the data: counts that MessagePack announces are checked against
what is there before anything is made, nesting ends at the reader's own limit, and each byte makes
at most one object.
"""

from __future__ import annotations

import inspect
from array import array
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableSequence, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgpack
from google.protobuf.message import DecodeError, Message

_T = TypeVar("_T")
_PARTS = "replay.world."
"""Where the classes of parts are."""
_LONG_INTEGER = 1
_LONG_BYTES = 32
"""The type of an integer beyond 64 bits, and its size: quantities are counted in billionths."""
_DAMAGED = (
    msgpack.UnpackException,
    DecodeError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading raises: our own refusals, MessagePack's, and those of constructors."""


class UnreadableStateError(ValueError):
    """Bytes that are not the state of a replay, or not of this version."""


def dump(kind: Hashable, value: object) -> bytes:
    """Return a value of `kind`, an annotation, as bytes.

    Raises TypeError for an object that its annotation does not describe.
    """
    return _packed(lambda: _codec(kind).write(value, {}))


def load(kind: type[_T], data: bytes) -> _T:
    """Return the value of `kind` that `dump` received. Raises UnreadableStateError."""
    codec = _codec(cast("Hashable", kind))
    return cast("_T", _unpacked(data, lambda content: codec.read(content, [])))


def dump_parts(whole: object) -> bytes:
    """Return what the parts of `whole` keep, itself among them.

    Raises TypeError for an object that its annotation does not describe.
    """
    seen: _Seen = {}
    return _packed(lambda: [[path, kept.write(part, seen)] for path, part, kept in _keepers(whole)])


def restore_parts(whole: object, data: bytes) -> None:
    """Give the parts of `whole` what those had of which `dump_parts` made the bytes.

    `whole` was made in the same way. Raises UnreadableStateError; `whole` is of no use then.
    """

    def read(content: object) -> None:
        objects: _Objects = []
        parts = list(_keepers(whole))
        for row, (path, part, kept) in zip(_list_of(content, len(parts)), parts, strict=True):
            name, values = _list_of(row, 2)
            if name != path:
                raise UnreadableStateError(f"has {name!r} in the place of {path!r}")
            kept.read_into(part, values, objects)

    _unpacked(data, read)


def parts(whole: object) -> Iterator[tuple[str, object]]:
    """Yield `whole` and its parts with their paths, each once and in a fixed order."""
    known, parts_so_far = {id(whole)}, [("", whole)]
    for path, part in parts_so_far:
        yield path, part
        kept = annotated(type(part))
        for name, value in _members(part):
            if name not in kept and id(value) not in known and _is_part(value):
                known.add(id(value))
                parts_so_far.append((f"{path}.{name}" if path else name, value))


def _members(part: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes of a part, and the items of its tuples by the names of their classes."""
    for name, value in vars(part).items():
        yield name, value
        if type(value) is tuple:
            for member in value:
                yield f"{name}.{type(member).__name__}", member


# Bytes


def _packed(content: Callable[[], object]) -> bytes:
    try:
        return cast("bytes", msgpack.packb(content(), default=_long_integer))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise TypeError(f"the state of a replay has what cannot be saved: {error}") from error


def _long_integer(value: object) -> msgpack.ExtType:
    """Return an integer for which MessagePack has no form. Raises TypeError for all else."""
    if type(value) is not int:
        raise TypeError(f"an object of {type(value).__module__}.{type(value).__qualname__}")
    return msgpack.ExtType(_LONG_INTEGER, value.to_bytes(_LONG_BYTES, "big", signed=True))


def _unpacked(data: bytes, read: Callable[[Any], _T]) -> _T:
    try:
        # Without this look a few bytes could announce lists of as many elements as there are bytes,
        # a thousand levels deep, and memory would be taken for all of them.
        look = msgpack.Unpacker(max_buffer_size=len(data))
        look.feed(data)
        look.skip()
        return read(msgpack.unpackb(data, strict_map_key=False, ext_hook=_extension))
    except UnreadableStateError as error:
        raise UnreadableStateError(f"not the state of a replay: {error}") from error
    except _DAMAGED as error:
        text = str(error) or type(error).__name__
        raise UnreadableStateError(f"not the state of a replay: {text}") from error


def _extension(code: int, data: bytes) -> int:
    if code != _LONG_INTEGER or len(data) != _LONG_BYTES:
        raise UnreadableStateError("has an extension that is not an integer")
    return int.from_bytes(data, "big", signed=True)


# Types

_Seen = dict[int, int]
"""The numbers of the objects written so far, by id(); all of them are alive meanwhile."""
_Objects = list[tuple[object, object]]
"""The objects read so far by number, each after its annotation."""


@dataclass(frozen=True, slots=True)
class _Codec:
    """Writes and reads the values of one annotation.

    is_plain: MessagePack writes them as they are, so that `write` may be left out.
    """

    write: Callable[[Any, _Seen], Any]
    read: Callable[[Any, _Objects], Any]
    is_plain: bool = False


_CODECS: dict[Any, _Codec] = {}


def _codec(kind: Any) -> _Codec:
    """Return the codec of an annotation, made once.

    Raises TypeError if it, or one that it leads to, describes no data.
    """
    codec = _CODECS.get(kind)
    if codec is None:
        codec = _CODECS[kind] = _new_codec(kind)
    return codec


def _new_codec(kind: Any) -> _Codec:
    origin = get_origin(kind)
    if kind in _ATOMS:
        return _atom(_ATOMS[kind], getattr(kind, "__name__", "None"))
    if origin in _GENERIC:
        return _GENERIC[origin](kind, *get_args(kind))
    if not isinstance(origin or kind, type):
        raise TypeError(f"{kind} describes no data")
    if issubclass(origin or kind, Enum):
        return _enum(kind)
    if issubclass(origin or kind, Message):
        return _message(kind)
    if issubclass(origin or kind, tuple):
        return _row([_codec(hint) for hint in annotated(kind).values()], kind._make)
    return _instance(kind)


_ATOMS: Mapping[Any, frozenset[type]] = {
    str: frozenset({str}),
    bytes: frozenset({bytes}),
    bool: frozenset({bool}),
    int: frozenset({int, bool}),
    float: frozenset({float, int}),
    None: frozenset({NoneType}),
    NoneType: frozenset({NoneType}),
}


def _atom(types: frozenset[type], name: str) -> _Codec:
    def read(data: object, _: _Objects) -> object:
        if type(data) in types:
            return data
        raise UnreadableStateError(f"must be of type {name}")

    return _Codec(_as_it_is, read, is_plain=True)


def _as_it_is(value: object, _: _Seen) -> object:
    return value


def _union(_: object, *kinds: Any) -> _Codec:
    """Return the codec of one kind of data, beside values that MessagePack tells apart from it."""
    types = frozenset[type]().union(*(_ATOMS.get(kind, frozenset()) for kind in kinds))
    others = [kind for kind in kinds if kind not in _ATOMS]
    if not others:
        return _atom(types, " or ".join(sorted(type_.__name__ for type_ in types)))
    if len(others) > 1 or not (types == {NoneType} or get_origin(others[0]) is Sequence):
        raise TypeError(f"values of {kinds} cannot be told apart")
    other = _codec(others[0])

    def write(value: object, seen: _Seen) -> object:
        return value if type(value) in types else other.write(value, seen)

    def read(data: object, objects: _Objects) -> object:
        return data if type(data) in types else other.read(data, objects)

    return _Codec(write, read, is_plain=other.is_plain)


def _list_of(data: object, size: int | None = None) -> list[Any]:
    if type(data) is not list or (size is not None and len(data) != size):
        raise UnreadableStateError(f"must be a list{'' if size is None else f' of {size}'}")
    return data


def _tuple(_: object, *kinds: Any) -> _Codec:
    if kinds[-1] is not Ellipsis:
        return _row([_codec(kind) for kind in kinds], tuple)
    return _sequence(_, kinds[0])


def _sequence(_: object, kind: Any) -> _Codec:
    element = _codec(kind)

    def write(value: Sequence[object], seen: _Seen) -> object:
        return [element.write(item, seen) for item in value]

    def read(data: object, objects: _Objects) -> object:
        return tuple([element.read(item, objects) for item in _list_of(data)])

    return _Codec(_as_it_is if element.is_plain else write, read, is_plain=element.is_plain)


def _row(elements: Sequence[_Codec], make: Callable[[list[Any]], object]) -> _Codec:
    """Return the codec of a tuple of fixed size."""
    is_plain = all(element.is_plain for element in elements)
    writers = [element.write for element in elements]
    readers = [element.read for element in elements]

    def write(value: Sequence[object], seen: _Seen) -> object:
        return [write(item, seen) for write, item in zip(writers, value, strict=True)]

    def read(data: object, objects: _Objects) -> object:
        row = _list_of(data, len(readers))
        return make([read(item, objects) for read, item in zip(readers, row, strict=True)])

    return _Codec(_as_it_is if is_plain else write, read, is_plain=is_plain)


_Pair = tuple[Callable[[Any, _Seen], Any], Callable[[Any, _Objects], Any]]


def _elements(kind: Any, element: _Codec) -> _Pair:
    """Return how the elements of a list, a deque or a set (in order) are written and read."""
    ordered = sorted if issubclass(kind, Set) else list

    def write(value: Sequence[Any], seen: _Seen) -> object:
        return [element.write(item, seen) for item in ordered(value)]

    def read(data: object, objects: _Objects) -> object:
        values = [element.read(item, objects) for item in _list_of(data)]
        return values if kind is list else kind(values)

    return (lambda value, _: ordered(value)) if element.is_plain else write, read


def _entries(make: Callable[[Any], object], key: Any, value: _Codec) -> _Pair:
    """Return how a dict's entries are written and read: as a map, or as keys and values in turn."""
    if key in {str, int}:
        return _map_entries(make, _ATOMS[key], value)
    keys = _codec(key)

    def write(entries: Mapping[Any, Any], seen: _Seen) -> object:
        row: list[object] = []
        for name, item in entries.items():
            row += keys.write(name, seen), value.write(item, seen)
        return row

    def read(data: object, objects: _Objects) -> object:
        row = _list_of(data)
        if len(row) % 2:
            raise UnreadableStateError("must be a list of keys and values")
        pairs = zip(row[::2], row[1::2], strict=True)
        return make({keys.read(key, objects): value.read(item, objects) for key, item in pairs})

    return write, read


def _map_entries(make: Callable[[Any], object], key_types: frozenset[type], value: _Codec) -> _Pair:
    def write(entries: Mapping[Any, Any], seen: _Seen) -> object:
        if value.is_plain:
            return entries
        return {name: value.write(item, seen) for name, item in entries.items()}

    def read(data: object, objects: _Objects) -> object:
        if type(data) is not dict or not key_types.issuperset(map(type, data)):
            raise UnreadableStateError("must be a map")
        return make({name: value.read(item, objects) for name, item in data.items()})

    return write, read


def _numbered(kind: object, write: Any, read: Any) -> _Codec:
    """Return the codec of objects with an identity: later ones are written as a number."""

    def write_once(value: object, seen: _Seen) -> object:
        number = seen.get(id(value))
        if number is not None:
            return number
        content = write(value, seen)
        seen[id(value)] = len(seen)
        return content

    def read_once(data: object, objects: _Objects) -> object:
        if type(data) is int:
            if 0 <= data < len(objects) and objects[data][0] == kind:
                return objects[data][1]
            raise UnreadableStateError("refers to an object that does not precede it")
        value = read(data, objects)
        objects.append((kind, value))
        return value

    return _Codec(write_once, read_once)


def _collection(kind: Any, element: Any) -> _Codec:
    return _numbered(kind, *_elements(get_origin(kind), _codec(element)))


def _counter(kind: Any, key: Any) -> _Codec:
    return _numbered(kind, *_entries(Counter, key, _codec(int)))


def _dict(kind: Any, key: Any, value: Any) -> _Codec:
    return _numbered(kind, *_entries(dict, key, _codec(value)))


def _mapping(_: object, key: Any, value: Any) -> _Codec:
    write, read = _entries(dict, key, _codec(value))
    return _Codec(lambda value, seen: write(dict(value), seen), read)


def _array(kind: Any, element: Any) -> _Codec:
    """Return the codec of MutableSequence[int], which is an array of 64-bit integers."""
    if element is not int:
        raise TypeError(f"{kind} is not an array of integers")

    def read(data: object, _: _Objects) -> array[int]:
        if type(data) is not bytes:
            raise UnreadableStateError("must be bytes")
        numbers = array("q")
        numbers.frombytes(data)
        return numbers

    return _Codec(lambda value, _: value.tobytes(), read)


_GENERIC: Mapping[Any, Callable[..., _Codec]] = {
    Union: _union,
    UnionType: _union,
    tuple: _tuple,
    Sequence: _sequence,
    list: _collection,
    deque: _collection,
    set: _collection,
    frozenset: _collection,
    Counter: _counter,
    dict: _dict,
    Mapping: _mapping,
    MutableSequence: _array,
}


def _enum(kind: type[Enum]) -> _Codec:
    members = dict(kind.__members__)

    def read(data: object, _: _Objects) -> Enum:
        member = members.get(data) if type(data) is str else None
        if member is None:
            raise UnreadableStateError(f"must be one of {', '.join(members)}")
        return member

    return _Codec(lambda value, _: value._name_, read)


def _message(kind: type[Message]) -> _Codec:
    def write(value: Message, _: _Seen) -> bytes:
        if type(value) is not kind:
            raise TypeError(f"an object of {type(value)} in the place of {kind}")
        return value.SerializePartialToString(deterministic=True)

    def read(data: object, _: _Objects) -> Message:
        if type(data) is not bytes:
            raise UnreadableStateError("must be a message")
        return kind.FromString(data)

    return _numbered(kind, write, read)


# Classes


class _Fields:
    """The fields of a class, or those of a part's attributes that its class annotates.

    Most are written as they are: one call fetches all of them, and only the others are visited.
    """

    def __init__(self, hints: Mapping[str, Any]) -> None:
        codecs = {name: _codec(hint) for name, hint in hints.items()}
        self.names = tuple(codecs)
        self._get = attrgetter(*self.names)
        self._writers = [
            (place, codec.write)
            for place, codec in enumerate(codecs.values())
            if not codec.is_plain
        ]
        self._readers = [codec.read for codec in codecs.values()]

    def write(self, value: object, seen: _Seen) -> list[Any]:
        """Return the values of the fields, in order."""
        row = list(self._get(value)) if len(self.names) > 1 else [self._get(value)]
        for place, write in self._writers:
            row[place] = write(row[place], seen)
        return row

    def read(self, data: object, objects: _Objects) -> dict[str, Any]:
        """Return the values by name. Raises UnreadableStateError, with the field's name."""
        values = {}
        row = _list_of(data, len(self.names))
        for name, read, content in zip(self.names, self._readers, row, strict=True):
            try:
                values[name] = read(content, objects)
            except UnreadableStateError as error:
                raise UnreadableStateError(f"{name}: {error}") from None
        return values

    def read_into(self, value: object, data: object, objects: _Objects) -> None:
        """Set the fields of an object."""
        for name, content in self.read(data, objects).items():
            object.__setattr__(value, name, content)


def annotated(kind: Any) -> Mapping[str, Any]:
    """Return the annotated attributes of a class, whose type parameters are those of `kind`.

    Those that a dataclass derives from its other fields are left out.
    """
    return _annotated(kind)


@cache
def _annotated(kind: Hashable) -> Mapping[str, Any]:
    cls: Any = get_origin(kind) or kind
    arguments = get_args(kind)
    derived = {field.name for field in fields(cls) if not field.init} if is_dataclass(cls) else ()
    hints = {
        name: hint
        for name, hint in get_type_hints(cls).items()
        if get_origin(hint) is not ClassVar and name not in derived
    }
    if not arguments:
        return hints
    meant = dict(zip(cls.__parameters__, arguments, strict=True))
    return {
        name: hint[tuple(meant[parameter] for parameter in hint.__parameters__)]
        if getattr(hint, "__parameters__", ())
        else hint
        for name, hint in hints.items()
    }


def _instance(kind: Any) -> _Codec:
    """Return the codec of a class whose annotations are its fields.

    A class whose constructor takes something else has them set, and may have no other attribute.
    """
    cls, names = get_origin(kind) or kind, annotated(kind).keys()
    is_made_of_fields = set(inspect.signature(cls).parameters) == set(names)
    if not names or (is_dataclass(cls) and not is_made_of_fields):
        raise TypeError(f"{cls} is not described by its annotations")

    def write(value: object, seen: _Seen) -> object:
        if type(value) is not cls:
            raise TypeError(f"{value!r} is in the place of an object of {cls}")
        if not is_made_of_fields and _attributes(value) != names:
            raise TypeError(f"{cls} keeps what it does not annotate")
        return kept.write(value, seen)

    def read(data: object, objects: _Objects) -> object:
        if is_made_of_fields:
            return cls(**kept.read(data, objects))
        value = object.__new__(cls)
        kept.read_into(value, data, objects)
        return value

    codec = _CODECS[kind] = _numbered(kind, write, read)
    kept = _Fields(annotated(kind))  # After the codec: a class may refer to itself.
    return codec


def _attributes(value: object) -> Set[str]:
    """Return the names of an object's attributes, but for those that typing adds."""
    slots = {name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())}
    names = slots | getattr(value, "__dict__", {}).keys()
    return {name for name in names if not name.startswith("__")}


# Parts


@cache
def _kept(cls: Hashable) -> _Fields | None:
    """Return the attributes that parts of a class keep, None if they keep nothing."""
    hints = annotated(cls)
    return _Fields(hints) if hints else None


def _keepers(whole: object) -> Iterator[tuple[str, object, _Fields]]:
    """Yield the parts that keep something."""
    for path, part in parts(whole):
        kept = _kept(cast("Hashable", type(part)))
        if kept is not None:
            yield path, part, kept


def _is_part(value: object) -> bool:
    cls = type(value)
    is_value = is_dataclass(cls) or issubclass(cls, Enum) or not hasattr(value, "__dict__")
    return cls.__module__.startswith(_PARTS) and not is_value
