"""The data files of an instant: made durable before it completes, and found again, by its markers, to delete them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from skep_format.instant_time import InstantTime
from skep_format.metafile import METAFILES, read_metafile
from skep_format.names import META_FOLDER, BaseFileName, LogFileName, Marker, join
from skep_format.storage import Storage
from skep_format.timeline.metadata import CommitMetadata
from skep_table.commit.parts.markers import list_markers
from skep_table.context import TableContext
from skep_table.table import HudiTable


def sync_written(table: HudiTable, metadata: CommitMetadata) -> None:
    """Makes the data files of a commit durable, and the metafiles of partitions that may be new. StorageError.

    A power loss after the completed file then can't leave a commit without its files.
    """
    new = {stat.partition_path for stat in metadata.stats if stat.prev_commit in (None, "", "null")}
    written = (path for stat in metadata.stats for path in stat.paths)
    table.storage.sync([*written, *(join(path, table.config.metafile) for path in sorted(new))])


def naming_markers(table: HudiTable, instant_time: InstantTime) -> list[Marker] | None:
    """The markers of an instant, where they name all files that it may have written or appended to.

    Those of tables of older versions do not: before version 1 none name log files, then they name the base files below.
    """
    return list_markers(table.storage, instant_time) if table.format.is_written else None


def files_of_instant(table: HudiTable, instant_time: InstantTime) -> list[str]:
    """Data files with the instant's time in their names, finished or not, as paths relative to the table.

    By the markers; by a listing of all partitions where there are none.
    """
    markers = naming_markers(table, instant_time)
    if markers is not None:
        return sorted({marker.data_path for marker in markers})
    look = partial(bearing, table.storage, instant_time)
    listed = table.context.runner.map(look, table.view(metadata=False).partitions())
    return sorted(path for paths in listed for path in paths)


def own_files(table: HudiTable, instant_time: InstantTime, paths: Iterable[str]) -> list[str]:
    """Those of the paths that a write of ours began, without logs of other commits that it wrote to as well."""

    def is_own(path: str) -> bool:
        log = LogFileName.parse(path.rpartition("/")[2])
        return log is None or table.format.logs.is_own(log, instant_time)

    return [path for path in paths if is_own(path)]


def bearing(storage: Storage, instant_time: InstantTime, partition: str) -> list[str]:
    """The data files of a partition with the instant's time in their names."""
    found = []
    for file in storage.list_prefix(partition):
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        if name is not None and name.instant_time == instant_time:
            found.append(file.path)
    return found


def is_of_base_file(path: str) -> bool:
    """Whether a path is that of a base file, or of the change log beside one."""
    name = path.rpartition("/")[2]
    log = LogFileName.parse(name)
    return BaseFileName.parse(name) is not None or (log is not None and log.cdc)


def delete_files(context: TableContext, paths: Iterable[str]) -> list[str]:
    """Deletes files and returns those that existed, by a listing of each folder."""
    wanted = list(paths)
    folders = sorted({path.rpartition("/")[0] for path in wanted})
    existing = {file.path for files in context.runner.map(context.storage.list_prefix, folders) for file in files}
    context.storage.delete_many(wanted)
    return [path for path in wanted if path in existing]


def delete_new_partitions(storage: Storage, paths: Iterable[str], instant_time: InstantTime) -> None:
    """Deletes the metafiles and folders of partitions that the instant created, and that are empty."""
    for partition in sorted({path.rpartition("/")[0] for path in paths}):
        there = storage.list_prefix(partition)
        alone = len(there) == 1 and there[0].name in METAFILES
        if alone and (read_metafile(storage, partition) or {}).get("commitTime") == instant_time:
            storage.delete(there[0].path)
            folder = partition  # and those above it, without the table's own
            while folder and not storage.list_prefix(folder, recursive=True):
                assert folder != META_FOLDER
                storage.delete_folder(folder)
                folder = folder.rpartition("/")[0]
