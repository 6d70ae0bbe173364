"""Time travel goes back as far as the cleaner left the files."""

from __future__ import annotations

from skep_table.errors import InputError
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action
from skep_table.timeline.plans import CleanMetadata


def check_not_cleaned(table: HudiTable, as_of: str) -> None:
    """Raises InputError when files that the table had at `as_of` were cleaned away.

    The last clean says which instant is the earliest that it left whole; a clean by file versions says none, and then
    the start of the active timeline stands in. What a savepoint keeps stays whole before that, too.
    """
    last = table.timeline.completed().of(Action.CLEAN).last()
    account = table.plan(last) if last is not None else None
    if not isinstance(account, CleanMetadata):
        return
    earliest = account.earliest_commit_to_retain or table.timeline.first_time
    if earliest is not None and as_of < earliest and not _is_kept(table, as_of):
        raise InputError(
            f"the cleaner has removed files that the table had at {as_of}; it can be read as of {earliest} or later",
            hint="clean less eagerly (hoodie.cleaner.commits.retained), or savepoint what must stay readable",
            option="as_of",
            found=as_of,
            expected=f"≥ {earliest}",
        )


def _is_kept(table: HudiTable, as_of: str) -> bool:
    """Whether the last commit that is read as of then has a savepoint."""
    commits = [i.requested_time for i in table.timeline.data().completed() if i.requested_time <= as_of]
    return bool(commits) and table.timeline.completed().of(Action.SAVEPOINT).contains(max(commits))
