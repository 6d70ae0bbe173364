"""`skep sync`: what a sync would do, doing it, comparing, how far behind metastores are, and watching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.events import told
from skep.cli.metastore import MetastoreOption, WarehouseOption
from skep.cli.output import FAILED, Output, OutputOption, print_rows, reported
from skep.cli.sync_output import check_output, print_outcomes, print_result, print_results
from skep.cli.sync_words import (
    PENDING,
    AllOption,
    DatabaseOption,
    ExitCodeOption,
    FullOption,
    Many,
    NameOption,
    Opened,
    OptionalTable,
    SetOption,
    TableArgument,
    TargetOption,
    many_tables,
    one_table,
)
from skep.names import TableName, is_path
from skep_table.errors import InputError, SkepError
from skep_table.events import Events

if TYPE_CHECKING:
    from skep_sync.targets import Outcome, Target
    from skep_sync.watch import WatchedTable
    from skep_table.events import Event

DRIFT = 1

app = typer.Typer(no_args_is_help=True, help="Keep the Hive Metastore true to tables.")


@app.command()
def plan(
    table: TableArgument,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    target: TargetOption = None,
    full: FullOption = False,
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a sync would do; change nothing."""
    from skep_sync.sync import plan_sync

    with reported(), one_table(table, metastore, warehouse, database, name, settings, target) as opened:
        check_output(output)
        found = plan_sync(opened.table, opened.metastore, *opened.target, opened.options, full=full)
        print_result(found, output, found.warnings)
        if exit_code and found:
            raise typer.Exit(PENDING)


@app.command()
def apply(
    table: OptionalTable = None,
    everything: AllOption = False,
    pending: Annotated[bool, typer.Option("--pending", help="Those that are behind, and what failed before.")] = False,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    target: TargetOption = None,
    full: FullOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make the metastore, and all other targets, say what the table is."""
    with reported():
        if [table is not None, everything, pending].count(True) != 1:
            raise InputError("give a TABLE, or --all, or --pending for all that are behind")
        check_output(output)
        if table is None:
            with many_tables(metastore, warehouse, database, settings, target) as many:
                done = _pending(many) if pending else _each(many, full=full)
                failed = print_outcomes(done, output, only_changed=True)
        else:
            with one_table(table, metastore, warehouse, database, name, settings, target) as opened:
                outcomes = [(table, outcome) for outcome in _all_targets(opened, full)]
                failed = print_outcomes(outcomes, output, only_changed=False, single=len(outcomes) == 1)
        if failed:
            raise typer.Exit(FAILED)


def _all_targets(opened: Opened, full: bool) -> list[Outcome]:
    from skep.syncing import queue_if_any, settling
    from skep_sync.planner import target_of
    from skep_sync.targets import each_target, sync_target

    entry = ".".join(target_of(opened.table, *opened.names))
    queue = queue_if_any(opened.targets[0].options, opened.warehouse)

    with told("sync") as listener:

        def sync(target: Target) -> Any:
            with settling(queue, target.name, opened.table.storage.root, entry):
                return sync_target(target, opened.clients, opened.table, entry, full=full, events=Events(listener))

        return each_target(opened.targets, sync)


def _each(many: Many, *, full: bool) -> Iterator[tuple[str, Outcome]]:
    from skep.syncing import queue_if_any
    from skep_sync.pending import KnownTables, sync_all

    queue = queue_if_any(many.options, many.warehouse)
    tables = KnownTables(many.metastore, many.database)()
    with told("sync") as listener:
        yield from sync_all(tables, many.targets, many.clients, full=full, queue=queue, events=Events(listener))


def _pending(many: Many) -> Iterator[tuple[str, Outcome]]:
    """What the queue knows of first: it may have no entry yet. Then whatever is behind."""
    from skep.syncing import open_queue
    from skep_sync.pending import KnownTables, sync_all, sync_queued

    queue = open_queue(many.options, many.warehouse)
    with told("sync") as listener:
        if queue is not None:
            yield from sync_queued(queue, many.targets, many.clients, events=Events(listener))
        tables = KnownTables(many.metastore, many.database)()
        events = Events(listener)
        yield from sync_all(tables, many.targets, many.clients, only_behind=True, queue=queue, events=events)


@app.command()
def check(
    table: TableArgument,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    target: TargetOption = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=HOST:PORT", help="Also ask this engine: hive, spark, presto or trino; repeatable."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say where engines would disagree: columns, Spark's schema, partitions, files, timeline; exit with 1 on drift."""
    from skep_sync.check import check_table
    from skep_sync.engines import EngineAddress, check_engines

    with reported(), one_table(table, metastore, warehouse, database, name, settings, target) as opened:
        check_output(output)
        engines = [EngineAddress.parse(text) for text in engine or ()]
        found = check_table(opened.table, opened.metastore, *opened.target, opened.options)
        found = found.with_findings(check_engines(opened.table, opened.metastore, found.plan, engines))
        print_result(found, output, found.plan.warnings)
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
    target: TargetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Like apply, with all partitions compared, whatever the markers say."""
    apply(table, False, False, metastore, warehouse, database, name, settings, target, True, output)


@app.command()
def restore(
    table: TableArgument,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    target: TargetOption = None,
    to: Annotated[str | None, typer.Option("--to", metavar="ID", help="A copy by its id; else the latest.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Print the copies that are kept; change nothing.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Bring entries back to what they were before a sync last changed them. Partitions stay as they are."""
    from skep_sync.restore import kept_entries, restore_entries

    with reported(), one_table(table, metastore, warehouse, database, name, settings, target) as opened:
        if listed:
            kept = kept_entries(opened.table, opened.metastore, *opened.target)
            print_rows([one.to_json() for one in kept], output, ("id", "time", "entry"))
            return
        check_output(output)
        done = restore_entries(opened.table, opened.metastore, *opened.target, opened.options, backup_id=to)
        print_results(done, output)


@app.command()
def status(
    table: OptionalTable = None,
    everything: AllOption = False,
    pending: Annotated[bool, typer.Option("--pending", help="What is in the queue: failures and what waits.")] = False,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    settings: SetOption = None,
    target: TargetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """How many commits and seconds each entry of a table, or of all, is behind."""
    from skep_sync.status import SyncStatus, sync_status

    with reported():
        if [table is not None, everything, pending].count(True) != 1:
            raise InputError("give a TABLE, or --all, or --pending for the queue")
        if table is not None:
            with one_table(table, metastore, warehouse, database, name, settings, target) as opened:
                found = sync_status(opened.table, opened.metastore, *opened.target, opened.options)
                print_rows([entry.to_json() for entry in found], output, SyncStatus.COLUMNS)
            return
        with many_tables(metastore, warehouse, database, settings, target) as many:
            if pending:
                print_rows(_queued(many), output, _QUEUED)
            else:
                rows, failed = _states(many)
                print_rows(rows, output, SyncStatus.COLUMNS)
                if failed:
                    raise typer.Exit(FAILED)


@app.command()
def watch(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE|PATH]…", help="database.table, or paths of tables.")
    ] = None,
    everything: AllOption = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 5.0,
    refresh: Annotated[
        float, typer.Option(help="Seconds after which new tables and dropped entries are looked for.", min=1.0)
    ] = 60.0,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    settings: SetOption = None,
    target: TargetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Watch timelines and sync what is new, until interrupted. What fails is tried again, also by a later start."""
    from skep.cli.serve import until_signalled
    from skep.serve.run import ServiceSettings, WatchSettings, serve

    with reported():
        if bool(tables) == everything:
            raise InputError("give TABLEs or PATHs, or --all")
        check_output(output)
        ended = until_signalled()
        with many_tables(metastore, warehouse, database, settings, target) as many:
            watched = WatchSettings(_watched(many, tables or []), interval, refresh)
            serve(
                many.metastore,
                many.warehouse,
                many.options,
                ServiceSettings(watch=watched),
                ended,
                targets=many.targets,
                listener=lambda event: _print_synced(event, output),
            )


def _watched(many: Many, tables: list[str]) -> Callable[[], list[WatchedTable]]:
    from skep_sync.pending import KnownTables
    from skep_sync.watch import WatchedTable

    if not tables:
        return KnownTables(many.metastore, many.database)
    found = []
    for table in tables:
        if is_path(table):
            found.append(WatchedTable(table))
            continue
        named = TableName.parse(table, many.database or many.default_database)
        entry = many.metastore.table(named.database, named.name)
        found.append(WatchedTable(entry.storage.location or "", entry.full_name))
    return lambda: found


def _print_synced(event: Event, output: Output) -> None:
    """Failures are in the log."""
    if event.name == "service.synced":
        report: Any = event.facts["report"]
        if report.changed:
            print_result(report, output if output is Output.TABLE else Output.JSONL, report.plan.warnings)


_QUEUED = ("target", "table", "base_path", "instant", "commits", "attempts", "error", "retry_at")


def _queued(many: Many) -> list[dict[str, Any]]:
    from skep.syncing import open_queue

    queue = open_queue(many.options, many.warehouse)
    names = {target.name for target in many.targets}
    return [one.to_json() for one in queue.pending() if one.target in names] if queue is not None else []


def _states(many: Many) -> tuple[list[dict[str, Any]], bool]:
    """Of each table at each target, and whether one of them could not be told; stderr says why."""
    from skep_sync.pending import KnownTables
    from skep_sync.status import sync_status
    from skep_sync.watch import table_of_view
    from skep_table.table import HudiTable

    found: list[dict[str, Any]] = []
    failed = False
    for watched in KnownTables(many.metastore, many.database)():
        try:
            table = HudiTable.open(watched.base_path, many.options)
        except SkepError as error:
            typer.echo(f"error: {watched.entry}: {error}", err=True)
            failed = True
            continue
        entry = table_of_view(watched.entry or "", table.config.name)
        for target in many.targets:
            try:
                states = sync_status(table, many.clients.of(target), *target.names(entry), target.options)
            except SkepError as error:
                typer.echo(f"error: {entry} (target {target.name}): {error}", err=True)
                failed = True
            else:
                found += [state.to_json() for state in states]
    return found, failed


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="sync")
