"""Files that are missing: what cleans have left, and files that commits name and a listing lacks.

Partitions are listed after the timeline was read. Where a clean deleted files in between, their file groups would be
missing from a plan without an error. A metadata table lists files whether they are there or not, and opening them
fails. A listing of storage shows nothing of what is lost. It is compared with the newest commits and with those that
were read for another reason: that takes no request for a file, and a few small ones for commits, at the same time, once
for each commit. `skep fsck` compares with all commits of the active timeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from skep_format.errors import InputError, StorageError
from skep_format.instant_time import AFTER_ALL, BEFORE_ALL, InstantTime
from skep_format.names import BaseFileName, FileGroupId, LogFileName, join
from skep_format.table_config import load_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import WriteStat
from skep_format.timeline.plans import CleanerPlan, CleanMetadata
from skep_format.timeline.timeline import Timeline
from skep_table.keys.hash_rings import is_copy
from skep_table.table import HudiTable, Written
from skep_table.view import FileView, StorageListing

DELETED: Final = "deleted by a clean meanwhile"
"""Part of the message of `files_deleted`, which Spark wraps in errors of its own."""


def check_not_cleaned(table: HudiTable, as_of: InstantTime) -> None:
    """Raises InputError when files that the table had at `as_of` were cleaned away, or are about to be.

    A clean records which instant is the earliest that it leaves whole; one by file versions records none, and then the
    files that it deleted decide. What a savepoint keeps stays whole before that, too.
    """
    last = table.timeline.data().completed().until(as_of).last()
    if last is not None and table.timeline.completed().of(Action.SAVEPOINT).contains(last.requested_time):
        return
    problem = not_whole(table, as_of)
    if problem is not None:
        raise InputError(
            f"the cleaner has removed files that the table had at {as_of}; {problem}",
            hint="clean less eagerly (hoodie.cleaner.commits.retained), or savepoint what must stay readable",
            option="as_of",
            found=as_of,
        )


def not_whole(table: HudiTable, as_of: InstantTime) -> str | None:
    """Why the files that the table had at `as_of` are not all there; None where they are, savepoints aside."""
    cleans = _deleting(table.timeline)
    last = next((clean for clean in reversed(cleans) if clean.is_completed), None)
    # A later clean may record an earlier instant, or by versions none: what those before it deleted stays deleted.
    recorded = (_earliest_left(table, clean) for clean in cleans)
    unknown = table.timeline.first_time or BEFORE_ALL
    earliest = max(
        (
            time or (unknown if clean is last or not clean.is_completed else BEFORE_ALL)
            for clean, time in zip(cleans, recorded, strict=True)
        ),
        default=BEFORE_ALL,
    )
    if as_of.is_before(earliest):
        return f"it can be read as of {earliest} or later"
    deleted_file = _deleted_by_versions(table, cleans, as_of)
    return None if deleted_file is None else f"{deleted_file} is among them"


def _deleting(timeline: Timeline) -> list[Instant]:
    """The cleans that may have deleted files: a requested one has not."""
    return [clean for clean in timeline.of(Action.CLEAN) if clean.state is not State.REQUESTED]


def _deleted_by_versions(table: HudiTable, cleans: Sequence[Instant], as_of: InstantTime) -> str | None:
    """A deleted file of a slice that was the newest of its group at `as_of`."""
    newest: dict[str, dict[str, tuple[InstantTime, str]]] = {}  # by partition and file id: base instant, path
    for clean in cleans:
        for path in _deleted_files(table, clean):
            partition, _, file = path.rpartition("/")
            name = BaseFileName.parse(file) or LogFileName.parse(file)
            if name is not None and name.instant_time.is_at_or_before(as_of):
                groups = newest.setdefault(partition, {})
                groups[name.file_id] = max(groups.get(name.file_id, (BEFORE_ALL, "")), (name.instant_time, path))
    if not newest:
        return None
    view = table.view(as_of=as_of)
    for partition, groups in newest.items():
        left = {slice_.file_id: slice_.base_instant for slice_ in view.slices(partition)}
        for file_id, (instant, path) in groups.items():
            if (partition, file_id) not in view.states.replaced and left.get(file_id, BEFORE_ALL).is_before(instant):
                return path
    return None


def _deleted_files(table: HudiTable, clean: Instant) -> list[str]:
    """The files of a clean that records no earliest instant, relative to the table."""
    if clean.is_completed:
        metadata = table.plan(clean)
        if not isinstance(metadata, CleanMetadata) or metadata.earliest_commit_to_retain:
            return []
        return metadata.deleted
    plan = table.requested_plan(CleanerPlan, clean)
    if plan is None or (plan.earliest_instant_to_retain and plan.earliest_instant_to_retain.timestamp):
        return []
    return [join(partition, name) for partition, names in plan.file_names.items() for name in names]


def _earliest_left(table: HudiTable, clean: Instant) -> InstantTime | None:
    """The earliest instant as of which a clean leaves the table whole; None where it records none."""
    if not clean.is_completed:
        plan = table.requested_plan(CleanerPlan, clean)
        retained = plan.earliest_instant_to_retain if plan else None
        return (retained and retained.timestamp) or None
    metadata = table.plan(clean)
    return (isinstance(metadata, CleanMetadata) and metadata.earliest_commit_to_retain) or None


def is_outdated(table: HudiTable, as_of: InstantTime | None = None) -> bool:
    """Whether files of the table as it was opened may have been deleted: of its newest state, or of `as_of`.

    One listing of the timeline, and a read of each clean that was not known yet.
    """
    now = table.timeline_now()
    completed = [instant.requested_time for instant in table.timeline.data().completed()]
    if not completed:
        return False
    still = {instant.requested_time for instant in now.data().completed()}
    if any(time not in still and not now.is_archived(time) for time in completed):
        return True  # rolled back, with its files
    needed = as_of if as_of is not None else min([completed[-1], *_times(table.timeline.data().pending())])
    if now.is_archived(needed) and not table.timeline.is_archived(needed):
        return True  # the metadata of cleans since then may be archived, too
    known = set(_times(_deleting(table.timeline)))
    try:
        return any(
            needed.is_before(_earliest_left(table, clean) or AFTER_ALL)
            for clean in _deleting(now)
            if clean.requested_time not in known
        )
    except FileNotFoundError:
        return True  # it has completed meanwhile


def has_lost_indexes(table: HudiTable) -> bool:
    """Whether a partition of the metadata table that the snapshot has was dropped since it was taken.

    What is dropped goes from the table's settings first, and from the storage after that. So what was read before is
    whole where the settings still have it.
    """
    known = set(table.config.metadata_partitions)
    return bool(known) and not known <= set(load_table_config(table.storage).metadata_partitions)


def _times(timeline: Iterable[Instant]) -> Iterator[InstantTime]:
    return (instant.requested_time for instant in timeline)


@contextmanager
def files_there(table: HudiTable) -> Iterator[None]:
    """A file of a read that is missing becomes StorageError."""
    try:
        yield
    except FileNotFoundError as error:
        raise files_deleted(table, error) from error


def files_deleted(table: HudiTable, what: object) -> StorageError:
    """The error for a read whose files a clean deleted after it was planned."""
    return table.error(
        StorageError,
        f"a file of this read was {DELETED}: {what}",
        hint="read again; hoodie.cleaner.commits.retained has to outlast the longest read. A file that stays missing is"
        " lost: skep fsck names all of them",
        path=table.storage.root,
    )


def named_partitions(table: HudiTable, view: FileView) -> Sequence[str]:
    """The partitions in which the commits that are looked at wrote; none where a metadata table lists the files."""
    return table.written_partitions() if isinstance(view.listing, StorageListing) else ()


def check_named_files(
    table: HudiTable, view: FileView, partitions: Sequence[str], as_of: InstantTime | None = None
) -> None:
    """StorageError for a file of the newest slices that a commit until `as_of` names and the view does not list."""
    if not isinstance(view.listing, StorageListing):
        return
    for partition in partitions:
        wanted = table.written_in(partition)
        if not wanted:
            continue
        there = {file.name for file in view.listing.files(partition)}
        lacking = [(time, stat) for time, stat in wanted if stat.path.rpartition("/")[2] not in there]
        if lacking:
            _check(table, view, partition, lacking, as_of or AFTER_ALL)


def refuse_lost_files(
    table: HudiTable, view: FileView, partitions: Sequence[str], as_of: InstantTime | None = None
) -> None:
    """The same for what makes new files of those that are listed. What was deleted since the snapshot was taken, as by
    a clean, is not lost: the check for conflicts finds whether it matters."""
    try:
        check_named_files(table, view, partitions, as_of)
    except StorageError:
        if not is_outdated(table):
            raise


def belongs_to(table: HudiTable, wrote: InstantTime, stat: WriteStat, base_instant: InstantTime) -> bool:
    """Whether a log file that `wrote` has written belongs to the slice of a base file, or to a later one."""
    if table.format.logs.of_delta_commit:
        completed = table.timeline.completion_time_of(wrote)
        return completed is not None and completed.is_at_or_after_request(base_instant)
    name = LogFileName.parse(stat.path.rpartition("/")[2])
    return name is not None and name.instant_time.is_at_or_after(base_instant)


def _check(table: HudiTable, view: FileView, partition: str, lacking: Sequence[Written], as_of: InstantTime) -> None:
    """A clean may have deleted what lies before the newest slice of a group, and all of a group that was replaced."""
    bases = {
        group.file_id: max((each.base_instant for each in group.slices if each.base_file), default=BEFORE_ALL)
        for group in view.file_groups(partition)
    }
    for time, stat in lacking:
        if time.is_after(as_of) or FileGroupId(partition, stat.file_id) in view.states.replaced:
            continue
        base = bases.get(stat.file_id, BEFORE_ALL)
        if (belongs_to(table, time, stat, base) if stat.is_log else base.is_before(time)) and not is_copy(table, stat):
            what = f"{stat.path} is missing, which commit {time} wrote"
            if table.storage.exists(stat.path):
                path = stat.partition_path
                what = f"partition {path!r}, of which commit {time} wrote {stat.path}, has lost its metafile"
            hint = "skep fsck names all files that are missing; see docs/runbook.md"
            raise table.error(StorageError, what, hint=hint, path=stat.path, instant=time)
