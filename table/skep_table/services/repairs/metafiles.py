"""Partition metafiles: those that are missing are written, and properties become files in the format of base files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from skep_format.errors import FormatError
from skep_format.instant_time import InstantTime
from skep_format.metafile import METAFILES, ensure_partition, metafile_content, read_metafile
from skep_format.names import META_FOLDER, PARTITION_METAFILE, BaseFileName, LogFileName, join
from skep_format.table_config import update_table_config
from skep_format.table_config.keys import METAFILE_AS_BASE_FORMAT
from skep_table.commit.writable import check_writable, take_lock_over
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class PartitionMetafile:
    """The metafiles that a partition had: properties, or in the format of base files; and whether that was changed."""

    partition: str
    as_text: bool
    as_base_file: bool
    changed: bool = False

    @property
    def is_there(self) -> bool:
        return self.as_text or self.as_base_file


def add_metafiles(table: HudiTable, *, plan: bool = False) -> list[PartitionMetafile]:
    """Writes the metafiles of folders that committed data files are in and that have none. All such folders, by path.

    Readers without a metadata table do not find the rows of a partition that lacks its metafile. KeyFieldError where
    one partition lies in the folder of another.
    """
    if plan:
        return _with_data(table.reload())
    with table.context.locked():
        table = take_lock_over(table)
        check_writable(table.config, table.storage.root)
        found = _with_data(table)
        lacking = [each.partition for each in found if not each.is_there]
        table.context.lock.ensure_held()
        table.context.threads.map(partial(_write, table), lacking)
        table.storage.sync([join(path, table.config.metafile) for path in lacking])
    return [each if each.is_there else replace(each, changed=True) for each in found]


def migrate_metafiles(table: HudiTable, *, plan: bool = False) -> list[PartitionMetafile]:
    """Brings the metafiles of all partitions to the format of base files, and the table to make further ones so.

    A partition has one metafile at every moment: the new one is written before the old one is deleted.
    """
    if plan:
        return _of_partitions(table.reload())
    with table.context.locked():
        table = take_lock_over(table)
        check_writable(table.config, table.storage.root)
        found = _of_partitions(table)
        table.context.lock.ensure_held()
        update_table_config(table.storage, {METAFILE_AS_BASE_FORMAT: "true"})
        written = [each.partition for each in found if not each.as_base_file]
        table.context.threads.map(partial(_rewrite, table), written)
        table.context.lock.ensure_held()
        table.storage.delete_many([join(each.partition, PARTITION_METAFILE) for each in found if each.as_text])
    return [replace(each, changed=each.as_text) for each in found]


def write_metafile(table: HudiTable, partition: str) -> None:
    """Writes the metafile of a folder with data files, where it has none. FormatError for one without data files."""
    _write(table, partition)
    table.storage.sync([join(partition, table.config.metafile)])


def _write(table: HudiTable, partition: str) -> None:
    times = [time for file in table.storage.list_prefix(partition) if (time := _time_in(file.name)) is not None]
    if not times:
        raise table.error(FormatError, f"folder {partition!r} has no data files", path=partition)
    ensure_partition(table.storage, partition, min(times), table.config.metafile)


def _rewrite(table: HudiTable, partition: str) -> None:
    facts = read_metafile(table.storage, partition) or {}
    name = f"{PARTITION_METAFILE}.{table.config.base_format.extension}"
    # Nobody reads half of it: an earlier attempt may have been interrupted.
    table.storage.replace_atomic(join(partition, name), metafile_content(facts, name))


def _of_partitions(table: HudiTable) -> list[PartitionMetafile]:
    partitions = table.view(metadata=False).partitions()
    listed = table.context.threads.map(table.storage.list_prefix, partitions)
    return [_state(path, {file.name for file in files}) for path, files in zip(partitions, listed, strict=True)]


def _state(partition: str, names: set[str]) -> PartitionMetafile:
    return PartitionMetafile(partition, PARTITION_METAFILE in names, bool(names & METAFILES - {PARTITION_METAFILE}))


def _with_data(table: HudiTable) -> list[PartitionMetafile]:
    """Folders with files of completed instants."""
    names: dict[str, set[str]] = {}
    times: dict[str, set[InstantTime]] = {}
    for folder, name in _names(table):
        time = _time_in(name)
        if time is not None:
            times.setdefault(folder, set()).add(time)
        elif name in METAFILES:
            names.setdefault(folder, set()).add(name)
    is_done = {time: table.timeline.is_completed_or_archived(time) for time in set().union(*times.values())}
    return [
        _state(path, names.get(path, set())) for path in sorted(times) if any(is_done[time] for time in times[path])
    ]


def _names(table: HudiTable) -> Iterator[tuple[str, str]]:
    """The folder and the name of each file of the table."""
    top = table.storage.list_folder("")
    listed = table.context.threads.map(
        partial(table.storage.list_prefix, recursive=True), [name for name in top.folders if name != META_FOLDER]
    )
    for files in (top.files, *listed):
        for file in files:
            folder, _, name = file.path.rpartition("/")
            yield folder, name


def _time_in(name: str) -> InstantTime | None:
    parsed = BaseFileName.parse(name) or LogFileName.parse(name)
    return None if parsed is None else parsed.instant_time
