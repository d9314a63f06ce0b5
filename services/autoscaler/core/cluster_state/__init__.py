"""Tracks the state of node groups: readiness, upcoming nodes, open requests, backoff."""
