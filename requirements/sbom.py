"""Make Reprieve's bill of materials from that of the development environment: `make sbom`.

Usage: python requirements/sbom.py ENVIRONMENT RESULT

Both are CycloneDX JSON. Of the environment's components it keeps those that requirements/run.txt
locks, and adds those that Reprieve itself brings. It has neither a time nor a random number, and
its order is that of the names: equal locks give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "run.txt"
ECHARTS = ROOT / "replay" / "report" / "assets" / "echarts" / "echarts.min.js"
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+) *(;?)", re.MULTILINE)

Json = dict[str, Any]


def main() -> None:
    """Read the environment's bill, write Reprieve's; end with a message where they cannot agree."""
    environment, result = (Path(each) for each in sys.argv[1:])
    try:
        bill = bill_of_materials(
            json.loads(environment.read_text("utf-8")), LOCK.read_text("utf-8"), [echarts()]
        )
        text = json.dumps(bill, indent=2, sort_keys=True) + "\n"
        _validate(text)
    except ValueError as error:
        sys.exit(f"Error: {error}")
    result.write_text(text, "utf-8")


def bill_of_materials(environment: Json, lock: str, vendored: Collection[Json]) -> Json:
    """Return the environment's bill reduced to what the lock names, with the vendored components.

    Raises ValueError where the environment lacks a locked version.
    """
    locked = {name(each[1]): (each[2], bool(each[3])) for each in _LOCKED.finditer(lock)}
    found = {name(each["name"]): each for each in environment["components"]}
    kept = list(vendored)
    for package, (version, conditional) in locked.items():
        if package in found and found[package]["version"] == version:
            kept.append(found[package])
        elif package in found or not conditional:
            raise ValueError(f"{package} {version} is locked, but not installed: run make setup")
    root = environment["metadata"]["component"]["bom-ref"]
    refs = {root, *(each["bom-ref"] for each in kept)}
    edges = {each["ref"]: set(each.get("dependsOn", ())) for each in environment["dependencies"]}
    edges.setdefault(root, set()).update(each["bom-ref"] for each in vendored)
    return {
        **environment,
        "components": sorted(kept, key=lambda each: each["bom-ref"].lower()),
        "dependencies": [_dependencies(ref, edges, refs) for ref in sorted(refs)],
    }


def _dependencies(ref: str, edges: Mapping[str, Collection[str]], refs: Collection[str]) -> Json:
    """Return the entry of one component; without dependencies it has no key for them."""
    needed = sorted(each for each in edges.get(ref, ()) if each in refs)
    return {"ref": ref, "dependsOn": needed} if needed else {"ref": ref}


def name(text: str) -> str:
    """Return a package's name as PyPI normalizes it."""
    return re.sub(r"[-_.]+", "-", text).lower()


def echarts() -> Json:
    """Return the component of Apache ECharts, which is part of every report, as it lies there.

    Raises ValueError where the file does not name its version.
    """
    content = ECHARTS.read_bytes()
    version = re.search(rb'\.version="([0-9.]+)"', content)
    if version is None:
        raise ValueError(f"{ECHARTS}: it does not name its version; correct requirements/sbom.py")
    number = version[1].decode()
    return {
        "bom-ref": f"echarts=={number}",
        "description": "Charts of the report page; contains zrender and parts of d3",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
        "licenses": [{"expression": "Apache-2.0 AND BSD-3-Clause"}],
        "name": "echarts",
        "properties": [{"name": "file", "value": ECHARTS.relative_to(ROOT).as_posix()}],
        "purl": f"pkg:npm/echarts@{number}",
        "type": "library",
        "version": number,
    }


def _validate(text: str) -> None:
    """Raise ValueError where the text is not what CycloneDX's schema asks for."""
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - the tools' environment has it
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        raise ValueError(f"the result does not match CycloneDX's schema: {error}")


if __name__ == "__main__":
    main()
