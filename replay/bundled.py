"""The data that comes with Reprieve: examples, protos, and the vectors of upstream's own code."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def bundled(name: str) -> Path:
    """Return a folder of data: in the installed package, or in the root of a clone."""
    package = Path(str(files("replay")))
    installed = package / name
    return installed if installed.is_dir() else package.parent / name
