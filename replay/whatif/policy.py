"""Compares the policies of two runs: scheduler, rules, configuration and seed.

Different policies place pods differently by design; another node for a pod says nothing then.
"""

from __future__ import annotations

from collections.abc import Iterator

from replay.results.run.manifest import Manifest

_OPTIONS = {
    "queue_rules": "--queue-rules",
    "disable_preemption": "--disable-preemption",
    "ties": "--ties",
    "sample_nodes": "--sample-nodes",
}
"""The options of a manifest's configuration that choose a policy."""
_FILE = "kube_scheduler_configuration"
_UNNAMED = "a scheduler without a name"


def policy_differences(a: Manifest, b: Manifest) -> Iterator[str]:
    """Yield each setting in which the policies of two runs differ, with its values if short."""
    schedulers = [_scheduler(manifest) for manifest in (a, b)]
    if schedulers[0] != schedulers[1]:
        yield "schedulers {} and {}".format(*schedulers)
    for name, one, other in (("rules", a.rules, b.rules), ("seeds", a.seed, b.seed)):
        if one != other:
            yield f"{name} {one} and {other}"
    for key, option in _OPTIONS.items():
        if a.configuration.get(key) != b.configuration.get(key):
            yield option
    if a.configuration.get(_FILE) != b.configuration.get(_FILE):
        yield "scheduler configurations"


def _scheduler(manifest: Manifest) -> str:
    """Return a scheduler's name and version; its address if it reports neither."""
    if manifest.decided_by:
        return manifest.decided_by
    address = manifest.scheduler_address
    return f"{_UNNAMED} at {address}" if address else _UNNAMED
