"""Completed instants as files for people: plans and metadata in Avro are written as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

from skep_format.errors import InputError
from skep_format.timeline.instant import Instant
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
) -> list[tuple[Instant, Path]]:
    """Writes each completed instant of these actions of the active timeline into a file `<time>.<action>` of a folder.

    The first `limit` of them, oldest first or `newest_first`. InputError where there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", option="local_folder", found=str(folder))
    found = [instant for instant in table.timeline.completed().instants if instant.action.value in actions]
    if newest_first:
        found.reverse()
    written = []
    for instant in found[:limit] if limit >= 0 else found:
        content = table.plan(instant)
        data = table.storage.read(table.layout.path(instant))
        if content is not None:
            data = json.dumps(dataclasses.asdict(content), default=dict, indent=1).encode()
        path = folder / f"{instant.requested_time}.{instant.action.value}"
        path.write_bytes(data)
        written.append((instant, path))
    return written
