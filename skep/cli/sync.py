"""`skep sync`: what a sync would do, doing it, comparing, and how far behind the metastore is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.metastore import MetastoreOption, WarehouseOption, connected
from skep.cli.output import FAILED, Output, OutputOption, print_rows, reported
from skep_table.errors import InputError

if TYPE_CHECKING:
    from skep_catalog.client import Metastore
    from skep_table.table import HudiTable

PENDING = 3
DRIFT = 1

TableArgument = Annotated[str, typer.Argument(metavar="TABLE|PATH", help="database.table, or a path.")]
OptionalTable = Annotated[str | None, typer.Argument(metavar="[TABLE|PATH]", help="database.table, or a path.")]
DatabaseOption = Annotated[str | None, typer.Option("--database", "-d", help="Else the table's own, else default.")]
NameOption = Annotated[str | None, typer.Option("--table", "-t", help="The entry's name; else the table's own.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="A hoodie.datasource.hive_sync.* option.")
]
ExitCodeOption = Annotated[bool, typer.Option("--exit-code", help=f"Exit with {PENDING} when there are changes.")]
FullOption = Annotated[bool, typer.Option("--full", help="Compare all partitions, whatever the markers say.")]

app = typer.Typer(no_args_is_help=True, help="Keep the Hive Metastore true to tables.")


@app.command()
def plan(
    table: TableArgument,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    full: FullOption = False,
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a sync would do; change nothing."""
    from skep_sync.sync import plan_sync

    with reported(), _opened(table, metastore, warehouse, database, name, settings) as opened:
        found = plan_sync(opened.table, opened.metastore, *opened.target, opened.options, full=full)
        _print(found, output)
        _warn(found.warnings)
        if exit_code and found:
            raise typer.Exit(PENDING)


@app.command()
def apply(
    table: OptionalTable = None,
    pending: Annotated[bool, typer.Option("--pending", help="All tables of the metastore that are behind.")] = False,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    full: FullOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make the metastore say what the table is."""
    from skep_sync.sync import sync_table

    with reported():
        if (table is None) != pending:
            raise InputError("give a TABLE, or --pending for all that are behind")
        if table is None:
            _apply_pending(metastore, warehouse, database, settings, output)
            return
        with _opened(table, metastore, warehouse, database, name, settings) as opened:
            report = sync_table(opened.table, opened.metastore, *opened.target, opened.options, full=full)
            _print(report, output)
            _warn(report.plan.warnings)


def _apply_pending(
    metastore: str | None, warehouse: str | None, database: str | None, given: list[str] | None, output: Output
) -> None:
    from skep_sync.pending import sync_pending
    from skep_table.errors import SkepError
    from skep_table.options import Options

    failed = False
    flags = _options(given)
    with connected(metastore, warehouse) as (client, settings):
        for name, done in sync_pending(client, database, Options(settings.options).with_values(flags)):
            if isinstance(done, SkepError):
                failed = True
                typer.echo(f"error: {name}: {done}", err=True)
            elif done.changed:
                _print(done, output)
                _warn(done.plan.warnings)
    if failed:
        raise typer.Exit(FAILED)


@app.command()
def check(
    table: TableArgument,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say where engines would disagree: columns, Spark's schema, partitions, files, timeline; exit with 1 on drift."""
    from skep_sync.check import check_table

    with reported(), _opened(table, metastore, warehouse, database, name, settings) as opened:
        found = check_table(opened.table, opened.metastore, *opened.target, opened.options)
        _print(found, output)
        _warn(found.plan.warnings)
        if found:
            raise typer.Exit(DRIFT)


@app.command()
def repair(
    table: TableArgument,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Like apply, with all partitions compared, whatever the markers say."""
    apply(table, False, metastore, warehouse, database, name, settings, True, output)


@app.command()
def restore(
    table: TableArgument,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    to: Annotated[str | None, typer.Option("--to", metavar="ID", help="A copy by its id; else the latest.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Print the copies that are kept; change nothing.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Bring entries back to what they were before a sync last changed them. Partitions stay as they are."""
    from skep_sync.restore import kept_entries, restore_entries

    with reported(), _opened(table, metastore, warehouse, database, name, settings) as opened:
        if listed:
            kept = kept_entries(opened.table, opened.metastore, *opened.target)
            print_rows([one.to_json() for one in kept], output, ("id", "time", "entry"))
            return
        for one in restore_entries(opened.table, opened.metastore, *opened.target, opened.options, backup_id=to):
            _print(one, output)


@app.command()
def status(
    table: TableArgument,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """How many commits and seconds each of a table's entries is behind."""
    from skep_sync.status import SyncStatus, sync_status

    with reported(), _opened(table, metastore, warehouse, database, name, settings) as opened:
        rows = [
            entry.to_json() for entry in sync_status(opened.table, opened.metastore, *opened.target, opened.options)
        ]
        print_rows(rows, output, SyncStatus.COLUMNS)


@dataclass(frozen=True)
class _Opened:
    table: HudiTable
    metastore: Metastore
    target: tuple[str | None, str | None]
    options: Mapping[str, str]


@contextmanager
def _opened(
    table: str,
    metastore: str | None,
    warehouse: str | None,
    database: str | None,
    name: str | None,
    given: list[str] | None,
) -> Iterator[_Opened]:
    """The table by its path or its entry, a client, where it is registered, and the options of the sync."""
    from skep_table.options import Options
    from skep_table.table import HudiTable

    flags = _options(given)
    with connected(metastore, warehouse) as (client, settings):
        options = Options(settings.options).with_values(flags)
        if _is_path(table):
            yield _Opened(HudiTable.open(table, options), client, (database, name), options)
            return
        of_database, _, of_name = table.rpartition(".")
        entry = client.table(of_database or settings.database, of_name)
        if entry.storage.location is None:
            raise InputError(f"{entry.full_name} has no location: it is a view", table=entry.full_name)
        hudi = HudiTable.open(entry.storage.location, options)
        # `t_ro` and `t_rt` are views of `t`.
        known = hudi.config.name.lower()
        base = known if entry.name in (f"{known}_ro", f"{known}_rt") else entry.name
        yield _Opened(hudi, client, (database or entry.database, name or base), options)


def _is_path(text: str) -> bool:
    return "/" in text or text in (".", "..")


def _options(settings: list[str] | None) -> dict[str, str]:
    options = {}
    for text in settings or ():
        key, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"--set {text}: expected KEY=VALUE", found=text)
        options[key.strip()] = value
    return options


def _print(result: Any, output: Output) -> None:
    if output is Output.TABLE:
        typer.echo(str(result))
    elif output in (Output.JSON, Output.JSONL):
        typer.echo(json.dumps(result.to_json(), indent=2 if output is Output.JSON else None, ensure_ascii=False))
    else:
        raise InputError(f"--output {output.value} is not for this command", expected="table, json or jsonl")


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="sync")
