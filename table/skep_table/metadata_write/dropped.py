"""The indexes that are missing and that the next write makes: dropped ones to be rebuilt, and those of a new table.

The table's settings name them meanwhile. Dropped ones are named by the update that has readers trust the metadata
table no more, until they are there: a process that dies between leaves them to the next writer. Hudi keeps a property
that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from skep_format.errors import FormatError
from skep_format.table_config import TableConfig
from skep_format.table_config.keys import PROPERTIES_PATH
from skep_table.metadata_table.definitions import IndexDefinition, parsed_definition
from skep_table.metadata_write.definitions import printed_definition

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
        raise FormatError(
            f"table {config.name}: {DROPPED_INDEXES} in {PROPERTIES_PATH} can't be read",
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
