"""Build hooks: the stubs in `gen/`, the protos of others, and the README of a package's page.

`gen/` is an import root of its own and is never committed. The stubs are made
in a temporary folder and swapped in only when every file was generated, so a
broken proto leaves the last good stubs in place. `protos/google/` has what the contract imports,
and google.rpc's messages of refusals, from the locked googleapis-common-protos: with it `protos/`
is complete for buf, for the examples and for `reprieve protos`. It is never committed either.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_COMMON = "googleapis-common-protos"
_GOOGLE = (
    "google/api/field_behavior.proto",
    "google/rpc/error_details.proto",
    "google/rpc/status.proto",
)
"""The files of googleapis-common-protos in `protos/`; their Python modules are that package's."""
_LINK = re.compile(r"(\]\(|src=\"|href=\")(?!https?:|#|mailto:)([^)\"\s]+)")


def generate(root: Path) -> None:
    """Generate the stubs of every proto below `root/protos/reprieve` into `root/gen`.

    Raises RuntimeError where protoc refuses a file; its own words are on stderr.
    """
    import grpc_tools  # noqa: PLC0415 - only the build environment has it
    from grpc_tools import protoc  # noqa: PLC0415

    copy_google(root)
    protos = root / "protos"
    files = sorted(str(path.relative_to(protos)) for path in protos.glob("reprieve/**/*.proto"))
    services = [name for name in files if name.endswith("_service.proto")]
    includes = [f"-I{protos}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    with tempfile.TemporaryDirectory(dir=root, prefix=".gen-") as folder:
        out = Path(folder) / "gen"
        out.mkdir()
        runs = [
            [f"--python_out={out}", f"--mypy_out={out}", *files],
            [f"--grpc_python_out={out}", f"--mypy_grpc_out={out}", *services],
        ]
        plugins = list(mypy_plugins())
        for arguments in runs:
            if protoc.main(["protoc", *plugins, *includes, *arguments]) != 0:
                raise RuntimeError(f"protoc refused {' '.join(arguments)}")
        (out / "reprieve" / "py.typed").touch()
        shutil.rmtree(root / "gen", ignore_errors=True)
        out.rename(root / "gen")


def copy_google(root: Path) -> None:
    """Put the protos of others that the contract needs into `root/protos/google`."""
    files = {file.as_posix(): file for file in importlib.metadata.files(_COMMON) or ()}
    with tempfile.TemporaryDirectory(dir=root, prefix=".gen-") as folder:
        for name in _GOOGLE:
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(files[name].locate()), target)
        shutil.rmtree(root / "protos" / "google", ignore_errors=True)
        (Path(folder) / "google").rename(root / "protos" / "google")


def mypy_plugins() -> Iterator[str]:
    """Yield protoc's options for the plugins of the mypy-protobuf that Python imports.

    PATH may name others: those of another environment, or none.
    """
    for file in importlib.metadata.files("mypy-protobuf") or ():
        if file.stem.startswith("protoc-gen-"):
            yield f"--plugin={file.stem}={Path(str(file.locate())).resolve()}"


class ProtoBuildHook(BuildHookInterface[Any]):
    """Run `generate` before hatchling collects the files of a wheel or an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the stubs (hatchling's entry point; both arguments are its own)."""
        del version, build_data
        generate(Path(self.root))


def package_readme(text: str, repository: str) -> str:
    """Return a README whose relative links and pictures lead to the repository.

    A package's page shows the README alone, so that a relative link would lead nowhere.
    """
    return _LINK.sub(rf"\g<1>{repository}/\g<2>", text)


class ReadmeHook(MetadataHookInterface):
    """Make the description of the package from README.md."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme (hatchling's entry point)."""
        root = Path(self.root)
        with (root / "pyproject.toml").open("rb") as file:
            repository = tomllib.load(file)["tool"]["reprieve"]["repository"]
        text = (root / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": package_readme(text, repository),
        }
