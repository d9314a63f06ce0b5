"""`python -m services.eviction.host`: a kubelet's eviction manager on this machine."""

from __future__ import annotations

from pathlib import Path

import click
import orjson

from reprieve.kube.v1beta1 import pod_pb2
from services.config.kubelet import read_kubelet_configuration
from services.eviction.codec.configs import path_in_file
from services.eviction.codec.operations import pod_from_message
from services.eviction.core.pod import EvictionPod
from services.eviction.core.thresholds import ConfigError
from services.eviction.host.cgroups import Cgroup, CgroupError
from services.eviction.host.watch import Watch, WatchSettings, printer
from services.rpc.errors import FieldError
from services.rpc.kube.json_codec import parse
from services.typed import DataError

DEFAULTS = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
USUAL_ROOTS = tuple(
    Path("/sys/fs/cgroup") / path
    for path in ("memory/kubepods", "memory/kubepods.slice", "kubepods.slice", "kubepods")
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Treat this machine as a Kubernetes node."""


@main.command()
@click.option(
    "--cgroup-root",
    type=_FOLDER,
    help="The memory control group that holds all pods. Default: a kubelet's usual ones.",
)
@click.option("--kubelet-config", type=_FILE, help="A KubeletConfiguration file.")
@click.option(
    "--pods",
    "pods_file",
    type=_FILE,
    help="The node's pods as JSON, from kubectl get pods -A -o json: priorities and requests.",
)
@click.option("--node-fs", type=_FOLDER, default="/", show_default=True, help="A path on nodefs.")
@click.option("--image-fs", type=_FOLDER, help="A path on imagefs. Default: nodefs.")
@click.option("--act", is_flag=True, help="Evict for real: SIGTERM, then SIGKILL.")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds."
)
@click.option("--steps", type=click.IntRange(1), help="Stop after so many steps. Default: never.")
@click.option(
    "--notifications/--no-notifications",
    default=True,
    show_default=True,
    help="Take a step at once when the kernel reports short memory.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def watch(
    *,
    cgroup_root: Path | None,
    kubelet_config: Path | None,
    pods_file: Path | None,
    node_fs: Path,
    image_fs: Path | None,
    act: bool,
    interval: float,
    steps: int | None,
    notifications: bool,
    output: str,
) -> None:
    """Run node-pressure eviction on this machine, and report which pods it would evict.

    The kubelet's eviction manager runs over this machine's memory, file systems and process ids,
    with the pods by their control groups. Without --act no process is killed, and none outside the
    root group in any case.

    \b
    Examples:
      reprieve node watch
      reprieve node watch --pods pods.json --kubelet-config kubelet.yaml -o json
      reprieve node watch --cgroup-root /sys/fs/cgroup/memory/mine --act
    """
    root = _root(cgroup_root)
    text = kubelet_config.read_text(encoding="utf-8") if kubelet_config else DEFAULTS
    try:
        read = read_kubelet_configuration(text, dedicated_imagefs=image_fs is not None)
        settings = WatchSettings(
            root=root,
            config=read.eviction,
            node_fs=node_fs,
            image_fs=image_fs or node_fs,
            api_pods=_api_pods(pods_file) if pods_file else {},
            interval_ns=int(interval * 1e9),
            act=act,
            notifications=notifications,
        )
        show = printer(output, click.echo)
        watched = Watch(settings, show)
    except DataError as error:
        where = f"{error.field}: " if error.field else ""
        raise click.UsageError(f"{kubelet_config}: {where}{error}") from error
    except ConfigError as error:
        field = path_in_file(error)
        raise click.UsageError(f"{kubelet_config}: {field}: {error}") from error
    except OSError as error:
        raise click.ClickException(f"{root.path}: {error.strerror or error}") from error
    for warning in read.warnings:
        click.echo(f"note: {warning}", err=True)
    try:
        watched.run(steps)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    finally:
        watched.close()


def _root(path: Path | None) -> Cgroup:
    if path is None:
        path = next((path for path in USUAL_ROOTS if path.is_dir()), None)
    if path is None:
        raise click.UsageError(
            "this machine has no control group of a kubelet: name the one that holds the pods with "
            "--cgroup-root"
        )
    try:
        return Cgroup.open(path)
    except CgroupError as error:
        raise click.UsageError(str(error)) from error


def _api_pods(path: Path) -> dict[str, EvictionPod]:
    """Return the pods of a kubectl list, by UID and by name."""
    try:
        listed = orjson.loads(path.read_bytes())
        items = listed["items"] if isinstance(listed, dict) and "items" in listed else [listed]
        pods = [
            pod_from_message(parse(pod_pb2.Pod, item), field=f"items[{index}]")
            for index, item in enumerate(items)
        ]
    except (ValueError, TypeError, FieldError) as error:
        raise click.UsageError(f"{path}: is not a list of pods: {error}") from error
    return {key: pod for pod in pods for key in (pod.name, pod.uid)}


if __name__ == "__main__":
    main(prog_name="reprieve node")
