"""Redaction: names, label values, images and the like become keyed hashes.

Equal texts become equal hashes, whatever they name, so that selectors, affinities, tolerations and
references still match. What is kept is named here; all else is hashed, and what no trace carries
(environments, commands, most annotations) is left out.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from replay.importers.kinds import is_carried, to_object
from replay.record.redact_words import (
    ANNOTATIONS,
    IMAGE_FIELDS,
    KEPT_FIELDS,
    KEPT_LABEL_KEYS,
    KEPT_TEXTS,
    KEY_FIELDS,
    LABEL_MAPS,
    MESSAGE_FIELDS,
    TYPE_FIELDS,
    VOCABULARY,
)
from reprieve.kube.v1alpha1 import quantity_pb2
from services.rpc.errors import FieldError

Raw = Mapping[str, Any]
_HASH_BYTES = 8
_KEY_BYTES_MAX = 64
_INTEGER = re.compile(r"-?\d+")
_ORDINAL = re.compile(r"(?<=.)-\d{1,4}$")
_TOKEN = re.compile(r"[A-Za-z0-9]+(?:[._/:@-]+[A-Za-z0-9]+)*")
_AMOUNT = re.compile(r"\d+(?:\.\d+)?[A-Za-z]{0,2}(?:/\d+)?")
_PERCENT = re.compile(r"\d+%?")
_QUANTITY = re.compile(r"[+-]?[0-9.]{1,40}([eE][+-]?\d+|[numkKMGTPE]i?)?")
_PARTS = re.compile(r"[._/:@-]+")


class Redactor:
    """Hashes with one key; without the key nobody can tell what a hash was of.

    `unreadable` counts objects that were left out because they could not be read.
    """

    def __init__(self, key: bytes) -> None:
        self._key = blake2b(key).digest()[:_KEY_BYTES_MAX]
        self.unreadable = 0

    def object(self, raw: Raw) -> Raw | None:
        """Return an object's Kubernetes JSON with what identifies hashed; None if unreadable."""
        if not is_carried(raw):
            return None
        try:
            carried = to_object(raw)
        except FieldError:
            self.unreadable += 1
            return None
        field = carried.DESCRIPTOR.fields_by_name[carried.WhichOneof("object") or ""]
        hidden = self._hidden_value(field, raw)
        return {"apiVersion": raw["apiVersion"], "kind": raw["kind"], **hidden}

    def text(self, text: str) -> str:
        """Return the hash of a name or value; Kubernetes' own words and whole numbers are kept.

        The number at the end of a StatefulSet's pods' names stays where it is.
        """
        is_own = text in KEPT_TEXTS or text.startswith("kubernetes.io/")
        if not text or is_own or _INTEGER.fullmatch(text):
            return text
        ordinal = _ORDINAL.search(text)
        if ordinal is None:
            # What a name is generated from ends in a dash.
            stem = text.rstrip("-")
            return self._hash(stem) + text[len(stem) :] if stem else text
        return self._hash(text[: ordinal.start()]) + ordinal[0]

    def key(self, key: str) -> str:
        """Return the hash of a label's, taint's or topology's key; Kubernetes' own are kept."""
        domain, slash, _ = key.rpartition("/")
        is_own = domain.endswith(("kubernetes.io", "k8s.io")) if slash else key in KEPT_LABEL_KEYS
        return key if is_own or not key else self._hash(key)

    def image(self, name: str) -> str:
        """Return the hash of an image's name, of the tag "latest" where it has none.

        Source: kubernetes v1.34 plugins/imagelocality/image_locality.go, normalizedImageName.
        """
        if name.rfind(":") <= name.rfind("/"):
            name += ":latest"
        return f"{self._hash(name)}:x"

    def words(self, message: str) -> str:
        """Return a message with every word hashed that is none of the scheduler's or kubelet's."""
        return _TOKEN.sub(lambda match: self._word(match[0]), message)

    def _type(self, type_: str) -> str:
        return self.key(type_) if "/" in type_ else type_

    def _word(self, word: str) -> str:
        if _AMOUNT.fullmatch(word) or word in KEPT_TEXTS:
            return word
        if all(each.lower() in VOCABULARY for each in _PARTS.split(word)):
            return word
        return self.key(word) if "/" in word else self.text(word)

    def _hash(self, text: str) -> str:
        digest = blake2b(text.encode(), key=self._key, digest_size=_HASH_BYTES).digest()
        return "r" + b32encode(digest).decode().rstrip("=").lower()

    def _hidden(self, descriptor: Descriptor, raw: Raw) -> dict[str, Any]:
        """Return what a message's fields name of `raw`, hidden; the rest is left out."""
        result = {}
        for name, field in _fields(descriptor).items():
            if name in raw:
                value = raw[name]
                result[name] = None if value is None else self._hidden_field(field, value)
        return result

    def _hidden_field(self, field: FieldDescriptor, value: Any) -> Any:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._hidden_map(field, value)
        if field.is_repeated:
            return [self._hidden_value(field, each) for each in value]
        return self._hidden_value(field, value)

    def _hidden_value(self, field: FieldDescriptor, value: Any) -> Any:
        if isinstance(value, dict) and field.message_type is not None:
            return self._hidden(field.message_type, value)
        if not isinstance(value, str) or _is_own(field, value):
            return value
        return self._hide_for(field)(value)

    def _hide_for(self, field: FieldDescriptor) -> Callable[[str], str]:
        name = _name(field)
        if name in KEY_FIELDS:
            return self.key
        if name in TYPE_FIELDS:
            return self._type
        if name in MESSAGE_FIELDS:
            return self.words
        return self.image if name in IMAGE_FIELDS else self.text

    def _hidden_map(self, field: FieldDescriptor, value: Mapping[str, Any]) -> dict[str, Any]:
        if _is_quantity(field):
            return {name: each for name, each in value.items() if _is_own(field, each)}
        if field.name == "annotations":
            return dict(self._annotations(value.items()))
        hide = self.key if field.name in LABEL_MAPS else self.text
        # Where the values are no texts they are times: disruptedPods.
        is_text = _value_of(field).type == FieldDescriptor.TYPE_STRING
        return {hide(name): self.text(value[name]) if is_text else value[name] for name in value}

    def _annotations(self, items: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for name, value in items:
            if name in ANNOTATIONS or name.startswith("reprieve/"):
                yield name, value if name.startswith("reprieve/") else self.text(value)


@cache
def _fields(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    return {field.json_name: field for field in descriptor.fields}


@cache
def _name(field: FieldDescriptor) -> str:
    # NAME.field of "reprieve.kube.v1alpha1.NAME.field".
    return ".".join(field.full_name.split(".")[-2:])


def _value_of(field: FieldDescriptor) -> FieldDescriptor:
    """Return the field of a map's values."""
    entry = field.message_type
    assert entry is not None  # noqa: S101 - a map's entry is a message
    return entry.fields_by_name["value"]


def _is_quantity(field: FieldDescriptor) -> bool:
    is_quantity: bool = field.GetOptions().Extensions[quantity_pb2.quantity]
    return is_quantity


def _is_own(field: FieldDescriptor, value: object) -> bool:
    """Tell whether a value says by itself that it names nobody, or its field does."""
    if not isinstance(value, str):
        return True
    if _is_quantity(field):
        return _QUANTITY.fullmatch(value) is not None
    if field.message_type is not None:
        # A time was read as one; a number or a percentage is what a text beside a number may be.
        is_time = field.message_type.name == "Timestamp"
        return is_time or _PERCENT.fullmatch(value) is not None
    return field.type != FieldDescriptor.TYPE_STRING or _name(field) in KEPT_FIELDS
