"""`skep lock`: who holds the metastore's lock of a table, and who waits."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any

import typer

from skep.cli.metastore import MetastoreOption, WarehouseOption, connected
from skep.cli.output import Output, OutputOption, print_rows, reported

_COLUMNS = (
    *("lock_id", "state", "table", "user", "host", "pid", "purpose", "agent"),
    *("acquired_at", "last_heartbeat", "heartbeat_age_seconds", "blocked_by"),
)

app = typer.Typer(no_args_is_help=True, help="The metastore's locks.")


@app.callback()
def _group() -> None:
    """The metastore's locks."""


@app.command()
def show(
    table: Annotated[str | None, typer.Argument(metavar="[DATABASE.TABLE]", help="Else all locks.")] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Holder, host, process, since when, last heartbeat, and who waits on whom."""
    with reported(), connected(metastore, warehouse) as (client, settings):
        database, _, name = (table or "").rpartition(".")
        locks = client.locks((database or settings.database) if table else None, name or None)
        now_ms = datetime.now(timezone.utc).timestamp() * 1000
        print_rows([_row(lock, now_ms) for lock in locks], output, _COLUMNS)


def _row(lock: Any, now_ms: float) -> dict[str, Any]:
    from skep_catalog.lock import facts_of

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
        "heartbeat_age_seconds": round(max(0.0, now_ms - lock.last_heartbeat_ms) / 1000, 1),
        "blocked_by": lock.blocked_by,
    }


def _moment(epoch_ms: int | None) -> str | None:
    if not epoch_ms:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="lock")
