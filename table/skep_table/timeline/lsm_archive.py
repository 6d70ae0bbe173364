"""The archived timeline of layout 2: a manifest and Parquet files, read on first use (format guide 3.2)."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skep_table.errors import CorruptFileError, FormatError
from skep_table.instant_time import CompletionTime, InstantTime
from skep_table.storage import Storage
from skep_table.timeline.codec import decode_avro
from skep_table.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_table.timeline.metadata import CommitMetadata

if TYPE_CHECKING:
    import pyarrow as pa

    from skep_table.timeline.plans import Plan

_FILE_NAME = re.compile(r"(\d+)_(\d+)_(\d)\.parquet")
_MANIFEST: Final = "manifest_"


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    first: InstantTime
    last: InstantTime

    def may_hold(self, time: InstantTime) -> bool:
        """Upgraded tables have files whose name states the last instant first (format guide 14.8)."""
        low, high = sorted((self.first, self.last))
        return time.is_at_or_after(low) and time.is_at_or_before(high)


class LsmArchive:
    """Completed instants that were archived from the active timeline. Contents are read one by one."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def instants(self) -> tuple[Instant, ...]:
        return self._instants

    def holding(self, text: str) -> tuple[Instant, ...]:  # noqa: ARG002
        return self._instants

    def completion_time_of(self, requested_time: InstantTime) -> CompletionTime | None:
        return self._completion_times.get(requested_time)

    def completed_content(self, instant: Instant) -> CommitMetadata | Plan | None:
        """The content of the instant's completed file; None where the history lacks the instant."""
        for file in self._files:
            if file.may_hold(instant.requested_time):
                row = self._row(file, instant)
                if row is not None:
                    return _content(row, instant, f"{file.path}, instant {instant.requested_time}")
        return None

    @functools.cached_property
    def _files(self) -> tuple[_File, ...]:
        path = self._manifest()
        if path is None:
            return ()
        try:
            names = [entry["fileName"] for entry in json.loads(self._storage.read(path))["files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path} is not a manifest of the timeline's history: {error}", path=path) from error
        found = []
        for name in names:
            match = _FILE_NAME.fullmatch(str(name))
            if match is None:
                raise FormatError(
                    f"{path} names {name!r}", path=path, found=name, expected="<min>_<max>_<level>.parquet"
                )
            found.append(_File(f"{self._folder}/{name}", InstantTime(match[1]), InstantTime(match[2])))
        return tuple(found)

    def _manifest(self) -> str | None:
        """The manifest that `_version_` names; where that is not readable, the manifest with the highest number."""
        version = f"{self._folder}/_version_"
        try:
            path = f"{self._folder}/{_MANIFEST}{int(self._storage.read(version))}"
            if self._storage.exists(path):
                return path
        except (FileNotFoundError, ValueError):
            pass
        names = [file.name for file in self._storage.list_prefix(self._folder) if file.name.startswith(_MANIFEST)]
        numbers = [int(number) for name in names if (number := name[len(_MANIFEST) :]).isdecimal()]
        return f"{self._folder}/{_MANIFEST}{max(numbers)}" if numbers else None

    @functools.cached_property
    def _instants(self) -> tuple[Instant, ...]:
        found: dict[tuple[InstantTime, str], Instant] = {}
        for file in self._files:
            table = self._read(file, ["instantTime", "completionTime", "action"])
            for time, completed, action in zip(*(column.to_pylist() for column in table.columns), strict=True):
                requested = InstantTime.parse(time, path=file.path)
                done = None if completed is None else CompletionTime.parse(completed, path=file.path)
                found[requested, action] = Instant(requested, _action(action, file.path), State.COMPLETED, done)
        return tuple(sorted(found.values(), key=lambda instant: instant.sort_key))

    @functools.cached_property
    def _completion_times(self) -> dict[InstantTime, CompletionTime | None]:
        writes = (instant for instant in self._instants if instant.action in DATA_ACTIONS)
        return {instant.requested_time: instant.completion_time for instant in writes}

    def _row(self, file: _File, instant: Instant) -> dict[str, Any] | None:
        columns = ["instantTime", "action", "metadata"]
        rows = self._read(file, columns, [("instantTime", "==", instant.requested_time)]).to_pylist()
        return next((row for row in rows if _action(row["action"], file.path) is instant.action), None)

    def _read(self, file: _File, columns: list[str], rows: list[tuple[str, str, str]] | None = None) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with self._storage.open_input(file.path) as source:
                return pq.read_table(source, columns=columns, filters=rows).select(columns)
        except (pa.ArrowException, KeyError, FileNotFoundError) as error:
            raise CorruptFileError(
                f"{file.path} of the timeline's history can't be read: {error}", path=file.path
            ) from error


def _action(text: str, path: str) -> Action:
    try:
        return Action(text).completed_as
    except ValueError as error:
        raise FormatError(f"{path}: unknown action {text!r}", path=path, found=text) from error


def _content(row: dict[str, Any], instant: Instant, path: str) -> CommitMetadata | Plan | None:
    data = row["metadata"] or b""
    if instant.action in DATA_ACTIONS:
        return decode_avro(data, path)
    from skep_table.timeline.plans import PLAN_OF, decode_plan

    kind = PLAN_OF.get((instant.action, State.COMPLETED))
    return decode_plan(kind, data, path) if kind else None
