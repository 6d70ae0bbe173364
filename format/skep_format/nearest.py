"""The known name that a misspelt one is most like, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The question for a hint: for the known name that is most like it in any case. None where none is near."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), list(by_lower), 1)
    return f"did you mean {by_lower[found[0]]}?" if found else None
