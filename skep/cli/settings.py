"""`skep config`: the settings that count here, and where each is from."""

from __future__ import annotations

from typing import Annotated

import typer

from skep.cli.output import Output, OutputOption, print_rows, reported


def config(
    origin: Annotated[bool, typer.Option("--origin", help="Also where each value is from.")] = False,
    table: Annotated[str | None, typer.Option(metavar="TABLE", help="Also the properties of this table.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the settings: flag > SKEP__… environment > project's skep.toml > user's > table > default."""
    with reported():
        from skep.config import load

        loaded = load()
        rows = [{"key": one.key, "value": one.value, "origin": one.origin} for one in loaded.origins()]
        if table is not None:
            rows += _of_table(table, set(loaded.settings.options))
        columns = ("key", "value", "origin") if origin else ("key", "value")
        print_rows([{name: row[name] for name in columns} for row in rows], output, columns)


def _of_table(table: str, overridden: set[str]) -> list[dict[str, str]]:
    from skep.cli.tables import located
    from skep_table.options import mask
    from skep_table.storage import open_storage
    from skep_table.table_config import load_table_config

    properties = load_table_config(open_storage(*located(table, {}, None, None))).raw
    return [
        {"key": f"options.{key}", "value": mask(key, value), "origin": f"table {table}"}
        for key, value in sorted(properties.items())
        if key not in overridden
    ]


def register(app: typer.Typer) -> None:
    app.command("config")(config)
