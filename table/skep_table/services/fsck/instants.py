"""Whether each file of a timeline can be read: commit metadata, plans, and the archived history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from skep_format.errors import SkepError
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import PLAN_OF, CleanMetadata, decode_plan
from skep_table.services.fsck.findings import UNREADABLE, FileFinding, Problem, reason
from skep_table.table import HudiTable

_AT_ONCE: Final = 64
_NEVER_EMPTY: Final = ((Action.COMPACTION, State.REQUESTED), (Action.LOG_COMPACTION, State.REQUESTED))


@dataclass(frozen=True)
class ReadTimeline:
    """`cleaned`: the files that cleans deleted, as far as their metadata can be read."""

    cleaned: frozenset[str]
    findings: list[FileFinding]


def read_timeline(table: HudiTable, commit: Callable[[Instant, CommitMetadata], object]) -> ReadTimeline:
    """Reads every file of the active timeline, and calls `commit` for each completed write, oldest first."""
    listed = table.storage.list_folder(table.layout.folder).files
    files = [(instant, file.path) for file in listed if (instant := table.layout.parse(file.name)) is not None]
    files.sort(key=lambda file: file[0].sort_key)
    cleaned: set[str] = set()
    findings: list[FileFinding] = []
    for start in range(0, len(files), _AT_ONCE):
        portion = files[start : start + _AT_ONCE]
        for (instant, _), (content, found) in zip(
            portion, table.context.threads.map(partial(_read, table), portion), strict=True
        ):
            findings += found
            if isinstance(content, CommitMetadata) and instant.is_completed:
                commit(instant, content)
            elif isinstance(content, CleanMetadata):
                cleaned.update(content.deleted)
    return ReadTimeline(frozenset(cleaned), findings)


def damaged_archive(table: HudiTable) -> list[FileFinding]:
    """The files of the archived timeline that are missing or can't be read; each is read to its end."""
    archive = table.timeline.archive
    found = archive.damages() if archive is not None else ()
    return [FileFinding(Problem.ARCHIVE, path, None, detail) for path, detail in found]


def _read(table: HudiTable, file: tuple[Instant, str]) -> tuple[object | None, list[FileFinding]]:
    """The content of an instant's file, None where it has none, and what is wrong with it."""
    instant, path = file
    is_commit = instant.is_completed and instant.action in DATA_ACTIONS
    problem = Problem.COMMIT if is_commit else Problem.PLAN
    try:
        data = table.storage.read(path)
    except FileNotFoundError:
        return None, []  # archived or rolled back since the listing
    except SkepError as error:
        return None, [FileFinding(problem, path, instant.requested_time, error.message)]
    kind = PLAN_OF.get((instant.action, instant.state))
    has_content = is_commit or (kind is not None and instant.is_completed)
    if not data:
        if has_content or (instant.action, instant.state) in _NEVER_EMPTY:
            return None, [FileFinding(problem, path, instant.requested_time, "its file is empty")]
        return None, []
    try:
        if kind is not None:
            return decode_plan(kind, data, path), []
        if instant.action not in DATA_ACTIONS:
            return None, []
        content = table.layout.decode_commit(data, path)
    except UNREADABLE as error:
        return None, [FileFinding(problem, path, instant.requested_time, reason(error))]
    if is_commit and content.schema_json and (broken := _broken_schema(content.schema_json)) is not None:
        return content, [FileFinding(problem, path, instant.requested_time, f"its schema can't be read: {broken}")]
    return content, []


def _broken_schema(text: str) -> str | None:
    """Why a text is no Avro schema, whether or not it is one that tables have; None where it is one."""
    import fastavro

    try:
        fastavro.parse_schema(json.loads(text))
    except Exception as error:  # fastavro raises many types
        return f"{type(error).__name__}: {error}"
    return None
