"""The lock of a table: the provider that the options name, with the metastore's among them."""

from __future__ import annotations

from collections.abc import Callable

from skep.base.names import TableName
from skep_catalog.catalogs import EntryCatalog
from skep_format.errors import OptionError
from skep_format.options import Options
from skep_format.storage import Storage
from skep_table.commit.options import CONCURRENCY_MODE, Concurrency
from skep_table.events import NO_EVENTS, Events
from skep_table.lock import Lock
from skep_table.locks.options import (
    HEARTBEAT_MILLISECONDS,
    LOCK_PROVIDER,
    METASTORE_DATABASE,
    METASTORE_TABLE,
    METASTORE_URIS,
)
from skep_table.locks.providers import LockRequest, make_lock
from skep_table.table import HudiTable

_BEAT_SECONDS = 15.0


def lock_of(
    storage: Storage,
    name: TableName,
    options: Options,
    *,
    metastore: EntryCatalog | None = None,
    default: str = "process",
    purpose: str | None = "write",
    events: Events = NO_EVENTS,
) -> Lock:
    """A new lock object for one holder. `metastore` is the client of the lake that the table is in.

    OptionError for a provider that is unknown, or lacks what it needs.
    """
    request = LockRequest(storage, name.name, options, {"purpose": purpose, "events": events})

    def of_metastore(request: LockRequest) -> Lock:
        from skep_catalog.addresses import catalog_at
        from skep_catalog.lock import HmsLock, client_with_locks
        from skep_sync.options import URIS as SYNC_URIS

        uris, client = request.options.value(METASTORE_URIS), metastore
        if not uris and client is None:
            uris = request.options.value(SYNC_URIS)
        if uris:
            client = catalog_at(uris, request.options)
        if client is None:
            raise OptionError(
                f"the lock provider {request.options.value(LOCK_PROVIDER)} needs {METASTORE_URIS.key}"
                f" or {SYNC_URIS.key}",
                option=METASTORE_URIS.key,
            )
        beat = request.options.value(HEARTBEAT_MILLISECONDS) / 1000
        return HmsLock(
            client_with_locks(client),
            request.options.value(METASTORE_DATABASE) or name.database,
            request.options.value(METASTORE_TABLE) or name.name,
            heartbeat_seconds=beat if request.options.is_set(HEARTBEAT_MILLISECONDS) else _BEAT_SECONDS,
            **request.terms,
        )

    return make_lock(request, default, {"metastore": of_metastore})


def checked(make: Callable[[Options], Lock], options: Options) -> Callable[[Options], Lock]:
    """Refuses options that make no lock before any work is done for it."""
    make(options)
    return make


def lock_by_path(table: HudiTable, options: Options, *, purpose: str | None = "write") -> Lock:
    """The lock of a table that was opened by its path: one between threads, unless the options name a provider.

    OptionError when they ask for several writers, and for no provider: the others would not see such a lock.
    """
    if Concurrency.of(options).is_shared and not options.is_set(LOCK_PROVIDER):
        raise OptionError(
            f"{CONCURRENCY_MODE.key}={options.value(CONCURRENCY_MODE).value} needs {LOCK_PROVIDER.key}",
            hint="one that all writers of the table share; storage needs no server",
            option=LOCK_PROVIDER.key,
        )
    name = TableName((table.config.database or "default").lower(), table.config.name.lower())
    return lock_of(table.storage, name, options, purpose=purpose)
