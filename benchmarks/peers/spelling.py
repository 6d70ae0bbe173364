"""Rows as JSON, one spelling for all peers: what `skep read --output jsonl` prints and the golden tables hold.

decimal: text with all decimals; date `YYYY-MM-DD`; timestamp `YYYY-MM-DDTHH:MM:SS.ffffffZ` in UTC, without the `Z` when
it has no zone; binary: base64; NaN and the infinities: text; maps: objects with keys in order. Nothing but the standard
library is needed here: this also runs in the process that holds the JVM.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
SpecialFloats = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def spell(value: Any) -> Any:
    """A Python value, as Spark's collect() or Arrow's to_pylist() gives it, as JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _special(value)
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            local = value if value.tzinfo is None else value.astimezone(dt.timezone.utc).replace(tzinfo=None)
            text = local.isoformat(timespec="microseconds")
            return text if value.tzinfo is None else text + "Z"
        case dt.date():
            return value.isoformat()
        case dt.time():
            return value.isoformat(timespec="microseconds")
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case dict():
            return {str(name): spell(item) for name, item in value.items()}
        case list() | tuple():
            return [spell(item) for item in value]
    raise TypeError(f"no spelling for {type(value).__name__}")


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def lines(rows: Iterable[Row], *, without: Iterable[str] = ()) -> Counter[str]:
    """Rows as a multiset of canonical JSON texts: order of rows, columns and map keys does not count.

    Nor does the order of the names within the images of change queries: the JVM prints them from hash maps.
    """
    left_out = frozenset(without)
    return Counter(
        json.dumps({name: _image(name, value) for name, value in row.items() if name not in left_out}, sort_keys=True)
        for row in rows
    )


def _image(name: str, value: Any) -> Any:
    return json.loads(value) if name in ("before", "after") and isinstance(value, str) and value[:1] == "{" else value


def difference(found: Iterable[Row], expected: Iterable[Row], *, without: Iterable[str] = (), most: int = 6) -> str:
    """Empty when both hold the same rows; else a text with the counts and, for some rows, the columns that differ."""
    found_lines, expected_lines = lines(found, without=without), lines(expected, without=without)
    missing = [json.loads(line) for line in sorted((expected_lines - found_lines).elements())]
    extra = [json.loads(line) for line in sorted((found_lines - expected_lines).elements())]
    if not missing and not extra:
        return ""
    counts = f"{found_lines.total()} rows found, {expected_lines.total()} expected"
    report = [f"{counts}; {len(missing)} missing, {len(extra)} too many"]
    for row in missing[:most]:
        like = max(extra, key=lambda other: _alike(row, other), default=None)
        if like is None or not _alike(row, like):
            report.append(f"- {json.dumps(row, ensure_ascii=False)}")
            continue
        extra.remove(like)
        report += [
            f"  {name}: found {_text(like, name)}, expected {_text(row, name)}"
            for name in sorted({*row, *like})
            if _text(row, name) != _text(like, name)
        ]
    if len(extra) > len(missing):
        report += [f"+ {json.dumps(row, ensure_ascii=False)}" for row in extra[:most]]
    return "\n".join(report)


def _text(row: Row, name: str) -> str:
    return json.dumps(row[name], sort_keys=True, ensure_ascii=False) if name in row else "no such column"


def _alike(row: Row, other: Row) -> int:
    """How much speaks for two rows being two forms of one: nothing when they have another key."""
    for name in ("_hoodie_record_key", "id"):
        if name in row and row.get(name) != other.get(name):
            return 0
    return 1 + sum(_text(row, name) == _text(other, name) for name in row)
