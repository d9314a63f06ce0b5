"""The state of a replay as bytes, and back.

The bytes are a pickle of a closed set of types: the classes of replay.world and services.kube,
those of a recorder's position, the contract's messages (by name and wire bytes), numpy's arrays and
plain or read-only containers. What is not part of the state, such as the services, is written as a
name and supplied by the reader. Any other type is refused, when it is written and when it is read:
these classes only hold values, so that reading a checkpoint opens no file and starts nothing.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sized
from functools import cache
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from services.rpc.kube.spec import PodSpecInterner

_PACKAGES = ("replay.results.workloads.", "replay.world.", "services.kube.")
_PLAIN = frozenset(
    {
        ("array", "array"),
        ("builtins", "frozenset"),
        ("builtins", "set"),
        ("builtins", "slice"),
        ("collections", "Counter"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("collections", "deque"),
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "timedelta"),
        ("datetime", "timezone"),
        ("replay.results.durations", "DurationHistogram"),
        ("replay.results.recorder", "RecorderPosition"),
        ("replay.results.spans.pods", "PodSpansState"),
        ("replay.results.spans.pods", "_PodTrace"),
        ("replay.results.spans.pods", "_Victim"),
        ("replay.results.spans.rounds", "RoundSpansState"),
        ("replay.results.summary.drains", "DrainedNode"),
        ("replay.results.summary.drains", "DrainedNodes"),
        ("replay.results.summary.tally", "EvictionLoops"),
        ("replay.results.summary.tally", "StepTime"),
        ("replay.results.summary.tally", "Tally"),
        ("replay.results.summary.tally", "UnboundPod"),
        ("replay.results.summary.tally", "_Series"),
        ("services.rpc.kube.spec", "PodSpecInterner"),
        ("services.telemetry.span", "SinkPosition"),
        ("services.telemetry.span", "SpanContext"),
        ("services.telemetry.span", "TraceIds"),
    }
)
_ARRAYS = ("array", "_array_reconstructor")
_DAMAGED = (
    pickle.PickleError,
    AttributeError,
    DecodeError,
    EOFError,
    ImportError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
)


class UnreadableStateError(ValueError):
    """Bytes that are not the state of a replay, or not of this version."""


def dump(state: object, outside: Mapping[str, object]) -> bytes:
    """Return objects, with all that they refer to, as bytes.

    `outside` are the objects that are not part of them, by name. Raises TypeError for an object of
    another type.
    """
    file = io.BytesIO()
    try:
        _Writer(file, outside).dump(state)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(f"the state of a replay has what cannot be saved: {error}") from error
    return file.getvalue()


def load(data: bytes, outside: Mapping[str, object]) -> Any:
    """Return what `dump` received, with the objects of `outside` in place of those of that time.

    Raises UnreadableStateError.
    """
    try:
        return _Reader(io.BytesIO(data), outside).load()
    except _DAMAGED as error:
        raise UnreadableStateError(f"not the state of a replay: {error}") from error


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, outside: Mapping[str, object]) -> None:
        super().__init__(file, protocol=5)
        self._names = {id(value): name for name, value in outside.items()}

    def reducer_override(self, obj: Any) -> Any:
        name = self._names.get(id(obj))
        if name is not None:
            return _outside, (name,)
        if isinstance(obj, Message):
            return _message, (obj.DESCRIPTOR.full_name, obj.SerializePartialToString())
        if isinstance(obj, MethodType):
            return _method, (obj.__self__, obj.__name__)
        if isinstance(obj, PodSpecInterner):
            return PodSpecInterner, ()
        if isinstance(obj, MappingProxyType):
            return _read_only, (dict(obj),)
        if type(obj).__module__ == "numpy" and isinstance(obj, Sized):
            array: Any = obj
            return _array, (array.dtype.str, array.shape, array.tobytes())
        if isinstance(obj, type):
            _check(obj)
        elif isinstance(obj, FunctionType | BuiltinFunctionType) and not (
            obj.__module__ == __name__ or (obj.__module__, obj.__name__) == _ARRAYS
        ):
            raise pickle.PicklingError(f"the function {obj.__module__}.{obj.__qualname__}")
        return NotImplemented


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, outside: Mapping[str, object]) -> None:
        super().__init__(file)
        self._outside = outside

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__:
            return {
                "_array": _array,
                "_message": _message,
                "_method": _method,
                "_outside": self._outside.__getitem__,
                "_read_only": _read_only,
            }[name]
        found = super().find_class(module, name)
        if (module, name) != _ARRAYS:
            if not isinstance(found, type):
                raise pickle.UnpicklingError(f"{module}.{name} is not a class")
            _check(found)
        return found


def _check(cls: type) -> None:
    """Raise PicklingError for a class that is not one of the state's."""
    module, name = cls.__module__, cls.__qualname__
    if not module.startswith(_PACKAGES) and (module, name) not in _PLAIN:
        raise pickle.PicklingError(f"an object of {module}.{name}")


def _outside(name: str) -> Any:
    """Stand in for the reader's own function of this name."""
    raise pickle.UnpicklingError(f"{name} is not part of the state")


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    import numpy as np  # noqa: PLC0415 - loaded with the first usage profile only

    return np.frombuffer(bytearray(data), np.dtype(dtype)).reshape(shape)


def _message(name: str, data: bytes) -> Message:
    message: Message = _class_of(name).FromString(data)
    return message


def _read_only(mapping: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(mapping)


@cache
def _class_of(name: str) -> Any:
    if not name.startswith("reprieve."):
        raise pickle.UnpicklingError(f"{name} is not a message of the contract")
    return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))


def _method(owner: object, name: str) -> Callable[..., Any]:
    """Return a method that the state refers to: of an object of the state, or of the recorder."""
    method = None if isinstance(owner, type) else getattr(owner, name)
    if not isinstance(method, MethodType):
        raise pickle.UnpicklingError(f"{name} is not a method of an object")
    return method
