"""The schema history of a table, read once for each look at it (`schema/history.py` has what it means)."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from skep_table.schema.history import LATEST_SCHEMA_KEYS, SchemaVersion, parse_history
from skep_table.table import HudiTable

FOLDER: Final = ".hoodie/.schema"
_FILE_ENDING: Final = ".schemacommit"

_known: WeakKeyDictionary[HudiTable, tuple[SchemaVersion, ...]] = WeakKeyDictionary()


def schema_history(table: HudiTable) -> tuple[SchemaVersion, ...]:
    """All versions, oldest first; empty for a table whose columns were never renamed or retyped by id."""
    history = _known.get(table)
    if history is None:
        history = _known[table] = _load(table)
    return history


def _load(table: HudiTable) -> tuple[SchemaVersion, ...]:
    versions: dict[int, SchemaVersion] = {}
    for file in table.storage.list_prefix(FOLDER):
        # The newest file has all versions, but a clean-up or a crash may have left only older ones.
        if file.name.endswith(_FILE_ENDING) and not file.name.startswith("."):
            text = table.storage.read(file.path).decode("utf-8", "replace")
            versions.update({version.version_id: version for version in parse_history(text, file.path)})
    if not versions:
        return ()
    last = table.timeline.data().completed().last()
    if last is not None:
        extra = table.commit_metadata(last).extra_metadata
        latest = next((extra[key] for key in LATEST_SCHEMA_KEYS if extra.get(key)), None)
        if latest is not None:
            version = SchemaVersion.parse(latest, table.layout.path(last))
            versions[version.version_id] = version
    return tuple(versions[number] for number in sorted(versions))
