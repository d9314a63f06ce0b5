"""Whether a profile's plugins can work together, told before any session begins.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go, NewFramework.
"""

from __future__ import annotations

from services.scheduler.core.preemption import rules
from services.scheduler.core.preemption.preemptor import Preemptor
from services.scheduler.core.profile import Point, Profile, ProfileError, expanded
from services.scheduler.core.registry import Registry, made, takes_part, with_preemption


def check_profile(profile: Profile, registry: Registry) -> None:
    """Raise ProfileError for a profile that no framework can be made of."""
    plugins = made(profile, with_preemption(registry, Preemptor(rules=rules.V1_34)))
    found = expanded(profile, lambda name, at: name in plugins and takes_part(plugins[name], at))
    sorts = len(found.names[Point.QUEUE_SORT])
    if sorts != 1:
        text = (
            "only one queue sort plugin required for profile with scheduler name "
            f'"{profile.scheduler_name}", but got {sorts}'
        )
        raise ProfileError(Point.QUEUE_SORT, text)
    if not found.names[Point.BIND]:
        text = (
            "at least one bind plugin is needed for profile with scheduler name "
            f'"{profile.scheduler_name}"'
        )
        raise ProfileError(Point.BIND, text)
