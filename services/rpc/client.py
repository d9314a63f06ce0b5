"""What every client of a service sets.

No keep-alive: gRPC servers end a connection whose pings come more often than every five minutes.
"""

from __future__ import annotations

from services.rpc.server import MESSAGE_BYTES_MAX

CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
]
"""Options of every channel; proxies of the environment are for the web, not for our services."""
