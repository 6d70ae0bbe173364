"""Entries as they were before a sync changed them: JSON files below the table's `.hoodie/.skep/sync`.

They lie with the table, where each later sync finds them. An alteration that only moves the markers keeps none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from skep_catalog.entities import Column, StorageDescriptor, TableEntry
from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import CorruptFileError
from skep_format.escaping import escape
from skep_format.storage import Storage

FOLDER: Final = ".hoodie/.skep/sync"
_KEPT: Final = 20  # of each entry


@dataclass(frozen=True, slots=True)
class Backup:
    """One entry of one metastore as it was at `time`. `id` names it among its table's backups, and sorts by time."""

    id: str
    time: str
    metastore: str
    table: TableEntry

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "time": self.time, "metastore": self.metastore, "entry": self.table.full_name}


def keep(storage: Storage, metastore: str, table: TableEntry) -> Backup:
    """Writes the entry down, and forgets the oldest of its copies beyond the last twenty."""
    now = SYSTEM_CLOCK.now()
    identity = f"{escape(table.full_name)}-{now:%Y%m%d%H%M%S%f}"
    backup = Backup(identity, now.isoformat(timespec="milliseconds"), metastore, replace(table, origin=None))
    text = json.dumps({"time": backup.time, "metastore": metastore, "table": _to_json(table)}, indent=1)
    storage.create_exclusive(f"{FOLDER}/{identity}.json", text.encode())
    for name in _names(storage, table.full_name)[:-_KEPT]:
        storage.delete(f"{FOLDER}/{name}.json")
    return backup


def backups(storage: Storage, metastore: str | None = None) -> list[Backup]:
    """The copies of all entries, of one metastore or of any, oldest first."""
    found = [_read(storage, name) for name in _names(storage, None)]
    return sorted(
        (one for one in found if metastore is None or _server(one.metastore) == _server(metastore)),
        key=lambda one: (one.time, one.id),
    )


def restored(backup: Backup, actual: TableEntry | None) -> TableEntry:
    """The entry as it is to be written: columns, classes, serde, location and parameters of the copy, over what the
    server keeps for itself in the present entry."""
    old = backup.table
    if actual is None:
        return old
    own = {key: value for key, value in actual.parameters.items() if key.startswith("transient_")}
    parameters = {key: value for key, value in old.parameters.items() if not key.startswith("transient_")}
    return replace(
        actual,
        storage=old.storage,
        partition_keys=old.partition_keys,
        parameters={**parameters, **own},
        table_type=old.table_type,
        owner=old.owner,
    )


def _server(uri: str) -> str:
    """An embedded metastore has another loopback port at each start."""
    return re.sub(r"//(127\.0\.0\.1|localhost):\d+", "//loopback", uri)


def _names(storage: Storage, entry: str | None) -> list[str]:
    names = [file.name.removesuffix(".json") for file in storage.list_prefix(FOLDER) if file.name.endswith(".json")]
    return sorted(name for name in names if entry is None or name.rpartition("-")[0] == escape(entry))


def _to_json(table: TableEntry) -> dict[str, Any]:
    return asdict(replace(table, origin=None)) | {"origin": None}


def _read(storage: Storage, name: str) -> Backup:
    path = f"{FOLDER}/{name}.json"
    try:
        record = json.loads(storage.read(path))
        return Backup(name, record["time"], record["metastore"], _table(record["table"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} is no copy of a metastore entry: {error!r}", path=path) from error


def _table(record: Mapping[str, Any]) -> TableEntry:
    storage = dict(record["storage"])
    storage["columns"] = _columns(storage["columns"])
    storage["bucket_columns"] = tuple(storage["bucket_columns"])
    return TableEntry(
        **{
            **record,
            "storage": StorageDescriptor(**storage),
            "partition_keys": _columns(record["partition_keys"]),
        }
    )


def _columns(records: list[Mapping[str, Any]]) -> tuple[Column, ...]:
    return tuple(Column(**column) for column in records)
