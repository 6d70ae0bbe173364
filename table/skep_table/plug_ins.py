"""Plug-ins: what installed packages register as entry points of a group."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

from skep_format.errors import OptionError, UnsupportedError
from skep_format.options import Option


def plug_in(group: str, *names: str) -> Any:
    """What is registered as the first of the names that is; None where none is."""
    return next((entry.load() for name in names for entry in entry_points(group=group, name=name)), None)


def needed_plug_in(group: str, name: str, kind: str) -> Any:
    """What is registered as `name`. UnsupportedError, which names the `kind`, where nothing is."""
    found = plug_in(group, name)
    if found is None:
        hint = f"register it as an entry point of group {group!r}"
        raise UnsupportedError(f"there is no {kind} {name}", hint=hint, found=name)
    return found


def find_strategy(group: str, name: str, option: Option[Any], built_in: Sequence[str]) -> Any:
    """The function that is registered as `name`. OptionError, which names the built-in ones, when there is none."""
    found = _strategy(group, name)
    if found is None:
        raise OptionError(
            f"option {option.key}: there is no strategy {name}",
            hint=f"register a function in entry point group {group!r} as {name!r}",
            option=option.key,
            found=name,
            expected=f"one of {', '.join(built_in)}",
        )
    return found


@lru_cache(maxsize=64)
def _strategy(group: str, name: str) -> Any:
    return plug_in(group, name)
