"""Changing the history of layout 2: adding instants, merging full levels, deleting what no reader needs (format guide
14.7).

For the holder of the table's lock. A file takes effect by the manifest that lists it, and `_version_` is replaced last:
whatever a crash leaves before that is unknown to readers, and replaced or deleted by the next change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from skep_format.errors import FormatError
from skep_format.instant_time import InstantTime
from skep_format.storage import Storage
from skep_format.timeline import lsm_files
from skep_format.timeline.instant import Instant
from skep_format.timeline.lsm_archive import LsmArchive
from skep_format.timeline.lsm_files import HistoryFile, HistoryManifest
from skep_format.timeline.lsm_rows import HistoryRow, merge_files, write_rows

_MERGED_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class LsmHistory:
    """The history in `folder`, as its only writer.

    `files_per_level`: so many files of a level are merged into one of the next. `manifests_kept`: so many last states
    stay readable for those that read the history meanwhile. `check` is called before each step that takes effect, and
    raises where the caller must not go on. `release` is the Hudi release whose record is written.
    """

    storage: Storage
    folder: str
    files_per_level: int = 10
    manifests_kept: int = 3
    check: Callable[[], object] = lambda: None
    release: str = "1.0.2"

    def missing(self, instants: Sequence[Instant]) -> list[Instant]:
        """Those that the history lacks, in order of time: a crash leaves instants that are in it already."""
        if not instants:
            return []
        first = min(instant.requested_time for instant in instants)
        known = {(each.requested_time, each.action) for each in LsmArchive(self.storage, self.folder).instants(first)}
        by_time = sorted(instants, key=lambda each: (each.requested_time, each.action.value))
        return [each for each in by_time if (each.requested_time, each.action) not in known]

    def add(self, instants: Sequence[Instant], rows: Iterable[HistoryRow]) -> str:
        """Adds completed instants that the history lacks, at least one, as a file of level 0, whose path it returns.

        `rows` are theirs, in order of time, taken one by one.
        """
        manifest = lsm_files.current_manifest(self.storage, self.folder)
        times = [instant.requested_time for instant in instants]
        name = _free_name(manifest, min(times), max(times), 0)
        write_rows(self.storage, self._path(name), rows, self.release)
        self._publish(manifest.successor(self._measured(name)))
        return self._path(name)

    def merge(self) -> None:
        """Merges the oldest files of each level that is full, then deletes states and files that are not kept."""
        manifest, merged = lsm_files.current_manifest(self.storage, self.folder), 0
        level = 0
        while level < lsm_files.MAX_LEVEL:
            sources = _oldest(manifest, level, self.files_per_level)
            if not sources:
                level += 1
                continue
            manifest = self._merged(manifest, sources)
            merged += 1
        self._clean(manifest, self.manifests_kept + merged)

    def _merged(self, manifest: HistoryManifest, sources: Sequence[HistoryFile]) -> HistoryManifest:
        low, high = min(file.low for file in sources), max(file.high for file in sources)
        name = _free_name(manifest, low, high, sources[0].level + 1)
        paths = [self._path(file.name) for file in sources]
        merge_files(self.storage, paths, self._path(name), self.release, self.check)
        return self._publish(manifest.successor(self._measured(name), sources))

    def _publish(self, manifest: HistoryManifest) -> HistoryManifest:
        self.check()
        self.storage.replace_atomic(self._path(lsm_files.manifest_name(manifest.number)), manifest.encode())
        self.storage.replace_atomic(self._path(lsm_files.VERSION_FILE), str(manifest.number).encode())
        return manifest

    def _clean(self, manifest: HistoryManifest, keep: int) -> None:
        names = [file.name for file in self.storage.list_prefix(self.folder)]
        numbers = {name: number for name in names if (number := lsm_files.manifest_number(name)) is not None}
        kept = sorted(number for number in numbers.values() if number <= manifest.number)[-keep:]
        listed = {
            file.name for number in kept for file in lsm_files.read_manifest(self.storage, self.folder, number).files
        }
        manifests = [name for name, number in numbers.items() if number not in kept]
        files = [name for name in names if HistoryFile.parse(name) is not None and name not in listed]
        # Manifests first: none that is left names a file that is not there.
        for outdated in (manifests, files):
            self.storage.delete_many([self._path(name) for name in outdated], durable=False)

    def _measured(self, name: str) -> HistoryFile:
        file = HistoryFile.parse(name, self.storage.size(self._path(name)))
        assert file is not None
        return file

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"


def _free_name(manifest: HistoryManifest, low: InstantTime, high: InstantTime, level: int) -> str:
    """The name of a file that is not in the manifest. Another writer may have left rows out of a file of this range."""
    taken = {file.name for file in manifest.files}
    names = (lsm_files.file_name(low, high, each) for each in range(level, lsm_files.MAX_LEVEL + 1))
    name = next((name for name in names if name not in taken), None)
    if name is None:
        raise FormatError(
            f"{lsm_files.manifest_name(manifest.number)} of the timeline's history has a file from {low} to {high} at"
            " each level",
            found=len(taken),
            expected="levels that are free",
        )
    return name


def _oldest(manifest: HistoryManifest, level: int, count: int) -> list[HistoryFile]:
    """The oldest files of a level that are merged now: so many, or fewer that are large together. Empty for none."""
    files = sorted((f for f in manifest.files if f.level == level), key=lambda file: (file.low, file.high))
    if len(files) < count:
        return []
    chosen: list[HistoryFile] = []
    for file in files:
        if chosen and sum(each.size_bytes for each in chosen) + file.size_bytes > _MERGED_BYTES:
            if len(chosen) > 1:
                break
            chosen = []
        chosen.append(file)
        if len(chosen) == count:
            break
    return chosen if len(chosen) > 1 else []
