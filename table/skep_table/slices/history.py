"""The schema history of a table, read once for each snapshot (`schema/history.py` interprets it)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from skep_table.instant_time import InstantTime
from skep_table.schema.evolve import SourceNames
from skep_table.schema.history import LATEST_SCHEMA_KEYS, SchemaVersion, parse_history, source_names, version_at
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
    if not table.timeline.may_have_folder(FOLDER):
        return ()
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


def names_in_file(history: Sequence[SchemaVersion], instant_time: InstantTime) -> SourceNames:
    """Under which names a file of this instant holds the columns of today, where they were renamed."""
    file = version_at(history, instant_time)
    if file is None or file == history[-1]:
        return {}
    return source_names(file, history[-1])


def schema_with_ids(table: HudiTable) -> dict[str, str]:
    """What a commit that does not change the columns has to repeat of them in its extra metadata.

    Hudi's readers take the ids of columns from the last commit.
    """
    if not schema_history(table):
        return {}
    for instant in reversed(table.timeline.data().completed().instants):
        extra = table.commit_metadata(instant).extra_metadata
        found = {key: extra[key] for key in LATEST_SCHEMA_KEYS if extra.get(key)}
        if found:
            return found
    return {}
