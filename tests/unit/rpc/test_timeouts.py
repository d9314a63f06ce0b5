"""Timeouts: their names, their forms and their option."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from services.rpc.timeouts import NAMES, VARIABLE, Timeouts, timeout_option


@click.command()
@timeout_option()
def shown(timeouts: Timeouts) -> None:
    """Print two of them."""
    click.echo(f"{timeouts.response:g} {timeouts.probe:g}")


def test_a_timeout_is_set_by_its_name() -> None:
    """By the option, which is repeatable, or by the environment; the others stay."""
    assert CliRunner().invoke(shown).output == "45 20\n"
    options = ["--timeout", "response=1m30s", "--timeout", "probe=500ms"]
    assert CliRunner().invoke(shown, options).output == "90 0.5\n"
    environment = {VARIABLE: "response=5s probe=1s"}
    assert CliRunner().invoke(shown, env=environment).output == "5 1\n"
    assert CliRunner().invoke(shown, options[:2], env=environment).output == "90 20\n"


@pytest.mark.parametrize("text", ["response", "answer=5s", "response=5", "response=0s", "call=-1s"])
def test_an_unknown_timeout_is_refused_with_the_valid_names(text: str) -> None:
    """In one line of a usage error."""
    result = CliRunner().invoke(shown, ["--timeout", text])
    assert result.exit_code == 2
    assert f"--timeout: {text!r}" in result.output


def test_every_timeout_has_a_name_in_the_help() -> None:
    """With its default."""
    output = CliRunner().invoke(shown, ["--help"]).output
    for name in NAMES:
        assert name in output


def test_pings_are_overdue_after_the_probes_time() -> None:
    """GRPC has a limit of its own for pings, which would be 60 s."""
    options = dict(Timeouts(keepalive=5, probe=2).keepalive_options)
    assert options["grpc.http2.ping_timeout_ms"] == options["grpc.keepalive_timeout_ms"] == 2000
