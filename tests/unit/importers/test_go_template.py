"""Tests of the part of Go's templates that object templates use."""

from __future__ import annotations

import pytest

from replay.importers.kubernetes.perf_objects import TemplateError, expand


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a-{{.Index}}", "a-7"),
        ("{{ .Name }}", "n"),
        ("{{Mod (AddInt .Index 1) 3}}", "2"),
        ("{{DivideInt .Index 2}} {{DivideFloat .Index 2}}", "3 3.5"),
        ("{{SubtractInt 1 .Index}}{{MultiplyFloat 2 0.5}}", "-61"),
        ("x {{- .Index -}}  y", "x7y"),
        ("{{/* why */}}z", "z"),
        ('{{"text"}}', "text"),
    ],
)
def test_actions_are_fields_and_arithmetic(text: str, result: str) -> None:
    """Whole numbers print without a fraction."""
    assert expand(text, {"Index": 7, "Name": "n"}) == result


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{if .Index}}x{{end}}", "no function 'if'"),
        ("{{.Other}}", "no value '.Other'"),
        ("{{.Index | printf}}", "is not supported"),
        ("{{Mod 1}}", "1 arguments; expected two"),
        ("{{DivideInt 1 0}}", "division by zero"),
        ("{{AddInt (.Index}}", "is not closed"),
        ("{{AddInt 1)}}", "unexpected"),
        ("{{AddInt .Name}}", "could not convert"),
        ("{{}}", "is not complete"),
    ],
)
def test_unsupported_actions_are_refused_by_name(text: str, problem: str) -> None:
    """Left out, it would make other objects than upstream's."""
    with pytest.raises(TemplateError, match=problem):
        expand(text, {"Index": 7, "Name": "n"})


@pytest.mark.parametrize("text", ["{{" * 200_000, "{{-" + " " * 200_000, "{{ " + "-" * 200_000])
def test_a_template_without_an_end_is_read_in_linear_time(text: str) -> None:
    """Whatever it repeats."""
    assert expand(text, {}) == text


@pytest.mark.parametrize(
    "action", ["(" * 50_000, "AddInt " + "(" * 50_000, "MultiplyInt 1e 9", "DivideInt 1 0"]
)
def test_an_action_that_cannot_be_computed_is_refused(action: str) -> None:
    """Nested without end, or beyond numbers."""
    with pytest.raises(TemplateError):
        expand(f"{{{{{action}}}}}", {})
