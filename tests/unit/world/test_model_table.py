"""Models by name."""

from __future__ import annotations

import dataclasses

import pytest

from replay.durations import duration_ns, shown
from replay.world.models import MODELS, ModelError, Models, with_values
from services.kube.time import SECOND_NS

S = SECOND_NS


def test_a_value_is_read_by_the_models_name_and_off_switches_it_off() -> None:
    """The last one given counts."""
    models = with_values(Models(), ["start-delay=2s", "taint-eviction=off", "start-delay=1500ms"])
    assert (models.start_delay_ns, models.toleration_s) == (1_500_000_000, None)
    assert with_values(models, ["taint-eviction=1m"]).toleration_s == 60
    assert not with_values(models, ["eviction=off"]).eviction


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("none=1s", "there is no model 'none'"),
        ("start-delay", "has no value"),
        ("start-delay=soon", "not a duration"),
        ("taint-eviction=1500ms", "whole number of seconds"),
        ("eviction=maybe", "neither on nor off"),
        ("terminated-pod-gc=0", "not a number from 1 to"),
    ],
)
def test_an_invalid_model_is_refused_with_the_valid_syntax(text: str, said: str) -> None:
    """For people."""
    with pytest.raises(ModelError, match=said):
        with_values(Models(), [text])


@pytest.mark.parametrize("name", MODELS)
def test_a_default_is_shown_as_on_the_command_line(name: str) -> None:
    """Reading what is shown gives the default again."""
    model = MODELS[name]
    assert with_values(Models(), [f"{name}={model.shown(Models())}"]) == Models()
    off = with_values(Models(), [f"{name}=off"])
    assert model.shown(off) == "off"


def test_every_field_of_the_models_has_a_name() -> None:
    """But for one that an option of its own chooses."""
    fields = {field.name for field in dataclasses.fields(Models)}
    assert fields - {model.field for model in MODELS.values()} == {"recorded_budget_status"}


@pytest.mark.parametrize("text", ["0s", "1s", "1h30m", "1d2h3m4s5ms6us7ns"])
def test_a_duration_is_shown_in_the_form_that_is_parsed(text: str) -> None:
    """In the largest units."""
    assert shown(duration_ns(text)) == text
