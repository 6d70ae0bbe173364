"""What cleans have left: how far back time travel goes, and whether a snapshot is too old to plan a read from.

Partitions are listed after the timeline was read. Where a clean deleted files in between, their file groups would be
missing from a plan without an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from skep_format.errors import InputError, StorageError
from skep_format.instant_time import AFTER_ALL, BEFORE_ALL, InstantTime
from skep_format.names import BaseFileName, LogFileName, join
from skep_format.table_config import load_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.plans import CleanerPlan, CleanMetadata
from skep_format.timeline.timeline import Timeline
from skep_table.table import HudiTable


def check_not_cleaned(table: HudiTable, as_of: InstantTime) -> None:
    """Raises InputError when files that the table had at `as_of` were cleaned away, or are about to be.

    A clean records which instant is the earliest that it leaves whole; one by file versions records none, and then the
    files that it deleted decide. What a savepoint keeps stays whole before that, too.
    """
    if _is_kept(table, as_of):
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


def _deleted_files(table: HudiTable, clean: Instant) -> Iterator[str]:
    """The files of a clean that records no earliest instant, relative to the table."""
    if clean.is_completed:
        metadata = table.plan(clean)
        if isinstance(metadata, CleanMetadata) and not metadata.earliest_commit_to_retain:
            for partition, part in (metadata.partition_metadata or {}).items():
                for file in part.success_delete_files or ():
                    yield join(partition, file.rpartition("/")[2])
        return
    plan = table.requested_plan(CleanerPlan, clean)
    if plan is not None and not (plan.earliest_instant_to_retain and plan.earliest_instant_to_retain.timestamp):
        for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items():
            for planned in files:
                yield join(partition, (planned.file_path or "").rpartition("/")[2])


def _earliest_left(table: HudiTable, clean: Instant) -> InstantTime | None:
    """The earliest instant as of which a clean leaves the table whole; None where it records none."""
    if not clean.is_completed:
        plan = table.requested_plan(CleanerPlan, clean)
        retained = plan.earliest_instant_to_retain if plan else None
        return (retained and retained.timestamp) or None
    metadata = table.plan(clean)
    return (isinstance(metadata, CleanMetadata) and metadata.earliest_commit_to_retain) or None


def _is_kept(table: HudiTable, as_of: InstantTime) -> bool:
    """Whether the last commit that is read as of then has a savepoint."""
    last = table.timeline.data().completed().until(as_of).last()
    return last is not None and table.timeline.completed().of(Action.SAVEPOINT).contains(last.requested_time)


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


DELETED: Final = "deleted by a clean meanwhile"
"""Part of the message of `files_deleted`, which Spark wraps in errors of its own."""


def files_deleted(table: HudiTable, what: object) -> StorageError:
    """The error for a read whose files a clean deleted after it was planned."""
    return StorageError(
        f"table {table.config.name}: a file of this read was {DELETED}: {what}",
        hint="read again; hoodie.cleaner.commits.retained has to outlast the longest read. A file that stays missing is"
        " lost: skep fsck names all of them",
        path=table.storage.root,
    )
