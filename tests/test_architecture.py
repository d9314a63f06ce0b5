"""The house rules that a machine can hold: who may import whom, and how big a module may grow.

ARCHITECTURE.md has a table of rooms for each folder that is more than a list of files; these tests
read it, so that the picture and the rule are the same.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from replay.conform.vectors.vectors import RECORDED

ROOT = Path(__file__).resolve().parents[1]
IMPURE = {
    "asyncio",
    "datetime",
    "google",
    "grpc",
    "logging",
    "opentelemetry",
    "os",
    "random",
    "reprieve",
    "socket",
    "subprocess",
    "threading",
    "time",
}
MODULES_MAX = 20
SERVICES = ("queue", "scheduler", "eviction", "autoscaler")
SOURCES = sorted([*ROOT.glob("services/**/*.py"), *ROOT.glob("replay/**/*.py")])
PUBLIC_FACES = {"services/scheduler/core/plugin_api/__init__.py"}
"""Packages whose __init__.py exports names: what users of the package import."""


def named(path: Path) -> str:
    """Return a file's path below the root."""
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> list[str]:
    """Return the full name of everything that a file imports, names of modules' contents too."""
    names = set[str]()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return sorted(names)


MODULES = {named(path).removesuffix(".py").replace("/", "."): path for path in SOURCES}
PURE = ("services/kube/", "services/framework/")
"""Folders that are pure as a whole, as every folder `core` is."""
READERS = ("services.typed.", "services.config.strict.")
"""Pure readers of values from a file's data: a plugin's arguments are read in its room."""
CORES = [path for path in SOURCES if "core" in path.parts or named(path).startswith(PURE)]


def module_of(name: str) -> str | None:
    """Return which of our modules an imported name is, or is in; None for others' modules."""
    return next((module for module in (name, name.rpartition(".")[0]) if module in MODULES), None)


class Room(NamedTuple):
    """A row of a table: a folder or module, and the rooms above it that it may import."""

    name: str
    imports: frozenset[str]


def tables() -> Mapping[str, list[Room]]:
    """Return ARCHITECTURE.md's tables of rooms, by the folder that each is about."""
    rooms_by_folder: dict[str, list[Room]] = {}
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        folder = re.match(r"`([\w/.]+)`", section)
        if folder is None:
            continue
        rooms: list[Room] = []
        for name, imports in re.findall(r"^\| `([\w/]+)` \|[^|\n]*\| (.*?) ?\|$", section, re.M):
            everything = imports == "all above"
            allowed = [room.name for room in rooms] if everything else imports.split()
            rooms.append(Room(name, frozenset(allowed)))
        rooms_by_folder[folder[1]] = rooms
    return rooms_by_folder


TABLES = tables()


def room_of(module: str, folder: str, rooms: Iterable[str]) -> str | None:
    """Return the room of a folder that a module belongs to: the longest name that fits."""
    prefix = "" if folder == "." else folder.replace("/", ".") + "."
    fits = [room for room in rooms if f"{module}.".startswith(f"{prefix}{room.replace('/', '.')}.")]
    return max(fits, key=len, default=None)


def arrows(folder: str, rooms: list[Room]) -> Mapping[tuple[str, str], list[str]]:
    """Return who imports whom among a folder's rooms, with the modules that do."""
    names = [room.name for room in rooms]
    modules_by_arrow: dict[tuple[str, str], list[str]] = {}
    for module, path in MODULES.items():
        room = room_of(module, folder, names)
        for name in imports(path) if room is not None else ():
            other = room_of(module_of(name) or "", folder, names)
            if room is not None and other is not None and other != room:
                modules_by_arrow.setdefault((room, other), []).append(f"{module} imports {name}")
    return modules_by_arrow


@pytest.mark.parametrize("folder", TABLES)
def test_rooms_import_what_the_table_says(folder: str) -> None:
    """An import that the table does not allow fails, and so does an arrow that nobody uses."""
    rooms = TABLES[folder]
    modules_by_arrow = arrows(folder, rooms)
    drawn = {(room.name, other) for room in rooms for other in room.imports}
    assert {arrow: places for arrow, places in modules_by_arrow.items() if arrow not in drawn} == {}
    everything = max(rooms, key=lambda room: len(room.imports)).name
    assert {arrow for arrow in drawn - modules_by_arrow.keys() if arrow[0] != everything} == set()


@pytest.mark.parametrize("folder", TABLES)
def test_a_table_is_whole_and_goes_one_way(folder: str) -> None:
    """Every module of a folder has a room, every room has modules, and imports point upwards."""
    rooms = TABLES[folder]
    prefix = "" if folder == "." else f"{folder}/"
    below = [module for module, path in MODULES.items() if named(path).startswith(prefix)]
    homes = {module: room_of(module, folder, [room.name for room in rooms]) for module in below}
    without_room = {m for m, room in homes.items() if room is None and not m.endswith("__init__")}
    assert without_room == set()
    assert {room.name for room in rooms} == set(filter(None, homes.values()))
    for place, room in enumerate(rooms):
        assert room.imports <= {room.name for room in rooms[:place]}, room.name


def test_no_modules_import_each_other_in_a_circle() -> None:
    """A module can be read without those that import it."""
    graph = {
        module: {m for name in imports(path) if (m := module_of(name)) not in {None, module}}
        for module, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' <- '.join(error.args[1])}")


def test_a_core_imports_cores_and_nothing_that_touches_the_world() -> None:
    """A core takes values and gives values: no wire, no clock, no chance."""
    forbidden = [
        f"{named(path)} imports {name}"
        for path in CORES
        for name in imports(path)
        if name.partition(".")[0] in IMPURE
        or (
            name.startswith(("services.", "replay."))
            and ".core" not in name
            and not name.startswith(("services.kube", "services.framework", *READERS))
        )
    ]
    assert forbidden == []


def test_services_know_each_other_by_their_protos_only() -> None:
    """No service imports another one; the replay imports only the module that runs all three."""
    crossing = []
    for path in SOURCES:
        parts = named(path).split("/")
        if named(path) == "services/in_process.py":
            continue
        others = {name for name in SERVICES if parts[:2] != ["services", name]}
        forbidden = tuple(f"services.{name}." for name in others)
        if parts[0] == "services":
            forbidden += ("replay.",)
        crossing += [
            f"{named(path)} imports {name}"
            for name in imports(path)
            if f"{name}.".startswith(forbidden)
        ]
    assert crossing == []


def test_a_package_has_a_docstring_and_no_logic() -> None:
    """An __init__.py says what the package is, and nothing else; a public face exports names."""
    for path in SOURCES:
        if path.name != "__init__.py":
            continue
        first, *rest = tree(path).body
        assert isinstance(first, ast.Expr), named(path)
        if named(path) in PUBLIC_FACES:
            assert all(isinstance(statement, ast.ImportFrom | ast.Assign) for statement in rest), (
                named(path)
            )
        else:
            assert rest == [], named(path)


def test_a_folder_is_a_room() -> None:
    """A module is one idea, whatever its length; more modules than this are more than one room."""
    folders = {path.parent for path in SOURCES}
    full = {
        named(folder): modules
        for folder in folders
        if (modules := len(list(folder.glob("*.py"))) - 1) > MODULES_MAX
    }
    assert full == {}


def test_every_module_is_looked_at() -> None:
    """The globs above find the project, so that no test passes on nothing."""
    assert len(SOURCES) > 100
    assert len(CORES) > 50
    assert len(TABLES) > 5


def test_the_vectors_are_packaged_wherever_the_code_is() -> None:
    """`conform` without a file needs them in wheel, sdist and image."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    targets = build["build"]["targets"]
    assert RECORDED.relative_to(ROOT) == Path("conformance")
    assert "conformance" in targets["wheel"]["only-include"]
    assert targets["wheel"]["sources"]["conformance"] == "replay/conformance"
    assert "conformance" in targets["sdist"]["include"]
    assert "COPY conformance conformance\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "!conformance\n" in (ROOT / ".dockerignore").read_text(encoding="utf-8")
