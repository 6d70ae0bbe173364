"""The calls of functions in Spark's documented examples, as texts: what signatures of functions are found by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

OPERATORS = ("=", "||", "&", "|", "^")
OF_OPERATORS = ("1", "1.5D", "'a'", "date'2024-01-01'", "true", "array(1)")


def calls(examples: Mapping[str, Sequence[str]]) -> list[tuple[str, tuple[str, ...]]]:
    """Names and arguments. `examples`: each with the functions that it is of."""
    found = {
        (name.lower(), tuple(arguments)): None
        for text, names in examples.items()
        for name in names
        for arguments in _arguments(text, name)
    }
    found |= {(sign, (text, text)): None for sign in OPERATORS for text in OF_OPERATORS}
    return list(found)


def _arguments(text: str, name: str) -> Iterator[list[str]]:
    for start in re.finditer(rf"(?<![\w`]){re.escape(name)}\s*\(", text, re.IGNORECASE):
        parts, depth, quote = [""], 1, ""
        for sign in text[start.end() :]:
            if quote:
                quote = "" if sign == quote else quote
            elif sign in "'\"`":
                quote = sign
            depth += 0 if quote else (sign in "([") - (sign in ")]")
            if depth == 0:
                break
            if sign == "," and depth == 1 and not quote:
                parts.append("")
            else:
                parts[-1] += sign
        yield [part.strip() for part in parts if part.strip()]
