"""`skep fsck`: whether a table's files agree and can be read, also where its settings are lost; repairs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.output import FAILED
from skep.cli.scope import settings_of
from skep.cli.table.read import ReadGiven
from skep_format.errors import FormatError, NotATableError, TableVersionError
from skep_format.options import Options

if TYPE_CHECKING:
    from skep_table.context import TableContext

_COLUMNS: tuple[str, ...] = ("problem", "path", "instant", "detail")


def fsck(
    table: TableTarget,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read every page, block and key of its data files, compare its metadata table."),
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
    *,
    given: ReadGiven,
) -> None:
    """Check a table: settings, timeline, files and metadata table; without --repair it changes nothing.

    Finds files that are missing, damaged or of no commit, and commits, plans and settings that can't be read; see
    docs/runbook.md. Exit code 1 when something does not agree, with --repair when something is left to do.
    """
    stated = settings_of(properties)
    with context_of(table, given) as context:
        from skep_table.services.fsck import fsck_at
        from skep_table.services.fsck import repair as repair_findings

        _, findings = fsck_at(context, deep=deep, metadata=metadata, properties=stated)
        rows: list[dict[str, Any]] = [
            {"problem": each.problem.value, "path": each.path, "instant": each.instant, "detail": each.detail}
            for each in findings
        ]
        left, columns = bool(findings), _COLUMNS
        if repair:
            done = repair_findings(context, findings, stated) if findings else []
            rows = [row | {"repaired": each.done, "repair": each.detail} for row, each in zip(rows, done, strict=True)]
            left, columns = not all(each.done for each in done), (*_COLUMNS, "repaired", "repair")
        given.print(rows, columns)
    if left:
        raise typer.Exit(FAILED)


@contextmanager
def context_of(table: str, given: Given) -> Iterator[TableContext]:
    """What the table works with, its lock included, whether or not its settings can be read."""
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(given.opened(table))
        except (NotATableError, FormatError, TableVersionError):
            yield _context_without_settings(table, given)
        else:
            yield opened.services().on(opened.hudi).context


def _context_without_settings(table: str, given: Given) -> TableContext:
    from skep.metastore.locking import lock_by_path
    from skep_format.storage import open_storage
    from skep_table.context import TableContext
    from skep_table.services.fsck.settings import open_damaged

    location, options = given.located(table)
    context = TableContext(open_storage(location, options), Options(options))
    return context.with_changes(lock=lock_by_path(open_damaged(context).table, context.options))
