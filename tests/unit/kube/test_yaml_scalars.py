"""Scalars of YAML without quotes, as kubectl reads them."""

from __future__ import annotations

import contextlib
import math
import time

import pytest
import yaml

from replay.bounds import KubernetesYamlLoader, yaml_value
from replay.kube.documents import YamlDocuments
from services.config.strict import document
from services.kube.yaml_scalars import written

_READ = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True
    ),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "FALSE"), False),
    **dict.fromkeys(("~", "null", "Null", "NULL", ""), None),
    **{text: text for text in ("yEs", "oN", "nULL", "TrUe", "yes!", "none", "=", "+", ".")},
    **{text: text for text in ("12:30:45", "1:1", "190:20:30", "-1:30.5", "1:60", "08:15")},
    **{text: text for text in ("2026-03-02", "2026-03-02T09:30:00Z", "1.2.3", "0x", "0b", "0o")},
    **{text: text for text in ("0b2", "1e", "1e999", "_1", "._5", "0x1G", "1e+", "٣", "+.nan")},
    "0": 0,
    "-0": 0,
    "+7": 7,
    "1_000": 1000,
    "1__0_": 10,
    "-_5": -5,
    "0_1": 1,
    "017": 15,
    "0o17": 15,
    "-0O17": -15,
    "0b11": 3,
    "-0B11": -3,
    "0x1F": 31,
    "+0X1f": 31,
    "0x_1f": 31,
    "9223372036854775808": 1 << 63,
    "-9223372036854775809": -(1 << 63) - 1,
    "08": 8,
    "09.5": 9.5,
    "1e3": 1000,
    "1E+3": 1000,
    "5e-1": 0.5,
    "1.": 1,
    ".5": 0.5,
    "-.5e1": -5,
    "1_0.2_5": 10.25,
    "1.0": 1,
    "1e21": 1e21,
    "123456789e20": 123456789e20,
    ".inf": math.inf,
    "+.Inf": math.inf,
    "-.INF": -math.inf,
}


def test_each_form_is_what_kubectl_reads() -> None:
    """In a document, and as kubectl's own YAML, which is read line by line; in a configuration."""
    for text, expected in _READ.items():
        line = f"key: {text}\n"
        values = (
            yaml_value(line, "text"),
            next(value for _, value in YamlDocuments().read([line])),
            document(line),
        )
        for value in values:
            assert value == {"key": expected}, text
            assert type(value["key"]) is type(expected), text


def test_not_a_number_is_one() -> None:
    """In its three forms."""
    for text in (".nan", ".NaN", ".NAN"):
        assert math.isnan(yaml_value(text, "text"))


def test_a_merge_key_merges() -> None:
    """As for kubectl."""
    assert yaml_value("a: &a {x: 1}\nb: {<<: *a, z: 2}", "text")["b"] == {"x": 1, "z": 2}


def test_keys_are_those_of_the_json() -> None:
    """A boolean's and a number's are its text there."""
    text = "y: 1\noff: 2\n0x10: 3\n1.5: 4\n'017': 5\n1e3: 6\n"
    expected = {"true": 1, "false": 2, "16": 3, "1.5": 4, "017": 5, "1000": 6}
    assert yaml_value(text, "text") == expected == document(text)
    assert next(value for _, value in YamlDocuments().read(text.splitlines(True))) == expected


@pytest.mark.parametrize("text", ["~: 1", "[1]: 2", "{}: 3"])
def test_a_key_that_json_does_not_have_is_refused(text: str) -> None:
    """As kubectl does: unsupported map key."""
    with pytest.raises(yaml.YAMLError):
        yaml_value(text, "text")


@pytest.mark.parametrize(
    ("text", "value"),
    [('!!int "017"', 15), ("!!float 1", 1), ('!!bool "on"', True), ("!!str 017", "017")],
)
def test_a_tag_makes_a_scalar_of_its_type(text: str, value: object) -> None:
    """By the same forms."""
    assert yaml_value(text, "text") == value


@pytest.mark.parametrize("text", ["!!int 12:30", "!!float 1:1.5", "!!bool 1", "!!null x"])
def test_a_tag_that_a_scalar_does_not_have_is_refused(text: str) -> None:
    """As kubectl does: cannot decode."""
    with pytest.raises(yaml.YAMLError, match="a value is not of its type"):
        yaml_value(text, "text")


_LONG = (
    "1" + ":1" * 800_000,
    "1" * 1_600_000,
    "1_" * 800_000,
    "." + "1" * 10**6,
    "0b" + "1" * 10**6,
)


@pytest.mark.parametrize("text", _LONG, ids=range(len(_LONG)))
@pytest.mark.parametrize("tag", ["", "!!int ", "!!float "])
def test_a_long_scalar_is_read_or_refused_at_once(text: str, tag: str) -> None:
    """CPU time that grows with the square of its length would be minutes."""
    began_s = time.process_time()
    with contextlib.suppress(yaml.YAMLError, ValueError):
        yaml.load(tag + text, KubernetesYamlLoader)  # noqa: S506 - it is a safe loader
    assert time.process_time() - began_s < 10


def test_what_is_written_is_read_as_the_same_data() -> None:
    """Only strings that would be read as another type are quoted."""
    texts = [text for text in _READ if isinstance(text, str)]
    value = {"texts": texts, "y": [True, None, 0, -1.5, math.inf, 1e21], "1e3": "plain text"}
    assert yaml_value(written(value), "text") == value
    assert "plain text\n" in written(value)
    assert "'12:30:45'" in written(value)
