"""The environment variables that are set for gRPC."""

from __future__ import annotations

import os

import pytest

from replay.backends import processes


@pytest.mark.parametrize(("installed", "switched"), [("1.85.1", True), ("1.99.0", False)])
def test_an_experimental_switch_is_set_for_versions_that_have_it(
    monkeypatch: pytest.MonkeyPatch, installed: str, switched: bool
) -> None:
    """Any other version would complain on standard error; the user's own choice stays."""
    processes.library_environment.cache_clear()
    monkeypatch.setattr(processes, "version", lambda _name: installed)
    monkeypatch.setattr(os, "environ", {"GRPC_VERBOSITY": "INFO"})
    processes.prepare()
    processes.library_environment.cache_clear()
    assert ("GRPC_EXPERIMENTS" in os.environ) is switched
    assert os.environ["GRPC_VERBOSITY"] == "INFO"
