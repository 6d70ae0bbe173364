"""The files that an instant may have left: found by its markers, or by listing where there are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from skep_table.commit.markers import list_markers
from skep_table.commit.setting import CommitSetting
from skep_table.names import META_FOLDER, PARTITION_METAFILE, BaseFileName, LogFileName, join
from skep_table.properties import parse_properties
from skep_table.storage import Storage
from skep_table.table import HudiTable


def files_of_instant(table: HudiTable, instant_time: str, setting: CommitSetting) -> list[str]:
    """Data files (paths relative to the table) that bear the instant's time, whether or not they were finished."""
    markers = list_markers(table.storage, instant_time)
    if markers is not None:
        return sorted({marker.data_path for marker in markers})
    look = partial(_bearing, table.storage, instant_time)
    listed = setting.runner.map(look, table.view(metadata=False).partitions())
    return sorted(path for paths in listed for path in paths)


def _bearing(storage: Storage, instant_time: str, partition: str) -> list[str]:
    found = []
    for file in storage.list_prefix(partition):
        name = BaseFileName.parse(file.name) or LogFileName.parse(file.name)
        if name is not None and name.instant_time == instant_time:
            found.append(file.path)
    return found


def delete_files(storage: Storage, paths: Iterable[str], setting: CommitSetting) -> list[str]:
    """Deletes what is there of `paths` and answers it."""
    listed = list(paths)
    there = setting.runner.map(partial(storage.delete, durable=False), listed)
    storage.sync(listed)
    return [path for path, deleted in zip(listed, there, strict=True) if deleted]


def delete_new_partitions(storage: Storage, paths: Iterable[str], instant_time: str) -> None:
    """Takes back partition metafiles that came with the instant, where nothing else came to the partition since."""
    for partition in sorted({path.rpartition("/")[0] for path in paths}):
        metafile = join(partition, PARTITION_METAFILE)
        there = [file.path for file in storage.list_prefix(partition)]
        if there == [metafile] and _came_with(storage, metafile, instant_time):
            storage.delete(metafile)
            for folder in _upwards(partition):
                if storage.list_prefix(folder, recursive=True):
                    break
                storage.delete_folder(folder)


def _came_with(storage: Storage, metafile: str, instant_time: str) -> bool:
    return parse_properties(storage.read(metafile)).get("commitTime") == instant_time


def _upwards(partition: str) -> Iterator[str]:
    """The partition's folder and those above it, without the table's own."""
    while partition:
        assert partition != META_FOLDER
        yield partition
        partition = partition.rpartition("/")[0]
