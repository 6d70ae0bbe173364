"""`skep upgrade` and `downgrade`: a table of another version, in steps that a crash can't leave half done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import Given, ManyGiven, OptionalTarget, TableTarget
from skep.cli.table.rewrite import PlanOption

if TYPE_CHECKING:
    from skep.handles.table import Table

_COLUMNS = ("table", "before", "after", "step", "what")


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command("upgrade")(upgrade)
    app.command("downgrade")(downgrade)


def upgrade(
    table: OptionalTarget = None,
    to: Annotated[int, typer.Option("--to", metavar="8|9", help="The version that the table gets.")] = 9,
    plan: PlanOption = False,
    *,
    given: ManyGiven,
) -> None:
    """Bring a table to a newer version: 8 as Hudi 1.0 writes it, 9 as 1.1 and later do.

    Of an interrupted change of version it deletes what is left.
    """
    with given.opened(table) as tables:
        tables.print_each(lambda one: _rows(one, one.upgrade(to, plan=plan), plan), given.output, _COLUMNS)


def downgrade(
    table: TableTarget,
    to: Annotated[int, typer.Option("--to", metavar="6|8", help="The version that the table gets.")],
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Bring a table to an older version: 6 for readers and writers of Hudi 0.14 and 0.15, 8 for those of 1.0.

    The plan names what is lost.
    """
    with given.tables(table) as tables:
        tables.print_each(lambda one: _rows(one, one.downgrade(to, plan=plan), plan), given.output, _COLUMNS)


def _rows(table: Table, found: Any, plan: bool) -> list[dict[str, Any]]:
    """The steps of a plan; of a change that was made one row, and none where there was nothing to do."""
    common = {"table": table.name, "before": found.before, "after": found.after}
    if plan or not found.steps:
        return [{**common, "step": each.step, "what": each.what} for each in found.steps]
    if found.before == found.after:
        return [{**common, "step": "completed", "what": "the files of an interrupted change are deleted"}]
    return [{**common, "step": "completed", "what": f"the table has version {found.after}"}]
