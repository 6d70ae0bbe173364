"""Definitions of indexes, which tables from version 8 on keep beside the metadata table (format guide 16.8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from skep_table.errors import FormatError
from skep_table.names import META_FOLDER
from skep_table.storage import Storage

INDEX_DEFINITIONS: Final = f"{META_FOLDER}/.index_defs/index.json"
"""Where the definitions are, relative to the table, unless its settings have another place."""
INDEX_DEFINITIONS_PROPERTY: Final = "hoodie.table.index.defs.path"

_DEFINITIONS: Final = "indexDefinitions"


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One index, by the names of Hudi. `version` is None in table version 8, where no definition states one."""

    name: str
    index_type: str
    function: str
    source_fields: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None


def read_definitions(storage: Storage, path: str = INDEX_DEFINITIONS) -> Mapping[str, IndexDefinition]:
    """The definitions by metadata partition; none where there is no such file. FormatError for a damaged one."""
    try:
        data = storage.read(path)
    except FileNotFoundError:
        return {}
    try:
        stated = json.loads(data)[_DEFINITIONS]
        return {name: _definition(name, each) for name, each in stated.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{path}: not the definitions of indexes: {error!r}", path=path) from error


def _definition(name: str, stated: Mapping[str, Any]) -> IndexDefinition:
    return IndexDefinition(
        stated.get("indexName") or name,
        stated.get("indexType") or "",
        stated.get("indexFunction") or "",
        tuple(stated.get("sourceFields") or ()),
        dict(stated.get("indexOptions") or {}),
        stated.get("version"),
    )
