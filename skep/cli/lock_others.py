"""`skep lock` where the lock is not in the metastore: of tables whose options name another provider, or by path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from skep.base.names import is_path
from skep.cli.opened import Given
from skep.cli.output import iso_time
from skep.cli.scope import configured, settings_of
from skep_format.errors import InputError
from skep_format.options import Options
from skep_table.events import Events
from skep_table.locks.holders import Holder, Inspected

COLUMNS = (
    *("lock_id", "state", "lock", "host", "pid", "purpose", "agent"),
    *("last_heartbeat", "heartbeat_age_seconds", "valid_until", "alive"),
)


def is_elsewhere(table: str, given: Given) -> bool:
    """Whether the lock of a table is with the provider of its options, or in its folder, not in the metastore."""
    from skep_table.locks.options import LOCK_PROVIDER
    from skep_table.locks.providers import provider_name

    options = configured(given.metastore, given.warehouse).options
    named = Options({**options, **settings_of(given.option)}).value(LOCK_PROVIDER)
    return is_path(table) or provider_name(named or "metastore") != "metastore"


@contextmanager
def locks_of(target: str, given: Given) -> Iterator[list[Any]]:
    """The lock that the table's writers take. By path, without a provider named, those in the table's own folder."""
    from skep_catalog.lock import HmsLock
    from skep_format.storage import LocalStorage
    from skep_format.storage.versioned import VersionedStorage
    from skep_table.lock import unguarded
    from skep_table.locks.filesystem import FileSystemLock
    from skep_table.locks.storage import StorageLock

    with given.opened(target) as table:
        lock, storage = unguarded(table.services().lock(table.options)), table.hudi.storage
        if isinstance(lock, Inspected | HmsLock):
            yield [lock]
            return
        found: list[Inspected] = []
        if isinstance(storage, VersionedStorage):
            found.append(StorageLock(storage, purpose="skep lock", events=Events()))
        if isinstance(storage, LocalStorage):
            found.append(FileSystemLock(storage, purpose="skep lock", events=Events()))
        if not found:
            raise InputError(
                f"the writers of {target} share no lock that could be shown",
                hint="name it, with --option hoodie.write.lock.provider=…",
            )
        yield found


def row_of(lock: Inspected, holder: Holder) -> dict[str, Any]:
    """A row of `skep lock show`."""
    import time

    facts, sign = holder.facts, holder.last_sign
    return {
        "lock_id": holder.lock_id,
        "state": "acquired" if holder.held else "waiting",
        "lock": lock.name,
        "host": facts.get("host"),
        "pid": facts.get("pid"),
        "purpose": facts.get("purpose"),
        "agent": None if facts else holder.text or None,
        "last_heartbeat": iso_time(sign and sign * 1000),
        "heartbeat_age_seconds": None if sign is None else round(max(0.0, time.time() - sign), 1),
        "valid_until": iso_time(holder.until and holder.until * 1000),
        "alive": holder.may_be_alive,
    }
