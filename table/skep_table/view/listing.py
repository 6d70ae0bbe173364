"""Where a view learns which partitions and files there are: a protocol, and its implementation over storage."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, Protocol

from skep_table.names import META_FOLDER, PARTITION_METAFILE
from skep_table.runner import Runner
from skep_table.storage import FileStatus, Storage

_METAFILES: Final = frozenset({PARTITION_METAFILE, *(f"{PARTITION_METAFILE}.{ext}" for ext in ("parquet", "orc"))})
_FOLDERS_A_TASK: Final = 256


class Listing(Protocol):
    """Partition paths, and the files of each with their size; committed or not."""

    def partitions(self) -> list[str]: ...

    def files(self, partition_path: str) -> list[FileStatus]: ...


class StorageListing:
    """Lists storage: one partition by one call, all of them by recursive ones, after which single ones cost nothing."""

    def __init__(self, storage: Storage, runner: Runner) -> None:
        self._storage = storage
        self._runner = runner
        self._listed: dict[str, list[FileStatus]] | None = None

    def partitions(self) -> list[str]:
        """The folders with a partition metafile. What lies below a partition's folder is not looked at, as in Hudi."""
        if self._listed is None:
            self._listed = self._list_all()
        return sorted(self._listed)

    def files(self, partition_path: str) -> list[FileStatus]:
        if self._listed is not None:
            return self._listed.get(partition_path, [])
        return self._storage.list_prefix(partition_path)

    def _list_all(self) -> dict[str, list[FileStatus]]:
        top = self._storage.list_prefix("")
        if any(file.name in _METAFILES for file in top):
            return {"": top}
        folders: dict[str, list[FileStatus]] = defaultdict(list)
        partitions: set[str] = set()
        for files in self._runner.map(self._below, self._tasks()):
            for file in files:
                folder, _, name = file.path.rpartition("/")
                if folder.partition("/")[0] == META_FOLDER:
                    continue  # the metadata table has partitions of its own
                folders[folder].append(file)
                if name in _METAFILES:
                    partitions.add(folder)
        return {folder: folders[folder] for folder in partitions if not _lies_below(folder, partitions)}

    def _tasks(self) -> list[list[str]]:
        """Top folders in portions; where an object store has many, all in one go: a call for each would be slower."""
        folders = [name for name in self._storage.list_folders("") if name != META_FOLDER]
        if len(folders) > _FOLDERS_A_TASK and not self._storage.flags.atomic_rename:
            return [[""]]
        portion = max(1, min(_FOLDERS_A_TASK, len(folders) // 16))
        return [folders[i : i + portion] for i in range(0, len(folders), portion)]

    def _below(self, folders: list[str]) -> list[FileStatus]:
        return [file for folder in folders for file in self._storage.list_prefix(folder, recursive=True)]


def _lies_below(folder: str, partitions: set[str]) -> bool:
    parts = folder.split("/")
    return any("/".join(parts[:depth]) in partitions for depth in range(1, len(parts)))
