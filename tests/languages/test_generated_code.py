"""protos/buf.gen.yaml: the code that it generates compiles in each language."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.languages.programs import needs, run

pytestmark = pytest.mark.languages
GO_PACKAGES = Path("/usr/share/gocode")
JAVA_RUNTIME = Path("/usr/share/java/protobuf.jar")


def test_go_compiles(generated: Path, tmp_path: Path) -> None:
    """All packages, the services' stubs too."""
    source = tmp_path / "src" / "reprieve.internal"
    shutil.copytree(generated / "gen" / "go" / "reprieve", source)
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": f"{tmp_path}:{GO_PACKAGES}"}
    run(["go", "build", "reprieve.internal/..."], folder=tmp_path, env=environment)


def test_typescript_compiles(generated: Path) -> None:
    """Strictly, with a program that uses messages, oneofs, optional fields and services."""
    run(["node_modules/.bin/tsc", "-p", "."], folder=generated)


def test_python_is_imported(generated: Path) -> None:
    """Every module, by a Python that has nothing else of Reprieve's."""
    folder = generated / "gen" / "python"
    files = sorted(folder.rglob("*_pb2.py"))
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in files]
    assert "reprieve.scheduler.v1beta1.scheduler_service_pb2" in names
    program = f"import {', '.join(names)}; print(reprieve.__path__)"
    done = run([sys.executable, "-P", "-c", program], folder=folder, env={"PYTHONPATH": "."})
    assert done.stdout


def test_java_compiles(generated: Path, tmp_path: Path) -> None:
    """The messages, by the runtime of Debian's libprotobuf-java."""
    needs("javac")
    if not JAVA_RUNTIME.exists():
        pytest.skip("needs libprotobuf-java")
    sources = [str(path) for path in (generated / "gen" / "java").rglob("*.java")]
    (tmp_path / "sources").write_text("\n".join(sources), encoding="utf-8")
    options = ["-nowarn", "-proc:none", "-cp", str(JAVA_RUNTIME), "-d", str(tmp_path / "classes")]
    run(["javac", *options, f"@{tmp_path / 'sources'}"], folder=tmp_path)
    assert list(tmp_path.rglob("SchedulerState.class"))
