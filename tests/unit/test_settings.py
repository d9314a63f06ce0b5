"""The settings of a replay, and the settings that a manifest stores."""

from __future__ import annotations

from dataclasses import fields, replace

import orjson
import pytest

from replay.cli.commands.replay import command
from replay.errors import RunError
from replay.options import STORED
from replay.results.run.manifest import Manifest
from replay.settings import ReplaySettings
from replay.world.models import Models, OomKill
from services.telemetry.span import Sampling

SETTINGS = ReplaySettings(
    version="1.2",
    argv=("replay", "x"),
    seed=7,
    rules="v1.16",
    queue_rules="v1.20",
    kube_scheduler_configuration="kind: KubeSchedulerConfiguration\n",
    kubelet_configuration="kind: KubeletConfiguration\n",
    disable_preemption=True,
    ties="name",
    sample_nodes=True,
    batch_size=9,
    sampling=Sampling(0.01),
    scheduler_address="127.0.0.1:1",
    overrides={"set": ["podMaxBackoffSeconds=20"]},
    follow_until="10m",
)


def _manifest(settings: ReplaySettings) -> Manifest:
    """Return the manifest of a run with these settings, written and read again."""
    made = Manifest(version="1.2", traces=(), argv=settings.argv, **settings.stored())
    return Manifest.from_mapping(orjson.loads(made.encoded()))


def test_a_manifest_gives_back_the_settings_of_its_run() -> None:
    """Each setting that has a place in it."""
    for settings in (SETTINGS, ReplaySettings(version="1.2", rules="v1.36")):
        read = ReplaySettings.of(_manifest(settings))
        stored = [setting.name for setting in fields(settings) if setting.metadata.get(STORED)]
        assert {"seed", "ties", "overrides"} <= {*stored}
        assert [getattr(read, name) for name in stored] == [
            getattr(settings, name) for name in stored
        ]
        assert read.scheduler == settings.scheduler
        assert read.eviction == settings.eviction
        assert read.services == settings.services
        assert read.models == settings.models


@pytest.mark.parametrize(
    "models",
    [
        Models(),
        Models(start_delay_ns=1_500_000_001, shutdown_ns=0, service_time_ns=40),
        Models(eviction=False, recorded_budget_status=True, toleration_s=None),
        Models(oom_kill=OomKill.OFF, ended_pods_max=0, stateful_max_unavailable=True),
    ],
)
def test_models_are_options_and_back(models: Models) -> None:
    """Whatever a manifest has of them."""
    settings = SETTINGS.assuming(models)
    assert settings.models == models
    assert ReplaySettings.of(_manifest(settings)).models == models


def test_a_manifest_without_a_setting_has_its_default() -> None:
    """As one of a version without it."""
    older = Manifest(version="1.0", seed=3, rules="v1.34", traces=())
    settings = ReplaySettings(version="1.0", seed=3, rules="v1.34").assuming(Models())
    assert ReplaySettings.of(older) == settings


def test_a_manifest_has_the_rules_that_the_trace_chose() -> None:
    """So that another replay by the run's settings follows the same."""
    chosen = ReplaySettings(version="1.2", default_rules="v1.34")
    assert ReplaySettings.of(_manifest(chosen)).rules == "v1.34"
    assert chosen.scheduler.rules == "v1.34"


@pytest.mark.parametrize(
    "changed",
    [
        {"spans": "many"},
        {"models": {"oom_kill": 9}},
        {"services": {"etcd": "127.0.0.1:1"}},
        {"configuration": {"ties": 1}},
    ],
)
def test_a_manifest_with_values_that_are_no_settings_is_refused(changed: dict[str, object]) -> None:
    """A stranger's."""
    manifest = replace(_manifest(SETTINGS), **changed)  # type: ignore[arg-type] # by name
    with pytest.raises(RunError, match="the manifest cannot be read"):
        ReplaySettings.of(manifest)


def test_a_command_line_without_options_has_the_defaults_of_the_value(tmp_path: object) -> None:
    """They are stated once."""
    request = command.request([str(tmp_path)])
    assert request.settings == ReplaySettings()
