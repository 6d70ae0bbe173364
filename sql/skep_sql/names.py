"""Names as written and the names that are there: matched in any case, with the nearest one in errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from skep_table.errors import InputError


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like it, if any is."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), list(by_lower), 1)
    return by_lower[found[0]] if found else None


def column_of(name: str, known: Sequence[str], table: str) -> str:
    """The column as the table writes it. InputError with the nearest name for one that it does not have."""
    if name in known:
        return name
    found = [each for each in known if each.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    near = nearest(name, known)
    raise InputError(
        f"table {table} has no column {name}" if not found else f"table {table}: column {name} may be any of {found}",
        hint=(f"did you mean {near}? " if near else "") + f"the columns are {', '.join(known)}",
        column=name,
        found=name,
        expected=", ".join(known),
    )
