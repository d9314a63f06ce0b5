"""The contract's rules of names, held over every field of its image."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from google.api.field_behavior_pb2 import REQUIRED, field_behavior
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from services.rpc.interceptors.statuses import DOMAIN

ROOT = Path(__file__).resolve().parents[2]
IMAGE = FileDescriptorSet.FromString((ROOT / "protos" / "v1beta1.binpb").read_bytes())
FILES = [file for file in IMAGE.file if file.package.startswith("reprieve.")]
KUBE, TRACE = "reprieve.kube.v1beta1", "reprieve.trace.v1beta1"
UNITS = re.compile(r"_(ns|us|ms|seconds|s|minutes)$")
_MESSAGES, _FIELDS = 4, 2
"""Numbers in a location's path: FileDescriptorProto.message_type, DescriptorProto.field."""
NANOSECONDS = re.compile(r"(^|_)time_ns$|_duration_ns$")


def messages(files: Iterable[FileDescriptorProto]) -> Iterator[tuple[str, DescriptorProto]]:
    """Yield each message with its package."""
    for file in files:
        yield from ((file.package, message) for message in file.message_type)


def wrong_names(package: str, message: DescriptorProto) -> list[str]:
    """Return what breaks the rules of names in a message: its fields' times, and repetitions."""
    problems = []
    for field in message.field:
        name = f"{message.name}.{field.name}"
        is_kubernetes = package == KUBE or field.json_name == "gracePeriodS"
        if UNITS.search(field.name) and not is_kubernetes and not NANOSECONDS.search(field.name):
            problems.append(f"{name}: a time is time_ns or *_time_ns, a duration *_duration_ns")
        if "percent" in field.name and "kube" not in package:
            problems.append(f"{name}: a share is a ratio, by name")
        if field.name == _snake_case(message.name) and package != KUBE:
            problems.append(f"{name}: repeats the name of its message")
        if field.name == "session" and field.type == FieldDescriptorProto.TYPE_STRING:
            problems.append(f"{name}: the identifier of a session is session_id")
    groups = [oneof.name for oneof in message.oneof_decl if not oneof.name.startswith("_")]
    problems += [
        f"{message.name}.{group}: repeats it" for group in groups if _repeats(message, group)
    ]
    names = {*groups, *(field.name for field in message.field)}
    problems += [
        f"{message.name}.{verb}_{name}: C++ has a method of that name for {name}"
        for name in names
        for verb in ("clear", "has", "set", "mutable", "release", "add")
        if f"{verb}_{name}" in names
    ]
    return problems


def _repeats(message: DescriptorProto, group: str) -> bool:
    # The trace's records and observations are one, each, of their kinds, as JSON never shows.
    allowed = {"Operation", "Event", "Record", "Observed", "KubernetesObject"}
    return group == _snake_case(message.name) and message.name not in allowed


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)[A-Z]", lambda letter: f"_{letter[0]}", name).lower()


def test_times_durations_and_sessions_have_one_form_of_name() -> None:
    """In every message; Kubernetes' own fields keep their names."""
    seen = list(messages(FILES))
    assert len(seen) > 200
    assert [problem for place in seen for problem in wrong_names(*place)] == []


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Round", "at_ns"),
        ("Round", "round"),
        ("Head", "queued_ns"),
        ("PodLife", "service_time_s"),
        ("Eviction", "grace_period_override_seconds"),
        ("Threshold", "percentage"),
        ("Stamp", "session"),
    ],
)
def test_a_name_that_breaks_a_rule_is_found(message: str, field: str) -> None:
    """The names of before are examples."""
    made = DescriptorProto(name=message)
    made.field.add(name=field, type=FieldDescriptorProto.TYPE_STRING)
    assert len(wrong_names("reprieve.scheduler.v1beta1", made)) == 1


def test_a_field_with_the_name_of_a_method_in_c_plus_plus_is_found() -> None:
    """`clear_` and the name of a oneof is one of them."""
    made = DescriptorProto(name="Failure")
    made.oneof_decl.add(name="nomination")
    made.field.add(name="clear_nomination", oneof_index=0)
    assert len(wrong_names("reprieve.scheduler.v1beta1", made)) == 1


def test_only_files_keep_other_json_names() -> None:
    """One that is not that of the field's own name is of a trace, of a log or Kubernetes' own."""
    for package, message in messages(FILES):
        for field in message.field:
            usual = re.sub(r"_([a-z0-9])", lambda letter: letter[1].upper(), field.name)
            is_a_files = package in (TRACE, KUBE)
            assert field.json_name == usual or is_a_files, f"{message.name}.{field.name}"


def test_no_comment_gives_a_meaning_to_a_zero_or_an_empty_text_that_is_set() -> None:
    """Unknown is absent, and what clears a field is a form of its own."""
    for file in FILES:
        for location in file.source_code_info.location:
            comment = " ".join(location.leading_comments.split())
            for phrase in ("0: unknown", "-1: ", '"" clears', "set and empty", "Set and empty"):
                assert phrase not in comment, comment


def required_in_words(file: FileDescriptorProto) -> list[str]:
    """Return the comments of fields that call them required without naming a condition."""
    return [
        location.leading_comments
        for location in file.source_code_info.location
        if list(location.path)[::2] == [_MESSAGES, _FIELDS]
        and re.search(r"\bRequired[.;,]", location.leading_comments)
        and "Required, except" not in location.leading_comments
    ]


def test_required_fields_are_marked_by_the_option_and_not_in_words() -> None:
    """The reference takes the word from google.api.field_behavior; comments have conditions."""
    assert [comment for file in FILES for comment in required_in_words(file)] == []
    marked = [
        f"{message.name}.{field.name}"
        for _, message in messages(FILES)
        for field in message.field
        if REQUIRED in field.options.Extensions[field_behavior]
    ]
    assert len(marked) > 70
    assert {"Stamp.session_id", "PopId.uid", "Bind.node_name"} <= set(marked)


def test_a_field_that_is_required_in_words_is_found() -> None:
    """A condition is not."""
    made = FileDescriptorProto()
    for comment in (" The pod. Required.\n", " The pod. Required, except with `uids`.\n"):
        made.source_code_info.location.add(path=[4, 0, 2, 0], leading_comments=comment)
    assert required_in_words(made) == [" The pod. Required.\n"]


def test_reserved_numbers_are_those_that_a_first_version_skipped() -> None:
    """One that a released field had is reserved with its name."""
    reserved = {message.name for _, message in messages(FILES) if message.reserved_range}
    assert {name for name in reserved if name != "PodCreate"} <= {
        message.name for _, message in messages(FILES) if message.reserved_name
    }


def test_packages_and_the_domain_of_errors_follow_from_one_name() -> None:
    """pyproject.toml has it; protos/README.md tells how to change it."""
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    domain = configured["tool"]["reprieve"]["domain"]
    assert domain == DOMAIN
    java = ".".join(reversed(domain.split(".")))
    for file in FILES:
        _, package, version = file.package.split(".")
        assert file.options.go_package == f"{domain}/{package}/{version};{package}{version}"
        assert file.options.java_package == f"{java}.{package}.{version}"
        assert file.options.csharp_namespace == f"Reprieve.{package.title()}.{_title(version)}"
        assert file.options.java_multiple_files


def test_no_example_and_no_test_has_another_domain() -> None:
    """They have it in imports and in the ErrorInfo of their refusals."""
    text = (ROOT / "examples" / "clients" / "service-node" / "index.js").read_text(encoding="utf-8")
    assert f"domain: '{DOMAIN}'" in text
    for path in (ROOT / "examples" / "schedulers" / "first-fit-go").glob("*.go"):
        for found in re.findall(r'"([a-z.]+)/\w+/v1beta1"', path.read_text(encoding="utf-8")):
            assert found == DOMAIN, path


def _title(version: str) -> str:
    return re.sub(r"[a-z]+", lambda word: word[0].title(), version)
