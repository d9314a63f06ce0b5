"""SchedulingGates: a pod whose last gate is removed.

Source: kubernetes v1.34 plugins/schedulinggates/scheduling_gates.go, EventsToRegister,
isSchedulableAfterUpdatePodSchedulingGatesEliminated.
"""

from __future__ import annotations

from services.framework.hints import events_of, on, own_pod

EVENTS = events_of("SchedulingGates", on("UnschedulablePodSchedulingGatesEliminated", own_pod))
