"""The table of a command: by its path, or by its name in the metastore; with its lock and its syncs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from skep.base.names import TableName, is_path
from skep.cli.output import FAILED, Output, OutputOption, print_rows
from skep.cli.quick import arrow_alone
from skep.cli.scope import MetastoreOption, WarehouseOption, configured, connected, settings_of
from skep_format.errors import InputError, NotATableError, SkepError
from skep_format.options import Options

if TYPE_CHECKING:
    from skep.handles.table import Table
    from skep.lake import Lake
    from skep_catalog.entities import TableEntry as Entry
    from skep_catalog.entries import View
    from skep_table.table import HudiTable

T = TypeVar("T")
R = TypeVar("R")

TableTarget = Annotated[str, typer.Argument(metavar="TABLE", help="Its path, or [database.]table in the metastore.")]
OptionalTarget = Annotated[
    str | None, typer.Argument(metavar="[TABLE]", help="Its path, or [database.]table in the metastore.")
]
AllTables = Annotated[bool, typer.Option("--all", help="All Hudi tables of the metastore (of --database).")]
OfDatabase = Annotated[str | None, typer.Option("--database", help="With --all: only its tables.")]
OnSpark = Annotated[bool, typer.Option("--spark", help="Run the tasks on Spark, as configured; else on threads here.")]


@dataclass(frozen=True, slots=True)
class ChosenTables:
    """The tables of a command: one, or all of the metastore, each opened when its turn has come."""

    openers: Mapping[str, Callable[[], Table]]
    every: bool = False
    lake: Lake | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """What commands on one table take besides its name."""

    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A Hudi key of the service or a storage setting; repeatable."),
    ] = None
    metastore: MetastoreOption = None
    warehouse: WarehouseOption = None
    output: OutputOption = Output.TABLE

    @contextmanager
    def opened(self, table: str) -> Iterator[Table]:
        """With its lock and its syncs."""
        with self.tables(table) as chosen:
            (opened,) = chosen.openers.values()
            yield opened()

    @contextmanager
    def running(self, table: str) -> Iterator[Table]:
        """The same, see `running`."""
        with self.opened(table) as found, running(found) as one:
            yield one

    @contextmanager
    def tables(self, target: str | None, *, only_reads: bool = False) -> Iterator[ChosenTables]:
        """One table, or all of the metastore. InputError when neither is asked for, or both. With `only_reads` the
        embedded metastore is started when it is needed.

        A table that is named by its path and that the configured metastore knows is locked and synced there.
        """
        every, database = (self.every, self.database) if isinstance(self, ManyGiven) else (False, None)
        if every == (target is not None):
            raise InputError("name a table, or --all of the metastore, one of them", option="--all")
        arrow_alone()
        options = settings_of(self.option)
        found = configured(self.metastore, self.warehouse)
        given = {**found.options, **options}
        if target is not None and is_path(target) and found.metastore is None:
            from skep.handles.by_path import open_table

            by_path = open_table(target, **given)
            yield ChosenTables({target: lambda: by_path})
            return
        from skep.lake import unconnected

        with unconnected(found, options) as lake:
            if not only_reads:
                _ = lake.metastore.uri  # starts or joins the embedded one: where that fails, it does so here
            if target is None:
                openers = {name: partial(lake.table, name) for name in lake.tables(database)}
                yield ChosenTables(openers, every=True, lake=lake)
                return
            table = _by_location(lake, target, given) if is_path(target) else lake.table(target)
            yield ChosenTables({target: lambda: table}, lake=lake)

    def print_each(
        self,
        table: str | None,
        work: Callable[[Table], Iterable[Mapping[str, Any]]],
        columns: Sequence[str],
        *,
        spark: bool = False,
    ) -> None:
        """Prints the rows that `work` returns of each table, with its name before them. With --all, a table that fails
        is reported, and the command fails at the end."""
        rows: list[Mapping[str, Any]] = []
        failed = False
        with self.tables(table) as chosen:
            for name, opened in chosen.openers.items():
                try:
                    one = opened()
                    with running(one, spark=spark) as found:
                        rows += [{"table": one.name, **row} for row in work(found)]
                except SkepError as error:
                    if not chosen.every:
                        raise
                    failed = True
                    typer.echo(f"error: {name}: {error}", err=True)
            if rows or self.output is not Output.TABLE:
                self.print(rows, ("table", *columns))
            elif not failed:
                typer.echo("nothing to do", err=True)
        if failed:
            raise typer.Exit(FAILED)

    def read_only(self, table: str) -> tuple[HudiTable, View | None]:
        """A table for commands that only read it, and the view of the metastore that its name is; None for a path."""
        import skep.base.known_options  # noqa: F401 - options that reading has no use for are known, too
        from skep_catalog.entries import view_of
        from skep_table.table import HudiTable

        arrow_alone()
        Options(settings_of(self.option)).check()
        location, options, entry = self._entry(table)
        Options(options).check()
        found = HudiTable.open(location, options)
        return found, None if entry is None else view_of(entry, found.config)

    def located(self, table: str) -> tuple[str, dict[str, str]]:
        """Where it lies, and the options to open it with. Given by its path, no metastore and no settings count."""
        location, options, _ = self._entry(table)
        return location, options

    def _entry(self, table: str) -> tuple[str, dict[str, str], Entry | None]:
        options = settings_of(self.option)
        if is_path(table):
            return table, options, None
        from skep.metastore.entries import named_entry

        with connected(self.metastore, self.warehouse, only_reads=True) as (client, settings):
            name = TableName.parse(table, settings.database)
            entry = named_entry(client, name)
            if not entry.storage.location:
                raise NotATableError(f"table {name} has no location in the metastore", table=str(name))
            return entry.storage.location, {**settings.options, **options}, entry

    def print(self, rows: Sequence[Mapping[str, Any] | Sequence[Any]], columns: Sequence[str]) -> None:
        """See `print_rows`."""
        print_rows(rows, self.output, columns)

    def print_fields(self, found: Iterable[object], columns: Sequence[str]) -> None:
        """Prints fields of values by their names."""
        self.print([[getattr(each, name) for name in columns] for each in found], columns)


@dataclass(frozen=True, slots=True)
class ManyGiven(Given):
    """What commands on one table or all of the metastore take besides its name."""

    every: AllTables = False
    database: OfDatabase = None


@contextmanager
def running(table: Table, *, spark: bool = False) -> Iterator[Table]:
    """The table, whose services run on threads, with a bar on a terminal, or on Spark."""
    services = table.services()
    if spark:
        from skep_writer.services import service_runner

        yield table.with_services(replace(services, runner=service_runner(services.spark.session)))
        return
    from skep.cli import progress

    if not progress.is_wanted():
        yield table
        return
    with progress.shown(table.name) as display:
        forget = table.events.listen(display.listen)
        try:
            yield table.with_services(replace(services, runner=_Watched(display.bars, table.name)))
        finally:
            forget()


class _Watched:
    """Threads whose tasks move a bar."""

    def __init__(self, bars: Any, name: str) -> None:
        self._bars = bars
        self._name = name

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Sequence[R]:
        from skep_format.runner import ThreadRunner

        listed = list(tasks)
        bar = self._bars.add_task(self._name, total=len(listed), visible=len(listed) > 1)

        def watched(task: T) -> R:
            result = function(task)
            self._bars.advance(bar)
            return result

        try:
            return ThreadRunner().map(watched, listed)
        finally:
            self._bars.remove_task(bar)


def _by_location(lake: Lake, path: str, options: Mapping[str, str]) -> Table:
    """The metastore's table where it is the one at `path`, else that without a metastore."""
    from skep.handles.by_path import open_table
    from skep_sync.planning.locations import same_location

    by_path = open_table(path, **options)
    config = by_path.hudi.config
    database, name = config.database or lake.database, config.name.lower()
    entry = lake.metastore.find_table(database, name)
    if entry is None or not entry.storage.location or not same_location(entry.storage.location, by_path.path):
        return by_path
    return lake.table(f"{database}.{name}")
