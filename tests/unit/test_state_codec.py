"""The state of a replay as bytes: data of declared types, and nothing that acts."""

from __future__ import annotations

import sys
from array import array
from collections import Counter, deque
from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgpack
import pytest

from replay.results.recorder import RunRecorder
from replay.state_codec import UnreadableStateError, dump, load
from replay.world.api.pod_record import PodRecord
from replay.world.timeline import ActionKind, Timeline
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.selector import LabelSelectors
from services.kube.taints import TaintEffect


class Row(NamedTuple):
    """A row with an enum."""

    kind: TaintEffect
    key: str


_ROW = Row(TaintEffect.NO_SCHEDULE, "b")


@dataclass(slots=True, kw_only=True)
class Kept:
    """A value of every form of data that a state has."""

    text: str = "a"
    number: int = 1 << 70
    share: float = 0.5
    flag: bool = True
    data: bytes = b"\0"
    nothing: int | None = None
    kind: TaintEffect = TaintEffect.NO_EXECUTE
    row: Row = _ROW
    pair: tuple[int, str] = (1, "c")
    texts: tuple[str, ...] = ("d",)
    listed: list[Row] = field(default_factory=lambda: [_ROW])
    ahead: deque[int] | None = field(default_factory=lambda: deque([1]))
    names: set[str] = field(default_factory=lambda: {"f"})
    frozen: frozenset[int] = frozenset({2})
    by_name: dict[str, list[int]] = field(default_factory=lambda: {"g": [3]})
    by_number: dict[int, str] = field(default_factory=lambda: {-1: "h"})
    by_pair: dict[tuple[str, int], None] = field(default_factory=lambda: {("i", 4): None})
    counts: Counter[tuple[str, str]] = field(default_factory=lambda: Counter({("j", "k"): 5}))
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({"l": "m"}))
    moments: MutableSequence[int] = field(default_factory=lambda: array("q", [-(1 << 63), 6]))
    pod: pod_pb2.Pod = field(default_factory=lambda: _pod("n"))
    attribute: str | int | bool = 7
    derived: int = field(init=False)

    def __post_init__(self) -> None:
        """Derive a field, which is not saved."""
        self.derived = len(self.text)


class Keeper:
    """State of a class that is not in its declared fields."""

    kept: dict[str, int]

    def __init__(self) -> None:
        self.kept = {}


def _pod(name: str) -> pod_pb2.Pod:
    pod = pod_pb2.Pod()
    pod.metadata.name = name
    return pod


def test_values_of_every_form_survive_a_round_trip() -> None:
    """With their types."""
    kept, read = Kept(), load(Kept, dump(Kept, Kept()))
    assert read == kept
    for name in Kept.__slots__:
        if name != "labels":
            assert type(getattr(read, name)) is type(getattr(kept, name))


def test_one_object_that_is_referred_to_twice_stays_one() -> None:
    """Pods and messages, in a map and in a list."""
    pod = PodRecord(uid="u", key="n/a", message=_pod("a"), life=trace_pb2.PodLife())
    kind: Any = tuple[dict[str, PodRecord], list[PodRecord], pod_pb2.Pod]
    by_uid, listed, message = load(kind, dump(kind, ({"u": pod}, [pod, pod], pod.message)))
    assert by_uid["u"] is listed[0] is listed[1]
    assert listed[0].message is message
    assert message == pod.message


def test_one_list_that_is_referred_to_twice_stays_one() -> None:
    """It may be changed through either."""
    shared = [1]
    kind: Any = tuple[list[int], list[int], list[int]]
    one, same, other = load(kind, dump(kind, (shared, shared, [1])))
    assert one is same
    assert one is not other


def test_a_class_with_a_parameter_is_read_by_its_argument() -> None:
    """Budgets by name have selectors of one type, and others of another."""
    selectors = LabelSelectors[str]()
    selectors.put("a", None)
    kind = LabelSelectors[str]
    assert load(kind, dump(kind, selectors)).matching({}) == selectors.matching({})
    with pytest.raises(UnreadableStateError, match="_numbers: must be a map"):
        load(kind, dump(LabelSelectors[int], _numbered()))


def _numbered() -> LabelSelectors[int]:
    selectors = LabelSelectors[int]()
    selectors.put(7, None)
    return selectors


def test_a_restored_timeline_continues() -> None:
    """Its heap and its index have the same actions."""
    timeline = Timeline()
    timeline.plan(7, ActionKind.START, "uid")
    read = load(Timeline, dump(Timeline, timeline))
    read.plan(9, ActionKind.START, "uid")
    assert read.next_ns() == 9
    assert [action.key for action in read.take_due(9)] == ["uid"]


@pytest.mark.parametrize("kind", [Path, RunRecorder, object, Any, type, list[object], Path | int])
def test_an_annotation_that_describes_no_data_is_refused(kind: Any) -> None:
    """Such as a file, a recorder, or anything."""
    with pytest.raises(TypeError):
        dump(kind, None)


@pytest.mark.parametrize("value", [Path("/"), 1 << 300, b"x".hex, {1: 2}, [PodRecord]])
def test_an_object_of_another_type_is_not_written(value: Any) -> None:
    """Rather than lost."""
    with pytest.raises(TypeError):
        dump(dict[str, PodRecord], value)
    with pytest.raises(TypeError):
        dump(Kept, value)


def test_an_attribute_that_is_not_annotated_is_not_lost() -> None:
    """It is refused."""
    keeper = Keeper()
    assert load(Keeper, dump(Keeper, keeper)).kept == {}
    keeper.more = 1  # type: ignore[attr-defined]  # what the test is about
    with pytest.raises(TypeError, match="does not annotate"):
        dump(Keeper, keeper)


_DEEP = b"\x91" * 100_000
_ANNOUNCED = b"\xdd\x7f\xff\xff\xff" * 20_000
"""Lists of 2^31 elements, one in the other."""


@pytest.mark.parametrize(
    ("kind", "data", "problem"),
    [
        (int, b"", "No more data"),
        (int, b"\xc1", "not the state of a replay"),
        (int, msgpack.packb("1"), "must be of type int"),
        (str, msgpack.packb(1), "must be of type str"),
        (int, msgpack.packb(1) + b"\x01", "not the state of a replay"),
        (int, msgpack.packb(msgpack.ExtType(1, b"1")), "extension"),
        (int, msgpack.packb(msgpack.ExtType(2, bytes(32))), "extension"),
        (int, msgpack.packb(msgpack.Timestamp(1)), "must be of type int"),
        (dict[str, int], msgpack.packb({1: 1}), "must be a map"),
        (dict[str, int], msgpack.packb({"a": "b"}), "must be of type int"),
        (dict[str, int], b"\x81\x90\x01", "unhashable"),
        (dict[tuple[int, int], int], msgpack.packb([[1, 2]]), "keys and values"),
        (list[list[int]], msgpack.packb([0]), "does not precede"),
        (list[list[int]], msgpack.packb([[], -1]), "does not precede"),
        (tuple[list[int], list[str]], msgpack.packb([[], 0]), "does not precede"),
        (tuple[list[int], pod_pb2.Pod], msgpack.packb([[], 0]), "does not precede"),
        (tuple[int, int], msgpack.packb([1]), "must be a list of 2"),
        (pod_pb2.Pod, msgpack.packb(b"\xff"), "not the state of a replay"),
        (TaintEffect, msgpack.packb("__class__"), "must be one of"),
        (TaintEffect, msgpack.packb([]), "must be one of"),
        (Keeper, msgpack.packb([]), "must be a list of 1"),
        (Keeper, msgpack.packb([[]]), "kept: must be a map"),
        (MutableSequence[int], msgpack.packb(b"1"), "not the state of a replay"),
        (list[int], _DEEP, "not the state of a replay"),
        (list[int], _ANNOUNCED, "not the state of a replay"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused(kind: Any, data: bytes, problem: str) -> None:
    """Before an object is created; the message has the path."""
    with pytest.raises(UnreadableStateError, match=problem):
        load(kind, data)


def test_nothing_that_a_state_names_is_imported() -> None:
    """There is no place for a name of code in it."""
    before = set(sys.modules)
    row = ["antigravity", "os.system", "c" + "os\nsystem\n"]
    for kind in (Kept, Timeline, PodRecord):
        with pytest.raises(UnreadableStateError):
            load(kind, msgpack.packb(row))
    assert set(sys.modules) == before


@pytest.mark.parametrize("size", [0, 1, 50, 200])
def test_a_state_that_is_cut_off_is_refused(size: int) -> None:
    """At any place."""
    timeline = Timeline()
    for number in range(20):
        timeline.plan(number, ActionKind.START, f"uid-{number}")
    with pytest.raises(UnreadableStateError):
        load(Timeline, dump(Timeline, timeline)[:size])
