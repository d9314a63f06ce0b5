"""The texts of bindings that fail."""

from __future__ import annotations

from services.kube.devices import BINDING_TIMEOUT


def binding_failure(refused: str) -> str:
    """Return the scheduler's error where PreBind or the API server refused a binding.

    Source: kubernetes v1.36 pkg/scheduler/framework/runtime/framework.go, RunPreBindPlugins,
    RunBindPlugins.
    """
    plugin = 'PreBind plugin "DynamicResources"'
    if refused != BINDING_TIMEOUT:
        plugin = 'Bind plugin "DefaultBinder"'
    return f"running {plugin}: {refused}"
