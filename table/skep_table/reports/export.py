"""Completed instants as files for people, in JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from skep_format.errors import InputError
from skep_format.timeline.codec import encode_json, is_json
from skep_format.timeline.instant import DATA_ACTIONS, Instant
from skep_table.table import HudiTable

EXPORTED: Final = ("clean", "commit", "deltacommit", "rollback", "savepoint", "restore")
"""The actions that Hudi exports by default."""


def export_instants(
    table: HudiTable,
    folder: Path,
    *,
    actions: Collection[str] = EXPORTED,
    limit: int = -1,
    newest_first: bool = False,
    archived: bool = False,
) -> list[tuple[Instant, Path]]:
    """Writes each completed instant of these actions into a file `<time>.<action>` of a folder.

    The first `limit` of them, oldest first or `newest_first`; `archived`: those of the archive, too. InputError where
    there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", option="local_folder", found=str(folder))
    past = [(each, True) for each in table.timeline.archived() if each.is_completed] if archived else []
    found = [*past, *((each, False) for each in table.timeline.completed().instants)]
    found = [each for each in found if each[0].action.value in actions]
    if newest_first:
        found.reverse()
    written = []
    for instant, is_past in found[:limit] if limit >= 0 else found:
        path = folder / f"{instant.requested_time}.{instant.action.value}"
        path.write_bytes(_content(table, instant, is_past))
        written.append((instant, path))
    return written


def _content(table: HudiTable, instant: Instant, is_past: bool) -> bytes:
    if instant.action in DATA_ACTIONS:
        data = b"" if is_past else table.storage.read(table.layout.path(instant))
        return data if is_json(data) else encode_json(table.commit_metadata(instant))
    archive = table.timeline.archive
    found: Any = archive.completed_content(instant) if is_past and archive is not None else table.plan(instant)
    return b"" if found is None else json.dumps(dataclasses.asdict(found), default=dict, indent=1).encode()
