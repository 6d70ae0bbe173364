"""`skep doctor`: what skep found on this machine, and what is missing."""

from __future__ import annotations

import typer

from skep.cli.metastore import MetastoreOption, WarehouseOption
from skep.cli.output import FAILED, Output, OutputOption, print_rows, reported


def doctor(
    metastore: MetastoreOption = None, warehouse: WarehouseOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Look at Python, pyspark, Java, metastore and storage. Exits with 1 when something that is needed is missing."""
    with reported():
        from skep.doctor import examine

        findings = examine(metastore=metastore, warehouse=warehouse)
        rows = [
            {"what": one.what, "state": one.state.value, "found": one.found, "hint": one.hint or ""} for one in findings
        ]
        print_rows(rows, output, ("what", "state", "found", "hint"))
        if any(one.is_bad for one in findings):
            raise typer.Exit(FAILED)


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)
