"""deploy/observe: Prometheus scrapes real services, and the dashboard's panels have values."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.commands import reprieve
from tests.e2e.node_groups import growing
from tests.e2e.replays import ROOT
from tests.e2e.services_with_metrics import start_all
from tests.ports import free_port

FOLDER = ROOT / "deploy" / "observe"
EMPTY = {"Calls that failed"}
"""Panels that show nothing in a good run."""
WITHIN_S = 30


def tool(name: str) -> str:
    """Return a program of Debian's package prometheus."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}: it is in Debian's package prometheus")
    return found


def test_prometheus_accepts_configuration_and_rules() -> None:
    """By its own tool."""
    for kind, name in (("config", "prometheus.yaml"), ("rules", "rules.yaml")):
        subprocess.run([tool("promtool"), "check", kind, name], cwd=FOLDER, check=True)


def panels() -> list[dict[str, Any]]:
    """Return the dashboard's panels without its rows."""
    text = (FOLDER / "grafana" / "dashboards" / "reprieve.json").read_text(encoding="utf-8")
    return [panel for panel in json.loads(text)["panels"] if panel["type"] != "row"]


class Prometheus:
    """A Prometheus at a port; `query` asks it as Grafana does."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1"

    def query(self, expression: str) -> list[Any]:
        """Return the result of an instant query over the last five minutes."""
        for name, value in (("$__range", "5m"), ("$__rate_interval", "5m")):
            expression = expression.replace(name, value)
        with urllib.request.urlopen(  # noqa: S310 - http
            f"{self._base}/query?{urllib.parse.urlencode({'query': expression})}", timeout=10
        ) as response:
            answer = json.load(response)
        assert answer["status"] == "success"
        result: list[Any] = answer["data"]["result"]
        return result

    def value(self, expression: str) -> float:
        """Return the value of a query with one result, NaN without one."""
        result = self.query(expression)
        return float(result[0]["value"][1]) if result else float("nan")


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Path]]:
    """Replay traces against services that Prometheus scrapes; yield it, and a run."""
    folder = tmp_path_factory.mktemp("observe")
    with ExitStack() as stack:
        services = start_all(stack)
        config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text(encoding="utf-8"))
        (job,) = (job for job in config["scrape_configs"] if job["job_name"] == "reprieve")
        for target in job["static_configs"]:
            target["targets"] = [services[target["labels"]["service"]].metrics]
        config["scrape_configs"] = [job]
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        shutil.copy(FOLDER / "rules.yaml", folder)
        port = free_port()
        process = stack.enter_context(
            subprocess.Popen(
                [
                    tool("prometheus"),
                    "--config.file=prometheus.yaml",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                cwd=folder,
                stderr=(folder / "prometheus.log").open("wb"),
            )
        )
        stack.callback(process.terminate)
        prometheus = Prometheus(port)
        until(lambda: prometheus.value('sum(up{job="reprieve"})') == len(services))
        run = folder / "run"
        for trace in ("eviction-loop.jsonl", "nginx-preemption.jsonl"):
            reprieve(
                ROOT,
                *("replay", str(ROOT / "examples" / "traces" / trace), "--run", str(run)),
                *("--force", "--no-report", "--quiet"),
                *("--scheduler", services["scheduler"].address),
                *("--eviction", services["eviction"].address),
            )
        reprieve(
            ROOT,
            *("replay", *growing(folder), "--run", str(folder / "growing")),
            *("--no-report", "--quiet"),
            *("--autoscaler-service", services["autoscaler"].address),
        )
        until(lambda: prometheus.value("sum(scheduler_preemption_victims_count)") == 1)
        until(lambda: prometheus.value("sum(cluster_autoscaler_scaled_up_nodes_total)") == 2)
        yield prometheus, run


def until(holds: Any) -> None:
    """Wait until something holds; a connection that is refused is waited for, too."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.e2e
def test_every_panel_shows_a_replay_of_seconds(observed: tuple[Prometheus, Path]) -> None:
    """Each query has a value, except where good runs have none."""
    prometheus, _ = observed

    def empty() -> set[str]:
        return {
            panel["title"]
            for panel in panels()
            if not all(prometheus.query(target["expr"]) for target in panel["targets"])
        }

    until(lambda: empty() <= EMPTY)  # a rate needs two scrapes
    assert empty() == EMPTY


@pytest.mark.e2e
def test_figures_of_a_replay_are_exact(observed: tuple[Prometheus, Path]) -> None:
    """Not extrapolated, as increase() would."""
    prometheus, _ = observed
    shown = {
        panel["title"]: prometheus.value(panel["targets"][0]["expr"])
        for panel in panels()
        if panel["type"] == "stat"
    }
    assert (shown["Preemptions"], shown["Victims"], shown["Failed attempts"]) == (1, 1, 0)
    assert shown["Evictions"] == prometheus.value("sum(kubelet_evictions)") > 0
    bound = prometheus.value('sum(scheduler_schedule_attempts_total{result="scheduled"})')
    assert shown["Bound"] == bound > 0


@pytest.mark.e2e
def test_no_alert_of_a_good_run_fires(observed: tuple[Prometheus, Path]) -> None:
    """The rules are evaluated."""
    prometheus, _ = observed
    assert prometheus.query("ALERTS") == []
