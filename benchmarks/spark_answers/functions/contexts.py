"""In which queries aggregates and windows are compared."""

from __future__ import annotations

from typing import Final

from benchmarks.spark_answers.functions.signatures import Role, Signature
from benchmarks.spark_answers.functions.values import column

GROUPS: Final = (  # rows, and what they are grouped by
    ("v", ""),
    ("v", column("b", "boolean")),
    ("v", column("a", "string")),
    ("v", "n % 7"),
    ("(SELECT * FROM v WHERE false) AS v", ""),
    ("(SELECT * FROM v WHERE false) AS v", "n % 7"),
    ("empty", ""),
    ("empty", "n % 7"),
)
_BY: Final = "PARTITION BY n % 5 ORDER BY n"
_TIES: Final = ("n % 7", f"{column('b', 'string')} DESC", f"{column('b', 'double')}, n % 2")
_RANKS: Final = ("rank", "dense_rank", "percent_rank", "cume_dist")
_WITHOUT_FRAME: Final = ("row_number", "ntile", "lag", "lead")


def windows(signature: Signature) -> tuple[str, ...]:
    """What is behind OVER."""
    assert signature.role is Role.WINDOW
    if signature.name in _RANKS:
        return tuple(f"PARTITION BY n % 5 ORDER BY {each}" for each in _TIES)
    if signature.name in _WITHOUT_FRAME:
        return _BY, f"PARTITION BY {column('a', 'string')} ORDER BY n DESC"
    if signature.name in ("first", "last", "first_value", "last_value", "nth_value"):
        return _BY, f"{_BY} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", f"{_BY} ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING"
    whole = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    return _BY, f"{_BY} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", f"PARTITION BY n % 5 ORDER BY n {whole}"


def contexts(signature: Signature) -> range:
    """The numbers of the queries in which it is computed."""
    if signature.role is Role.SCALAR:
        return range(1)
    return range(len(GROUPS) if signature.role is Role.AGGREGATE else len(windows(signature)))
