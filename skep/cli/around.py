"""`skep demo`, `doctor` and `config`: a first run, the environment, and the settings in effect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skep.base.config import load
from skep.cli.output import FAILED, Output, OutputOption, print_rows
from skep.cli.scope import MetastoreOption, WarehouseOption
from skep_format.options import mask


def demo(
    folder: Annotated[Path, typer.Option("--folder", "-f", help="The demo's warehouse.")] = Path("skep-demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete what an earlier run left, start afresh.")] = False,
) -> None:
    """Write a year of real flights, update and delete day by day, sync each commit, query, and check the answer."""
    from skep.demo import run

    run(folder, fresh=fresh)


def doctor(
    metastore: MetastoreOption = None, warehouse: WarehouseOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Look at Python, pyspark, Java, metastore and storage. Exits with 1 when something that is needed is missing."""
    from skep.doctor import Rating, examine

    findings = examine(metastore=metastore, warehouse=warehouse)
    rows = [(one.what, one.state.value, one.found, one.hint or "") for one in findings]
    print_rows(rows, output, ("what", "state", "found", "hint"))
    if any(one.state is Rating.MISSING for one in findings):
        raise typer.Exit(FAILED)


def config(
    origin: Annotated[bool, typer.Option("--origin", help="Also where each value is from.")] = False,
    table: Annotated[str | None, typer.Option(metavar="TABLE", help="Also the properties of this table.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the settings: flag > SKEP__… environment > project's skep.toml > user's > table > default."""
    loaded = load()
    rows = loaded.origins()
    if table is not None:
        rows += _of_table(table, set(loaded.settings.options))
    columns = ("key", "value", "origin") if origin else ("key", "value")
    print_rows([{name: row[name] for name in columns} for row in rows], output, columns)


def _of_table(table: str, overridden: set[str]) -> list[dict[str, str]]:
    from skep.cli.opened import Given
    from skep_format.storage import open_storage
    from skep_format.table_config import load_table_config

    properties = load_table_config(open_storage(*Given().located(table))).raw
    return [
        {"key": f"options.{key}", "value": mask(key, value), "origin": f"table {table}"}
        for key, value in sorted(properties.items())
        if key not in overridden
    ]
