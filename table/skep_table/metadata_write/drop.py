"""Dropping a metadata table or some of its indexes: first the settings that make readers trust it (guide 16.10).

The settings name the indexes that are missing and that the next write makes: dropped ones to be rebuilt, and those of a
new table. Dropped ones are named by the update that has readers trust the metadata table no more, until they are there:
a process that dies between leaves them to the next writer. Hudi keeps a property that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

from skep_format.errors import FormatError
from skep_format.names import META_FOLDER
from skep_format.storage import Storage
from skep_format.table_config import METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT, TableConfig, update_table_config
from skep_format.table_config.keys import PROPERTIES_PATH
from skep_format.timeline.instant import Action, State
from skep_format.timeline.write import delete_pending
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.definitions import (
    INDEX_DEFINITIONS,
    IndexDefinition,
    definitions_path,
    parsed_definition,
)
from skep_table.metadata_table.partitions import RECORD_INDEX, SECONDARY
from skep_table.metadata_write.definitions import definitions_of, printed_definition, write_definitions
from skep_table.metadata_write.own import building_partitions, planned_partitions
from skep_table.table import HudiTable

Definitions = Mapping[str, IndexDefinition | None]
"""Partitions of a metadata table, and how those are defined that the options of a writer do not define."""

DROPPED_INDEXES: Final = "skep.metadata.dropped.indexes"


def dropped_indexes(config: TableConfig) -> Definitions:
    """What is to be rebuilt. FormatError for a damaged text."""
    text = config.raw.get(DROPPED_INDEXES)
    if not text:
        return {}
    try:
        stated = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError.of_table(
            config.name,
            f"{DROPPED_INDEXES} in {PROPERTIES_PATH} can't be read",
            hint="without this line the indexes of the writer's options are made",
            path=PROPERTIES_PATH,
            found=text[:200],
            expected="definitions of indexes by their names, as JSON",
        ) from error
    return {
        name: None if each is None else parsed_definition(name, each, PROPERTIES_PATH) for name, each in stated.items()
    }


def naming_dropped(indexes: Definitions) -> dict[str, str | None]:
    """The change of the settings that has them name these, or none."""
    stated = {name: None if each is None else printed_definition(each) for name, each in sorted(indexes.items())}
    return {DROPPED_INDEXES: json.dumps(stated, separators=(",", ":")) if stated else None}


NOTHING: Final[Definitions] = {}


def delete_metadata_table(storage: Storage, again: Definitions = NOTHING) -> None:
    """Deletes the whole metadata table of the table in `storage`. The settings name what is to be made `again`."""
    named = {METADATA_PARTITIONS: None, METADATA_PARTITIONS_INFLIGHT: None, **naming_dropped(again)}
    update_table_config(storage, named)
    storage.delete_folder(FOLDER)
    storage.delete(INDEX_DEFINITIONS)


def drop_indexes(table: HudiTable, kept: Collection[str], again: Definitions | None = None) -> None:
    """Drops the metadata partitions that are not in `kept`, those that are being built too.

    A plan that an executor has started stays until that ends: until then nobody is to make what it may still write to.
    Secondary indexes go with the record index: they lead to it, and are kept with its entries. The settings name what
    is to be made `again` from now on, if that is given.
    """
    config = table.config
    if RECORD_INDEX not in kept:
        kept = set(kept).difference(SECONDARY.among(kept))
    left = [name for name in config.metadata_partitions if name in kept]
    building = [name for name in building_partitions(config) if name in kept]
    named: dict[str, str | None] = {
        METADATA_PARTITIONS: ",".join(left),
        METADATA_PARTITIONS_INFLIGHT: ",".join(building),
    }
    update_table_config(table.storage, named if again is None else {**named, **naming_dropped(again)})
    for instant in table.timeline.pending().of(Action.INDEXING):
        if instant.state is State.REQUESTED and not set(planned_partitions(table, instant)) & {*left, *building}:
            delete_pending(table, instant)
    for name in table.storage.list_folder(FOLDER).folders:
        if name not in kept and name != META_FOLDER:
            table.storage.delete_folder(f"{FOLDER}/{name}")
    path = definitions_path(table.config)
    try:
        defined = definitions_of(table)
    except FormatError:
        table.storage.delete(path)
        return
    write_definitions(table.storage, {name: each for name, each in defined.items() if name in kept}, path)
