"""`skep fsck`: whether a table's files agree and can be read, also where its settings are lost; repairs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.output import FAILED, Output, OutputOption, print_rows, reported
from skep.cli.read import Settings
from skep.cli.scope import MetastoreOption, WarehouseOption, settings_of
from skep.cli.tables import TableTarget, located, opened_table
from skep_table.errors import FormatError, NotATableError, TableVersionError

if TYPE_CHECKING:
    from skep_table.context import TableContext

_COLUMNS = ("problem", "path", "instant", "detail")
_REPAIRS = (*_COLUMNS, "repaired", "repair")


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command("fsck")(fsck)


def fsck(
    table: TableTarget,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Read every page, block and key of its data files, and compare its metadata table."
        ),
    ] = False,
    metadata: Annotated[
        bool, typer.Option("--metadata", help="Compare its metadata table, as skep metadata validate.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what costs no committed row, and list what is left to do.")
    ] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="KEY=VALUE",
            help="A setting of a table whose hoodie.properties is lost and that nothing else states; repeatable.",
        ),
    ] = None,
    option: Settings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a table: settings, timeline, files and metadata table; without --repair it changes nothing.

    Finds files that are missing, damaged or of no commit, and commits, plans and settings that can't be read; see
    docs/runbook.md. Exit code 1 when something does not agree, with --repair when something is left to do.
    """
    given = settings_of(properties)
    with reported(), _context(table, option, metastore, warehouse) as context:
        from skep_table.services.fsck import fsck_at
        from skep_table.services.fsck import repair as repair_findings

        _, findings = fsck_at(context, deep=deep, metadata=metadata, properties=given)
        rows: list[dict[str, Any]] = [
            {"problem": each.problem.value, "path": each.path, "instant": each.instant, "detail": each.detail}
            for each in findings
        ]
        if not repair:
            print_rows(rows, output, _COLUMNS)
            left = bool(findings)
        else:
            done = repair_findings(context, findings, given) if findings else []
            print_rows(
                [row | {"repaired": each.done, "repair": each.detail} for row, each in zip(rows, done, strict=True)],
                output,
                _REPAIRS,
            )
            left = not all(each.done for each in done)
    if left:
        raise typer.Exit(FAILED)


@contextmanager
def _context(
    target: str, pairs: list[str] | None, metastore: str | None, warehouse: str | None
) -> Iterator[TableContext]:
    """What the table works with, its lock included, whether or not its settings can be read."""
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(opened_table(target, pairs, metastore, warehouse))
        except (NotATableError, FormatError, TableVersionError):
            yield _context_without_settings(target, pairs, metastore, warehouse)
        else:
            yield opened.services().on(opened.hudi).context


def _context_without_settings(
    target: str, pairs: list[str] | None, metastore: str | None, warehouse: str | None
) -> TableContext:
    from skep.locking import lock_by_path
    from skep_table.context import TableContext
    from skep_table.options import Options
    from skep_table.services.fsck.settings import open_damaged
    from skep_table.storage import open_storage

    location, options = located(target, settings_of(pairs), metastore, warehouse)
    context = TableContext(open_storage(location, options), Options(options))
    return context.with_changes(lock=lock_by_path(open_damaged(context).table, context.options))
