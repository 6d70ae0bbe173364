"""Java properties text, the format of `hoodie.properties` and of partition metafiles, in both directions.

Format guide 1.3. Reading follows `java.util.Properties.load`: every escape is undone, continued lines are joined.
Writing escapes only what the Java loader needs escaped, because some readers of Hudi tables undo no escapes at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from skep_format.errors import FormatError

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = {char: "\\" + letter for letter, char in _ESCAPES.items()} | {"\\": "\\\\"}
_LINE_END = re.compile(r"\r\n|\n|\r")
_SEPARATOR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_TO_ESCAPE = re.compile(r"[\\\t\n\r\f]|[^\x20-\x7e]")
_KEY_TO_ESCAPE = re.compile(r"[\\\t\n\r\f =:#!]|[^\x20-\x7e]")


def parse_properties(data: bytes, path: str | None = None) -> dict[str, str]:
    """Keys and values in the order of the text; of a key given twice the last value counts, as in Java.

    `path` is named in the FormatError that a broken `\\u` escape raises.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        match = _SEPARATOR.fullmatch(line)
        assert match is not None  # the pattern takes any text
        key, value = (_unescape(part, path) for part in match.groups())
        found[key] = value
    return found


def format_properties(properties: Mapping[str, str], comments: Iterable[str] = ()) -> bytes:
    """One `key=value` a line, in the order of the mapping, below one `#` line for each comment."""
    lines = [f"#{_escape(comment, _TO_ESCAPE)}" for comment in comments]
    lines += [f"{_escape(key, _KEY_TO_ESCAPE)}={_escape_value(value)}" for key, value in properties.items()]
    return "".join(line + "\n" for line in lines).encode("latin-1")


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a line that ends with an odd number of backslashes goes on in the next."""
    pending: str | None = None
    for line in _LINE_END.split(text):
        content = line.lstrip(_BLANKS)
        if pending is None and (not content or content[0] in "#!"):
            continue
        joined = content if pending is None else pending + content
        backslashes = len(joined) - len(joined.rstrip("\\"))
        if backslashes % 2:
            pending = joined[:-1]
        else:
            pending = None
            yield joined
    if pending is not None:
        yield pending


def _unescape(text: str, path: str | None) -> str:
    if "\\" not in text:
        return text

    def char(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] != "u":
            return _ESCAPES.get(escape, escape)
        if len(escape) != 5:
            raise FormatError(
                f"malformed \\u escape in {path or 'properties'}: {text!r}", path=path, found=text, expected="\\uXXXX"
            )
        return chr(int(escape[1:], 16))

    # Characters beyond U+FFFF are two escapes, one for each half of their surrogate pair.
    return _ESCAPE.sub(char, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape(text: str, to_escape: re.Pattern[str]) -> str:
    return to_escape.sub(lambda match: _ESCAPED.get(match[0]) or _escape_char(match[0]), text)


def _escape_char(char: str) -> str:
    if char in " =:#!":
        return "\\" + char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2))


def _escape_value(value: str) -> str:
    escaped = _escape(value, _TO_ESCAPE)
    return "\\" + escaped if escaped.startswith(" ") else escaped  # blanks after the separator are skipped
