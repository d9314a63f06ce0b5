"""The house rules that a machine can hold: who may import whom, and how big a module may grow."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

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
LINES_MAX = 430
SERVICES = ("queue", "scheduler", "eviction")
SOURCES = sorted([*ROOT.glob("services/**/*.py"), *ROOT.glob("replay/**/*.py")])


def imported(path: Path) -> Iterator[str]:
    """Yield the full name of every module that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def named(path: Path) -> str:
    """Return a file's path below the root."""
    return str(path.relative_to(ROOT))


CORES = [
    path for path in SOURCES if "core" in path.parts or named(path).startswith("services/kube/")
]


@pytest.mark.parametrize("path", CORES, ids=named)
def test_a_core_imports_nothing_that_touches_the_world(path: Path) -> None:
    """A core takes values and gives values: no wire, no clock, no chance."""
    assert {name for name in imported(path) if name.partition(".")[0] in IMPURE} == set()


@pytest.mark.parametrize("path", CORES, ids=named)
def test_a_core_imports_only_cores(path: Path) -> None:
    """A core knows its own kind and the Kubernetes values, nothing of an edge."""
    ours = {name for name in imported(path) if name.startswith(("services.", "replay."))}
    edges = {name for name in ours if ".core" not in name and not name.startswith("services.kube")}
    assert edges == set()


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_services_know_each_other_by_their_protos_only(path: Path) -> None:
    """No service imports another one, and none imports the replay; config reads into a core.

    One module knows them all: the one that runs them in a process.
    """
    own = named(path).split("/")
    if named(path) == "services/in_process.py":
        return
    if own[0] != "services":
        forbidden = {f"services.{name}" for name in SERVICES}
    else:
        forbidden = {f"services.{name}" for name in SERVICES if name != own[1]} | {"replay"}
    used = {name for name in imported(path) if not (own[1] == "config" and ".core" in name)}
    crossings = {
        name for name in used for base in forbidden if name == base or name.startswith(f"{base}.")
    }
    assert crossings == set()


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name == "__init__.py"], ids=named)
def test_a_package_has_a_docstring_and_no_logic(path: Path) -> None:
    """An __init__.py says what the package is, and nothing else."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    assert len(body) == 1
    assert isinstance(body[0], ast.Expr)


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_a_module_is_one_idea(path: Path) -> None:
    """A module that outgrows this wants to be two."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


def test_every_module_is_looked_at() -> None:
    """The globs above find the project, so that no test passes on nothing."""
    assert len(SOURCES) > 100
    assert len(CORES) > 50


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
