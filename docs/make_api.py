"""Write the API reference, docs/api, from the comments in the contract's image.

Usage: python docs/make_api.py [--check]. With --check nothing is written, and the exit code is 1 if
the pages differ from the image.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from google.api import field_behavior_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "api"
IMAGE = ROOT / "protos" / "v1beta1.binpb"
INTRODUCTION = """# API reference

The contract `v1beta1`, from the comments in its .proto files. `reprieve protos -o protos` writes
the .proto files. Where to begin: [a scheduler](../write-a-scheduler.md), [a client of the
queue](../write-a-queue-client.md), [an eviction service](../write-an-eviction-service.md), [an
autoscaler](../write-an-autoscaler.md).
[Conformance](../conformance.md) lists the methods that each command needs.

| Package | Contents |
|---|---|
"""
_SCALARS = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
_MESSAGE, _SERVICE, _ENUM, _FIELD, _NESTED, _VALUE, _METHOD = 4, 6, 5, 2, 3, 2, 2


class Page:
    """The page of one package, made from the package's files."""

    def __init__(self, package: str, files: list[FileDescriptorProto]) -> None:
        self.package = package
        self.name = package.split(".")[1]
        self._files = files

    @property
    def summary(self) -> str:
        """Return the package's services by name, and its number of messages, in Markdown."""
        services = [service.name for file in self._files for service in file.service]
        messages = sum(len(file.message_type) for file in self._files)
        return ", ".join([*(f"`{service}`" for service in services), f"{messages} messages"])

    def lines(self) -> Iterator[str]:
        """Yield the page: services first, then messages and enums in the order of the files."""
        yield f"# {self.package}\n"
        yield "Generated from the .proto files by `make contract`; [all packages](README.md).\n"
        for file in self._files:
            comments = _comments(file)
            for index, service in enumerate(file.service):
                yield from _service(service, (_SERVICE, index), comments, file.name)
        for file in self._files:
            comments = _comments(file)
            for index, message in enumerate(file.message_type):
                yield from _message(message, (_MESSAGE, index), comments, file.name)
            for index, enum in enumerate(file.enum_type):
                yield from _enum(enum, (_ENUM, index), comments, file.name)


_Comments = dict[tuple[int, ...], str]


def _comments(file: FileDescriptorProto) -> _Comments:
    return {
        tuple(location.path): location.leading_comments
        for location in file.source_code_info.location
        if location.leading_comments
    }


def _service(
    service: ServiceDescriptorProto, path: tuple[int, ...], comments: _Comments, file: str
) -> Iterator[str]:
    yield f"## {service.name}\n"
    yield f"{_paragraphs(comments.get(path, ''))} (`{_short(file)}`)\n"
    for index, method in enumerate(service.method):
        request = f"{'stream of ' * method.client_streaming}{_link(method.input_type)}"
        response = f"{'stream of ' * method.server_streaming}{_link(method.output_type)}"
        yield f"### {service.name}.{method.name}\n"
        yield f"{request} → {response}\n"
        yield f"{_paragraphs(comments.get((*path, _METHOD, index), ''))}\n"


def _message(
    message: DescriptorProto, path: tuple[int, ...], comments: _Comments, file: str
) -> Iterator[str]:
    yield f"## {message.name}\n"
    yield f"{_paragraphs(comments.get(path, ''))} (`{_short(file)}`)\n"
    if message.field:
        yield from _fields(message, path, comments)
    for index, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from _message(nested, (*path, _NESTED, index), comments, file)


def _fields(message: DescriptorProto, path: tuple[int, ...], comments: _Comments) -> Iterator[str]:
    yield "| Field | Type | Meaning |\n|---|---|---|"
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    for index, field in enumerate(message.field):
        kind = _type(field, entries)
        meaning = _cell(comments.get((*path, _FIELD, index), ""))
        if _is_required(field):
            meaning = f"Required. {meaning}"
        if field.HasField("oneof_index") and not field.proto3_optional:
            kind = f"{kind}, one of `{message.oneof_decl[field.oneof_index].name}`"
        yield f"| `{field.name}` | {kind} | {meaning} |"
    yield ""


def _enum(
    enum: EnumDescriptorProto, path: tuple[int, ...], comments: _Comments, file: str
) -> Iterator[str]:
    yield f"## {enum.name}\n"
    yield f"{_paragraphs(comments.get(path, ''))} (`{_short(file)}`)\n"
    yield "| Value | Number | Meaning |\n|---|---|---|"
    for index, value in enumerate(enum.value):
        meaning = _cell(comments.get((*path, _VALUE, index), ""))
        yield f"| `{value.name}` | {value.number} | {meaning} |"
    yield ""


def _type(field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> str:
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        key, value = entry.field
        return f"map of {_type(key, {})} to {_type(value, {})}"
    named = _link(field.type_name) if field.type_name else _SCALARS[field.type]
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {named}"
    return f"optional {named}" if field.proto3_optional else named


def _is_required(field: FieldDescriptorProto) -> bool:
    behaviors = field.options.Extensions[field_behavior_pb2.field_behavior]
    return field_behavior_pb2.REQUIRED in behaviors


def _link(type_name: str) -> str:
    _, *package, name = type_name.split(".")
    if package[0] != "reprieve":
        return f"`{'.'.join([*package, name])}`"
    return f"[{name}]({package[1]}.md#{name.lower()})"


def _paragraphs(comment: str) -> str:
    return "\n\n".join(_cell(paragraph) for paragraph in comment.strip().split("\n\n"))


def _short(file: str) -> str:
    return file.rpartition("/")[2]


def _cell(comment: str) -> str:
    text = re.sub(r"\s+", " ", comment).strip()
    return text.replace("|", "\\|").replace("<", "&lt;")


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    image = FileDescriptorSet.FromString(IMAGE.read_bytes())
    packages: dict[str, list[FileDescriptorProto]] = {}
    for file in image.file:
        if file.package.startswith("reprieve."):
            packages.setdefault(file.package, []).append(file)
    generated = [Page(*package) for package in sorted(packages.items())]
    index = [f"| [{page.package}]({page.name}.md) | {page.summary} |" for page in generated]
    texts = {f"{page.name}.md": "\n".join(page.lines()).rstrip() + "\n" for page in generated}
    return {"README.md": INTRODUCTION + "\n".join(index) + "\n", **texts}


def main() -> None:
    """Write the pages, or with --check compare them with the files."""
    generated = pages()
    if "--check" not in sys.argv:
        PAGES.mkdir(exist_ok=True)
        for name, text in generated.items():
            (PAGES / name).write_text(text, encoding="utf-8")
        return
    written = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    if written != generated:
        sys.exit("docs/api differs from protos/v1beta1.binpb: run make contract")


if __name__ == "__main__":
    main()
