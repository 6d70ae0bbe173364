"""The text of CSV files cut into values by the rules of Spark's reader, which are those of univocity's CSV parser.

Only a quoted value has escapes: the escape makes a quote that follows it a part of the value, and so does
`escape_of_escape` with the escape. Before any other character an escape stands for itself. Where a closing quote is
followed by text, the value is all text up to the next separator, with its quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

NONE: Final = "\0"
"""The character that stands for none, as in Spark."""
BLANKS: Final = "".join(map(chr, range(33)))
"""What Java trims."""


class CutError(ValueError):
    """A value of which Spark would take the separator after it for a part, and lose that."""


@dataclass(frozen=True)
class Dialect:
    """How text is cut. A value equal to `null` is missing; `""` stands for `empty`.

    `line_end` is that of the file; the text has `\\n` for it.
    """

    separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    escape_of_escape: str = "\\"
    comment: str = NONE
    null: str = ""
    empty: str = ""
    trims_left: bool = False
    trims_right: bool = False
    line_end: str = "\n"

    def records(self, text: str) -> Iterator[tuple[list[str | None], int, int]]:
        """The values of each record, where it begins and where the next does, of a text whose lines end, and go on,
        with `\\n`."""
        at = 0
        while at < len(text):
            if self.comment != NONE and text[at] == self.comment:
                at = (text.find("\n", at) + 1) or len(text)
                continue
            start = self._begin(text, at)
            if start < len(text) and text[start] == "\n":
                at = start + 1
                continue
            begin = at
            values, at = self.record(text, at)
            yield values, begin, at

    def record(self, text: str, at: int = 0) -> tuple[list[str | None], int]:
        """The values of the record that begins at `at`, and where the next one begins. CutError where Spark errs."""
        values: list[str | None] = []
        while True:
            at = self._begin(text, at)
            if text.startswith(self.quote, at):
                value, at = self._quoted(text, at + 1)
            else:
                value, at = self._plain(text, at)
            values.append(None if value == self.null else value)
            if not text.startswith(self.separator, at):
                return values, at + 1
            at += 1

    def _begin(self, text: str, at: int) -> int:
        if self.trims_left:
            while at < len(text) and text[at] in BLANKS and text[at] not in (self.separator, self.quote, "\n"):
                at += 1
        return at

    def _plain(self, text: str, at: int) -> tuple[str, int]:
        end = _end(self._rest, text, at)
        value = self._trimmed(text[at:end])
        if value:
            return value, end
        return (self.empty if at < end == len(text) else self.null), end

    def _trimmed(self, value: str) -> str:
        return value.rstrip(BLANKS) if self.trims_right else value

    def _quoted(self, text: str, at: int) -> tuple[str, int]:
        """The value after an opening quote, and where the separator or line end after it is."""
        whole = self._whole.match(text, at)
        if whole and (self.line_end == "\n" or text[whole.end()] != "\n"):
            return whole[1] or self.empty, whole.end()
        quote, escape, end = self.quote, self.escape, len(text)
        start, parts, before = at, list[str](), NONE
        while at < end:
            here = text[at]
            if before == quote and (here <= " " or here == self.separator):
                return self._closed(text, at, "".join(parts))
            if here not in (quote, escape):
                if before == quote:
                    after = _end(self._rest, text, at + 1)
                    return self._trimmed(f"{quote}{''.join(parts)}{quote}{text[at:after]}"), after
                if before == escape != NONE:
                    parts.append(escape)
                stop = _end(self._content, text, at)
                parts.append(text[at:stop])
                before = text[stop : stop + 1]
                at = stop + 1
                continue
            if here == escape and before == self.escape_of_escape != NONE:
                parts.append(escape)
                before = NONE
            elif before == escape:
                parts.append(here)
                before = NONE if here == quote else here
            elif before == quote:
                if here != quote:
                    raise CutError(f"{escape!r} follows the closing quote of a value")
                parts.append(quote)
            else:
                before = here
            at += 1
        return ("".join(parts) or self.empty) if start < end else quote, end

    def _closed(self, text: str, at: int, value: str) -> tuple[str, int]:
        """What a value is that was closed before `at`: blanks after it don't count, unless other text follows them."""
        begin = at
        while at < len(text) and text[at] <= " " and text[at] not in (self.separator, "\n"):
            at += 1
        if at == len(text) or text[at] in (self.separator, "\n"):
            return value or self.empty, at
        end = _end(self._rest, text, at + 1)
        rest = self.quote + value + self.quote + text[begin:end]
        if end == len(text) and text[at + 1 : at + 2] == self.quote != text[at]:
            rest += self.quote  # univocity closes it at the end of the text
        return self._trimmed(rest), end

    @cached_property
    def _rest(self) -> re.Pattern[str]:
        return re.compile(f"[^{re.escape(self.separator)}\\n]*")

    @cached_property
    def _content(self) -> re.Pattern[str]:
        return re.compile(f"[^{re.escape(self.quote + self.escape + self.escape_of_escape)}]*")

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        """A quoted value without escapes, up to its end before a separator or line end."""
        quote, escape, separator = map(re.escape, (self.quote, self.escape, self.separator))
        plain = f"[^{quote}{escape}\\n]"
        if self.quote == self.escape:
            inside = f"{plain}+"
        else:
            inside = f"{plain}*(?:{escape}(?![{quote}{re.escape(self.escape_of_escape)}]){plain}*)*"
        return re.compile(f"({inside}){quote}(?=[{separator}\\n])")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a match from `at` on ends."""
    found = pattern.match(text, at)
    return found.end() if found else at
