"""Procedures about procedures, and about two tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skep_format.errors import InputError
from skep_sql.procedures.contract import REQUIRED, TABLE, TEXT, Argument, Context, Procedure, Rows, columns
from skep_table.table import HudiTable


def _compare(context: Context) -> Rows:
    """Which of two tables is ahead of the other one, by their last commits."""
    source = context.target.hudi
    other = HudiTable.open(str(context["path"]), context.settings.hoodie)
    ours, theirs = source.timeline.data().completed(), other.timeline.data().completed()
    last, their_last = ours.last(), theirs.last()
    names = source.config.name, other.config.name
    if last is not None and (their_last is None or last.requested_time.is_after(their_last.requested_time)):
        ahead = ours.instants if their_last is None else ours.after(their_last.requested_time).instants
        times = ", ".join(instant.requested_time for instant in ahead)
        return [[f"Source {names[0]} is ahead by {len(ahead)} commits. Commits to catch up - [{times}]"]]
    behind = (
        () if their_last is None else (theirs.instants if last is None else theirs.after(last.requested_time).instants)
    )
    times = ", ".join(instant.requested_time for instant in behind)
    return [[f"Source {names[0]} is behind by {len(behind)} commits. Commits to catch up - [{times}]"]]


def help_about(known: Mapping[str, Procedure], refused: Mapping[str, str]) -> Procedure:
    """The procedure `help`: all procedures, or arguments and result columns of one."""

    def run(context: Context) -> Rows:
        name = context["cmd"]
        if not name:
            return [["\n".join(sorted([*known, "help"]))]]
        if name in refused:
            return [[f"{name} is not supported: {refused[name]}"]]
        if name not in known:
            raise InputError(f"there is no procedure {name}", found=name)
        found = known[name]
        arguments = ", ".join(map(_described, found.arguments))
        return [[f"{name}({arguments}) -> {', '.join(column for column, _ in found.columns)}"]]

    return Procedure((Argument("cmd", str, None),), columns(TEXT, "result"), run)


def _described(argument: Argument) -> str:
    kind = {str: "string", int: "int", bool: "boolean"}[argument.kind]
    return f"{argument.name}: {kind}" + ("" if argument.default is REQUIRED else f" = {argument.default}")


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "commits_compare": Procedure((TABLE, Argument("path")), columns(TEXT, "compare_detail"), _compare),
}
