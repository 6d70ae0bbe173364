"""Random filters over the columns of `indexed_tables`, with values of the rows and others."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from indexed_tables import EPOCH, NOTES, PARTS, TAGS


def text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


class Values(dict[str, list[str]]):
    """The values of the rows, as literals: too long to be shown as part of a strategy."""

    def __repr__(self) -> str:
        return "Values"


def chosen(texts: list[str]) -> st.SearchStrategy[str]:
    """One of some texts, which are too long to be shown as part of a strategy."""
    return st.integers(0, len(texts) - 1).map(lambda at: texts[at])


NEAR = st.integers(-1000, 4000)
MOMENTS = st.builds(
    lambda near, us: EPOCH + dt.timedelta(hours=100 * near, microseconds=us), NEAR, st.integers(0, 999_999)
)
LITERALS: dict[str, st.SearchStrategy[str]] = {
    "id": st.builds("'k{:03d}'".format, st.integers(0, 330)),
    "part": st.sampled_from([text(each) for each in (*PARTS, "none")]),
    "tag": st.sampled_from([text(each) for each in (*TAGS, "none")]),
    "note": chosen([text(each) for each in (*NOTES, "x", "y", "é")]),
    "number": st.builds(lambda near: str(near * 10**12), NEAR),
    "ratio": st.builds(lambda near: repr(near / 8), NEAR),
    "price": st.builds(lambda near: str(Decimal(near) / 100), NEAR),
    "day": st.builds(lambda near: f"DATE '{dt.date(1970, 1, 1) + dt.timedelta(days=near)}'", NEAR),
    "at": st.builds(lambda at: f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S.%f}'", MOMENTS),
    "flag": st.sampled_from(["TRUE", "FALSE"]),
}
COMPARED = st.sampled_from(["=", "=", "<>", "<", "<=", ">", ">=", "<=>"])


@st.composite
def leaves(draw: st.DrawFn, values: Values) -> str:
    column = draw(st.sampled_from([*LITERALS, "raw"]))
    form = draw(st.sampled_from(["compare", "compare", "compare", "in", "null", "between", "cast", "many", "text"]))
    if form == "null" or column == "raw":
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    literal = st.one_of(chosen(values[column]), LITERALS[column]) if values[column] else LITERALS[column]
    negated = draw(st.sampled_from(["", "NOT "]))
    if form == "between":
        return f"{column} {negated}BETWEEN {draw(literal)} AND {draw(literal)}"
    if form == "cast" and column in ("number", "day"):
        return f"CAST({column} AS STRING) = '{draw(literal).removeprefix('DATE ')}'".replace("''", "'")
    if form == "many":
        return f"id {negated}IN ({', '.join(draw(st.lists(LITERALS['id'], min_size=20, max_size=200)))})"
    if form == "text" and column in ("id", "tag", "note", "part"):
        expression = draw(st.sampled_from(["upper({})", "lower({})", "substring({}, 1, 2)"])).format(column)
        begins = draw(literal)[1:-1].replace("%", "").replace("_", "")[: draw(st.integers(0, 3))].rstrip("\\'")
        return draw(st.sampled_from([f"{column} {negated}LIKE '{begins}%'", f"{expression} = {draw(literal)}"]))
    if form != "in":
        return f"{column} {draw(COMPARED)} {draw(literal)}"
    listed = draw(st.lists(literal, min_size=1, max_size=4))
    return f"{column} {negated}IN ({', '.join(listed)})"


def conditions(values: Values) -> st.SearchStrategy[str]:
    return st.recursive(
        leaves(values),
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "AND", "OR"]), inner),
            st.builds("(NOT {})".format, inner),
        ),
        max_leaves=4,
    )


def literals(rows: pa.Table) -> Values:
    spelled: dict[str, Any] = {
        "id": text, "part": text, "tag": text, "note": text, "number": str, "price": str,
        "ratio": lambda ratio: repr(ratio) if math.isfinite(ratio) else f"'{ratio}'",
        "day": "DATE '{}'".format, "at": lambda at: f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S.%f}'", "flag": str,
    }  # fmt: skip
    return Values(
        {
            name: [spell(value) for value in rows[name].to_pylist() if value is not None]
            for name, spell in spelled.items()
        }
    )
