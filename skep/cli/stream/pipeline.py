"""`skep pipeline`: the pipelines of skep.toml run and shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.base.names import is_path
from skep.cli.output import FAILED, Output, OutputOption, facts_of_round, print_rows
from skep.cli.scope import App, MetastoreOption, WarehouseOption, configured, until_signalled
from skep_format.errors import SkepError
from skep_format.options import Options

if TYPE_CHECKING:
    from skep.flows.pipelines import Pipeline

pipeline = App(no_args_is_help=True, help="What changes in one table, through a query, into another.")
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]…", help="Pipelines of skep.toml, else all of them.", show_default=False),
]
_ROUND = ("pipeline", "instant", "rows", "from", "to", "inserted", "updated", "seconds")
_STATUS = ("pipeline", "source", "table", "instant", "next", "waiting_commits", "newest", "held_by")


@pipeline.command()
def run(
    names: Names = None,
    every: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Look for changes until it is stopped.")
    ] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Bring the targets up to their sources, those first that others read.

    Each round is one commit of the target, which also has the position in the source: a run that was killed is run
    again. A pipeline that fails leaves its target as it is; the others run, and the exit code is 1.
    """
    failed = False
    with _pipelines(names, metastore, warehouse) as found:
        stop = until_signalled() if every is not None else None
        while True:
            rows: list[dict[str, Any]] = []
            failed = False
            for name, each in found.items():
                try:
                    rows += [{"pipeline": name, "to": done.checkpoint, **facts_of_round(done)} for done in each.run()]
                except SkepError as error:
                    failed = True
                    typer.echo(f"error: {name}: {error}", err=True)
            if rows or stop is None:
                print_rows(rows, output, _ROUND)
            if stop is None or stop.wait(every):
                break
    if failed:
        raise typer.Exit(FAILED)


@pipeline.command("status")
def show(
    names: Names = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show where the pipelines are, and how many commits of their sources wait; nothing is written."""
    with _pipelines(names, metastore, warehouse) as found:
        print_rows([{"pipeline": name, **each.status()} for name, each in found.items()], output, _STATUS)


@contextmanager
def _pipelines(
    names: Sequence[str] | None, metastore: str | None, warehouse: str | None
) -> Iterator[dict[str, Pipeline]]:
    """Those of the settings; with a lake where one of them names a table by name, not by path."""
    from skep.flows.pipelines import Pipeline, specs_of

    settings = configured(metastore, warehouse)
    specs = specs_of(settings.pipeline, names or ())
    if all(is_path(each) for spec in specs.values() for each in (spec.source, spec.target)):
        yield {name: Pipeline(spec, None, Options(settings.options)) for name, spec in specs.items()}
        return
    from skep.lake import connect

    with connect(metastore, warehouse) as lake:
        yield {name: Pipeline(spec, lake) for name, spec in specs.items()}
