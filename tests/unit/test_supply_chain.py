"""What is installed is locked with hashes, names no registry, and is listed in the SBOM."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from requirements import sbom

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("build", "dev", "pip", "run", "tools")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = ("linux", "darwin")
NODE_PROJECTS = sorted(
    path.parent
    for folder in ("examples", "tests")
    for path in (ROOT / folder).rglob("package.json")
    if "node_modules" not in path.parts
)
_ENTRY = re.compile(r"(\S+==\S+)(?: ; (.+?))?((?: --hash=\S+)*)")


def entries(lock: str) -> Iterator[tuple[Requirement, list[str]]]:
    """Yield what a lock names: each requirement with its marker, and the hashes of its files."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8").replace("\\\n", "")
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            entry = _ENTRY.fullmatch(re.sub(r" +", " ", line).rstrip())
            assert entry is not None, line
            requirement = Requirement(entry[1])
            requirement.marker = Marker(entry[2]) if entry[2] else None
            yield requirement, entry[3].replace("--hash=", "").split()


def versions(lock: str, python: str, system: str) -> dict[str, str]:
    """Return the versions that a lock installs, by normalized name."""
    where = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": system}
    return {
        sbom.name(entry.name): str(entry.specifier).removeprefix("==")
        for entry, _ in entries(lock)
        if entry.marker is None or entry.marker.evaluate(where)
    }


def wanted(lock: str) -> list[str]:
    """Return the requirements of pyproject.toml from which a lock is made."""
    run, build = PROJECT["project"]["dependencies"], PROJECT["build-system"]["requires"]
    groups = PROJECT["dependency-groups"]
    ranges: dict[str, list[str]] = groups | {
        "run": run,
        "build": build,
        "dev": run + build + groups["dev"],
    }
    return ranges[lock]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_a_version_within_every_range(lock: str) -> None:
    """For each Python and system; where this fails, `make lock` was not run."""
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(PYTHONS[0])
    for python in PYTHONS:
        for system in SYSTEMS:
            locked = versions(lock, python, system)
            for text in wanted(lock):
                requirement = Requirement(text)
                version = locked.get(sbom.name(requirement.name))
                assert version is not None, f"{requirement}: run make lock"
                assert requirement.specifier.contains(version, prereleases=True), (
                    f"{requirement}, not {version}: run make lock"
                )


@pytest.mark.parametrize("lock", LOCKS)
def test_every_file_of_a_lock_has_a_hash(lock: str) -> None:
    """SHA-256, and more than one where wheels differ by system."""
    hashes_of = {entry.name: hashes for entry, hashes in entries(lock)}
    assert hashes_of
    for package, hashes in hashes_of.items():
        assert hashes, package
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), package
    assert all(len(hashes_of[name]) > 6 for name in hashes_of if name in {"grpcio", "numba", "uv"})


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host(lock: str) -> None:
    """Where packages come from is the machine's to say."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8")
    assert re.findall(r".*(?:://|--(?:extra-)?index|--find-links|\.org|\.com).*", text) == []


@pytest.mark.parametrize("lock", ["build", "run"])
def test_the_locks_agree_on_every_version(lock: str) -> None:
    """What the image runs is what the tests have run."""
    development = versions("dev", "3.11", "linux")
    assert versions(lock, "3.11", "linux").items() <= development.items()


@pytest.mark.parametrize("folder", NODE_PROJECTS, ids=lambda package: package.name)
def test_a_package_lock_has_hashes_and_no_host(folder: Path) -> None:
    """Also after `npm install`: each folder's .npmrc leaves registries out."""
    text = (folder / "package-lock.json").read_text("utf-8")
    packages = json.loads(text)["packages"]
    assert "omit-lockfile-registry-resolved=true" in (folder / ".npmrc").read_text("utf-8")
    assert all("integrity" in item for path, item in packages.items() if path)
    assert '"resolved"' not in text


def test_nothing_is_installed_without_a_lock() -> None:
    """Neither by make nor into the image nor in CI; Reprieve itself brings no dependency along."""
    texts = {
        name: (ROOT / name).read_text("utf-8").replace("\\\n", " ")
        for name in ("Makefile", "Dockerfile", ".ci/run")
    }
    every = "\n".join(texts.values())
    variables = dict(re.findall(r"^(?:ENV )?([A-Z]+) ?:?= ?(.*)$", every, re.MULTILINE))
    expanded = re.sub(r"\$\(?([A-Z]+)\)?", lambda it: variables.get(it[1], it[0]), every)
    installs = [
        line
        for line in re.split(r"\n|&&", expanded)
        if re.search(r"\bpip\b.* (?:install|wheel) ", line)
    ]
    assert len(installs) >= 8
    for command in installs:
        assert "--require-hashes" in command or "--no-deps" in command, command
        assert (
            "wheel" not in command or "--no-build-isolation" in command or "--no-index" in command
        ), command


def _bill() -> dict[str, Any]:
    """Return the bill of an environment with one locked package, its dependency, and a tool."""
    return {
        "metadata": {"component": {"bom-ref": "root"}},
        "components": [
            {"bom-ref": "pytest==9", "name": "pytest", "version": "9"},
            {"bom-ref": "Rich==15", "name": "Rich", "version": "15"},
            {"bom-ref": "mdurl==1", "name": "mdurl", "version": "1"},
        ],
        "dependencies": [
            {"ref": "root", "dependsOn": ["pytest==9", "Rich==15"]},
            {"ref": "Rich==15", "dependsOn": ["mdurl==1"]},
        ],
    }


LOCK = "rich==15 \\\n    --hash=sha256:0\nmdurl==1 \\\n    --hash=sha256:1\n"


def test_the_sbom_lists_what_is_locked_and_what_is_vendored() -> None:
    """Tools of development are not part of Reprieve; ECharts is, with the hash of its file."""
    bill = sbom.bill_of_materials(_bill(), LOCK, [sbom.echarts()])
    echarts, mdurl, rich = bill["components"]
    assert (echarts["name"], mdurl["name"], rich["name"]) == ("echarts", "mdurl", "Rich")
    digest = hashlib.sha256((ROOT / echarts["properties"][0]["value"]).read_bytes()).hexdigest()
    assert echarts["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert {
        dependency["ref"]: dependency.get("dependsOn") for dependency in bill["dependencies"]
    } == {
        "root": ["Rich==15", echarts["bom-ref"]],
        "Rich==15": ["mdurl==1"],
        "mdurl==1": None,
        echarts["bom-ref"]: None,
    }


def test_the_order_of_an_environment_does_not_change_the_sbom() -> None:
    """Two machines that have the same packages write the same bytes."""
    other = copy.deepcopy(_bill())
    other["components"].reverse()
    other["dependencies"].reverse()
    bills = [sbom.bill_of_materials(bill, LOCK, [sbom.echarts()]) for bill in (_bill(), other)]
    assert json.dumps(bills[0]) == json.dumps(bills[1])


@pytest.mark.parametrize("lock", ["rich==16 \\\n", "click==8 \\\n"])
def test_an_environment_that_is_not_the_lock_has_no_sbom(lock: str) -> None:
    """Another version and a missing package are both refused by name."""
    with pytest.raises(ValueError, match="is locked, but not installed: run make setup"):
        sbom.bill_of_materials(_bill(), lock, [])


def test_a_package_of_another_system_may_be_missing() -> None:
    """A marker says where it is installed."""
    bill = sbom.bill_of_materials(_bill(), LOCK + "colorama==1 ; sys_platform == 'win32' \\\n", [])
    assert [component["name"] for component in bill["components"]] == ["mdurl", "Rich"]


def test_the_stubs_come_from_the_plugins_that_python_imports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The build does not search PATH, where another environment's may stand."""
    pytest.importorskip("hatchling", reason="make setup installs what builds Reprieve")
    hatch_build = importlib.import_module("hatch_build")
    monkeypatch.setenv("PATH", "")
    options = [option.removeprefix("--plugin=").split("=") for option in hatch_build.mypy_plugins()]
    assert {name for name, _ in options} == {"protoc-gen-mypy", "protoc-gen-mypy_grpc"}
    assert all(Path(path).is_file() for _, path in options)


def _steps() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the steps of the action and of the workflows that are shown, each with its file."""
    action = ROOT / "action" / "action.yml"
    for step in yaml.safe_load(action.read_text("utf-8"))["runs"]["steps"]:
        yield action.name, step
    for path in sorted((ROOT / "examples" / "workflows").glob("*.yml")):
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            for step in job["steps"]:
                yield path.name, step


def test_actions_are_pinned_by_commit() -> None:
    """A tag can be moved; the comment beside has the version."""
    used = [(name, step["uses"]) for name, step in _steps() if "uses" in step]
    assert len(used) >= 4
    for name, uses in used:
        assert uses.startswith("./") or re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", uses), name


def test_the_action_installs_what_is_locked() -> None:
    """Every wheel by its hash; Reprieve itself without its dependencies."""
    [script] = [step["run"] for _, step in _steps() if step.get("name") == "Install"]
    installs = [line.strip() for line in script.splitlines() if line.strip()[:8] == "install "]
    assert len(installs) == 2
    locked, own = installs
    assert {"--require-hashes", "--only-binary"} <= set(locked.split())
    assert {"--no-deps", "--no-build-isolation"} <= set(own.split())
    [locks] = re.findall(r"for lock in ([\w ]+);", script)
    assert set(locks.split()) == {"pip", "build", "run"}
