"""Schema-on-read: the history of a table's schema with ids, by which renamed columns are found in older files.

Hudi keeps it as JSON of its InternalSchema: the latest in a commit's extra metadata (`latest_schema`), all of them in
the files of `.hoodie/.schema/`. A file was written by the version in force at its instant; a column of the query is the
column of the file with the same id, whatever its name; a column whose id the file has not is not in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from skep_table.errors import FormatError
from skep_table.instant_time import InstantTime

LATEST_SCHEMA_KEYS = ("latest_schema", "latestSchema")


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of the schema: the id of every column by its dotted path; list elements and map values are steps of
    their own (`element`, `value`). `version_id` is the instant time of the change as a number."""

    version_id: int
    ids: Mapping[str, int]

    @classmethod
    def parse(cls, text: str, path: str | None = None) -> SchemaVersion:
        """From the JSON of one version. FormatError when it is not one; `path` is for the error."""
        return _version(_json(text, path), path)


def parse_history(text: str, path: str | None = None) -> tuple[SchemaVersion, ...]:
    """All versions of a history file, oldest first."""
    document = _json(text, path)
    versions = document.get("schemas")
    if not isinstance(versions, list):
        raise _broken(path, "a list `schemas`")
    return tuple(sorted((_version(item, path) for item in versions), key=lambda version: version.version_id))


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


def _version(document: Any, path: str | None) -> SchemaVersion:
    try:
        version_id = int(_get(document, "version_id"))
        ids: dict[str, int] = {}
        _walk(document, "", ids)
    except (KeyError, TypeError, ValueError) as error:
        raise _broken(path, "version_id and fields with id, name and type") from error
    return SchemaVersion(version_id, ids)


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
        ids[f"{path}value"] = int(_get(node, "value_id"))
        _walk(node["value"], f"{path}value.", ids)


def _broken(path: str | None, expected: str) -> FormatError:
    return FormatError(f"schema history{f' {path}' if path else ''} can't be read", path=path, expected=expected)
