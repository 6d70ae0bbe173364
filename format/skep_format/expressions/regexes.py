"""Regular expressions that Java and Arrow take alike, and what they find in texts.

Those are of characters, classes, groups, and repeats of characters and classes: without a group that may be left out,
without what depends on lines, words or another character set, and without what matches nothing in particular.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

# What Java has the short forms stand for, in the syntax of Arrow.
_SPACES: Final = r" \t\n\x0b\f\r"
_SHORT: Final = {"d": "0-9", "w": "a-zA-Z_0-9", "s": _SPACES}
_LINE_ENDS: Final = r"\n\r\x{85}\x{2028}\x{2029}"

_PLAIN: Final = r"[a-zA-Z0-9 _/:=,;@%~<>!\"'#`-]"
_ESCAPED: Final = r"\\[.\[\](){}*+?|^$\\/&-]"
_MEMBER: Final = r"[a-zA-Z0-9 _/:=,;@%~<>!\"'#`.*+?(){}|$]"
_CLASS: Final = re.compile(rf"\[(\^?-?)((?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|\\[dws]|{_ESCAPED}|{_MEMBER})+)(-?)\]")
_RANGE: Final = re.compile(r"(?<!\\)([a-zA-Z0-9])-([a-zA-Z0-9])")
_REPEAT: Final = re.compile(r"([*+?]|\{(\d{1,2})(?:,(\d{0,2}))?\})(\??)")
_AGAIN: Final = ("*", "+", "?", "{")
_TOKEN: Final = re.compile(
    rf"(?P<char>{_PLAIN}|{_ESCAPED})|(?P<any>\.)|(?P<short>\\[dwsDWS])|(?P<class>\[)|(?P<open>\((?:\?:)?)|(?P<close>\))"
    r"|(?P<or>\|)"
)


@dataclass(frozen=True, slots=True)
class Regex:
    """An expression in Arrow's syntax: its pieces, and where among them its groups open.

    `takes_some`: whether it matches at least one character wherever it matches.
    """

    pieces: tuple[str, ...]
    groups: tuple[int, ...]
    takes_some: bool

    @classmethod
    def parse(cls, pattern: str) -> Regex | None:
        """None for one that the two may take otherwise."""
        return _parsed(pattern)

    def extracted(self, texts: Any, group: int) -> Any:
        """What the first match of each text has in a group; 0 is the whole match. An empty text without a match."""
        pieces = [self._piece(at, named=group) for at in range(len(self.pieces))]
        whole = "".join(pieces)
        found = pc.extract_regex(texts, f"(?P<found>{whole})" if group == 0 else whole)
        taken = pc.fill_null(pc.struct_field(found, "found"), "")
        return pc.if_else(pc.is_valid(texts), taken, pa.scalar(None, pa.string()))

    def replaced(self, texts: Any, replacement: str) -> Any:
        """Each text with another one for all matches. For a `replacement` without backslashes and dollar signs."""
        return pc.replace_substring_regex(texts, self.text, replacement)

    @property
    def text(self) -> str:
        """The whole expression."""
        return "".join(self._piece(at, named=0) for at in range(len(self.pieces)))

    def _piece(self, at: int, named: int) -> str:
        if at not in self.groups:
            return self.pieces[at]
        return "(?P<found>" if self.groups.index(at) + 1 == named else "(?:"


@lru_cache(maxsize=64)
def _parsed(pattern: str) -> Regex | None:
    at, pieces, groups = 0, list[str](), list[int]()
    if pattern.startswith("^"):
        pieces, at = ["^"], 1
    depth, takes_some, alternatives = 0, False, list[bool]()
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return None
        kind, text, at = token.lastgroup, token.group(), token.end()
        if kind == "open":
            if depth:
                return None
            depth, alternatives = 1, [False]
            if text == "(":
                groups.append(len(pieces))
            pieces.append(text)
        elif kind == "close":
            if not depth or _REPEAT.match(pattern, at) is not None:
                return None
            depth, takes_some = 0, takes_some or all(alternatives)
            pieces.append(text)
        elif kind == "or":
            if not depth:
                return None
            alternatives.append(False)
            pieces.append(text)
        else:
            if kind == "class":
                found = _CLASS.match(pattern, token.start())
                if found is None or any(low > high for low, high in _RANGE.findall(found[2])):
                    return None
                text, at = _class(found), found.end()
            elif kind == "any":
                text = f"[^{_LINE_ENDS}]"
            elif kind == "short":
                negated = "^" if text[1].isupper() else ""
                text = f"[{negated}{_SHORT[text[1].lower()]}]"
            least, repeat, at = _repeat(pattern, at)
            if repeat is None:
                return None
            pieces.append(text + repeat)
            if least and depth:
                alternatives[-1] = True
            takes_some = takes_some or (least > 0 and not depth)
    return None if depth or not pieces or pieces == ["^"] else Regex(tuple(pieces), tuple(groups), takes_some)


def _class(found: re.Match[str]) -> str:
    inner = re.sub(r"\\([dws])", lambda short: _SHORT[short[1]], found[2])
    return f"[{found[1].replace('-', re.escape('-'))}{inner}{re.escape(found[3])}]"


def _repeat(pattern: str, at: int) -> tuple[int, str | None, int]:
    """How often at least, the repeat itself, and where it ends; None for one that Java takes for another thing."""
    found = _REPEAT.match(pattern, at)
    if found is None:
        return (0, None, at) if pattern[at : at + 1] in _AGAIN else (1, "", at)
    sign, low, high, lazy = found.groups()
    end = found.end()
    if pattern[end : end + 1] in _AGAIN:
        return 0, None, end
    if low is not None and high and int(high) < int(low):
        return 0, None, end
    least = int(low) if low is not None else 1 if sign == "+" else 0
    return least, sign + lazy, end
