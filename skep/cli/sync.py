"""`skep sync`: what a sync would do, doing it, comparing, how far behind metastores are, and watching."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.events import told
from skep.cli.metastore import MetastoreOption, WarehouseOption, connected
from skep.cli.output import FAILED, Output, OutputOption, print_rows, reported
from skep_table.errors import InputError, SkepError
from skep_table.events import Events

if TYPE_CHECKING:
    from skep_catalog.client import Metastore
    from skep_sync.targets import Clients, Outcome, Target
    from skep_sync.watch import WatchedTable
    from skep_table.events import Event
    from skep_table.options import Options
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
TargetOption = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="This one of skep.sync.targets; main is the metastore.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All Hudi tables of the metastore, or of --database.")]
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
    target: TargetOption = None,
    full: FullOption = False,
    exit_code: ExitCodeOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a sync would do; change nothing."""
    from skep_sync.sync import plan_sync

    with reported(), _opened(table, metastore, warehouse, database, name, settings, target) as opened:
        found = plan_sync(opened.table, opened.metastore, *opened.target, opened.options, full=full)
        _print(found, output)
        _warn(found.warnings)
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
        if table is None:
            with _many(metastore, warehouse, database, settings, target) as many:
                done = _pending(many) if pending else _each(many, full=full)
                failed = _print_outcomes(done, output, only_changed=True)
        else:
            with _opened(table, metastore, warehouse, database, name, settings, target) as opened:
                outcomes = [(table, outcome) for outcome in _all_targets(opened, full)]
                failed = _print_outcomes(outcomes, output, only_changed=False)
        if failed:
            raise typer.Exit(FAILED)


def _all_targets(opened: _Opened, full: bool) -> list[Outcome]:
    from skep_sync.planner import target_of
    from skep_sync.targets import each_target, sync_target

    entry = ".".join(target_of(opened.table, *opened.names))

    with told("sync") as listener:

        def sync(target: Target) -> Any:
            return sync_target(target, opened.clients, opened.table, entry, full=full, events=Events(listener))

        return each_target(opened.targets, sync)


def _each(many: _Many, *, full: bool) -> Iterator[tuple[str, Outcome]]:
    from skep_sync.pending import KnownTables, sync_all

    tables = KnownTables(many.metastore, many.database)()
    with told("sync") as listener:
        yield from sync_all(tables, many.targets, many.clients, full=full, events=Events(listener))


def _pending(many: _Many) -> Iterator[tuple[str, Outcome]]:
    """What the queue knows of first: it may have no entry yet. Then whatever is behind."""
    from skep.syncing import open_queue
    from skep_sync.pending import KnownTables, sync_all, sync_queued

    queue = open_queue(many.options, many.warehouse)
    with told("sync") as listener:
        if queue is not None:
            yield from sync_queued(queue, many.targets, many.clients, events=Events(listener))
        tables = KnownTables(many.metastore, many.database)()
        yield from sync_all(tables, many.targets, many.clients, only_behind=True, events=Events(listener))


def _print_outcomes(outcomes: Iterable[tuple[str, Outcome]], output: Output, *, only_changed: bool) -> bool:
    """Reports to stdout, errors to stderr; whether there was one."""
    failed = False
    for table, outcome in outcomes:
        where = "" if outcome.target == "main" else f" (target {outcome.target})"
        if isinstance(outcome.result, SkepError):
            failed = True
            typer.echo(f"error: {table}{where}: {outcome.result}", err=True)
        elif outcome.result.changed or not only_changed:
            _print(outcome.result, output)
            _warn(outcome.result.plan.warnings)
    return failed


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

    with reported(), _opened(table, metastore, warehouse, database, name, settings, target) as opened:
        engines = [EngineAddress.parse(text) for text in engine or ()]
        found = check_table(opened.table, opened.metastore, *opened.target, opened.options)
        found = found.with_findings(check_engines(opened.table, opened.metastore, found.plan, engines))
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

    with reported(), _opened(table, metastore, warehouse, database, name, settings, target) as opened:
        if listed:
            kept = kept_entries(opened.table, opened.metastore, *opened.target)
            print_rows([one.to_json() for one in kept], output, ("id", "time", "entry"))
            return
        for one in restore_entries(opened.table, opened.metastore, *opened.target, opened.options, backup_id=to):
            _print(one, output)


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
            with _opened(table, metastore, warehouse, database, name, settings, target) as opened:
                found = sync_status(opened.table, opened.metastore, *opened.target, opened.options)
                print_rows([entry.to_json() for entry in found], output, SyncStatus.COLUMNS)
            return
        with _many(metastore, warehouse, database, settings, target) as many:
            if pending:
                print_rows(_queued(many), output, _QUEUED)
            else:
                print_rows(list(_states(many)), output, SyncStatus.COLUMNS)


@app.command()
def watch(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE|PATH]…", help="database.table, or paths of tables.")
    ] = None,
    everything: AllOption = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 5.0,
    refresh: Annotated[float, typer.Option(help="Seconds after which --all looks for new tables.", min=1.0)] = 60.0,
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
        ended = until_signalled()
        with _many(metastore, warehouse, database, settings, target) as many:
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


def _watched(many: _Many, tables: list[str]) -> Callable[[], list[WatchedTable]]:
    from skep_sync.pending import KnownTables
    from skep_sync.watch import WatchedTable

    if not tables:
        return KnownTables(many.metastore, many.database)
    found = []
    for table in tables:
        if _is_path(table):
            found.append(WatchedTable(table))
            continue
        of_database, _, of_name = table.rpartition(".")
        entry = many.metastore.table(of_database or many.database or many.default_database, of_name)
        found.append(WatchedTable(entry.storage.location or "", entry.full_name))
    return lambda: found


def _print_synced(event: Event, output: Output) -> None:
    """Failures are in the log."""
    if event.name == "service.synced":
        report: Any = event.facts["report"]
        if report.changed:
            _print(report, output if output is Output.TABLE else Output.JSONL)
            _warn(report.plan.warnings)


_QUEUED = ("target", "table", "base_path", "instant", "commits", "attempts", "error", "retry_at")


def _queued(many: _Many) -> list[dict[str, Any]]:
    from skep.syncing import open_queue

    queue = open_queue(many.options, many.warehouse)
    names = {target.name for target in many.targets}
    return [one.to_json() for one in queue.pending() if one.target in names] if queue is not None else []


def _states(many: _Many) -> Iterator[dict[str, Any]]:
    from skep_sync.pending import KnownTables
    from skep_sync.status import sync_status
    from skep_sync.watch import table_of_view
    from skep_table.table import HudiTable

    for watched in KnownTables(many.metastore, many.database)():
        try:
            table = HudiTable.open(watched.base_path, many.options)
            entry = table_of_view(watched.entry or "", table.config.name)
            for target in many.targets:
                names = target.names(entry)
                yield from (
                    state.to_json() for state in sync_status(table, many.clients.of(target), *names, target.options)
                )
        except SkepError as error:
            typer.echo(f"error: {watched.entry}: {error}", err=True)


@dataclass(frozen=True)
class _Many:
    """All tables of a metastore and the targets they are synced to."""

    metastore: Metastore
    warehouse: str
    database: str | None
    default_database: str
    options: Options
    targets: tuple[Target, ...]
    clients: Clients


@dataclass(frozen=True)
class _Opened:
    """One table. `metastore`, `target` and `options` are those of the first of the targets."""

    table: HudiTable
    names: tuple[str | None, str | None]
    targets: tuple[Target, ...]
    clients: Clients

    @property
    def metastore(self) -> Metastore:
        return self.clients.of(self.targets[0])

    @property
    def target(self) -> tuple[str | None, str | None]:
        from skep_sync.planner import target_of

        return self.targets[0].names(".".join(target_of(self.table, *self.names)))

    @property
    def options(self) -> Options:
        return self.targets[0].options


@contextmanager
def _many(
    metastore: str | None, warehouse: str | None, database: str | None, given: list[str] | None, target: str | None
) -> Iterator[_Many]:
    from skep_sync.targets import Clients
    from skep_table.options import Options

    flags = _options(given)
    with connected(metastore, warehouse) as (client, settings), Clients(client) as clients:
        options = Options(settings.options).with_values(flags)
        chosen = _chosen(options, target)
        yield _Many(client, settings.warehouse, database, settings.database, options, chosen, clients)


@contextmanager
def _opened(
    table: str,
    metastore: str | None,
    warehouse: str | None,
    database: str | None,
    name: str | None,
    given: list[str] | None,
    target: str | None = None,
) -> Iterator[_Opened]:
    """The table by its path or its entry, where it is registered, and the targets of the sync."""
    from skep_sync.options import DATABASE, TABLE
    from skep_sync.targets import Clients
    from skep_sync.watch import table_of_view
    from skep_table.options import Options
    from skep_table.table import HudiTable

    flags = _options(given)
    with connected(metastore, warehouse) as (client, settings), Clients(client) as clients:
        options = Options(settings.options).with_values(flags)
        targets = _chosen(options, target)
        if _is_path(table):
            names = database or options.value(DATABASE), name or options.value(TABLE)
            yield _Opened(HudiTable.open(table, options), names, targets, clients)
            return
        of_database, _, of_name = table.rpartition(".")
        entry = client.table(of_database or settings.database, of_name)
        if entry.storage.location is None:
            raise InputError(f"{entry.full_name} has no location: it is a view", table=entry.full_name)
        hudi = HudiTable.open(entry.storage.location, options)
        base = table_of_view(entry.full_name, hudi.config.name).rpartition(".")[2]
        yield _Opened(hudi, (database or entry.database, name or base), targets, clients)


def _chosen(options: Options, name: str | None) -> tuple[Target, ...]:
    from skep_sync.targets import targets_of

    targets = targets_of(options)
    chosen = tuple(target for target in targets if name in (None, target.name))
    if not chosen:
        known = ", ".join(target.name for target in targets)
        raise InputError(f"there is no target {name}; there are: {known}", option="--target", found=name)
    return chosen


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
