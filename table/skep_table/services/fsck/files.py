"""The files of a table's timeline, of which each has to be readable, and those of its partitions.

These are compared with the timeline: names, sizes, what the footers of base files state; the newest slices only, since
a clean may have deleted all before them. What lies in data files is read to the last byte where that is wanted: pages
of base files, blocks of log files, keys and their filters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa

from skep_format.basefile import BaseFileFooter, read_base, read_footer
from skep_format.basefile.pages import damaged_pages
from skep_format.basefile.writer import key_range
from skep_format.errors import EncryptedFileError, SkepError
from skep_format.instant_time import InstantTime
from skep_format.logfile import BlockType, HeaderKey, LogBlock, read_blocks
from skep_format.metafile import METAFILES
from skep_format.names import BaseFileName, BaseFormat, FileGroupId, LogFileName, join
from skep_format.runner import Runner
from skep_format.storage import FileStatus, Storage
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteStat
from skep_format.timeline.plans import PLAN_OF, CleanMetadata, decode_plan
from skep_table.keys.hash_rings import is_copy
from skep_table.keys.stored import StoredKeys
from skep_table.query.cleaned import belongs_to
from skep_table.services.fsck.findings import UNREADABLE, FileFinding, Problem, reason
from skep_table.table import HudiTable, Written

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


@dataclass
class Newest:
    """The write stats of the newest slice of each live group, from the commits that are added, oldest first."""

    table: HudiTable
    _bases: dict[FileGroupId, Written] = field(default_factory=dict)
    _logs: dict[FileGroupId, list[Written]] = field(default_factory=dict)
    _replaced: set[FileGroupId] = field(default_factory=set)

    def add(self, instant: Instant, metadata: CommitMetadata) -> None:
        """Takes what a completed write states."""
        time = instant.requested_time
        self._replaced.update(metadata.replaced)
        for stat in metadata.stats:
            group = FileGroupId(stat.partition_path, stat.file_id)
            if stat.is_log:
                self._logs.setdefault(group, []).append((time, stat))
            elif stat.path:
                self._bases[group] = time, stat
                # logs of the slice before are the clean's; those of a slice that awaited this file stay
                self._logs[group] = [each for each in self._logs.get(group, ()) if belongs_to(self.table, *each, time)]

    def written(self) -> Mapping[str, Written]:
        """By path, each with the instant that wrote it."""
        newest = {stat.path: (time, stat) for group, (time, stat) in self._bases.items() if group not in self._replaced}
        for group, found in self._logs.items():
            if group not in self._replaced:
                newest.update({stat.path: (time, stat) for time, stat in found})
        return newest


@dataclass(frozen=True)
class ListedFiles:
    """The data files of a table's partitions by path. `unmarked` are partitions with files and without a metafile."""

    files: Mapping[str, FileStatus]
    unmarked: tuple[str, ...] = ()


def list_files(table: HudiTable, runner: Runner, newest: Mapping[str, Written]) -> ListedFiles:
    """Lists every partition, and the folders of others that commits wrote to."""
    partitions = table.view(metadata=False).partitions()
    named = {stat.partition_path for _, stat in newest.values()}
    others = sorted(named.difference(partitions))
    listed = runner.map(table.storage.list_prefix, [*partitions, *others])
    names = ({file.name for file in files} for files in listed[len(partitions) :])
    unmarked = [path for path, found in zip(others, names, strict=True) if found and not found & METAFILES]
    return ListedFiles({file.path: file for files in listed for file in files}, tuple(unmarked))


def check_files(
    table: HudiTable, runner: Runner, newest: Mapping[str, Written], listed: ListedFiles, cleaned: frozenset[str]
) -> Iterator[FileFinding]:
    """Files that no commit names, and those of the newest slices that are missing or differ from their commits.

    `cleaned` files are not missed: the commit that replaced them may be one that can't be read.
    """
    for partition in listed.unmarked:
        metafile = join(partition, table.config.metafile)
        detail = "readers without a metadata table do not find the rows of the partition"
        yield FileFinding(Problem.METAFILE, metafile, None, detail)
    yield from _unnamed(table, listed.files.values())
    for instant, stat in newest.values():
        for path in stat.paths:
            if path not in listed.files and path not in cleaned and not is_copy(table, stat):
                yield FileFinding(Problem.MISSING, path, instant, "its commit names it, and it is not there")
    tasks = [(instant, stat, listed.files[stat.path]) for instant, stat in newest.values() if stat.path in listed.files]
    for found in runner.map(partial(_compared, table.storage), tasks):
        yield from found


def is_committed(table: HudiTable, name: BaseFileName | LogFileName) -> bool:
    """Whether readers take a file for one of completed writes: by its instant, or by the compaction that its slice
    awaits, where log files are named by their slice."""
    if table.timeline.is_completed_or_archived(name.instant_time):
        return True
    if isinstance(name, BaseFileName) or table.format.logs.of_delta_commit:
        return False
    return table.timeline.pending().of(Action.COMPACTION).contains(name.instant_time)


def _unnamed(table: HudiTable, files: Iterable[FileStatus]) -> Iterator[FileFinding]:
    pending = {instant.requested_time for instant in table.timeline.pending_changes()}
    bases: dict[tuple[str, str, InstantTime], str] = {}
    for file in sorted(files, key=lambda file: file.path):
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        if name is None:
            continue
        time = name.instant_time
        if isinstance(name, BaseFileName):
            twin = bases.setdefault((file.path.rpartition("/")[0], name.file_id, time), file.path)
            if twin != file.path and time not in pending:
                yield FileFinding(Problem.DOUBLE, file.path, time, f"{twin} is of the same group and instant")
        if is_committed(table, name):
            continue
        if time in pending:
            yield FileFinding(Problem.LEFTOVER, file.path, time, "of a write that is pending: going on, or it failed")
        else:
            yield FileFinding(Problem.ORPHAN, file.path, time, "the timeline knows no such instant")


def _compared(storage: Storage, task: tuple[InstantTime, WriteStat, FileStatus]) -> list[FileFinding]:
    instant, stat, file = task
    found = []
    if stat.is_log:
        if file.size_bytes < stat.file_size_in_bytes:
            found.append(_differs(Problem.SIZE, instant, stat, file.size_bytes, stat.file_size_in_bytes, "bytes"))
        return found
    if stat.file_size_in_bytes and file.size_bytes != stat.file_size_in_bytes:
        found.append(_differs(Problem.SIZE, instant, stat, file.size_bytes, stat.file_size_in_bytes, "bytes"))
    if BaseFormat.of(stat.path) is BaseFormat.HFILE:
        return found  # of the metadata table
    try:
        footer = read_footer(storage, stat.path)
        if footer.num_rows != stat.num_writes:
            found.append(_differs(Problem.ROWS, instant, stat, footer.num_rows, stat.num_writes, "rows"))
        if footer.num_rows:
            _ = footer.schema, footer.bloom
    except FileNotFoundError:
        pass  # cleaned since it was listed
    except EncryptedFileError:
        raise
    except UNREADABLE as error:
        found.append(FileFinding(Problem.DAMAGED, stat.path, instant, reason(error)))
    return found


def _differs(
    problem: Problem, instant: InstantTime, stat: WriteStat, found: int, stated: int, what: str
) -> FileFinding:
    return FileFinding(problem, stat.path, instant, f"{found:,} {what}, its commit states {stated:,}")


def check_contents(
    table: HudiTable, runner: Runner, newest: Mapping[str, Written], listed: ListedFiles
) -> Iterator[FileFinding]:
    """Every committed base and log file that is there, those before the newest slices included."""
    logs, bases = [], []
    for file in listed.files.values():
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        if name is None or not is_committed(table, name):
            continue
        if isinstance(name, BaseFileName):
            bases.append(file)
        else:
            stated = newest.get(file.path)
            logs.append((file, name.instant_time, stated[1].file_size_in_bytes if stated else 0))
    keys = _stored_keys(table)
    for found in runner.map(partial(_check_base, table.storage, keys), bases):
        yield from found
    for found in runner.map(partial(_check_log, table.storage), logs):
        yield from found


def _stored_keys(table: HudiTable) -> StoredKeys | None:
    """None where no schema names the columns that make a key."""
    try:
        return StoredKeys.of(table.config, table.stored_schema())
    except UNREADABLE:
        return None


def _check_base(storage: Storage, keys: StoredKeys | None, file: FileStatus) -> list[FileFinding]:
    name = BaseFileName.parse(file.name)
    if name is None or name.format is BaseFormat.HFILE:
        return []
    time = name.instant_time
    try:
        found = [FileFinding(Problem.DAMAGED, file.path, time, what) for what in damaged_pages(storage, file.path)]
        if not found and keys is not None:
            footer = read_footer(storage, file.path)
            found += [FileFinding(Problem.KEYS, file.path, time, what) for what in _hidden_keys(storage, keys, footer)]
    except FileNotFoundError:
        return []  # cleaned since it was listed, or named as missing
    except EncryptedFileError:
        raise
    except SkepError as error:
        return [FileFinding(Problem.DAMAGED, file.path, time, error.message)]
    return found


def _hidden_keys(storage: Storage, stored: StoredKeys, footer: BaseFileFooter) -> Iterator[str]:
    """Why look-ups by key would pass over the file although it holds the key."""
    if footer.bloom is None and footer.min_key is None:
        return
    lacking, first = 0, None
    for rows in read_base(storage, footer.path, schema=stored.schema):
        keys = stored.of_rows(rows).cast(pa.string())
        if footer.bloom is not None:
            absent = footer.bloom.lacking(keys)
            first = absent[0].as_py() if len(absent) and first is None else first
            lacking += len(absent)
        if footer.min_key is not None and footer.max_key is not None and (ends := key_range(keys)) is not None:
            low, high = (pa.array([text]) for text in (footer.min_key, footer.max_key))
            merged = key_range(pa.concat_arrays([low, high, pa.array(ends)]))
            if merged != (footer.min_key, footer.max_key):
                yield f"its keys are {ends[0]} to {ends[1]}, its footer states {footer.min_key} to {footer.max_key}"
    if lacking:
        yield f"the filter in its footer lacks {lacking:,} of its keys, {first} among them"


def _check_log(storage: Storage, task: tuple[FileStatus, InstantTime, int]) -> list[FileFinding]:
    file, time, stated = task
    found = []
    try:
        with storage.open_input(file.path) as source:
            end = 0
            for block in read_blocks(source, file.path):
                end = block.offset + block.size
                if block.type is BlockType.CORRUPT:
                    found.append(_no_block(file.path, time, block.offset, block.size, stated))
                elif (problem := _damage(block)) is not None:
                    found.append(FileFinding(Problem.DAMAGED, file.path, time, problem))
            if end < file.size_bytes:
                found.append(_no_block(file.path, time, end, file.size_bytes - end, stated))
    except FileNotFoundError:
        return []
    except SkepError as error:
        found.append(FileFinding(Problem.DAMAGED, file.path, time, error.message))
    return found


def _no_block(path: str, time: InstantTime, offset: int, size: int, stated: int) -> FileFinding:
    what = f"{size:,} bytes at byte {offset:,} are no block"
    if offset < stated:
        return FileFinding(Problem.DAMAGED, path, time, f"{what}: rows that a commit wrote there are not read")
    return FileFinding(Problem.TORN, path, time, f"{what}: readers pass over them")


def _damage(block: LogBlock) -> str | None:
    """Why the content of a block can't be read; None where it can."""
    try:
        if HeaderKey.RECORD_POSITIONS in block.headers:
            _ = block.record_positions
        if block.type.has_records:
            for batch in block.batches():
                batch.validate(full=True)
        elif block.type is BlockType.DELETE:
            block.deletes().validate(full=True)
        elif block.is_rollback:
            _ = block.target_instant_time
        _ = block.instant_time
    except UNREADABLE as error:
        return reason(error)
    except (pa.ArrowException, ValueError) as error:
        return f"block at byte {block.offset:,}: {error}"
    return None
