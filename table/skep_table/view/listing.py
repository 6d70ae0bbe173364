"""The partitions and files that a view reads: a protocol, and its implementation over storage."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import ReferenceType

from skep_format.metafile import METAFILES, folders_above, hidden, partition_below
from skep_format.names import META_FOLDER, join
from skep_format.runner import Runner, ThreadRunner
from skep_format.storage import FileStatus, FolderListing, Storage

_FOLDERS_A_TASK: Final = 256
_KEPT_FILES: Final = 200_000
_STRIPES: Final = 64  # threads that list different partitions seldom wait for each other
_WALKED_MOST: Final = 16  # of an object store: a recursive listing has 1,000 files a request


@dataclass(frozen=True, slots=True)
class FolderFilter:
    """Where wanted partitions may be: in or below the folders `start` (paths relative to the table).

    `keep` takes folders below those and returns the ones in or below which a wanted partition may be. `exact`: no
    other than the folders `start` themselves is wanted.
    """

    start: tuple[str, ...]
    keep: Callable[[Sequence[str]], list[str]]
    exact: bool = False


class Listing(Protocol):
    """Partition paths, and the files of each with their size; committed or not."""

    def partitions(self, within: FolderFilter | None = None) -> list[str]:
        """Partition paths, sorted. `within` spares listing others; they may be in the answer all the same."""
        ...

    def files(self, partition_path: str) -> list[FileStatus]:
        """The files of a partition, sorted by path."""
        ...

    def prefetch(self, partition_paths: Collection[str]) -> None:
        """Reads the files of several partitions at once, where that is cheaper: they are the next ones to be read."""
        ...


class Listed(dict[str, list[FileStatus]]):
    """The files of all partitions of a table, by partition path."""


class StorageListings:
    """The listings of one snapshot: storage lists a partition once, whatever number of views and threads reads it.

    At most `_KEPT_FILES` files are kept (about 50 MB). A listing of the whole table that is larger lives as long as a
    view that uses it, single partitions beyond the limit are listed again.
    """

    def __init__(self, storage: Storage, runner: Runner) -> None:
        self._storage = storage
        self._runner = runner
        self._by_partition: OrderedDict[str, list[FileStatus]] = OrderedDict()
        self._count = 0
        self._all: Listed | ReferenceType[Listed] | None = None
        self._lock = threading.Lock()
        self._at_once: dict[int, threading.Lock] = {}  # made when they are used: most snapshots list little

    def __reduce__(self) -> tuple[object, ...]:
        return StorageListings, (self._storage, ThreadRunner())

    def files(self, partition_path: str) -> list[FileStatus]:
        """The files of one partition by one call, unless they are known."""
        with self._at_once.setdefault(hash(partition_path) % _STRIPES, threading.Lock()):
            with self._lock:
                whole = self._whole()
                if whole is not None:
                    return whole.get(partition_path, [])
                known = self._by_partition.get(partition_path)
                if known is not None:
                    self._by_partition.move_to_end(partition_path)
                    return known
            found = self._storage.list_prefix(partition_path)
            self._keep(partition_path, found)
            return found

    def prefetch(self, partition_paths: Collection[str]) -> None:
        """Lists partitions of an object store at the same time; elsewhere threads cost more than they save."""
        if len(partition_paths) > 1 and not self._storage.flags.atomic_rename:
            self._runner.map(self.files, list(partition_paths))

    def _keep(self, partition_path: str, found: list[FileStatus]) -> None:
        with self._lock:
            before = self._by_partition.pop(partition_path, None)
            self._count -= 0 if before is None else len(before) + 1
            self._by_partition[partition_path] = found
            self._count += len(found) + 1
            while self._count > _KEPT_FILES and len(self._by_partition) > 1:
                self._count -= len(self._by_partition.popitem(last=False)[1]) + 1

    def within(self, wanted: FolderFilter) -> list[str] | None:
        """The wanted partitions, folder by folder, sorted; all partitions where those are known.

        None where so many folders are wanted that listing all of them takes fewer requests.
        """
        with self._lock:
            whole = self._whole()
        if whole is not None:
            return sorted(whole)
        partitions: list[str] = []
        level = list(wanted.start)
        while level:
            below: list[str] = []
            for folder, found in zip(level, self._runner.map(self._folder, level), strict=True):
                if any(file.name in METAFILES for file in found.files):
                    inner = partition_below(self._storage, folder) if found.folders and folder else None
                    if inner is not None:
                        raise hidden(folder, inner)
                    partitions.append(folder)
                    self._keep(folder, found.files)
                else:
                    below += [join(folder, name) for name in found.folders if folder or name != META_FOLDER]
            level = wanted.keep(below) if below else []
            if len(level) > _WALKED_MOST and len(level) > len(below) // 4 and not self._storage.flags.atomic_rename:
                return None
        return sorted(partitions)

    def _folder(self, path: str) -> FolderListing:
        with self._lock:
            known = self._by_partition.get(path)
        if known is not None and any(file.name in METAFILES for file in known):
            return FolderListing(known, [])
        return self._storage.list_folder(path)

    def all(self) -> Listed:
        """The files of all partitions, by recursive calls."""
        with self._lock:
            whole = self._whole()
            if whole is None:
                whole = Listed(self._list_all())
                self._all = whole if sum(map(len, whole.values())) <= _KEPT_FILES else weakref.ref(whole)
                self._by_partition.clear()
                self._count = 0
            return whole

    def _whole(self) -> Listed | None:
        return self._all() if isinstance(self._all, ReferenceType) else self._all

    def _list_all(self) -> dict[str, list[FileStatus]]:
        top = self._storage.list_folder("")
        if any(file.name in METAFILES for file in top.files):
            return {"": top.files}
        folders: dict[str, list[FileStatus]] = defaultdict(list)
        partitions: set[str] = set()
        for files in self._runner.map(self._below, self._tasks(top.folders)):
            for file in files:
                folder, _, name = file.path.rpartition("/")
                if folder.partition("/")[0] == META_FOLDER:
                    continue  # the metadata table has partitions of its own
                folders[folder].append(file)
                if name in METAFILES:
                    partitions.add(folder)
        for folder in partitions:
            for outer in folders_above(folder):
                if outer in partitions:
                    raise hidden(outer, folder)
        return {folder: folders[folder] for folder in partitions}

    def _below(self, folders: list[str]) -> list[FileStatus]:
        return [file for folder in folders for file in self._storage.list_prefix(folder, recursive=True)]

    def _tasks(self, top: list[str]) -> list[list[str]]:
        """Top folders in portions; where an object store has many, all in one go: a call for each would be slower."""
        folders = [name for name in top if name != META_FOLDER]
        if len(folders) > _FOLDERS_A_TASK and not self._storage.flags.atomic_rename:
            return [[""]]
        portion = max(1, min(_FOLDERS_A_TASK, len(folders) // 16))
        return [folders[i : i + portion] for i in range(0, len(folders), portion)]


class StorageListing:
    """The files in storage, as one view reads them: one partition by one call, all of them by recursive calls."""

    def __init__(self, listings: StorageListings) -> None:
        self._listings = listings
        self._all: Listed | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return StorageListing, (self._listings,)

    def partitions(self, within: FolderFilter | None = None) -> list[str]:
        """The folders with a partition metafile. FormatError where one lies in the folder of another."""
        if self._all is None:
            found = None if within is None else self._listings.within(within)
            if found is not None:
                return found
            self._all = self._listings.all()
        return sorted(self._all)

    def files(self, partition_path: str) -> list[FileStatus]:
        """The files of a partition, committed or not."""
        whole = self._all
        return self._listings.files(partition_path) if whole is None else whole.get(partition_path, [])

    def prefetch(self, partition_paths: Collection[str]) -> None:
        """Lists them at the same time where requests take long."""
        if self._all is None:
            self._listings.prefetch(partition_paths)
