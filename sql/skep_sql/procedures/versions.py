"""Procedures that bring a table to another version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from skep_format.errors import InputError
from skep_sql.procedures.contract import BOOL, TABLE, Argument, Context, Procedure, Rows, columns

_NUMBERS: Final[Mapping[str, int]] = {"SIX": 6, "EIGHT": 8, "NINE": 9}
"""Hudi's names of the versions that are written; numbers are taken, too."""


def _version(context: Context) -> int:
    text = str(context["to_version"]).strip().upper()
    if text.isdecimal():
        return int(text)
    if text not in _NUMBERS:
        raise InputError(f"to_version is {text!r}", option="to_version", found=text, expected=", ".join(_NUMBERS))
    return _NUMBERS[text]


def _upgrade(context: Context) -> Rows:
    target: Any = context.target
    target.upgrade(_version(context), **context.settings.hoodie)
    return [[True]]


def _downgrade(context: Context) -> Rows:
    target: Any = context.target
    target.downgrade(_version(context), **context.settings.hoodie)
    return [[True]]


_ARGUMENTS: Final = (TABLE, Argument("to_version"))

PROCEDURES: Final[Mapping[str, Procedure]] = {
    "upgrade_table": Procedure(_ARGUMENTS, columns(BOOL, "result"), _upgrade),
    "downgrade_table": Procedure(_ARGUMENTS, columns(BOOL, "result"), _downgrade),
}
