"""`reprieve models`, and refusals of --model."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from replay.cli.commands.examples import models_command
from replay.cli.commands.replay import command as replay_command
from replay.world.models import MODELS

ROOT = Path(__file__).resolve().parents[3]


def test_every_model_is_listed_with_its_default_and_its_source() -> None:
    """As a table for users and as JSON for programs."""
    shown = CliRunner().invoke(models_command, [], env={"COLUMNS": "200"})
    assert (shown.exit_code, all(name in shown.output for name in MODELS)) == (0, True)
    listed = json.loads(CliRunner().invoke(models_command, ["-o", "json"]).output)
    assert [entry["name"] for entry in listed] == list(MODELS)
    assert all(entry["source"] and entry["meaning"] and entry["off"] for entry in listed)


def test_on_a_narrow_terminal_models_are_paragraphs() -> None:
    """Five columns of sentences would be one word wide; no line is wider, and no name is broken."""
    shown = CliRunner().invoke(models_command, [], env={"COLUMNS": "60"}).output
    assert max(map(len, shown.splitlines())) <= 60
    assert all(f"\n{name}=" in f"\n{shown}" for name in MODELS)
    assert "  source: kube-controller-manager v1.34," in shown


def test_every_model_is_explained_in_the_documents() -> None:
    """docs/models.md has a row for each."""
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert [name for name in MODELS if f"| `{name}` |" not in text] == []


def test_an_unknown_model_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    """The message lists the models."""
    trace = tmp_path / "t.yaml"
    trace.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: 'n'}\n", encoding="utf-8")
    refused = CliRunner().invoke(replay_command, [str(trace), "--model", "none=1s"])
    assert refused.exit_code == 2
    assert "there is no model 'none'; the models are start-delay" in refused.output
