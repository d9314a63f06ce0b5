"""The packaged examples and protos: written into a folder, and one example is replayed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from replay.bundled import bundled
from replay.cli.commands.examples import demo_command as demo
from replay.cli.commands.examples import examples_command as examples
from replay.cli.commands.examples import protos_command as protos
from replay.cli.errors import REFUSED, ExitError

ROOT = Path(__file__).resolve().parents[3]


def written(folder: Path) -> set[str]:
    """Return the files of a folder, by their paths in it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_examples_are_written_and_listed(tmp_path: Path) -> None:
    """Without generated files from using the examples in place."""
    folder = tmp_path / "new" / "examples"
    done = CliRunner().invoke(examples, ["-o", str(folder)], catch_exceptions=False)
    files = written(folder)
    assert done.output.splitlines() == sorted(done.output.splitlines())
    assert {str(folder / name) for name in files} == set(done.output.splitlines())
    assert {"traces/nginx-preemption.jsonl", "recordings/shop/recording.json"} <= files
    assert not any("__pycache__" in name or "node_modules" in name for name in files)


def test_protos_are_written_with_their_image(tmp_path: Path) -> None:
    """All files that a generator needs, equal to the contract."""
    CliRunner().invoke(protos, ["-o", str(tmp_path)], catch_exceptions=False)
    files = written(tmp_path)
    assert files == written(ROOT / "protos")
    assert {"v1beta1.binpb", "buf.gen.yaml", "reprieve/kube/v1beta1/pod.proto"} <= files
    imports = {
        name
        for path in tmp_path.rglob("*.proto")
        for name in re.findall(r'^import "(.*)";', path.read_text("utf-8"), re.MULTILINE)
    }
    assert {name for name in imports if not name.startswith("google/protobuf/")} <= files
    assert all(
        (tmp_path / name).read_bytes() == (ROOT / "protos" / name).read_bytes() for name in files
    )


def test_what_is_there_is_not_replaced_unless_forced(tmp_path: Path) -> None:
    """Nothing is written then, not even what is missing."""
    taken = tmp_path / "traces" / "nginx-preemption.jsonl"
    taken.parent.mkdir()
    taken.write_text("mine", encoding="utf-8")
    with pytest.raises(ExitError, match=r"nginx-preemption.jsonl exists; give another") as found:
        CliRunner().invoke(examples, ["-o", str(tmp_path)], catch_exceptions=False)
    assert found.value.code == REFUSED
    assert written(tmp_path) == {"traces/nginx-preemption.jsonl"}
    CliRunner().invoke(examples, ["-o", str(tmp_path), "--force"], catch_exceptions=False)
    assert taken.read_bytes() == (bundled("examples") / "traces" / taken.name).read_bytes()


def test_the_demo_shows_the_preemption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay's summary, and the pods as kubectl would have shown them."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(demo, [], catch_exceptions=False)
    assert "3 pods, 20s simulated" in done.output
    assert "$ reprieve get pods runs/demo -w -o wide" in done.output
    assert done.output.index("PREEMPTOR") < done.output.index("NOMINATED NODE")
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()


def test_wheel_sdist_and_image_carry_the_examples() -> None:
    """The wheel inside the package, where the commands look for them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        targets = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]
    for name in ("examples", "protos"):
        assert name in targets["wheel"]["only-include"]
        assert targets["wheel"]["sources"][name] == f"replay/{name}"
    assert "examples" in targets["sdist"]["include"]
    assert "COPY examples examples" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "!examples" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
