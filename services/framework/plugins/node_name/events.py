"""NodeName: a new node may be the one that a pod requests.

Source: kubernetes v1.34 plugins/nodename/node_name.go, EventsToRegister.
"""

from __future__ import annotations

from services.framework.hints import events_of, on

EVENTS = events_of("NodeName", on("NodeAdd"))
