"""Dropping a metadata table or some of its indexes: first the settings that make readers trust it (guide 16.10)."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from skep_table.metadata_table import FOLDER
from skep_table.names import META_FOLDER
from skep_table.storage import Storage
from skep_table.table import HudiTable
from skep_table.table_config import METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT, update_table_config
from skep_table.timeline.instant import Action
from skep_table.timeline.write import delete_pending

INDEX_DEFINITIONS: Final = f"{META_FOLDER}/.index_defs/index.json"


def delete_metadata_table(storage: Storage) -> None:
    """Deletes the whole metadata table of the table in `storage`."""
    update_table_config(storage, {METADATA_PARTITIONS: None, METADATA_PARTITIONS_INFLIGHT: None})
    storage.delete_folder(FOLDER)
    storage.delete(INDEX_DEFINITIONS)


def drop_indexes(table: HudiTable, kept: Collection[str]) -> None:
    """Drops the metadata partitions that are not in `kept`, those that are being built too."""
    config = table.config
    for instant in table.timeline.pending().of(Action.INDEXING):
        delete_pending(table, instant)
    left = ",".join(name for name in config.metadata_partitions if name in kept)
    update_table_config(table.storage, {METADATA_PARTITIONS: left, METADATA_PARTITIONS_INFLIGHT: ""})
    for name in table.storage.list_folder(FOLDER).folders:
        if name not in kept and name != META_FOLDER:
            table.storage.delete_folder(f"{FOLDER}/{name}")
    _drop_definitions(table.storage, kept)


def _drop_definitions(storage: Storage, kept: Collection[str]) -> None:
    try:
        stated = json.loads(storage.read(INDEX_DEFINITIONS))
    except (FileNotFoundError, ValueError):
        storage.delete(INDEX_DEFINITIONS)
        return
    left = {name: definition for name, definition in stated.get("indexDefinitions", {}).items() if name in kept}
    if left:
        storage.replace_atomic(INDEX_DEFINITIONS, json.dumps({**stated, "indexDefinitions": left}).encode())
    else:
        storage.delete(INDEX_DEFINITIONS)
