"""Redaction: names, label values, images and the like become keyed hashes.

Equal texts become equal hashes, whatever they name, so that selectors, affinities, tolerations and
references still match. What is kept is named here; all else is hashed, and what no trace carries
(environments, commands, most annotations) is left out.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

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
from services.rpc import kube_json
from services.rpc.errors import FieldError

Raw = Mapping[str, Any]
_M = TypeVar("_M", bound=Message)
_HASH_BYTES = 8
_KEY_BYTES_MAX = 64
_INTEGER = re.compile(r"-?\d+")
_ORDINAL = re.compile(r"(?<=.)-\d{1,4}$")
_TOKEN = re.compile(r"[A-Za-z0-9]+(?:[._/:@-]+[A-Za-z0-9]+)*")
_AMOUNT = re.compile(r"\d+(?:\.\d+)?[A-Za-z]{0,2}(?:/\d+)?")
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
        message: Message = getattr(carried, carried.WhichOneof("object") or "")
        self._hide(message)
        return {
            "apiVersion": raw["apiVersion"],
            "kind": raw["kind"],
            **kube_json.to_json(message),
        }

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

    def _hide(self, message: Message) -> None:
        for field, value in message.ListFields():
            if _is_map(field):
                self._hide_map(field, value)
            elif field.message_type is not None:
                if not field.message_type.full_name.startswith("google."):
                    for each in value if field.is_repeated else (value,):
                        self._hide(each)
            elif field.type == FieldDescriptor.TYPE_STRING:
                self._hide_text(message, field, value)

    def _hide_text(self, message: Message, field: FieldDescriptor, value: Any) -> None:
        name = f"{message.DESCRIPTOR.name}.{field.name}"
        if field.GetOptions().Extensions[quantity_pb2.quantity] or name in KEPT_FIELDS:
            return
        hide: Callable[[str], str] = self.text
        if name in KEY_FIELDS:
            hide = self.key
        elif name in TYPE_FIELDS:
            hide = self._type
        elif name in MESSAGE_FIELDS:
            hide = self.words
        elif name in IMAGE_FIELDS:
            hide = self.image
        if field.is_repeated:
            value[:] = [hide(each) for each in value]
        else:
            setattr(message, field.name, hide(value))

    def _hide_map(self, field: FieldDescriptor, value: Any) -> None:
        if field.GetOptions().Extensions[quantity_pb2.quantity]:
            return
        if field.message_type.fields_by_name["value"].message_type is not None:  # type: ignore[union-attr] # a map's
            # disruptedPods: times by the names of pods.
            times = {self.text(name): _copied(value[name]) for name in value}
            value.clear()
            for name, each in times.items():
                value[name].CopyFrom(each)
            return
        if field.name == "annotations":
            hidden = dict(self._annotations(value.items()))
        elif field.name in LABEL_MAPS:
            hidden = {self.key(each): self.text(value[each]) for each in value}
        else:
            hidden = {self.text(each): self.text(value[each]) for each in value}
        value.clear()
        value.update(hidden)

    def _annotations(self, items: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for name, value in items:
            if name in ANNOTATIONS or name.startswith("reprieve/"):
                yield name, value if name.startswith("reprieve/") else self.text(value)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _copied(message: _M) -> _M:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
