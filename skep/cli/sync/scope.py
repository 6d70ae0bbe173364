"""What a `skep sync` command works on: the options that all of them share, and the tables and targets they select."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skep.base.config import metastore_of_syncs
from skep.base.names import TableName, is_path
from skep.cli.scope import MetastoreOption, WarehouseOption, connected, settings_of
from skep_format.errors import InputError
from skep_format.options import Options

if TYPE_CHECKING:
    from skep.base.config import Settings
    from skep_catalog.catalogs import EntryCatalog
    from skep_sync.targets import Clients, Target
    from skep_table.table import HudiTable

_SYNC_KEYS = ("hoodie.datasource.hive_sync.", "hoodie.meta.sync.", "hoodie.datasource.meta", "skep.sync.")


@dataclass(frozen=True)
class Many:
    """All tables of a metastore and the targets they are synced to."""

    metastore: EntryCatalog
    warehouse: str
    database: str | None
    default_database: str
    options: Options
    targets: tuple[Target, ...]
    clients: Clients


@dataclass(frozen=True)
class SyncTable:
    """One table. `metastore`, `target` and `options` are those of the first target."""

    table: HudiTable
    names: tuple[str | None, str | None]
    targets: tuple[Target, ...]
    clients: Clients
    warehouse: str

    @property
    def metastore(self) -> EntryCatalog:
        """The client of the first target."""
        return self.clients.of(self.targets[0])

    @property
    def target(self) -> tuple[str | None, str | None]:
        """Database and name of the table's entry at the first target."""
        from skep_sync.planning.planner import target_of

        return self.targets[0].names(".".join(target_of(self.table, *self.names)))

    @property
    def options(self) -> Options:
        """The options of the first target."""
        return self.targets[0].options


@dataclass(frozen=True)
class SyncScope:
    """The options of commands that work on many tables."""

    metastore: MetastoreOption = None
    warehouse: WarehouseOption = None
    database: Annotated[str | None, typer.Option("--database", "-d", help="Else the table's own, else default.")] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A hoodie.datasource.hive_sync.* option."),
    ] = None
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="This one of skep.sync.targets; main is the metastore."),
    ] = None

    @contextmanager
    def many(self) -> Iterator[Many]:
        """All tables of the metastore, or of `--database`."""
        with self._connected() as (client, settings, options, clients):
            chosen = _chosen(client, options, self.target)
            yield Many(client, settings.warehouse, self.database, settings.database, options, chosen, clients)

    @contextmanager
    def _connected(self) -> Iterator[tuple[EntryCatalog, Settings, Options, Clients]]:
        """The metastore, the settings, the options including those of `--set`, and clients of targets."""
        from skep_sync.targets import Clients

        flags = settings_of(self.settings, "--set")
        _check(flags)
        uri = self.metastore or metastore_of_syncs(flags)
        with connected(uri, self.warehouse) as (client, settings), Clients(client) as clients:
            yield client, settings, Options(settings.options).with_values(flags), clients


@dataclass(frozen=True)
class EntryScope(SyncScope):
    """The options of commands that work on one table, or on many."""

    name: Annotated[str | None, typer.Option("--table", "-t", help="The entry's name; else the table's own.")] = None

    @contextmanager
    def many(self) -> Iterator[Many]:
        """All tables of the metastore, or of `--database`. InputError for a name: each entry keeps its own."""
        if self.name is not None:
            raise InputError("--table names the entry of one table, give its TABLE or PATH", option="--table")
        with super().many() as many:
            yield many

    @contextmanager
    def one(self, table: str) -> Iterator[SyncTable]:
        """The table at a path or of a metastore entry, the entry to sync it to, and the targets."""
        from skep_catalog.addresses import is_of_glue
        from skep_sync.following.watch import table_of_view
        from skep_sync.options import DATABASE, TABLE
        from skep_sync.targets import in_names_of_glue
        from skep_table.table import HudiTable

        with self._connected() as (client, settings, options, clients):
            targets = _chosen(client, options, self.target)
            if is_path(table):
                options = in_names_of_glue(options) if is_of_glue(client) else options
                by_path = (self.database or options.value(DATABASE), self.name or options.value(TABLE))
                yield SyncTable(HudiTable.open(table, options), by_path, targets, clients, settings.warehouse)
                return
            named = TableName.parse(table, settings.database)
            entry = client.table(named.database, named.name)
            if entry.storage.location is None:
                raise InputError(f"{entry.full_name} has no location: it is a view", table=entry.full_name)
            hudi = HudiTable.open(entry.storage.location, options)
            base = table_of_view(entry.full_name, hudi.config.name).rpartition(".")[2]
            yield SyncTable(
                hudi, (self.database or entry.database, self.name or base), targets, clients, settings.warehouse
            )


def _check(flags: dict[str, str]) -> None:
    """Warns of mistyped sync keys. Keys of other components (writers, for example) are checked there."""
    Options({key: value for key, value in flags.items() if key.startswith(_SYNC_KEYS)}).check()


def _chosen(main: EntryCatalog, options: Options, name: str | None) -> tuple[Target, ...]:
    from skep_catalog.addresses import is_of_glue
    from skep_sync.options import SyncOptions
    from skep_sync.targets import targets_of

    targets = targets_of(options, in_glue=is_of_glue(main))
    for target in targets:
        SyncOptions.of(target.options)  # a value that can't be parsed is wrong usage, not a failed sync
    chosen = tuple(target for target in targets if name in (None, target.name))
    if not chosen:
        known = ", ".join(target.name for target in targets)
        raise InputError(f"there is no target {name}; there are: {known}", option="--target", found=name)
    return chosen
