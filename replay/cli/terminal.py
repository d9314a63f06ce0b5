"""The edge to a person's terminal: text of traces and services is shown without control characters.

A name in a trace may hold an escape sequence that retitles a terminal, or a character that reverses
the text after it. Such characters are shown as `\\x1b` or `\\u202e`. Output for programs (JSON,
YAML, CSV) has its own rules and does not pass here.
"""

from __future__ import annotations

import re

import click

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """Return the text with C0 and C1 controls (not tab and newline) and bidi controls escaped."""
    return _UNSAFE.sub(_code, text)


def _code(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text for people, as click.echo does."""
    click.echo(escaped(str(text)), err=err, nl=nl)
