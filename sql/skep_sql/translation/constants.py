"""Constants among the arguments of functions: which of those that were compared stands for one that was not."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from skep_sql.translation.spark_types import is_whole, kind_of

_OF_PATTERNS: Final = (
    "split",
    "rlike",
    "regexp",
    "regexp_like",
    "regexp_replace",
    "regexp_extract",
    "regexp_extract_all",
)
_SEPARATORS: Final = {"concat_ws": 0, "array_join": 1, "split_part": 1, "substring_index": 1, "regexp_replace": 2}
_OF_FORMATS: Final = ("date_format", "from_unixtime")
_FORMAT: Final = re.compile(r"(?:yyyy|MMMM|MMM|MM|dd|HH|mm|ss|[ /:.,_-])+")
_OF_DAYS: Final = "next_day"
_DAYS: Final = re.compile(
    r"SU(N(DAY)?)?|MO(N(DAY)?)?|TU(E(SDAY)?)?|WE(D(NESDAY)?)?|TH(U(RSDAY)?)?|FR(I(DAY)?)?|SA(T(URDAY)?)?", re.IGNORECASE
)
_OF_NUMBERS: Final = {
    **dict.fromkeys(("lpad", "rpad", "left", "right", "repeat", "round", "date_add", "date_sub", "add_months"), (1,)),
    **dict.fromkeys(("substring", "substr"), (1, 2)),
    **dict.fromkeys(("split_part", "substring_index"), (2,)),
    **dict.fromkeys(("lag", "lead"), (1,)),
    "overlay": (2, 3),
    "space": (0,),
    "ntile": (0,),
}
_MOST: Final = 1_000_000
_PLAIN: Final = re.compile(r"[\x20-\x7e]+")
_PATTERN: Final = re.compile(
    r"\^?(?:[\w ,;:@#%&=<>/-]|\.|\\[.]|\[\^?[\w -]+\]|[()]|(?<=[\w.\])])[*+?](?![*+?]))*\$?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class GivenArgument:
    """The type of an argument; its text where it is a constant."""

    type: pa.DataType
    literal: str | None = None

    def fits(self, options: frozenset[str]) -> bool:
        """Whether it is among the kinds and constants that were compared."""
        if self.literal is not None:
            text = f"'{self.literal}'" if self.type == pa.string() else self.literal
            if text in options:
                return True
        return kind_of(self.type) in options


def usual_constant(name: str, at: int, argument: GivenArgument) -> GivenArgument:
    """The constant that was compared in its place; the argument itself where that is not known."""
    literal = argument.literal
    if literal is None:
        return argument
    if argument.type == pa.string():
        usual = _usual_text(name, at, literal)
    else:
        usual = _usual_number(name, at, literal) if is_whole(argument.type) else None
    return argument if usual is None else replace(argument, literal=usual)


def is_plain_pattern(pattern: str) -> bool:
    """A regular expression that Java and Rust read alike: letters, classes of them, groups and repetitions."""
    try:
        re.compile(pattern)
    except re.error:
        return False
    return bool(_PATTERN.fullmatch(pattern)) and not pattern.endswith("$")


def _usual_text(name: str, at: int, text: str) -> str | None:
    if name in _OF_PATTERNS and at == 1 and text and is_plain_pattern(text):
        return "([a-z]+)" if "(" in text else "[a-z]+"
    if _SEPARATORS.get(name) == at and _PLAIN.fullmatch(text) and not re.search(r"[\\$]", text):
        return "-"
    if name in _OF_FORMATS and at == 1 and _FORMAT.fullmatch(text):
        return "yyyy-MM-dd HH:mm:ss"
    if name == _OF_DAYS and at == 1 and _DAYS.fullmatch(text):
        return "TU"
    if name in ("lag", "lead") and at == 2:
        return ""
    return None


def _usual_number(name: str, at: int, text: str) -> str | None:
    number = int(text)
    if name in ("lag", "lead") and at == 2:
        return "0"
    if at not in _OF_NUMBERS.get(name, ()) or not 1 < number <= _MOST:
        return None
    return "1" if name in ("lag", "lead") else "2"
