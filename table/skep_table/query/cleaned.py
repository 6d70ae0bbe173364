"""What cleans have left: how far back time travel goes, and whether a look at a table is too old to be planned from.

A listing is made after the timeline was read. Where a clean took files away in between, their file groups would be
missing from a plan without a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skep_table.errors import InputError, StorageError
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.plans import CleanerPlan, CleanMetadata
from skep_table.timeline.timeline import Timeline


def check_not_cleaned(table: HudiTable, as_of: str) -> None:
    """Raises InputError when files that the table had at `as_of` were cleaned away, or are about to be.

    A clean says which instant is the earliest that it leaves whole; a clean by file versions says none, and then the
    start of the active timeline stands in. What a savepoint keeps stays whole before that, too.
    """
    cleans = table.timeline.of(Action.CLEAN)
    last = cleans.completed().last()
    found = [*([last] if last is not None else []), *cleans.pending()]
    earliest = max((_earliest_left(table, clean) or table.timeline.first_time or "" for clean in found), default="")
    if as_of < earliest and not _is_kept(table, as_of):
        raise InputError(
            f"the cleaner has removed files that the table had at {as_of}; it can be read as of {earliest} or later",
            hint="clean less eagerly (hoodie.cleaner.commits.retained), or savepoint what must stay readable",
            option="as_of",
            found=as_of,
            expected=f"≥ {earliest}",
        )


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
    known = set(_times(table.timeline.of(Action.CLEAN)))
    try:
        return any(
            needed < (_earliest_left(table, clean) or "~")
            for clean in now.of(Action.CLEAN)
            if clean.requested_time not in known
        )
    except FileNotFoundError:
        return True  # it has completed meanwhile


def _times(timeline: Timeline) -> Iterator[str]:
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
