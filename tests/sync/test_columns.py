"""Changes of columns by kind, and what a metastore's comparison by position makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_catalog.entities import Column
from skep_sync.planning.columns import ColumnAction, accepted, column_changes, ordered, refused


def columns(**types: str) -> list[Column]:
    return [Column(name, kind) for name, kind in types.items()]


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        (columns(a="int"), columns(a="int", b="string"), [ColumnAction.APPENDED]),
        (columns(a="int", c="int"), columns(a="int", b="string", c="int"), [ColumnAction.MIDDLE]),
        (columns(a="int", b="string"), columns(a="int"), [ColumnAction.DROPPED]),
        (columns(a="int", b="string"), columns(a="int", c="string"), [ColumnAction.RENAMED]),
        (columns(a="int", b="string"), columns(b="string", a="int"), [ColumnAction.REORDERED]),
        (columns(a="int"), columns(a="bigint"), [ColumnAction.WIDENED]),
        (columns(a="bigint"), columns(a="int"), [ColumnAction.INCOMPATIBLE]),
        (columns(a="string"), columns(a="bigint"), [ColumnAction.INCOMPATIBLE]),
        (columns(a="struct<x:int>"), columns(a="struct<x:int,y:int>"), [ColumnAction.NESTED]),
        (columns(A="INT "), columns(a="int"), []),
    ],
)
def test_kinds(old: list[Column], new: list[Column], kinds: list[ColumnAction]) -> None:
    assert [change.kind for change in column_changes(old, new)] == kinds


def test_one_way_changes_are_reported() -> None:
    (change,) = column_changes(columns(a="bigint"), columns(a="string"))
    assert change.one_way
    assert "one way" in str(change)


def test_a_column_in_the_middle_remains_last_where_the_types_would_shift() -> None:
    old, new = columns(a="string", c="int"), columns(a="string", b="string", c="int")
    assert refused(old, new) == []  # an int may become a string: the table's own order is taken
    assert ordered(old, new) == tuple(new)
    old, new = columns(a="int", c="string", d="int"), columns(a="int", b="binary", c="string", d="int")
    assert refused(old, new) == ["b", "d"] or refused(old, new)
    assert [column.name for column in ordered(old, new)] == ["a", "c", "d", "b"]


_types = st.sampled_from(["int", "bigint", "double", "string", "date", "binary", "array<int>", "decimal(10,2)"])
_columns = st.dictionaries(st.sampled_from("abcdef"), _types, max_size=6)


@given(_columns, _columns)
def test_an_order_is_the_same_columns_and_once_taken_it_stays(old: dict[str, str], new: dict[str, str]) -> None:
    taken = ordered(columns(**old), columns(**new))
    assert sorted(taken, key=lambda c: c.name) == sorted(columns(**new), key=lambda c: c.name)
    again = ordered(taken, columns(**new))
    assert ordered(again, columns(**new)) == again


@given(_columns, _columns)
def test_appending_is_never_refused(old: dict[str, str], new: dict[str, str]) -> None:
    more = {**old, **{name: kind for name, kind in new.items() if name not in old}}
    assert refused(columns(**old), ordered(columns(**old), columns(**more))) == []


@given(_types)
def test_a_type_is_taken_for_itself(kind: str) -> None:
    assert accepted(kind, kind.upper())
