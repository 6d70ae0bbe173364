"""`skep lock`: who holds the lock of a table, who waits; waiting, breaking, and whether a metastore's locks work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.base.names import TableName
from skep.cli.opened import Given
from skep.cli.output import FAILED, Output, OutputOption, iso_time, print_rows
from skep.cli.scope import App, MetastoreOption, WarehouseOption, connected
from skep_format.errors import InputError
from skep_table.events import Events

if TYPE_CHECKING:
    from skep.base import config
    from skep_catalog.client import Metastore

_COLUMNS = (
    *("lock_id", "state", "table", "user", "host", "pid", "purpose", "agent"),
    *("acquired_at", "last_heartbeat", "heartbeat_age_seconds", "alive", "blocked_by"),
)

lock = App(no_args_is_help=True, help="The locks of tables.")


@lock.callback()
def _group() -> None:
    """The locks of tables: in the metastore, or with the provider of a table's options."""


TableArgument = Annotated[
    str | None, typer.Argument(metavar="[TABLE]", help="[database.]table, or its path; else all of the metastore.")
]
_KEYS = "A hoodie.write.lock key, as the writers have it; repeatable."
LockGiven = Annotated[Given, {"option": _KEYS}]


@lock.command()
def show(table: TableArgument = None, *, given: LockGiven) -> None:
    """Holder, host, process, since when, last heartbeat, and who waits on whom."""
    with _locks_elsewhere(table, given) as found:
        if found is not None:
            if _is_metastores(found[0]):
                given.print([_row(lock) for lock in found[0].locks()], _COLUMNS)
            else:
                from skep.cli.lock_others import COLUMNS, row_of

                given.print([row_of(lock, holder) for lock in found for holder in lock.holders()], COLUMNS)
            return
    with _connected(given.metastore, given.warehouse) as (client, settings):
        database, name = _parts(table, settings.database)
        found = [*client.locks(database, name), *_of_partitions(client, database, name)]
        if name and not found:
            _check_known(client, database or "", name)
        given.print([_row(lock) for lock in found], _COLUMNS)


@lock.command()
def wait(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="[database.]table, or its path.")],
    timeout: Annotated[float, typer.Option(help="Seconds; then exit with 1.", min=0)] = 600.0,
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help=_KEYS)] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
) -> None:
    """Take a place in the queue for the table's lock, and give the lock up as soon as it is granted."""
    from skep_table.lock import held

    with ExitStack() as stack:
        locks = stack.enter_context(_locks_elsewhere(table, Given(option, metastore, warehouse)))
        if locks is None:
            client, settings = stack.enter_context(_connected(metastore, warehouse))
            from skep_catalog.lock import HmsLock

            database, name = _parts(table, settings.database)
            _check_known(client, database or "", name or "")
            locks = [HmsLock(client, database or "", name or "", purpose="skep lock wait", events=Events())]
        for lock in locks:
            lock.events.listen(_print_wait())
            with held(lock, timeout):
                pass
    typer.echo(f"the lock of {table} was free", err=True)


@lock.command("break")
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
    with _locks_elsewhere(table, given) as found:
        if found is not None and _is_metastores(found[0]):
            _break_in(found[0].metastore, lock_id, given.output, force=force)
            return
        if found is not None:
            from skep.cli.lock_others import COLUMNS, row_of
            from skep_table.locks.holders import break_held

            ours = [lock for lock in found if any(each.lock_id == lock_id for each in lock.holders())]
            lock = (ours or found)[0]
            _broken(row_of(lock, break_held(lock, lock_id, force=force)), COLUMNS, given.output, forced=force)
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


@contextmanager
def _locks_elsewhere(table: str | None, given: Given) -> Iterator[list[Any] | None]:
    """The locks that the writers of a table take, where these are not in the metastore by its name; else None."""
    if table is None:
        yield None
        return
    from skep.cli.lock_others import is_elsewhere, locks_of

    if not is_elsewhere(table, given):
        yield None
        return
    with locks_of(table, given) as found:
        yield found


@contextmanager
def _connected(metastore: str | None, warehouse: str | None) -> Iterator[tuple[Metastore, config.Settings]]:
    """As `connected`; UnsupportedError where the metastore is one without locks."""
    with connected(metastore, warehouse) as (client, settings):
        from skep_catalog.lock import client_with_locks

        yield client_with_locks(client), settings


def _is_metastores(lock: object) -> bool:
    from skep_catalog.lock import HmsLock

    return isinstance(lock, HmsLock)


@lock.command()
def doctor(
    metastore: MetastoreOption = None, warehouse: WarehouseOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Check whether the locks of this metastore work. Exits with 1 when they do not."""
    with _connected(metastore, warehouse) as (client, _):
        from skep_catalog.lock_care import examine_locks

        findings = examine_locks(client)
        rows = [
            (one.what, "ok", one.found, "") if one.well else (one.what, "bad", one.found, one.hint or "")
            for one in findings
        ]
        print_rows(rows, output, ("what", "state", "found", "hint"))
        if not all(one.well for one in findings):
            raise typer.Exit(FAILED)


def _parts(table: str | None, default: str) -> tuple[str | None, str | None]:
    if table is None:
        return None, None
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
