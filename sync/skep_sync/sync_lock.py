"""One sync of a table at a time, and one kind of error for whatever goes wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.client import Metastore
from skep_catalog.lock import HmsLock
from skep_format.errors import CatalogError, InputError, LockTimeoutError, SkepError, SyncError
from skep_table.events import Events


@contextmanager
def sync_lock(metastore: EntryCatalog, database: str, name: str, wait_seconds: float, events: Events) -> Iterator[None]:
    """One sync of a table at a time. The lock's name is not the table's own: writers and queries do not wait for it.

    Servers without lock tables grant no locks, and AWS Glue has none; there the expected marker of the alteration
    detects other syncs.
    """
    if not isinstance(metastore, Metastore):
        yield
        return
    lock = HmsLock(metastore, database, f"{name}__sync", purpose="sync", events=events)
    try:
        lock.acquire(wait_seconds)
    except LockTimeoutError:
        raise
    except CatalogError as error:
        if error.fields.get("call") != "lock" or "error" not in error.fields:
            raise
        events.emit("sync.unlocked", table=f"{database}.{name}", reason=error.message)
        yield
        return
    try:
        yield
    finally:
        lock.release()


@contextmanager
def as_sync_error(database: str, name: str, base_path: str) -> Iterator[None]:
    """Raises errors as SyncError of this table: the commits before the sync remain complete."""
    try:
        yield
    except (SyncError, InputError):
        raise
    except SkepError as error:
        raise SyncError(
            f"sync of {database}.{name} failed: {error.message}",
            hint=error.hint,
            table=f"{database}.{name}",
            path=base_path,
            cause=type(error).__name__,
        ) from error
