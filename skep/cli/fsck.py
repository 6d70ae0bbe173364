"""`skep fsck`: whether a table's files and its timeline agree."""

from __future__ import annotations

import typer

from skep.cli.metastore import MetastoreOption, WarehouseOption
from skep.cli.output import FAILED, Output, OutputOption, print_rows, reported
from skep.cli.tables import ServiceSettings, TableTarget, opened_table

_COLUMNS = ("problem", "path", "instant", "detail")


def fsck(
    table: TableTarget,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a table's files against its timeline; changes nothing. Exit code 1 when something does not agree.

    Finds files that no commit named, files that are missing, and base files that are not as long, or have not as many
    rows, as their commit says.
    """
    with reported(), opened_table(table, option, metastore, warehouse) as found:
        from skep_table.services.fsck import fsck as check

        findings = check(found.hudi)
    rows = [
        {"problem": each.problem.value, "path": each.path, "instant": each.instant, "detail": each.detail}
        for each in findings
    ]
    print_rows(rows, output, _COLUMNS)
    if findings:
        raise typer.Exit(FAILED)


def register(app: typer.Typer) -> None:
    app.command()(fsck)
