"""Schema-on-read: the history of a table's schema with ids, by which renamed columns are found in older files.

Hudi keeps it as JSON of its InternalSchema: the latest in a commit's extra metadata (`latest_schema`), all of them in
the files of `.hoodie/.schema/`. A file was written by the version in force at its instant; a column of the query is the
column of the file with the same id, whatever its name; a column whose id the file has not is not in it.

An id is given once: a column that is dropped and added again is another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from skep_format.errors import FormatError
from skep_format.instant_time import InstantTime
from skep_format.schema import types
from skep_format.schema.types import DataType, Field, Schema, StructType, members_of, type_text

LATEST_SCHEMA: Final = "latest_schema"
LATEST_SCHEMA_KEYS: Final = (LATEST_SCHEMA, "latestSchema")
FIRST_VERSION: Final = 0
"""The version of all files from before the first change by id."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of the schema: the id of every column by its dotted path; list elements, map keys and map values are
    steps of their own (`element`, `key`, `value`). `version_id` is the instant time of the change as a number, `max_id`
    the highest id that the table has ever given."""

    version_id: int
    ids: Mapping[str, int]
    max_id: int = -1

    @classmethod
    def parse(cls, text: str, path: str | None = None) -> SchemaVersion:
        """From the JSON of one version. FormatError when it is not one; `path` is for the error."""
        return _version(_json(text, path), path)


def parse_history(text: str, path: str | None = None) -> tuple[SchemaVersion, ...]:
    """All versions of a history file, oldest first."""
    versions = (_version(item, path) for item in _versions(text, path))
    return tuple(sorted(versions, key=lambda version: version.version_id))


def first_version(schema: Schema) -> SchemaVersion:
    """The ids that Hudi gives the columns of a table, meta columns included, when it changes them by id first."""
    return next_version(SchemaVersion(FIRST_VERSION, {}), schema, FIRST_VERSION)


def next_version(before: SchemaVersion, schema: Schema, version_id: int) -> SchemaVersion:
    """The ids of the columns of `schema`: those of `before` for columns it has, new ones for the others."""
    numbers = count(max((before.max_id, *before.ids.values())) + 1)
    ids: dict[str, int] = {}

    def number(path: str) -> None:
        known = before.ids.get(path)
        ids[path] = next(numbers) if known is None else known

    def walk(kind: DataType, path: str) -> None:
        if isinstance(kind, types.MapType):
            number(f"{path}key")
        members = members_of(kind)
        for member in members:  # those of one struct first, then what is within them
            number(f"{path}{member.name}")
        for member in members:
            walk(member.type, f"{path}{member.name}.")

    walk(StructType(schema.fields), "")
    return SchemaVersion(version_id, ids, next(numbers) - 1)


def version_document(version: SchemaVersion, schema: Schema) -> dict[str, Any]:
    """Hudi's InternalSchema of columns with their ids, as JSON."""

    def record(fields: tuple[Field, ...], path: str) -> dict[str, Any]:
        return {"type": "record", "fields": [member(field, f"{path}{field.name}") for field in fields]}

    def member(field: Field, path: str) -> dict[str, Any]:
        printed = {
            "id": version.ids[path],
            "name": field.name,
            "optional": field.nullable,
            "type": typed(field.type, f"{path}."),
        }
        return printed if field.doc is None else {**printed, "doc": field.doc}

    def typed(kind: DataType, path: str) -> Any:
        match kind:
            case StructType():
                return record(kind.fields, path)
            case types.ListType():
                return {
                    "type": "array",
                    "element_id": version.ids[f"{path}element"],
                    "element": typed(kind.element, f"{path}element."),
                    "element_optional": kind.element_nullable,
                }
            case types.MapType():
                return {
                    "type": "map",
                    "key_id": version.ids[f"{path}key"],
                    "key": "string",
                    "value_id": version.ids[f"{path}value"],
                    "value": typed(kind.value, f"{path}value."),
                    "value_optional": kind.value_nullable,
                }
        return type_text(kind, _other_text)

    return {"max_column_id": version.max_id, "version_id": version.version_id, **record(schema.fields, "")}


def with_version(history: str | None, document: Mapping[str, Any]) -> str:
    """The text of a history file with one more version, in front of the others."""
    versions = [] if history is None else _versions(history, None)
    others = [each for each in versions if _get(each, "version_id") != document["version_id"]]
    return json.dumps({"schemas": [document, *others]}, separators=(",", ":"), ensure_ascii=False)


def _other_text(kind: DataType) -> str | None:
    """Of types that have another name than in SQL."""
    match kind:
        case types.DecimalType():
            return f"decimal({kind.precision}, {kind.scale})"
        case types.FixedType():
            return f"fixed[{kind.size}]"
        case types.LongType():
            return "long"
        case types.TimestampType(utc=False):
            return "long"  # Hudi's type for local times, which it knows by Avro only
        case types.TimeType():
            return "time"
    return "uuid" if isinstance(kind, types.UuidType) else None


def version_at(history: Iterable[SchemaVersion], instant_time: InstantTime) -> SchemaVersion | None:
    """The version that a file of this instant was written with; None when it is older than the history."""
    if not instant_time.isdigit():
        return None
    at = int(instant_time)
    return max((v for v in history if v.version_id <= at), key=lambda version: version.version_id, default=None)


def source_names(file: SchemaVersion, query: SchemaVersion) -> dict[str, str | None]:
    """For `evolve.project`: the file's names that differ, by the query's dotted path; None for columns it lacks."""
    by_id = {number: path for path, number in file.ids.items()}
    names: dict[str, str | None] = {}
    for path, number in query.ids.items():
        own = path.rpartition(".")[2]
        source = by_id.get(number)
        found = None if source is None else source.rpartition(".")[2]
        if found != own:
            names[path] = found
    return names


def _json(text: str, path: str | None) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(path, "JSON") from error
    if not isinstance(document, Mapping):
        raise _broken(path, "an object")
    return document


def _versions(text: str, path: str | None) -> list[Any]:
    versions = _json(text, path).get("schemas")
    if not isinstance(versions, list):
        raise _broken(path, "a list `schemas`")
    return versions


def _version(document: Any, path: str | None) -> SchemaVersion:
    try:
        version_id = int(_get(document, "version_id"))
        ids: dict[str, int] = {}
        _walk(document, "", ids)
        max_id = max((int(document.get("max_column_id", -1)), *ids.values()))
    except (KeyError, TypeError, ValueError) as error:
        raise _broken(path, "version_id and fields with id, name and type") from error
    return SchemaVersion(version_id, ids, max_id)


def _get(node: Mapping[str, Any], key: str) -> Any:
    """Releases before 0.12 spelt the ids with a dash."""
    return node[key] if key in node else node[key.replace("_", "-")]


def _walk(node: Any, path: str, ids: dict[str, int]) -> None:
    if not isinstance(node, Mapping):
        return
    kind = node["type"]
    if kind == "record":
        for field in node["fields"]:
            place = f"{path}{field['name']}"
            ids[place] = int(field["id"])
            _walk(field["type"], f"{place}.", ids)
    elif kind == "array":
        ids[f"{path}element"] = int(_get(node, "element_id"))
        _walk(node["element"], f"{path}element.", ids)
    elif kind == "map":
        ids[f"{path}key"] = int(_get(node, "key_id"))
        ids[f"{path}value"] = int(_get(node, "value_id"))
        _walk(node["value"], f"{path}value.", ids)


def _broken(path: str | None, expected: str) -> FormatError:
    return FormatError(f"schema history{f' {path}' if path else ''} can't be read", path=path, expected=expected)
