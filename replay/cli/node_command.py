"""`reprieve node`: node-pressure eviction on this machine, alone as services.eviction.host."""

from __future__ import annotations

import importlib

import click

command: click.Command = importlib.import_module("services.eviction.host.__main__").main
