"""Definitions of indexes, which tables from version 8 on keep beside the metadata table (format guide 16.8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from skep_format.errors import FormatError
from skep_format.names import META_FOLDER
from skep_format.storage import Storage
from skep_format.table_config import TableConfig

INDEX_DEFINITIONS: Final = f"{META_FOLDER}/.index_defs/index.json"
"""Where the definitions are, relative to the table, unless its settings have another place."""
INDEX_DEFINITIONS_PROPERTY: Final = "hoodie.table.index.defs.path"

DEFINITIONS: Final = "indexDefinitions"
SHARDED_BY_VALUE: Final = "V2"
"""The version of a secondary index whose file groups are chosen by the value alone."""


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One index, by the names of Hudi. `version` is None in table version 8, where no definition states one."""

    name: str
    index_type: str
    function: str
    source_fields: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None

    @property
    def is_by_value(self) -> bool:
        """Of a secondary index: whether all keys of a value are in one file group."""
        return self.version == SHARDED_BY_VALUE


def definitions_path(config: TableConfig) -> str:
    """Where a table's definitions are, relative to the table."""
    return config.raw.get(INDEX_DEFINITIONS_PROPERTY) or INDEX_DEFINITIONS


def read_definitions(storage: Storage, path: str = INDEX_DEFINITIONS) -> Mapping[str, IndexDefinition]:
    """The definitions by metadata partition; none where there is no such file. FormatError for a damaged one."""
    stated = definitions_document(storage, path).get(DEFINITIONS, {})
    return {name: parsed_definition(name, each, path) for name, each in stated.items()}


def definitions_document(storage: Storage, path: str) -> dict[str, Any]:
    """The file as it is, with what only others know in it; empty where there is none. FormatError as above."""
    try:
        data = storage.read(path)
    except FileNotFoundError:
        return {}
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(storage, path, "JSON") from error
    if not isinstance(document, dict) or not isinstance(document.get(DEFINITIONS, {}), dict):
        raise _damaged(storage, path, f"an object {DEFINITIONS}")
    return document


def parsed_definition(name: str, stated: Any, path: str) -> IndexDefinition:
    """The definition of a partition as the file `path` states it. FormatError where that is none."""
    try:
        return IndexDefinition(
            _text(stated.get("indexName") or name),
            _text(stated.get("indexType") or ""),
            _text(stated.get("indexFunction") or ""),
            tuple(map(_text, stated.get("sourceFields") or ())),
            {_text(key): _text(value) for key, value in (stated.get("indexOptions") or {}).items()},
            None if stated.get("version") is None else _text(stated["version"]),
        )
    except (AttributeError, TypeError) as error:
        raise FormatError.of_file(
            path,
            f"the definition of index {name} can't be read",
            index=name,
            found=repr(stated)[:200],
            expected="indexName, indexType, indexFunction, sourceFields, indexOptions and version",
        ) from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _damaged(storage: Storage, path: str, expected: str) -> FormatError:
    return FormatError(f"{storage.root}/{path}: the definitions of indexes can't be read", path=path, expected=expected)
