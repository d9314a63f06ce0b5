"""What `reprieve node watch` refuses, and the path in its errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from services.eviction.host.__main__ import main
from tests.unit.eviction.host.folders import v1

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("evictionHard: {memory.available: abc}", "evictionHard[memory.available]: quantities"),
        (
            "evictionSoft: {memory.available: 1Gi}",
            "evictionSoftGracePeriod[memory.available]: grace period must be specified",
        ),
        ("evictionMinimumReclaim: {pid.available: '-1'}", "evictionMinimumReclaim[pid.available]"),
        ("evictionMaxPodGracePeriod: x", "evictionMaxPodGracePeriod: must be a whole number"),
        ("maxPods: 1\nmaxPods: 2", 'kubelet.yaml: maxPods: line 4: "maxPods" comes twice'),
    ],
)
def test_a_configuration_is_refused_with_its_file_and_path(
    tmp_path: Path, body: str, said: str
) -> None:
    """In one line, without a traceback."""
    config, group = tmp_path / "kubelet.yaml", v1(tmp_path / "group", usage=0, inactive=0)
    config.write_text(HEAD + body)
    arguments = ["watch", "--cgroup-root", str(group), "--kubelet-config", str(config)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert f"Error: {config}: " in done.output
    assert said in done.output
