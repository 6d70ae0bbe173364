"""The files of a table's partitions against its timeline: names, sizes, and what the footers of base files state.

Only the newest slices are compared: a clean may have deleted all before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from skep_format.basefile import read_footer
from skep_format.errors import EncryptedFileError
from skep_format.instant_time import InstantTime
from skep_format.metafile import METAFILES
from skep_format.names import BaseFileName, BaseFormat, FileGroupId, LogFileName, join
from skep_format.runner import Runner
from skep_format.storage import FileStatus, Storage
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteStat
from skep_table.keys.hash_rings import is_copy
from skep_table.query.named import belongs_to
from skep_table.services.fsck.findings import UNREADABLE, FileFinding, Problem, reason
from skep_table.table import HudiTable, Written


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
        for path, ids in (metadata.partition_to_replace_file_ids or {}).items():
            self._replaced.update(FileGroupId(path, file_id) for file_id in ids)
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
    unmarked = [path for path, files in zip(others, listed[len(partitions) :], strict=True) if _lacks_metafile(files)]
    return ListedFiles({file.path: file for files in listed for file in files}, tuple(unmarked))


def _lacks_metafile(files: Iterable[FileStatus]) -> bool:
    names = {file.name for file in files}
    return bool(names) and not names & METAFILES


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
