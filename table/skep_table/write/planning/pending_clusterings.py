"""Writes to file groups of a pending clustering: refused, allowed, or the clustering is rolled back first."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from skep_format.errors import CommitConflictError
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId, join
from skep_format.options import Options, boolean, option
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.commit.undo.rollback import roll_back
from skep_table.keys.hash_rings import planned_resizes
from skep_table.plug_ins import find_strategy
from skep_table.table import HudiTable

GROUP: Final = "skep.clustering.updates"
_REJECT, _ALLOW = "RejectUpdateStrategy", "AllowUpdateStrategy"
_DOUBLE: Final = "ConsistentBucketDuplicateUpdateStrategy"
"""Rows go to the groups that a resize replaces and to those that it makes, whichever is read."""

log = logging.getLogger("skep.write")

Met = Mapping[FileGroupId, InstantTime]
"""File groups that a write changes and a pending clustering is going to rewrite → the instant of the clustering."""


class UpdateStrategy(Protocol):
    """Raises CommitConflictError where the write is to give way; otherwise it goes on, and the clustering gives up."""

    def __call__(self, table: HudiTable, met: Met, options: Options) -> None: ...


UPDATES_STRATEGY = option(
    "hoodie.clustering.updates.strategy",
    lambda text: text.strip().rpartition(".")[2].removeprefix("Spark"),
    _REJECT,
    "Writes to files that a clustering is to rewrite: RejectUpdateStrategy, AllowUpdateStrategy, or an entry point;"
    " those to buckets that one splits or merges are rejected by all but ConsistentBucketDuplicateUpdateStrategy, by"
    " which they go to the old buckets and to the new ones",
)
ROLLBACK_ON_CONFLICT = option(
    "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
    boolean,
    False,
    "Where such writes are allowed: the clustering is rolled back first, instead of giving up when it completes",
)


def settle_clusterings(table: HudiTable, met: Met, *, may_double: bool = False) -> bool:
    """Whether the rows are written twice, as `DOUBLE` has it. CommitConflictError when the options refuse the write.

    `may_double`: the write can have its rows in the groups before a resize and in those after it.
    """
    if not met:
        return False
    options = table.options
    name = options.value(UPDATES_STRATEGY)
    resized = _resized(table, met)
    if name in (_REJECT, _DOUBLE) or resized:
        may_double &= table.config.captured is None  # as changes the copies would be there twice
        if resized == frozenset(met.values()) and name == _DOUBLE and may_double:
            return True
        refuse(table, met)
    if name != _ALLOW:
        strategy: UpdateStrategy = find_strategy(GROUP, name, UPDATES_STRATEGY, (_REJECT, _ALLOW))
        strategy(table, met, options)
    if options.value(ROLLBACK_ON_CONFLICT):
        _roll_back(table, set(met.values()))
    return False


def _resized(table: HudiTable, met: Met) -> frozenset[InstantTime]:
    """Those of the clusterings that split or merge buckets: the executor may be Hudi's, which does not look whether
    their groups were written to."""
    times = set(met.values())
    found = (i for i in table.timeline.pending() if i.requested_time in times)
    return frozenset(i.requested_time for i in found if planned_resizes(table, i))


def refuse(table: HudiTable, met: Met) -> None:
    """CommitConflictError that names the first of them."""
    (path, file_id), instant = min(met.items())
    problem = f"rows of this write lie in {join(path, file_id)}, which the pending clustering {instant} is to rewrite"
    hint = "let the clustering complete, or roll it back"
    raise table.error(CommitConflictError, problem, hint=hint, instant=instant, path=join(path, file_id))


def _roll_back(table: HudiTable, instants: set[InstantTime]) -> None:
    """Those that completed meanwhile stay: the check for conflicts sees them."""
    with table.context.locked():
        fresh = table.reload()
        for instant in fresh.timeline.pending():
            if instant.requested_time in instants and is_clustering(fresh, instant):
                log.warning("table %s: clustering %s gives way to a write", table.config.name, instant.requested_time)
                table.context.lock.ensure_held()
                roll_back(fresh, instant)
                fresh = fresh.reload()
