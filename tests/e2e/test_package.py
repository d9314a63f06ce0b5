"""The packages: the sdist builds the wheel, and the wheel has all that a user needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

from tests.e2e.replays import ROOT

pytest.importorskip("hatchling", reason="make setup installs what builds Reprieve")
REPOSITORY = "https://REPOSITORY/"


def build(target: str, root: Path, into: Path) -> Path:
    """Build a package of the sources at `root`; return its file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, cwd=root, env=env, check=True, capture_output=True)
    (found,) = into.glob("*.tar.gz" if target == "sdist" else "*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the extracted sources of the sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    (sources,) = (path for path in folder.iterdir() if path.is_dir())
    return sources


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that the sdist builds."""
    return build("wheel", sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder of its own; return it."""
    folder = tmp_path_factory.mktemp("site")
    command = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True)
    return folder


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """Run the installed command in a folder; return its output."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "replay.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.mark.e2e
def test_an_installed_package_replays_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """With its examples, protos and vectors; nothing of the repository is used."""
    program = "import replay, services, reprieve.queue.v1beta1.queue_pb2 as q; print(q.__file__)"
    place = subprocess.run(
        [sys.executable, "-P", "-c", f"{program}; print(replay.__file__, services.__file__)"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert all(path.startswith(str(installed)) for path in place.stdout.split())
    assert "nginx-a" in run(installed, tmp_path, "demo")
    assert (tmp_path / "runs" / "demo" / "report.html").stat().st_size > 1_000_000
    run(installed, tmp_path, "examples", "-o", "examples")
    run(installed, tmp_path, "protos", "-o", "protos")
    assert [*(tmp_path / "protos").rglob("scheduler_service.proto")]
    assert (tmp_path / "protos" / "google" / "api" / "field_behavior.proto").is_file()
    assert [*(tmp_path / "examples").rglob("four-tiers.ktr")]


@pytest.mark.e2e
def test_the_description_has_no_relative_link(wheel: Path) -> None:
    """A package's page shows the README alone: links and pictures are whole addresses."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(name))
    text = metadata.get_payload()
    assert isinstance(text, str)
    targets = re.findall(r"\]\(([^)\s]+)", text) + re.findall(r"(?:src|href)=\"([^\"]+)", text)
    assert len(targets) > 10
    assert not [target for target in targets if not target.startswith(("https://", "http://", "#"))]
    ours = [target.removeprefix(REPOSITORY) for target in targets if target.startswith(REPOSITORY)]
    assert ours
    assert not [link for link in ours if not (ROOT / link.partition("#")[0]).exists()]


@pytest.mark.e2e
def test_the_sdist_has_what_its_makefile_needs(sdist: Path) -> None:
    """Sources, locks, tests, documents, deployment; nothing that was generated."""
    for name in (
        *("Makefile", "pyproject.toml", "requirements/dev.txt", "mkdocs.yml", "docker-compose.yml"),
        *("tests/e2e/test_package.py", "deploy/kubernetes/base/kustomization.yaml", "README.md"),
    ):
        assert (sdist / name).is_file(), name
    assert not [*sdist.rglob("*.pyc")]
