"""An importer reads or refuses any content of a source; no other error is ever raised."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import IMPORTERS, open_trace, recognise
from tests.torture.mutate import places, with_part
from tests.torture.samples import samples

_JUNK: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, "", "x", "$y", [], [1], {}, {"a": 1}, ["a"], [{}], 1e300]),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
)
_SAMPLES = samples()
_TABLES = sorted(
    name
    for name, sample in _SAMPLES.items()
    if isinstance(sample.value, list) and isinstance(sample.value[0], list)
)
_DATA = sorted(
    name
    for name, sample in _SAMPLES.items()
    if name not in _TABLES and not isinstance(sample.value, str)
)
_QUICK = settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def _written(folder: Path, name: str, content: bytes) -> Path:
    """Write a file and its companion files; return the file to open."""
    for beside, other in _SAMPLES[name].beside.items():
        (folder / beside).write_bytes(other)
    (folder / "source").write_bytes(content)
    return folder / (_SAMPLES[name].opened or "source")


def _read_or_refuse(name: str, file: Path) -> None:
    importer = _SAMPLES[name].importer
    options = ImportOptions(openb_timed=importer == "openb")
    refusal = ""
    try:
        for _ in itertools.islice(IMPORTERS[importer].load([file], options), 5000):
            pass
    except TraceError as error:
        refusal = str(error)
    assert not refusal or str(file.parent) in refusal


def test_every_importer_has_a_sample() -> None:
    """So that none is left out here, or in tests/torture/files.py."""
    assert set(IMPORTERS) == {sample.importer for sample in _SAMPLES.values()}


@pytest.mark.parametrize("name", sorted(_SAMPLES))
def test_a_sample_is_recognised_and_read(name: str, tmp_path: Path) -> None:
    """Otherwise every damaged sample would be refused by the same early check."""
    opened = _written(tmp_path, name, _SAMPLES[name].file)
    assert recognise(opened) == _SAMPLES[name].importer
    assert len(list(open_trace([opened]))) > 1


@pytest.mark.parametrize("name", _DATA)
@_QUICK
@given(data=st.data())
def test_a_value_of_a_wrong_type_is_read_or_refused(
    name: str, tmp_path: Path, data: st.DataObject
) -> None:
    """Anywhere in a source: with the file's name, and without any other error."""
    sample = _SAMPLES[name]
    place = data.draw(st.sampled_from(sorted(places(sample.value), key=str)))
    try:
        content = sample.made(with_part(sample.value, place, data.draw(_JUNK)))
    except (OverflowError, json_format.Error, TypeError):
        return  # MessagePack has no integer as large, and a message no field of another type
    _read_or_refuse(name, _written(tmp_path, name, content))


@pytest.mark.parametrize("name", _TABLES)
@_QUICK
@given(data=st.data())
def test_a_field_of_a_wrong_type_is_read_or_refused(
    name: str, tmp_path: Path, data: st.DataObject
) -> None:
    """In any column of any row, the names of columns among them."""
    rows = [list(row) for row in _SAMPLES[name].value]
    row = data.draw(st.sampled_from(rows))
    texts = st.one_of(
        st.sampled_from(["", "x", "-1", "1e3", "nan", "inf", '"', "\x00", "9" * 30]),
        st.decimals(-(10**12), 10**12, places=3).map(str),
        st.text(max_size=3),
    )
    row[data.draw(st.integers(0, len(row) - 1))] = data.draw(texts)
    _read_or_refuse(name, _written(tmp_path, name, _SAMPLES[name].made(rows)))
