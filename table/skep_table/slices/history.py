"""The schema history of a table, read once for each snapshot (`schema/history.py` interprets it)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from skep_format.instant_time import InstantTime
from skep_format.schema.evolve import SourceNames
from skep_format.schema.history import (
    LATEST_SCHEMA,
    LATEST_SCHEMA_KEYS,
    SchemaVersion,
    first_version,
    next_version,
    parse_history,
    source_names,
    version_at,
    version_document,
)
from skep_format.schema.types import Schema
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.layout import name_in_any, parse_any
from skep_table.table import HudiTable

FOLDER: Final = ".hoodie/.schema"

_known: WeakKeyDictionary[HudiTable, tuple[SchemaVersion, ...]] = WeakKeyDictionary()


def schema_history(table: HudiTable) -> tuple[SchemaVersion, ...]:
    """All versions, oldest first; empty for a table whose columns were never renamed or retyped by id."""
    history = _known.get(table)
    if history is None:
        history = _known[table] = _load(table)
    return history


def history_until(table: HudiTable, instant_time: InstantTime) -> tuple[SchemaVersion, ...]:
    """The versions that a file of this instant may have: a service writes by the columns of when it was planned."""
    history = schema_history(table)
    if not instant_time.isdigit():
        return history
    return tuple(version for version in history if version.version_id <= int(instant_time))


def history_path(instant_time: InstantTime) -> str:
    """The history file that a commit writes."""
    return f"{FOLDER}/{name_in_any(Instant(instant_time, Action.SCHEMA_COMMIT, State.COMPLETED))}"


def history_files(table: HudiTable) -> list[tuple[Instant, str]]:
    """Instant and path of all files in the history's folder, oldest first.

    Hudi makes a requested and an inflight file beside each, and names the completed one as the layout of its version
    does. Files of commits that never completed are among them.
    """
    if not table.may_have_folder(FOLDER):
        return []
    parsed = ((parse_any(file.name), file.path) for file in table.storage.list_prefix(FOLDER))
    found = [(instant, path) for instant, path in parsed if instant and instant.action is Action.SCHEMA_COMMIT]
    return sorted(found, key=lambda file: (file[0].sort_key, file[1]))


def newest_history(table: HudiTable, files: Sequence[tuple[Instant, str]]) -> str | None:
    """The path of the newest of `files` whose commit completed: it has all versions. None where there is none.

    Hudi trusts those of the active timeline only. Each of its writes, and each of skep's, writes another one.
    """
    written = [(instant.requested_time, path) for instant, path in files if instant.is_completed]
    completed = table.timeline.data().completed()
    for time, path in reversed(written):
        if completed.contains(time):
            return path
    if not written:
        return None
    archived = {instant.requested_time for instant in table.timeline.archived(written[0][0])}
    return next((path for time, path in reversed(written) if time in archived), None)


def _load(table: HudiTable) -> tuple[SchemaVersion, ...]:
    path = newest_history(table, history_files(table))
    if path is None:
        return ()
    text = table.storage.read(path).decode("utf-8", "replace")
    versions = {version.version_id: version for version in parse_history(text, path)}
    last = table.timeline.data().completed().last()
    if last is not None:
        latest = _ids_text(table, last)
        if latest is not None:
            version = SchemaVersion.parse(latest, table.layout.path(last))
            versions[version.version_id] = version
    return tuple(versions[number] for number in sorted(versions))


def names_in_file(history: Sequence[SchemaVersion], instant_time: InstantTime) -> SourceNames:
    """Under which names a file of this instant holds the columns of today, where they were renamed."""
    file = version_at(history, instant_time)
    if file is None or file == history[-1]:
        return {}
    return source_names(file, history[-1])


def schema_with_ids(table: HudiTable, at: InstantTime | None = None) -> dict[str, str]:
    """What a commit that does not change the columns has to repeat of them in its extra metadata: those of now, or of
    the instant time `at`. Hudi's readers take the ids of columns from the last commit.
    """
    if not schema_history(table):
        return {}
    commits = table.timeline.data().completed()
    for instant in reversed((commits.until(at) if at else commits).instants):
        text = _ids_text(table, instant)
        if text is not None:
            return {LATEST_SCHEMA: text}
    return {}


def ids_of_commit(table: HudiTable, schema: Schema, instant_time: InstantTime) -> dict[str, str]:
    """The extra metadata by which a commit with the columns `schema` (those of its files) carries the history on:
    nothing for a table without one. New columns get new ids."""
    history = schema_history(table)
    if not history:
        return {}
    if schema == table.stored_schema():
        found = schema_with_ids(table)
        if found:
            return found
    whole = in_files(table, schema)
    return {LATEST_SCHEMA: ids_text(next_version(history[-1], whole, int(instant_time)), whole)}


def current_version(table: HudiTable) -> SchemaVersion:
    """The ids of the columns of now; those that they would have where none was changed by id so far."""
    history = schema_history(table)
    return history[-1] if history else first_version(in_files(table, table.stored_schema()))


def in_files(table: HudiTable, schema: Schema) -> Schema:
    """The columns with ids: those of files, meta columns included."""
    return schema.with_meta() if table.config.populate_meta_fields else schema


def ids_text(version: SchemaVersion, schema: Schema) -> str:
    """A version as commits have it in their extra metadata."""
    return json.dumps(version_document(version, schema), separators=(",", ":"), ensure_ascii=False)


def _ids_text(table: HudiTable, commit: Instant) -> str | None:
    extra = table.commit_metadata(commit).extra_metadata
    return next((extra[key] for key in LATEST_SCHEMA_KEYS if extra.get(key)), None)
