"""What the tests of other languages need: the examples installed and built, once for a session."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT
from tests.languages.programs import CPP_TOOLS, GO_TOOLS, NODE_TOOLS, installed, needs, run


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the examples, install what those in JavaScript need, and return their folder."""
    needs(*NODE_TOOLS)
    folder = tmp_path_factory.mktemp("languages") / "examples"
    ignored = shutil.ignore_patterns("node_modules", "build")
    for name in ("clients", "schedulers"):
        shutil.copytree(ROOT / "examples" / name, folder / name, ignore=ignored)
    for name in ("service-node", "queue-node"):
        installed(folder / "clients" / name)
    return folder


@pytest.fixture(scope="session")
def go_scheduler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Test and build the scheduler in Go and return the program."""
    needs(*GO_TOOLS)
    out = tmp_path_factory.mktemp("go")
    script = ROOT / "examples" / "schedulers" / "first-fit-go" / "build.sh"
    environment = os.environ | {"OUT": str(out), "PROTOS": str(ROOT / "protos")}
    run([str(script), "test"], folder=out, env=environment)
    return out / "first-fit-go"


@pytest.fixture(scope="session")
def cpp_scheduler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the scheduler in C++ and return the program."""
    needs(*CPP_TOOLS)
    out = tmp_path_factory.mktemp("cpp")
    script = ROOT / "examples" / "schedulers" / "first-fit-cpp" / "build.sh"
    environment = os.environ | {"OUT": str(out), "PROTOS": str(ROOT / "protos")}
    run(["sh", str(script)], folder=out, env=environment)
    return out / "first-fit-cpp"


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return OpenB's look-alike as a trace: 1,213 nodes and 7,064 pods."""
    folder = tmp_path_factory.mktemp("traces")
    reprieve(folder, "generate", "-o", "openb-like.ktr", "--preset", "openb-like")
    return folder / "openb-like.ktr"


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trace of 18 minutes in which pods of four tiers come and go on too few nodes."""
    folder = tmp_path_factory.mktemp("traces")
    sizes = ("--nodes", "12", "--pods", "400", "--seed", "7")
    reprieve(folder, "generate", "-o", "busy.ktr", *sizes)
    return folder / "busy.ktr"


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate code of the contract in every language and return the folder that has `gen`."""
    needs(*NODE_TOOLS, *GO_TOOLS)
    folder = tmp_path_factory.mktemp("generated") / "work"
    source = Path(__file__).parent / "typescript"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("node_modules", "gen"))
    installed(folder)
    buf = ROOT / ".venv" / "bin" / "buf"
    command = [str(buf) if buf.exists() else "buf", "generate", str(ROOT / "protos")]
    command += ["--path", str(ROOT / "protos" / "reprieve")]
    run([*command, "--template", str(ROOT / "protos" / "buf.gen.yaml")], folder=folder)
    return folder
