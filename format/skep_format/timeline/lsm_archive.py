"""The archived timeline of layout 2, read on first use: of each file only the columns and rows that are asked for.

Times of instants are kept by file, contents of the row groups that were used last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from skep_format.errors import FormatError
from skep_format.instant_time import BEFORE_ALL, CompletionTime, InstantTime
from skep_format.storage import Storage
from skep_format.timeline.codec import AVRO, commit_of
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.lsm_files import HistoryFile, HistoryManifest, current_manifest
from skep_format.timeline.lsm_rows import TIMES, HistoryFooter, damaged, opened, read_footer
from skep_format.timeline.metadata import CommitMetadata

if TYPE_CHECKING:
    import pyarrow as pa

    from skep_format.timeline.plans import Plan

T = TypeVar("T")
_Key = tuple[InstantTime, Action]
_Times = dict[_Key, Instant]
_KEPT_GROUPS: Final = 2
_CODEC: Final = b"avro.codec"
_UNCOMPRESSED: Final = b"avro.codec\x08null"


class _Known:
    """What was read of files that a manifest lists: it never changes. Snapshots of a table share it, and threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.times: dict[tuple[HistoryFile, int], _Times] = {}
        self.footers: dict[HistoryFile, HistoryFooter] = {}
        self.groups: OrderedDict[tuple[HistoryFile, int], pa.Table] = OrderedDict()

    def forget_others(self, files: Collection[HistoryFile]) -> None:
        """Keeps what belongs to these files."""
        with self.lock:
            self.times = {key: times for key, times in self.times.items() if key[0] in files}
            self.footers = {file: footer for file, footer in self.footers.items() if file in files}
            self.groups = OrderedDict((key, rows) for key, rows in self.groups.items() if key[0] in files)


class LsmArchive:
    """Completed instants that were archived from the active timeline of layout 2, as of its first use.

    Pickles without what it has read. Threads share it.
    """

    def __init__(self, storage: Storage, folder: str, known: _Known | None = None) -> None:
        self._storage = storage
        self._folder = folder
        self._known = known or _Known()
        self._manifest: HistoryManifest | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return LsmArchive, (self._storage, self._folder)

    def reopened(self) -> LsmArchive:
        return LsmArchive(self._storage, self._folder, self._known)

    def instants(self, since: InstantTime = BEFORE_ALL) -> tuple[Instant, ...]:
        return self._looking(lambda: _in_order(each for file in self._files for each in self._since(file, since)))

    def holding(self, text: str) -> tuple[Instant, ...]:
        """Instants whose content contains `text`, or is compressed, oldest first."""
        return self._looking(lambda: _in_order(each for file in self._files for each in self._with(file, text)))

    def completion_time_of(self, requested_time: InstantTime) -> CompletionTime | None:
        """When a write completed. Opens the files in whose range its request lies, others only where these lack it."""
        return self._looking(lambda: self._completion(requested_time))

    def completed_content(self, instant: Instant) -> CommitMetadata | Plan | None:
        return self._looking(lambda: self._decoded(instant))

    def damages(self) -> Iterator[tuple[str, str]]:
        try:
            files = self._files
        except (FormatError, FileNotFoundError) as error:
            yield self._folder, f"its manifest can't be read: {error}"
            return
        for file in files:
            problem = self._damage(file)
            if problem is not None and file in current_manifest(self._storage, self._folder).files:
                yield self._path(file), problem  # else an archiver has merged it since

    def _damage(self, file: HistoryFile) -> str | None:
        """Why a file of the manifest can't be read to its end; None where it can."""
        path = self._path(file)
        try:
            size = self._storage.size(path)
            if file.size_bytes and size != file.size_bytes:
                return f"{size:,} bytes, its manifest states {file.size_bytes:,}"
            with opened(self._storage, path) as parquet:
                for number in range(parquet.num_row_groups):
                    rows = parquet.read_row_group(number, columns=[*TIMES, "metadata"], use_threads=False)
                    contents = rows.column("metadata").to_pylist()
                    for instant, data in zip(_instants(rows, path), contents, strict=True):
                        _decode(data or b"", instant, f"{path}, instant {instant.requested_time}")
        except FileNotFoundError:
            return "its manifest names it, and it is missing"
        except (FormatError, OSError) as error:
            return str(error)
        return None

    def _completion(self, time: InstantTime) -> CompletionTime | None:
        for file, group in self._groups_by(time):
            (times,) = self._times_of(file, [group])
            for action in DATA_ACTIONS:
                if (time, action) in times:
                    return times[time, action].completion_time
        return None

    def _decoded(self, instant: Instant) -> CommitMetadata | Plan | None:
        key = instant.requested_time, instant.action
        for file, group in self._groups_by(instant.requested_time):
            if key in self._times_of(file, [group])[0]:
                data = self._content(file, group, key)
                return _decode(data, instant, f"{self._path(file)}, instant {instant.requested_time}")
        return None

    @property
    def _files(self) -> tuple[HistoryFile, ...]:
        with self._known.lock:
            if self._manifest is None:
                self._manifest = current_manifest(self._storage, self._folder)
                self._known.forget_others(self._manifest.files)
            return self._manifest.files

    def _groups_by(self, time: InstantTime) -> Iterator[tuple[HistoryFile, int]]:
        """The row groups that may hold an instant, with their files.

        Files whose range includes `time` come first. The others may hold it, too: what an upgraded table's names state
        may be too narrow after its files were merged (format guide 14.8).
        """
        for file in sorted(self._files, key=lambda file: not file.may_hold(time)):
            for group in self._footer(file).groups_within(time, time):
                yield file, group

    def _path(self, file: HistoryFile) -> str:
        return f"{self._folder}/{file.name}"

    def _looking(self, look: Callable[[], T]) -> T:
        """What `look` finds. It looks again where an archiver has merged, and then deleted, files of the manifest."""
        while True:
            manifest = self._manifest
            try:
                return look()
            except FileNotFoundError as error:
                fresh = current_manifest(self._storage, self._folder)
                if fresh == (manifest or self._manifest):
                    raise damaged(self._folder, error) from error
                self._manifest = fresh

    def _times_of(self, file: HistoryFile, groups: Sequence[int]) -> list[_Times]:
        """The instants of row groups. Those not read so far are, by opening the file once."""
        known = self._known.times
        with self._known.lock:
            missing = [group for group in groups if (file, group) not in known]
            if missing:
                with opened(self._storage, self._path(file)) as parquet:
                    for group in missing:
                        rows = parquet.read_row_group(group, columns=list(TIMES), use_threads=False)
                        found = _instants(rows, self._path(file))
                        known[file, group] = {(each.requested_time, each.action): each for each in found}
            return [known[file, group] for group in groups]

    def _since(self, file: HistoryFile, since: InstantTime) -> Iterator[Instant]:
        """By the statistics of both times: a write may have been requested long before it completed."""
        footer = self._footer(file)
        groups = [at for at in range(footer.num_row_groups) if max(footer.latest(at)).is_at_or_after(since)]
        for times in self._times_of(file, groups):
            yield from (each for each in times.values() if each.latest_time.is_at_or_after(since))

    def _with(self, file: HistoryFile, text: str) -> Iterator[Instant]:
        import pyarrow.compute as pc

        for number in range(self._footer(file).num_row_groups):
            rows = self._read_group(file, number)
            content = pc.fill_null(rows.column("metadata"), b"")
            plain = pc.or_(pc.match_substring(content, _UNCOMPRESSED), pc.invert(pc.match_substring(content, _CODEC)))
            wanted = pc.or_(pc.match_substring(content, text.encode()), pc.invert(plain))
            yield from _instants(rows.filter(wanted), self._path(file))

    def _content(self, file: HistoryFile, group: int, key: _Key) -> bytes:
        import pyarrow.compute as pc

        rows = self._group(file, group)
        rows = rows.filter(pc.equal(rows.column(TIMES[0]), str(key[0])))
        found = zip(rows.column("action").to_pylist(), rows.column("metadata").to_pylist(), strict=True)
        return next((data or b"" for action, data in found if _action(action, self._path(file)) is key[1]), b"")

    def _footer(self, file: HistoryFile) -> HistoryFooter:
        with self._known.lock:
            if file not in self._known.footers:
                self._known.footers[file] = read_footer(self._storage, self._path(file))
            return self._known.footers[file]

    def _group(self, file: HistoryFile, number: int) -> pa.Table:
        """A row group. Those used last are kept, as instants are mostly looked up one after the other."""
        key, groups = (file, number), self._known.groups
        with self._known.lock:
            if key not in groups:
                groups[key] = self._read_group(file, number)
                while len(groups) > _KEPT_GROUPS:
                    groups.popitem(last=False)
            groups.move_to_end(key)
            return groups[key]

    def _read_group(self, file: HistoryFile, number: int) -> pa.Table:
        with opened(self._storage, self._path(file)) as parquet:
            return parquet.read_row_group(number, columns=[*TIMES, "metadata"], use_threads=False)


def _in_order(instants: Iterable[Instant]) -> tuple[Instant, ...]:
    """Each once: a crash between archiving and deleting leaves rows that are archived again."""
    found = {(instant.requested_time, instant.action): instant for instant in instants}
    return tuple(sorted(found.values(), key=lambda instant: instant.sort_key))


def _instants(rows: pa.Table, path: str) -> Iterator[Instant]:
    times, completions, actions = (rows.column(name).to_pylist() for name in TIMES)
    known = {text: _action(text, path) for text in set(actions)}
    for time, completed, action in zip(times, completions, actions, strict=True):
        requested = InstantTime.parse(str(time), path=path)
        done = None if completed is None else CompletionTime.parse(completed, path=path)
        yield Instant(requested, known[action], State.COMPLETED, done)


def _action(text: str, path: str) -> Action:
    try:
        return Action(text).completed_as
    except ValueError as error:
        raise FormatError.of_file(path, f"unknown action {text!r}", found=text) from error


def _decode(data: bytes, instant: Instant, path: str) -> CommitMetadata | Plan | None:
    if instant.action in DATA_ACTIONS:
        return commit_of(AVRO.read, data, path)
    if not data:
        return None
    from skep_format.timeline.plans import PLAN_OF, decode_plan

    kind = PLAN_OF.get((instant.action, State.COMPLETED))
    return decode_plan(kind, data, path) if kind else None
