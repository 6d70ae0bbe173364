"""`skep lock`: who holds the lock of a table, who waits; waiting, breaking, and whether a metastore's locks work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import Given
from skep.cli.output import FAILED, Output, OutputOption, iso_time, print_rows
from skep.cli.scope import App, MetastoreOption, WarehouseOption, connected

if TYPE_CHECKING:
    from skep.base import config
    from skep_catalog.client import Metastore

_COLUMNS = (
    *("lock_id", "state", "table", "user", "host", "pid", "purpose", "agent"),
    *("acquired_at", "last_heartbeat", "heartbeat_age_seconds", "alive", "blocked_by"),
)

app = App(no_args_is_help=True, help="The locks of tables.")


@app.callback()
def _group() -> None:
    """The locks of tables: in the metastore, or with the provider of a table's options."""


TableArgument = Annotated[
    str | None, typer.Argument(metavar="[TABLE]", help="[database.]table, or its path; else all of the metastore.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="A hoodie.write.lock key, as the writers have it; repeatable."),
]


@dataclass(frozen=True, slots=True)
class LockGiven(Given):
    """As of other commands, with the options of the lock."""

    option: Settings = None


@app.command()
def show(table: TableArgument = None, *, given: LockGiven) -> None:
    """Holder, host, process, since when, last heartbeat, and who waits on whom."""
    if table is not None and _elsewhere(table, given.option, given.metastore, given.warehouse):
        from skep.cli.lock_others import COLUMNS, locks_of, row_of

        with locks_of(table, given.option, given.metastore, given.warehouse) as found:
            if not _is_metastores(found[0]):
                rows = [row_of(lock, holder) for lock in found for holder in lock.holders()]
                given.print(rows, COLUMNS)
                return
            given.print([_row(lock) for lock in found[0].locks()], _COLUMNS)
            return
    with _connected(given.metastore, given.warehouse) as (client, settings):
        database, name = _parts(table, settings.database)
        found = [*client.locks(database, name), *_of_partitions(client, database, name)]
        if name and not found:
            _check_known(client, database or "", name)
        given.print([_row(lock) for lock in found], _COLUMNS)


@app.command()
def wait(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="[database.]table, or its path.")],
    timeout: Annotated[float, typer.Option(help="Seconds; then exit with 1.", min=0)] = 600.0,
    option: Settings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
) -> None:
    """Take a place in the queue for the table's lock, and give the lock up as soon as it is granted."""
    from skep_table.lock import held

    if _elsewhere(table, option, metastore, warehouse):
        from skep.cli.lock_others import locks_of

        with locks_of(table, option, metastore, warehouse) as found:
            for lock in found:
                lock.events.listen(_print_wait())
                with held(lock, timeout):
                    pass
    else:
        with _connected(metastore, warehouse) as (client, settings):
            from skep_catalog.lock import HmsLock
            from skep_table.events import Events

            database, name = _parts(table, settings.database)
            _check_known(client, database or "", name or "")
            events = Events(_print_wait())
            lock = HmsLock(client, database or "", name or "", purpose="skep lock wait", events=events)
            with held(lock, timeout):
                pass
    typer.echo(f"the lock of {table} was free", err=True)


@app.command("break")
def break_(
    lock_id: Annotated[str, typer.Option("--lock-id", help="As `skep lock show` prints it.")],
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Whose lock it is, where that is not the metastore's.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also when its owner may be alive: its commit fails.")] = False,
    *,
    given: LockGiven,
) -> None:
    """Take a lock from its owner. Refused while the owner may be active; each is recorded in the audit file."""
    if table is not None and _elsewhere(table, given.option, given.metastore, given.warehouse):
        from skep.cli.lock_others import COLUMNS, locks_of, row_of
        from skep_table.locks.holders import break_held

        with locks_of(table, given.option, given.metastore, given.warehouse) as found:
            if not _is_metastores(found[0]):
                ours = [lock for lock in found if any(each.lock_id == lock_id for each in lock.holders())]
                lock = (ours or found)[0]
                row = row_of(lock, break_held(lock, lock_id, force=force))
                _broken(row, COLUMNS, given.output, forced=force)
                return
            _break_in(found[0].metastore, lock_id, given.output, force=force)
            return
    with _connected(given.metastore, given.warehouse) as (client, _):
        _break_in(client, lock_id, given.output, force=force)


def _of_partitions(client: Any, database: str | None, name: str | None) -> list[Any]:
    """The locks of a table's partitions, which are on a name of their own."""
    from skep_catalog.lock import PARTITIONS_SUFFIX

    return client.locks(database, name + PARTITIONS_SUFFIX) if name else []


def _check_known(client: Any, database: str, name: str) -> None:
    """NoSuchTableError for a table that is not in the metastore and that nobody has a lock on: a name mistyped."""
    if not client.locks(database, name):
        client.table(database, name)


def _break_in(client: Any, lock_id: str, output: Output, *, force: bool) -> None:
    from skep_catalog.lock_care import break_lock
    from skep_format.errors import InputError

    if not lock_id.isdecimal():
        raise InputError(
            f"locks of a metastore have numbers, not {lock_id!r}",
            hint="name the table before --lock-id, when its lock is elsewhere",
            found=lock_id,
        )
    row = _row(break_lock(client, int(lock_id), force=force))
    _broken({"metastore": client.uri, **row}, _COLUMNS, output, forced=force)


def _broken(row: dict[str, Any], columns: tuple[str, ...], output: Output, *, forced: bool) -> None:
    from skep.base.audit import note

    file = note("lock.broken", forced=forced, **row)
    print_rows([{name: row[name] for name in columns}], output, columns)
    typer.echo(f"lock {row['lock_id']} is broken; noted in {file}", err=True)


def _elsewhere(table: str, option: list[str] | None, metastore: str | None, warehouse: str | None) -> bool:
    from skep.base.config import load
    from skep.cli.lock_others import is_elsewhere

    return is_elsewhere(table, option, load({"metastore": metastore, "warehouse": warehouse}).settings.options)


@contextmanager
def _connected(metastore: str | None, warehouse: str | None) -> Iterator[tuple[Metastore, config.Settings]]:
    """As `connected`; UnsupportedError where the metastore is one without locks."""
    with connected(metastore, warehouse) as (client, settings):
        from skep_catalog.lock import client_with_locks

        yield client_with_locks(client), settings


def _is_metastores(lock: object) -> bool:
    from skep_catalog.lock import HmsLock

    return isinstance(lock, HmsLock)


@app.command()
def doctor(
    metastore: MetastoreOption = None, warehouse: WarehouseOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Check whether the locks of this metastore work. Exits with 1 when they do not."""
    with _connected(metastore, warehouse) as (client, _):
        from skep_catalog.lock_care import examine_locks

        findings = examine_locks(client)
        rows = [
            {"what": one.what, "state": "ok" if one.well else "bad", "found": one.found, "hint": _hint(one)}
            for one in findings
        ]
        print_rows(rows, output, ("what", "state", "found", "hint"))
        if not all(one.well for one in findings):
            raise typer.Exit(FAILED)


def _hint(finding: Any) -> str:
    return "" if finding.well else finding.hint or ""


def _parts(table: str | None, default: str) -> tuple[str | None, str | None]:
    if table is None:
        return None, None
    from skep.base.names import TableName

    name = TableName.parse(table, default)
    return name.database, name.name


def _print_wait() -> Any:
    """A line when the holder changes, and now and then."""
    last: dict[str, object] = {}

    def listen(event: Any) -> None:
        if event.name != "lock.waiting":
            return
        facts = {
            "holder": event.facts.get("holder"),
            "ahead": event.facts.get("ahead"),
            "turn": (event.done or 0) // 10,
        }
        if facts != last:
            last.update(facts)
            holder = facts["holder"] or "nobody yet"
            typer.echo(f"{event.done} s: held by {holder}; {facts['ahead']} before us", err=True)

    return listen


def _row(lock: Any) -> dict[str, Any]:
    from skep_catalog.lock import facts_of
    from skep_catalog.lock_care import may_live, silent_seconds

    facts = facts_of(lock)
    return {
        "lock_id": lock.lock_id,
        "state": lock.state.name.lower(),
        "table": f"{lock.database}.{lock.table}" + (f"/{lock.partition}" if lock.partition else ""),
        "user": lock.user,
        "host": lock.host,
        "pid": facts.get("pid"),
        "purpose": facts.get("purpose"),
        "agent": None if facts else lock.agent_info,
        "acquired_at": iso_time(lock.acquired_at_ms),
        "last_heartbeat": iso_time(lock.last_heartbeat_ms),
        "heartbeat_age_seconds": round(silent_seconds(lock), 1),
        "alive": may_live(lock),
        "blocked_by": lock.blocked_by,
    }


def register(parent: typer.Typer) -> None:
    """Adds the commands of this module."""
    parent.add_typer(app, name="lock")
