"""What cleans have left: how far back time travel goes, and whether a look at a table is too old to be planned from.

A listing is made after the timeline was read. Where a clean took files away in between, their file groups would be
missing from a plan without a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from skep_table.errors import InputError, StorageError
from skep_table.names import BaseFileName, LogFileName, join
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.plans import CleanerPlan, CleanMetadata
from skep_table.timeline.timeline import Timeline


def check_not_cleaned(table: HudiTable, as_of: str) -> None:
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


def not_whole(table: HudiTable, as_of: str) -> str | None:
    """Why the files that the table had at `as_of` are not all there; None where they are, savepoints aside."""
    cleans = _deleting(table.timeline)
    last = next((clean for clean in reversed(cleans) if clean.is_completed), None)
    found = [*([last] if last is not None else []), *(clean for clean in cleans if not clean.is_completed)]
    earliest = max((_earliest_left(table, clean) or table.timeline.first_time or "" for clean in found), default="")
    if as_of < earliest:
        return f"it can be read as of {earliest} or later"
    gone_file = _deleted_by_versions(table, cleans, as_of)
    return None if gone_file is None else f"{gone_file} is among them"


def _deleting(timeline: Timeline) -> list[Instant]:
    """The cleans that have begun to delete: a requested one has not."""
    return [clean for clean in timeline.of(Action.CLEAN) if clean.state is not State.REQUESTED]


def _deleted_by_versions(table: HudiTable, cleans: Sequence[Instant], as_of: str) -> str | None:
    """A deleted file of a slice that was the newest of its group at `as_of`."""
    newest: dict[str, dict[str, tuple[str, str]]] = {}  # by partition and file id: base instant, path
    for clean in cleans:
        for path in _deleted_files(table, clean):
            partition, _, file = path.rpartition("/")
            name = BaseFileName.parse(file) or LogFileName.parse(file)
            if name is not None and name.instant_time <= as_of:
                groups = newest.setdefault(partition, {})
                groups[name.file_id] = max(groups.get(name.file_id, ("", "")), (name.instant_time, path))
    if not newest:
        return None
    view = table.view(as_of=as_of)
    for partition, groups in newest.items():
        left = {slice_.file_id: slice_.base_instant for slice_ in view.slices(partition)}
        for file_id, (instant, path) in groups.items():
            if (partition, file_id) not in view.facts.replaced and left.get(file_id, "") < instant:
                return path
    return None


def _deleted_files(table: HudiTable, clean: Instant) -> Iterator[str]:
    """The files of a clean that records no earliest instant, relative to the table."""
    if clean.is_completed:
        account = table.plan(clean)
        if isinstance(account, CleanMetadata) and not account.earliest_commit_to_retain:
            for partition, part in (account.partition_metadata or {}).items():
                for file in part.success_delete_files or ():
                    yield join(partition, file.rpartition("/")[2])
        return
    plan = table.requested_plan(CleanerPlan, clean)
    if plan is not None and not (plan.earliest_instant_to_retain and plan.earliest_instant_to_retain.timestamp):
        for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items():
            for planned in files:
                yield join(partition, (planned.file_path or "").rpartition("/")[2])


def _earliest_left(table: HudiTable, clean: Instant) -> str | None:
    """The earliest instant as of which a clean leaves the table whole, where it says one."""
    if not clean.is_completed:
        plan = table.requested_plan(CleanerPlan, clean)
        retained = plan.earliest_instant_to_retain if plan else None
        return (retained and retained.timestamp) or None
    account = table.plan(clean)
    return (isinstance(account, CleanMetadata) and account.earliest_commit_to_retain) or None


def _is_kept(table: HudiTable, as_of: str) -> bool:
    """Whether the last commit that is read as of then has a savepoint."""
    commits = [i.requested_time for i in table.timeline.data().completed() if i.requested_time <= as_of]
    return bool(commits) and table.timeline.completed().of(Action.SAVEPOINT).contains(max(commits))


def is_outdated(table: HudiTable, as_of: str | None = None) -> bool:
    """Whether files that the table had when it was opened may be gone: those of its newest state, or of `as_of`.

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
        return True  # the account of what was cleaned since may be archived, too
    known = set(_times(_deleting(table.timeline)))
    try:
        return any(
            needed < (_earliest_left(table, clean) or "~")
            for clean in _deleting(now)
            if clean.requested_time not in known
        )
    except FileNotFoundError:
        return True  # it has completed meanwhile


def _times(timeline: Iterable[Instant]) -> Iterator[str]:
    return (instant.requested_time for instant in timeline)


@contextmanager
def files_there(table: HudiTable) -> Iterator[None]:
    """StorageError for a file of a read that is gone."""
    try:
        yield
    except FileNotFoundError as error:
        raise gone(table, error) from error


def gone(table: HudiTable, what: object) -> StorageError:
    return StorageError(
        f"table {table.config.name}: a file of this read is gone, a clean took it meanwhile: {what}",
        hint="read again; hoodie.cleaner.commits.retained has to outlast the longest read",
        path=table.storage.root,
    )
