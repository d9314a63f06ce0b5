"""Configuration files with fields set, as if they had been edited."""

from __future__ import annotations

import pytest
import yaml

from replay.overrides.errors import OverrideError
from replay.overrides.overrides import Overrides
from services.config.kubelet import read_kubelet_configuration


def overrides(*sets: str) -> Overrides:
    """Return overrides of files alone."""
    return Overrides(sets=sets)


def test_setting_one_hard_threshold_keeps_the_default_ones() -> None:
    """A kubelet drops its defaults once a file names one."""
    text = overrides("evictionHard.memory.available=500Mi").kubelet("", evicts=True)
    hard = read_kubelet_configuration(text).eviction.hard
    default = read_kubelet_configuration(
        yaml.safe_dump(yaml.safe_load(text) | {"evictionHard": None})
    )
    assert hard == {**default.eviction.hard, "memory.available": "500Mi"}


def test_other_fields_of_the_file_stay() -> None:
    """Soft thresholds, their grace and single fields."""
    before = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "evictionMaxPodGracePeriod: 60\n"
    )
    chosen = overrides(
        "evictionSoft.memory.available=1Gi", "evictionSoftGracePeriod.memory.available=1m"
    )
    configuration = read_kubelet_configuration(chosen.kubelet(before, evicts=True)).eviction
    assert configuration.soft == {"memory.available": "1Gi"}
    assert configuration.soft_grace == {"memory.available": "1m"}
    assert configuration.max_pod_grace_s == 60


def test_files_without_overrides_stay_as_they_are() -> None:
    """To the byte, and absent where they were."""
    chosen = overrides("priorityClass.batch.value=5")
    assert chosen.kubelet("x: [", evicts=False) == "x: ["
    assert chosen.scheduler("", samples=False) == ""


def test_a_weight_is_set_in_every_profile_and_once() -> None:
    """The other enabled plugins of the profile stay."""
    enabled = "[{name: ImageLocality, weight: 2}, {name: X}]"
    before = f"profiles: [{{plugins: {{score: {{enabled: {enabled}}}}}}}, {{}}]"
    text = overrides("plugin.ImageLocality.weight=7").scheduler(before, samples=False)
    profiles = yaml.safe_load(text)["profiles"]
    found = [profile["plugins"]["score"]["enabled"] for profile in profiles]
    weighted = {"name": "ImageLocality", "weight": 7}
    assert found == [[{"name": "X"}, weighted], [weighted]]


def test_an_override_of_an_ignored_field_is_refused() -> None:
    """Nodes that are not sampled, kubelets that do not evict, arguments that are no weights."""
    with pytest.raises(OverrideError, match="without --sample-nodes"):
        overrides("percentageOfNodesToScore=50").scheduler("", samples=False)
    with pytest.raises(OverrideError, match="--no-eviction is given"):
        overrides("evictionHard.memory.available=1Gi").kubelet("", evicts=False)
    with pytest.raises(OverrideError, match="of a plugin: weight"):
        overrides("plugin.X.colour=7").scheduler("", samples=False)
