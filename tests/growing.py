"""Files that grow, by path: for tests of what is written to them."""

from __future__ import annotations

from pathlib import Path

from services.folder import Folder
from services.growing_file import GrowingFile


def growing(path: Path) -> GrowingFile:
    """Return a new file."""
    with Folder(path.parent) as folder:
        return GrowingFile(folder, path.name)
