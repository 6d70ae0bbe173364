"""Names as written and the names that are there: matched in any case, with the nearest one in errors."""

from __future__ import annotations

from collections.abc import Sequence

from skep_format.errors import InputError
from skep_format.nearest import did_you_mean
from skep_sql.protocols import SPARK_CATALOG


def without_catalog(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of a table's name without Spark's own catalog, where a database follows it."""
    return parts[1:] if len(parts) == 3 and parts[0].lower() == SPARK_CATALOG else parts


def column_of(name: str, known: Sequence[str], table: str) -> str:
    """The column as the table writes it. InputError with the nearest name for one that it does not have."""
    if name in known:
        return name
    found = [each for each in known if each.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    meant, listed = did_you_mean(name, known), f"the columns are {', '.join(known)}"
    raise InputError(
        f"table {table} has no column {name}" if not found else f"table {table}: column {name} may be any of {found}",
        hint=f"{meant} {listed}" if meant else listed,
        column=name,
        found=name,
        expected=", ".join(known),
    )
