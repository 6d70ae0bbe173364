"""What the words of `skep sync` name: tables by entry or path, options, and the targets they are synced to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.metastore import connected
from skep.cli.settings_of import settings_of
from skep.names import TableName, is_path
from skep_table.errors import InputError

if TYPE_CHECKING:
    from skep.config import Settings
    from skep_catalog.client import Metastore
    from skep_sync.targets import Clients, Target
    from skep_table.options import Options
    from skep_table.table import HudiTable

_OWN = ("hoodie.datasource.hive_sync.", "hoodie.meta.sync.", "hoodie.datasource.meta", "skep.sync.")

PENDING = 3
"""The exit code of `--exit-code` when there are changes."""

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


@dataclass(frozen=True)
class Many:
    """All tables of a metastore and the targets they are synced to."""

    metastore: Metastore
    warehouse: str
    database: str | None
    default_database: str
    options: Options
    targets: tuple[Target, ...]
    clients: Clients


@dataclass(frozen=True)
class Opened:
    """One table. `metastore`, `target` and `options` are those of the first of the targets."""

    table: HudiTable
    names: tuple[str | None, str | None]
    targets: tuple[Target, ...]
    clients: Clients
    warehouse: str

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
def many_tables(
    metastore: str | None, warehouse: str | None, database: str | None, given: list[str] | None, target: str | None
) -> Iterator[Many]:
    with _connected(metastore, warehouse, given) as (client, settings, options, clients):
        chosen = _chosen(options, target)
        yield Many(client, settings.warehouse, database, settings.database, options, chosen, clients)


@contextmanager
def one_table(
    table: str,
    metastore: str | None,
    warehouse: str | None,
    database: str | None,
    name: str | None,
    given: list[str] | None,
    target: str | None = None,
) -> Iterator[Opened]:
    """The table by its path or its entry, where it is registered, and the targets of the sync."""
    from skep_sync.options import DATABASE, TABLE
    from skep_sync.watch import table_of_view
    from skep_table.table import HudiTable

    with _connected(metastore, warehouse, given) as (client, settings, options, clients):
        targets = _chosen(options, target)
        if is_path(table):
            names = database or options.value(DATABASE), name or options.value(TABLE)
            yield Opened(HudiTable.open(table, options), names, targets, clients, settings.warehouse)
            return
        named = TableName.parse(table, settings.database)
        entry = client.table(named.database, named.name)
        if entry.storage.location is None:
            raise InputError(f"{entry.full_name} has no location: it is a view", table=entry.full_name)
        hudi = HudiTable.open(entry.storage.location, options)
        base = table_of_view(entry.full_name, hudi.config.name).rpartition(".")[2]
        yield Opened(hudi, (database or entry.database, name or base), targets, clients, settings.warehouse)


@contextmanager
def _connected(
    metastore: str | None, warehouse: str | None, given: list[str] | None
) -> Iterator[tuple[Metastore, Settings, Options, Clients]]:
    """The metastore, the settings, the options with those that the command was `given`, and clients of targets."""
    from skep.config import metastore_of_syncs
    from skep_sync.targets import Clients
    from skep_table.options import Options

    flags = settings_of(given, "--set")
    _check(flags)
    with connected(metastore or metastore_of_syncs(flags), warehouse) as (client, settings), Clients(client) as clients:
        yield client, settings, Options(settings.options).with_values(flags), clients


def _check(flags: dict[str, str]) -> None:
    """Warns of a mistyped key of the sync's; what else there is (a writer's, say) is known where it is used."""
    from skep_table.options import Options

    Options({key: value for key, value in flags.items() if key.startswith(_OWN)}).check()


def _chosen(options: Options, name: str | None) -> tuple[Target, ...]:
    from skep_sync.options import SyncOptions
    from skep_sync.targets import targets_of

    targets = targets_of(options)
    for target in targets:
        SyncOptions.of(target.options)  # what does not parse is wrong usage, not a failed sync
    chosen = tuple(target for target in targets if name in (None, target.name))
    if not chosen:
        known = ", ".join(target.name for target in targets)
        raise InputError(f"there is no target {name}; there are: {known}", option="--target", found=name)
    return chosen
