r"""Output to terminals: untrusted text is printed without control characters.

A name in a trace may hold an escape sequence that retitles a terminal, a character that reverses
the text after it, or a newline that begins a forged line. Such characters are shown as `\x1b` or
`\u202e`. JSON has its own escapes, with which a program reads the same text: `json_text`. CSV is
for spreadsheets, which run a text that begins like a formula: `csv_text` makes it a text.
"""

from __future__ import annotations

import logging
import re

import click

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of a formula, also full-width (OWASP, CSV Injection); tab, return: escaped."""
_BREAKS = {ord("\n"): "\\x0a", ord("\t"): "\\x09"}


def escaped(text: str) -> str:
    """Return the text with C0 and C1 controls (not tab and newline) and bidi controls escaped."""
    return _UNSAFE.sub(_code, text)


def one_line(text: str) -> str:
    """Return the text with tabs and newlines escaped, too: for names and messages in a line."""
    return escaped(text).translate(_BREAKS)


def json_text(text: str) -> str:
    """Return equal JSON in which these characters are JSON escapes."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csv_text(text: str) -> str:
    """Return the text in one line, with an apostrophe before what a spreadsheet would run."""
    text = one_line(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _code(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def echo(*lines: str, err: bool = False) -> None:
    """Print lines for users; a newline within a line is escaped. Without lines: an empty one."""
    click.echo("\n".join(map(one_line, lines)), err=err)


class LogFormatter(logging.Formatter):
    """Formats a service's log: a message is one line, a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the escaped message."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        """Return the escaped traceback."""
        return escaped(super().formatException(ei))  # type: ignore[arg-type] # typeshed's private alias


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 node" or "2,000 nodes"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
