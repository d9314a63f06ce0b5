"""Whose pods a replay schedules, as its scheduler's configuration file names them."""

from __future__ import annotations

import yaml

from services.kube.pod import DEFAULT_SCHEDULER


def profile_names(configuration: str) -> tuple[str, ...]:
    """Return the schedulerName of each profile of a KubeSchedulerConfiguration, in its order.

    A profile without one, and a file without profiles, is default-scheduler's. A file that cannot
    be read is refused by the scheduler itself, so that it counts as one without profiles here.
    """
    try:
        document = yaml.safe_load(configuration)
    except yaml.YAMLError:
        return (DEFAULT_SCHEDULER,)
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(profiles, list):
        return (DEFAULT_SCHEDULER,)
    names = [
        str(each.get("schedulerName") or DEFAULT_SCHEDULER)
        for each in profiles
        if isinstance(each, dict)
    ]
    return tuple(dict.fromkeys(names)) or (DEFAULT_SCHEDULER,)
