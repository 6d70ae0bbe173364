"""`skep lock`: who holds the metastore's lock of a table, who waits; waiting, breaking, and whether locks work."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any

import typer

from skep.cli.metastore import MetastoreOption, WarehouseOption, connected
from skep.cli.output import FAILED, Output, OutputOption, print_rows, reported

_COLUMNS = (
    *("lock_id", "state", "table", "user", "host", "pid", "purpose", "agent"),
    *("acquired_at", "last_heartbeat", "heartbeat_age_seconds", "alive", "blocked_by"),
)

app = typer.Typer(no_args_is_help=True, help="The metastore's locks.")


@app.callback()
def _group() -> None:
    """The metastore's locks."""


TableArgument = Annotated[str | None, typer.Argument(metavar="[DATABASE.TABLE]", help="Else all locks.")]


@app.command()
def show(
    table: TableArgument = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Holder, host, process, since when, last heartbeat, and who waits on whom."""
    with reported(), connected(metastore, warehouse) as (client, settings):
        database, name = _parts(table, settings.database)
        print_rows([_row(lock) for lock in client.locks(database, name)], output, _COLUMNS)


@app.command()
def wait(
    table: Annotated[str, typer.Argument(metavar="DATABASE.TABLE")],
    timeout: Annotated[float, typer.Option(help="Seconds; then exit with 1.", min=0)] = 600.0,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
) -> None:
    """Take a place in the queue for the table's lock, and give the lock up as soon as it is granted."""
    with reported(), connected(metastore, warehouse) as (client, settings):
        from skep_catalog.lock import HmsLock
        from skep_table.events import Events
        from skep_table.lock import held

        database, name = _parts(table, settings.database)
        lock = HmsLock(client, database or "", name or "", purpose="skep lock wait", events=Events(_tell_wait()))
        with held(lock, timeout):
            pass
        typer.echo(f"the lock of {database}.{name} was free", err=True)


@app.command("break")
def break_(
    lock_id: Annotated[int, typer.Option("--lock-id", help="As `skep lock show` prints it.")],
    force: Annotated[bool, typer.Option("--force", help="Also when its owner may be alive: its commit fails.")] = False,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a lock from its owner. Refused while the owner may be alive; each is noted in the audit file."""
    with reported(), connected(metastore, warehouse) as (client, _):
        from skep.audit import note
        from skep_catalog.lock_care import break_lock

        lock = break_lock(client, lock_id, force=force)
        row = _row(lock)
        file = note("lock.broken", metastore=client.uri, forced=force, **row)
        print_rows([row], output, _COLUMNS)
        typer.echo(f"lock {lock_id} is broken; noted in {file}", err=True)


@app.command()
def doctor(
    metastore: MetastoreOption = None, warehouse: WarehouseOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Can the locks of this metastore be relied upon? Exits with 1 when not."""
    with reported(), connected(metastore, warehouse) as (client, _):
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
    database, _, name = table.lower().rpartition(".")
    return database or default, name


def _tell_wait() -> Any:
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
        "acquired_at": _moment(lock.acquired_at_ms),
        "last_heartbeat": _moment(lock.last_heartbeat_ms),
        "heartbeat_age_seconds": round(silent_seconds(lock), 1),
        "alive": may_live(lock),
        "blocked_by": lock.blocked_by,
    }


def _moment(epoch_ms: int | None) -> str | None:
    if not epoch_ms:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="lock")
