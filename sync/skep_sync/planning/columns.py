"""Changes of an entry's columns by kind, and whether a metastore will take them.

A metastore compares old and new columns by position and refuses a type that it can't turn the old one into, unless it
runs with `hive.metastore.disallow.incompatible.col.type.changes=false`. Engines read files by column name, so a column
added in the middle can as well come last: then nothing shifts, and nothing is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from skep_catalog.entities import Column
from skep_catalog.type_text import same_type

SETTING: Final = "hive.metastore.disallow.incompatible.col.type.changes=false"


class ColumnAction(str, Enum):
    """What happens to a column."""

    APPENDED = "appended"
    MIDDLE = "added in the middle"
    DROPPED = "dropped"
    RENAMED = "renamed"
    WIDENED = "widened"
    INCOMPATIBLE = "incompatible"
    NESTED = "nested fields changed"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """`one_way`: the metastore will not take the way back."""

    kind: ColumnAction
    column: str
    old: str | None = None
    new: str | None = None
    one_way: bool = False

    def __str__(self) -> str:
        if self.kind is ColumnAction.RENAMED:
            return f"column {self.old} renamed to {self.new}, or dropped and {self.new} added"
        types = " → ".join(text for text in (self.old, self.new) if text)
        way = "; one way: a metastore refuses the way back" if self.one_way else ""
        return f"column {self.column} {self.kind.value}" + (f" ({types})" if types else "") + way


def column_changes(old: Sequence[Column], new: Sequence[Column]) -> list[ColumnChange]:
    """The changes from `old` to `new`, by name whatever the case, in the order of the columns."""
    before = {column.name.lower(): column for column in old}
    after = {column.name.lower(): column for column in new}
    renamed = _renames(old, new, before, after)
    found = [
        ColumnChange(ColumnAction.RENAMED, old_name, old_name, new_name, one_way=False)
        for old_name, new_name in renamed.items()
    ]
    found += [
        ColumnChange(ColumnAction.DROPPED, name, column.type)
        for name, column in before.items()
        if name not in after and name not in renamed
    ]
    last_kept = max((place for place, name in enumerate(after) if name in before), default=-1)
    for place, (name, column) in enumerate(after.items()):
        if name in renamed.values():
            continue
        if name not in before:
            kind = ColumnAction.MIDDLE if place < last_kept else ColumnAction.APPENDED
            found.append(ColumnChange(kind, name, None, column.type))
        elif not same_type(before[name].type, column.type):
            found.append(_type_change(name, before[name].type, column.type))
    if [name for name in before if name in after] != [name for name in after if name in before]:
        found.append(ColumnChange(ColumnAction.REORDERED, ", ".join(after)))
    return found


def _renames(
    old: Sequence[Column], new: Sequence[Column], before: dict[str, Column], after: dict[str, Column]
) -> dict[str, str]:
    """A removed name and a new one at the same position with the same type; engines then find no values under the new
    one in files written before."""
    return {
        one.name.lower(): other.name.lower()
        for one, other in zip(old, new, strict=False)
        if one.name.lower() not in after and other.name.lower() not in before and same_type(one.type, other.type)
    }


def _type_change(name: str, old: str, new: str) -> ColumnChange:
    if "<" in old and "<" in new and old.partition("<")[0].lower() == new.partition("<")[0].lower():
        return ColumnChange(ColumnAction.NESTED, name, old, new)
    kind = ColumnAction.WIDENED if accepted(old, new) else ColumnAction.INCOMPATIBLE
    return ColumnChange(kind, name, old, new, one_way=kind is ColumnAction.WIDENED and not accepted(new, old))


_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double")
_TEXTS: Final = frozenset({"string", "varchar", "char"})


def accepted(old: str, new: str) -> bool:
    """Whether a metastore with its default settings lets a column go from type `old` to `new`."""
    if same_type(old, new):
        return True
    one, other = _head(old), _head(new)
    if "<" in old or "<" in new or "binary" in (one, other):
        return False
    if other in _TEXTS:
        return True
    if one in _TEXTS:
        return other in ("double", "decimal")
    if one in _NUMBERS and other in _NUMBERS:
        return _NUMBERS.index(one) < _NUMBERS.index(other)
    if other == "decimal":
        return one in _NUMBERS or one == "decimal"
    return (one, other) == ("date", "timestamp")


def same_columns(one: Sequence[Column], other: Sequence[Column]) -> bool:
    """By name and type, whatever the case; comments don't count."""
    return len(one) == len(other) and all(
        a.name.lower() == b.name.lower() and same_type(a.type, b.type) for a, b in zip(one, other, strict=True)
    )


def _head(text: str) -> str:
    return re.split(r"[(<]", text.strip().lower(), maxsplit=1)[0].strip()


def refused(old: Sequence[Column], new: Sequence[Column]) -> list[str]:
    """The columns at whose position a metastore with its default settings will refuse the new type."""
    return [other.name for one, other in zip(old, new, strict=False) if not accepted(one.type, other.type)]


def ordered(old: Sequence[Column], new: Sequence[Column]) -> tuple[Column, ...]:
    """`new` in an order that the metastore accepts: its own if accepted, else the old one with new columns last.

    Columns that are refused in any order stay in their own.
    """
    if not refused(old, new):
        return tuple(new)
    places = {column.name.lower(): place for place, column in enumerate(old)}
    kept = tuple(sorted(new, key=lambda column: places.get(column.name.lower(), len(places))))
    return tuple(new) if refused(old, kept) else kept
