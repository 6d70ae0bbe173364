"""`skep ls`, `show` and `drop`: the tables of the metastore."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.output import Output, OutputOption, print_rows
from skep.cli.quick import arrow_alone
from skep.cli.scope import MetastoreOption, WarehouseOption, configured, connected, own_metastore
from skep_format.errors import InputError

if TYPE_CHECKING:
    from skep.lake import Lake


@contextmanager
def lake(
    metastore: str | None, warehouse: str | None, *, begin: bool = True, only_reads: bool = False
) -> Iterator[Lake]:
    """The lake that flags and settings select. `begin`: the warehouse's own metastore is started at once, beside the
    imports; else when it is needed. `only_reads`: see `own_metastore`."""
    settings = configured(metastore, warehouse)
    with own_metastore(settings, begin=begin, only_reads=only_reads) as embedded:
        arrow_alone()
        from skep.lake import lake_of

        with lake_of(settings, embedded) as opened:
            yield opened


def ls(
    database: Annotated[str | None, typer.Argument(help="Only this database.")] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the Hudi tables of the metastore."""
    with connected(metastore, warehouse, only_reads=True) as (client, _):
        from skep.metastore.entries import hudi_entries  # beside the start of the metastore

        arrow_alone()
        rows = [
            (entry.full_name, entry.storage.location, entry.parameters.get("last_commit_time_sync"))
            for entry in hudi_entries(client, database)
        ]
        print_rows(rows, output, ("table", "location", "synced_to"))


def drop(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="[database.]table in the metastore.")],
    purge: Annotated[bool, typer.Option("--purge", help="Delete its files, too, which can't be undone.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --purge: do not ask.")] = False,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
) -> None:
    """Take a table out of the metastore, its views too. Its files stay, unless --purge deletes them."""
    with lake(metastore, warehouse) as found:
        location = found.table(table).path
        if purge and not yes:
            if not sys.stdin.isatty():
                raise InputError("--purge deletes the files of the table", option="--purge", hint="--yes allows it")
            typer.confirm(f"Delete {location}?", abort=True, err=True)
        found.drop_table(table, purge=purge)
        typer.echo(f"dropped {table}; {'deleted' if purge else 'its files stay at'} {location}", err=True)


def show(
    table: TableTarget,
    count: Annotated[bool, typer.Option("--count", help="Its number of rows, too: each of its files is read.")] = False,
    *,
    given: Given,
) -> None:
    """Print what a table is: where, keys, columns, last commits, and its views where the metastore knows it."""
    with given.tables(table, only_reads=True) as chosen:
        (opened,) = chosen.openers.values()
        one = opened()
        hudi = one.hudi
        config = hudi.config
        facts: dict[str, Any] = {
            "table": one.name,
            "path": one.path,
            "type": config.type.value,
            "table version": config.version,
            "record key": ", ".join(config.record_key_fields) or "none",
            "ordering": ", ".join(config.ordering_fields) or "none: the last write wins",
            "partitioned by": ", ".join(config.partition_fields) or "nothing",
            "columns": ", ".join(hudi.schema().names()),
            **(_registered(chosen.lake, one.name) if chosen.lake is not None else {}),
            **({"rows": one.read().count()} if count else {}),
            **{f"commit {one.instant}": _facts_of(one) for one in one.history(5)},
        }
        given.print([(key, str(value)) for key, value in facts.items()], ("fact", "value"))


def _registered(lake: Lake, table: str) -> dict[str, Any]:
    """The metastore's properties of a table; none for one that it does not have."""
    database, _, name = table.rpartition(".")
    entry = lake.metastore.find_table(database, name) if database else None
    if entry is None:
        return {}
    views = [view for view in ("", "_ro", "_rt") if lake.metastore.find_table(database, name + view)]
    return {
        "registered as": ", ".join(name + view for view in views),
        "owner": entry.owner or "nobody",
        "synced to": entry.parameters.get("last_commit_time_sync", "never"),
        "partitions": len(lake.metastore.partition_names(database, name)) if entry.partition_keys else "none",
    }


def _facts_of(commit: Any) -> str:
    counts = f"{commit.inserted} inserted, {commit.updated} updated, {commit.deleted} deleted"
    written = f"{commit.rows} rows and {commit.bytes} bytes in {commit.files} files"
    return f"{commit.time:%Y-%m-%d %H:%M:%S} UTC, {commit.operation or commit.action}: {counts}; {written}"
