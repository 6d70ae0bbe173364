"""`skep sync`: what a sync would do, doing it, comparing, how far behind metastores are, and watching."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.base.names import TableName, is_path
from skep.cli.output import FAILED, Output, OutputOption, print_rows
from skep.cli.progress import listening
from skep.cli.scope import App, until_signalled
from skep.cli.sync.output import check_output, print_outcomes, print_result, print_results
from skep.cli.sync.scope import EntryScope, Many, SyncScope, SyncTable
from skep_format.errors import InputError, SkepError
from skep_table.events import Events

if TYPE_CHECKING:
    from skep_sync.following.watch import WatchedTable
    from skep_sync.targets import Outcome
    from skep_table.events import Event

DRIFT = 1
PENDING = 3
"""The exit code of `--exit-code` when there are changes."""

TableArgument = Annotated[str, typer.Argument(metavar="TABLE|PATH", help="database.table, or a path.")]
OptionalTable = Annotated[str | None, typer.Argument(metavar="[TABLE|PATH]", help="database.table, or a path.")]
AllOption = Annotated[bool, typer.Option("--all", help="All Hudi tables of the metastore, or of --database.")]
FullOption = Annotated[bool, typer.Option("--full", help="Compare all partitions, not only those after the markers.")]

sync = App(no_args_is_help=True, help="Keep the Hive Metastore in line with tables.")


@sync.command()
def plan(
    table: TableArgument,
    *,
    scope: EntryScope,
    full: FullOption = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help=f"Exit with {PENDING} when there are changes.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a sync would do; change nothing."""
    from skep_sync.sync import plan_sync

    with scope.one(table) as opened:
        check_output(output)
        found = plan_sync(opened.table, opened.metastore, *opened.target, opened.options, full=full)
        print_result(found, output, found.warnings)
        if exit_code and found:
            raise typer.Exit(PENDING)


@sync.command()
def apply(
    table: OptionalTable = None,
    everything: AllOption = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="Tables that are behind, and syncs that failed before.")
    ] = False,
    *,
    scope: EntryScope,
    full: FullOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Bring the metastore, and all other targets, in line with the table."""
    if [table is not None, everything, pending].count(True) != 1:
        raise InputError("give a TABLE, or --all, or --pending for all that are behind")
    if full and pending:
        raise InputError("--full goes with a TABLE or --all, --pending syncs what is behind", option="--full")
    check_output(output)
    if table is not None:
        _sync_one(table, scope, output, full=full)
        return
    with scope.many() as many:
        failed = print_outcomes(_synced(many, full=full, pending=pending), output, only_changed=True)
    if failed:
        raise typer.Exit(FAILED)


def _sync_one(table: str, scope: EntryScope, output: Output, *, full: bool) -> None:
    with scope.one(table) as opened:
        outcomes = [(table, outcome) for outcome in _all_targets(opened, full)]
        failed = print_outcomes(outcomes, output, only_changed=False, single=len(outcomes) == 1)
    if failed:
        raise typer.Exit(FAILED)


def _all_targets(opened: SyncTable, full: bool) -> list[Outcome]:
    from skep.metastore.syncing import TableSyncs, open_queue
    from skep_sync.planning.planner import target_of

    entry = ".".join(target_of(opened.table, *opened.names))
    queue = partial(open_queue, opened.targets[0].options, opened.warehouse)
    with listening("sync") as listener:
        syncs = TableSyncs(opened.targets, opened.clients, queue, Events(listener))
        return syncs.outcomes(opened.table, entry, full=full)


def _synced(many: Many, *, full: bool, pending: bool) -> Iterator[tuple[str, Outcome]]:
    """All tables; by `pending` first those of the queue, which may have no entry yet, then whatever is behind."""
    from skep.metastore.syncing import open_queue, queue_if_any
    from skep_sync.following.pending import KnownTables, sync_all, sync_queued

    opened = partial(open_queue, many.options, many.warehouse)
    queue = opened() if pending else queue_if_any(opened)
    with listening("sync") as listener:
        events = Events(listener)
        if pending and queue is not None:
            yield from sync_queued(queue, many.targets, many.clients, events=events)
        tables = KnownTables(many.metastore, many.database)()
        yield from sync_all(
            tables, many.targets, many.clients, full=full, only_behind=pending, queue=queue, events=events
        )


@sync.command()
def check(
    table: TableArgument,
    *,
    scope: EntryScope,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=HOST:PORT", help="Also query this engine: hive, spark, presto or trino; repeatable."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Report differences that engines would see: columns, Spark's schema, partitions, files, timeline; 1 on drift."""
    from skep_sync.check import check_table
    from skep_sync.engines import EngineAddress, check_engines

    with scope.one(table) as opened:
        check_output(output)
        engines = [EngineAddress.parse(text) for text in engine or ()]
        found = check_table(opened.table, opened.metastore, *opened.target, opened.options)
        found = found.with_findings(check_engines(opened.table, opened.metastore, found.plan, engines))
        print_result(found, output, found.plan.warnings)
        if found:
            raise typer.Exit(DRIFT)


@sync.command()
def repair(
    table: TableArgument,
    *,
    scope: EntryScope,
    output: OutputOption = Output.TABLE,
) -> None:
    """Like apply, with all partitions compared, not only those after the markers."""
    check_output(output)
    _sync_one(table, scope, output, full=True)


@sync.command()
def restore(
    table: TableArgument,
    *,
    scope: EntryScope,
    to: Annotated[str | None, typer.Option("--to", metavar="ID", help="A copy by its id; else the latest.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Print the copies that are kept; change nothing.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Restore entries to their state before a sync last changed them. Partitions stay as they are."""
    from skep_sync.restore import kept_entries, restore_entries

    with scope.one(table) as opened:
        if listed:
            kept = kept_entries(opened.table, opened.metastore, *opened.target)
            print_rows([one.to_json() for one in kept], output, ("id", "time", "entry"))
            return
        check_output(output)
        done = restore_entries(opened.table, opened.metastore, *opened.target, opened.options, backup_id=to)
        print_results(done, output)


@sync.command()
def status(
    table: OptionalTable = None,
    everything: AllOption = False,
    pending: Annotated[bool, typer.Option("--pending", help="The queue: failed and pending syncs.")] = False,
    *,
    scope: EntryScope,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print how many commits and seconds each entry of a table, or of all, is behind."""
    from skep_sync.following.status import SyncStatus, sync_status

    if [table is not None, everything, pending].count(True) != 1:
        raise InputError("give a TABLE, or --all, or --pending for the queue")
    if table is not None:
        with scope.one(table) as opened:
            found = sync_status(opened.table, opened.metastore, *opened.target, opened.options)
            print_rows([entry.to_json() for entry in found], output, SyncStatus.COLUMNS)
        return
    with scope.many() as many:
        if pending:
            print_rows(_queued(many), output, _QUEUED)
        else:
            rows, failed = _states(many)
            print_rows(rows, output, SyncStatus.COLUMNS)
            if failed:
                raise typer.Exit(FAILED)


@sync.command()
def watch(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE|PATH]…", help="database.table, or paths of tables.")
    ] = None,
    everything: AllOption = False,
    interval: Annotated[float, typer.Option(help="Seconds between two rounds.", min=0.1)] = 5.0,
    refresh: Annotated[
        float, typer.Option(help="Seconds between two searches for new tables and dropped entries.", min=1.0)
    ] = 60.0,
    *,
    scope: SyncScope,
    output: OutputOption = Output.TABLE,
) -> None:
    """Watch timelines and sync what is new, until interrupted. Failures are retried, also after a restart."""
    from skep.serve.run import ServiceSettings, WatchSettings, serve

    if bool(tables) == everything:
        raise InputError("give TABLEs or PATHs, or --all")
    check_output(output)
    ended = until_signalled()
    with scope.many() as many:
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
    from skep_sync.following.pending import KnownTables
    from skep_sync.following.watch import WatchedTable

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
    from skep.metastore.syncing import open_queue

    queue = open_queue(many.options, many.warehouse)
    names = {target.name for target in many.targets}
    return [one.to_json() for one in queue.pending() if one.target in names] if queue is not None else []


def _states(many: Many) -> tuple[list[dict[str, Any]], bool]:
    """The state of each table at each target, and whether one of them is unknown; stderr names the errors."""
    from skep_sync.following.pending import KnownTables
    from skep_sync.following.status import sync_status
    from skep_sync.following.watch import table_of_view
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
