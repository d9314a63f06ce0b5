"""Names and UIDs that the replay makes: hashes of what they stand for, never of chance.

Two runs of one trace therefore make the same pods, whatever else differs between them.
"""

from __future__ import annotations

from hashlib import blake2b

_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def object_uid(kind: str, namespace: str, name: str, owner_uid: str = "", ordinal: int = 0) -> str:
    """Return a UID in UUID's form for the object that the arguments identify."""
    text = _digest(kind, namespace, name, owner_uid, str(ordinal)).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def name_suffix(owner_uid: str, ordinal: int, length: int = 5) -> str:
    """Return `length` letters, from the alphabet that Kubernetes makes names of.

    Source: kubernetes v1.34 apimachinery pkg/util/rand/rand.go, alphanums (without vowels and
    easily mistaken digits).
    """
    number = int.from_bytes(_digest("suffix", owner_uid, str(ordinal)), "big")
    letters = []
    for _ in range(length):
        number, index = divmod(number, len(_NAME_LETTERS))
        letters.append(_NAME_LETTERS[index])
    return "".join(letters)


def _digest(*parts: str) -> bytes:
    return blake2b("\x00".join(parts).encode(), digest_size=16, person=b"reprieve").digest()
