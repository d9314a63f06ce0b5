"""Values as JSON and back, by the annotations of their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Annotated, NamedTuple

import orjson
import pytest

from reprieve.kube.v1beta1 import meta_pb2
from services.typed import DataError, Places, Reading, write

Plain = dict[str, "Plain"] | list["Plain"] | str | int | None


class Colour(Enum):
    """A closed set."""

    RED = "red"
    BLUE = "blue"


class Leaf(NamedTuple):
    """A tuple whose fields have names."""

    size: int
    name: str = ""
    key: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One field of each kind."""

    first: Leaf
    leaves: tuple[Leaf, ...] = ()
    pair: tuple[str, bool] = ("", False)
    colour: Colour | None = None
    by_colour: Mapping[Colour, int] = field(default_factory=dict)
    labels: Annotated[Mapping[str, str], '{"a": "b"}'] = field(default_factory=dict)
    weights: Sequence[float] = ()
    refs: Sequence[meta_pb2.ObjectReference] = ()
    plain: Plain = None
    limit: int | None = 5


TREE = Tree(
    first=Leaf(size=-(2**63)),
    leaves=(Leaf(1, "a", b"\xff\x00"), Leaf(2)),
    pair=("x", True),
    colour=Colour.BLUE,
    by_colour={Colour.RED: 3},
    labels=MappingProxyType({"a": "b"}),
    weights=(0.5, 2),
    refs=(meta_pb2.ObjectReference(uid="u"),),
    plain=[{"a": [1]}, "b"],
    limit=None,
)


def _read(plain: object) -> Tree:
    return Reading().read(Tree, plain)


def test_a_value_is_read_back_unchanged() -> None:
    """Of every kind of annotation."""
    assert _read(orjson.loads(write(TREE))) == TREE


def test_fields_are_written_by_name_and_defaults_left_out() -> None:
    """So that a field may be added between two others."""
    assert orjson.loads(write(TREE))["leaves"][1] == {"size": 2}

    class Longer(NamedTuple):
        added: str = "new"
        size: int = 0
        name: str = ""

    assert Reading().read(Longer, orjson.loads(write(Leaf(7, "a")))) == ("new", 7, "a")


@pytest.mark.parametrize(
    ("plain", "path", "text"),
    [
        ([], "", "must be a mapping of fields"),
        (None, "first", "is required"),
        ({}, "first", "is required"),
        ({"first": {"size": 1}, "last": 1}, "last", "is not a known field"),
        ({"first": {"size": 1}, 3: 1}, "3", "is not a known field"),
        ({"first": {"size": True}}, "first.size", "must be a whole number"),
        ({"first": {"name": True}}, "first.name", 'must be a text: write "true", with quotes'),
        ({"first": {"size": 1, "key": "xy"}}, "first.key", "must be bytes in hex"),
        ({"leaves": [{"size": 1}, {"size": None}]}, "leaves[1].size", "must be a whole number"),
        ({"leaves": {"size": 1}}, "leaves", "must be a list"),
        ({"pair": ["x"]}, "pair", "must be a list of 2"),
        ({"colour": "green"}, "colour", 'unsupported value "green": use "red", "blue"'),
        ({"by_colour": {"red": "3"}}, "by_colour[red]", "must be a whole number"),
        ({"labels": []}, "labels", 'must be a mapping of fields, such as {"a": "b"}'),
        ({"labels": {3: "x"}}, "labels[3]", 'must be a text: write "3", with quotes'),
        ({"labels": {"a": []}}, "labels[a]", "must be a text"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_its_path(
    plain: object, path: str, text: str
) -> None:
    """As Kubernetes prints paths."""
    with pytest.raises(DataError) as caught:
        _read(plain)
    assert (caught.value.field, str(caught.value)) == (path, text)


def test_objects_that_are_shared_are_written_once() -> None:
    """By their places, those that are kept elsewhere first."""
    kept, met = Leaf(1), Leaf(2)
    places = Places(Leaf._asdict, [kept])
    written = write([met, kept, met, places.rows], {Leaf: places.place})
    assert orjson.loads(written) == [1, 0, 1, [{"size": 2, "name": "", "key": ""}]]


def test_names_and_checks_are_the_readers_own() -> None:
    """A check's path is relative to what it checks."""

    def refuse(leaf: Leaf) -> Leaf:
        raise DataError("size", f"{leaf.size} is too big")

    reading = Reading(check=refuse, names={(Leaf, "size"): "leafSize"}, rename=str.upper)
    with pytest.raises(DataError) as caught:
        reading.read(Tree, {"FIRST": {"leafSize": 9, "NAME": None}})
    assert (caught.value.field, str(caught.value)) == ("FIRST.size", "9 is too big")
