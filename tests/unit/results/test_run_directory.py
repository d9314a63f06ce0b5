"""The folder of a run: made, refused, recognised, read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import RunError
from replay.results.run.directory import RunDirectory
from replay.results.run.files import MANIFEST
from replay.results.run.lock import LOCK
from replay.results.run.manifest import Manifest, ReplayedTrace, trace_files

_MANIFEST = Manifest(
    version="0.1.0",
    seed=7,
    rules="v1.34",
    traces=(ReplayedTrace(path="a.ktr", sha256="00"),),
    configuration={"queue_rules": "v1.20"},
    services={"scheduler": "embedded"},
    argv=("replay", "a.ktr"),
)


def test_a_manifest_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """The folder of a run describes the run."""
    run = RunDirectory.create(tmp_path / "run")
    run.write_manifest(_MANIFEST)
    assert RunDirectory.open(tmp_path / "run").manifest() == _MANIFEST


def test_the_manifest_of_an_unfinished_run_is_unfinished(tmp_path: Path) -> None:
    """The manifest is unfinished until it is written again at the end."""
    run = RunDirectory.create(tmp_path)
    run.write_manifest(_MANIFEST)
    assert not run.manifest().finished
    run.write_manifest(_MANIFEST.ended("finished"))
    assert run.manifest().finished
    assert run.manifest().end == "finished"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    """A folder that exists may be a run's."""
    assert RunDirectory.create(tmp_path).path == tmp_path


def test_a_former_run_is_kept_without_force(tmp_path: Path) -> None:
    """Results are not lost by running again."""
    with RunDirectory.create(tmp_path) as run:
        run.write_manifest(_MANIFEST)
    with pytest.raises(RunError, match="--force replaces it"):
        RunDirectory.create(tmp_path)


def test_a_former_run_is_replaced_with_force(tmp_path: Path) -> None:
    """With force, the folder has only the files of the new run."""
    with RunDirectory.create(tmp_path) as run:
        run.write_manifest(_MANIFEST)
        run.decision_log().close()
    with RunDirectory.create(tmp_path, force=True):
        assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_files_is_not_changed(tmp_path: Path) -> None:
    """Force removes only files of runs."""
    (tmp_path / MANIFEST).write_text("{}")
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match=r"thesis\.tex"):
        RunDirectory.create(tmp_path, force=True)
    assert (tmp_path / MANIFEST).exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """The system's own reason is given."""
    (tmp_path / "run").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        RunDirectory.create(tmp_path / "run")


def test_default_folders_are_numbered(tmp_path: Path) -> None:
    """Each run of a trace gets the next number, and other traces do not count."""
    (tmp_path / "a-b-9").mkdir()
    paths = [RunDirectory.create_next("a", tmp_path).path.name for _ in range(3)]
    assert paths == ["a-1", "a-2", "a-3"]


def test_a_name_with_glob_characters_is_not_a_pattern(tmp_path: Path) -> None:
    """Traces may be called as their users like."""
    names = [RunDirectory.create_next("a[1]*", tmp_path).path.name for _ in range(2)]
    assert names == ["a[1]*-1", "a[1]*-2"]


def test_what_is_not_a_run_is_not_opened(tmp_path: Path) -> None:
    """The text names what is missing."""
    with pytest.raises(RunError, match=r"not a run directory.*manifest\.json"):
        RunDirectory.open(tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"format_version": 99}', '{"format_version": 1, "odd": 1}']
)
def test_a_broken_manifest_is_refused(tmp_path: Path, text: str) -> None:
    """Whatever is wrong with it, the error is of one kind."""
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(RunError):
        RunDirectory.open(tmp_path).manifest()


def test_a_run_of_another_contract_is_refused_by_name(tmp_path: Path) -> None:
    """Of the first ones the manifest said nothing, for there was one only."""
    (tmp_path / MANIFEST).write_text('{"format_version": 1}')
    with pytest.raises(RunError, match="contract v1alpha1; this version reads v1beta1"):
        RunDirectory.open(tmp_path).manifest()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A reader learns which file of the run is not there."""
    run = RunDirectory.create(tmp_path)
    with pytest.raises(RunError, match=r"summary\.json"):
        run.summary()
    with pytest.raises(RunError, match=r"decisions\.jsonl"):
        list(run.decisions())
    with pytest.raises(RunError, match=r"history\.rounds\.zst"):
        list(run.rounds())


def test_the_manifest_has_the_digests_of_traces(tmp_path: Path) -> None:
    """The digest is of the file's bytes."""
    (tmp_path / "a").write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert trace_files([tmp_path / "a"])[0].sha256 == digest
    with pytest.raises(RunError, match="cannot be read"):
        trace_files([tmp_path / "b"])
