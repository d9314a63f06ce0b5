"""Outputs of every command: the same data as JSON and as YAML; in a pipe no line is wrapped."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
import yaml

from replay.cli.main import command
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT

NGINX = str(ROOT / "examples" / "traces" / "nginx-preemption.jsonl")
SHOP = str(ROOT / "examples" / "recordings" / "shop")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run, r."""
    folder = tmp_path_factory.mktemp("outputs")
    reprieve(folder, "replay", NGINX, "--run", "r", "-q", "--no-report", "--in-process")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate", NGINX),
        ("models",),
        ("verify", "r"),
        ("explain", "nginx-a", "r"),
        ("compare", "r", "r"),
        ("get", "pods", "r"),
        ("query", "r", "SELECT name, requests, waited_ns FROM pods ORDER BY name"),
        ("query", "r", "SELECT name FROM pods WHERE name = 'nobody'"),
        ("conform", "--only", "q-hand-created-ignored"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_yaml_has_what_json_has(made: Path, arguments: tuple[str, ...]) -> None:
    """Of every command that prints data."""
    as_json = reprieve(made, *arguments, "-o", "json").stdout
    as_yaml = reprieve(made, *arguments, "-o", "yaml").stdout
    assert as_yaml != as_json or as_json == "[]\n"
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_every_command_with_json_has_yaml() -> None:
    """Also those that this module does not run."""
    lacking = []
    with click.Context(command) as context:
        for name in command.list_commands(context):
            at = command.get_command(context, name)
            for option in at.params if at is not None else ():
                choices = getattr(option.type, "choices", ())
                if "json" in choices and "yaml" not in choices:
                    lacking.append(name)
    assert lacking == []


def test_validate_wraps_lines_for_a_person_and_not_in_a_pipe(tmp_path: Path) -> None:
    """At 80 columns where COLUMNS or a terminal has a width."""
    piped = reprieve(tmp_path, "validate", SHOP, COLUMNS="").stdout
    assert "\n         " not in piped
    assert max(map(len, piped.splitlines()[2:])) > 80
    wrapped = reprieve(tmp_path, "validate", SHOP, COLUMNS="100").stdout
    assert max(map(len, wrapped.splitlines()[1:])) <= 80
    assert wrapped.split() == piped.split()


def test_steps_of_the_replay_itself_are_for_those_who_ask(tmp_path: Path) -> None:
    """With -o wide; they are no result of the simulation. One of a thing is singular."""
    arguments = ("replay", NGINX, "--no-report", "--in-process", "--run")
    shown = reprieve(tmp_path, *arguments, "a").stdout
    assert "Wall time" not in shown
    assert "Simulated time in the queue" in shown
    assert "by 1 pod\n" in shown
    assert "Wall time of each step" in reprieve(tmp_path, *arguments, "b", "-o", "wide").stdout
