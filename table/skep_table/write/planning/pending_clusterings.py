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
from skep_table.commit.parts.hash_rings import planned_resizes
from skep_table.commit.undo.rollback import roll_back
from skep_table.plug_ins import find_strategy
from skep_table.table import HudiTable

GROUP: Final = "skep.clustering.updates"
_REJECT, _ALLOW = "RejectUpdateStrategy", "AllowUpdateStrategy"

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
    " those to buckets that one splits or merges are rejected in any case",
)
ROLLBACK_ON_CONFLICT = option(
    "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
    boolean,
    False,
    "Where such writes are allowed: the clustering is rolled back first, instead of giving up when it completes",
)


def settle_clusterings(table: HudiTable, met: Met) -> None:
    """CommitConflictError when the options refuse the write."""
    if not met:
        return
    options = table.options
    name = options.value(UPDATES_STRATEGY)
    if name == _REJECT or _resized(table, met):
        refuse(table, met)
    if name != _ALLOW:
        strategy: UpdateStrategy = find_strategy(GROUP, name, UPDATES_STRATEGY, (_REJECT, _ALLOW))
        strategy(table, met, options)
    if options.value(ROLLBACK_ON_CONFLICT):
        _roll_back(table, set(met.values()))


def _resized(table: HudiTable, met: Met) -> bool:
    """Whether one of the clusterings splits or merges buckets: its executor may be Hudi's, which does not look whether
    their groups were written to."""
    times = set(met.values())
    return any(i.requested_time in times and planned_resizes(table, i) for i in table.timeline.pending())


def refuse(table: HudiTable, met: Met) -> None:
    """CommitConflictError that names the first of them."""
    (path, file_id), instant = min(met.items())
    raise CommitConflictError(
        f"table {table.config.name}: rows of this write lie in {join(path, file_id)}, which the pending clustering"
        f" {instant} is to rewrite",
        hint="let the clustering complete, or roll it back",
        instant=instant,
        path=join(path, file_id),
    )


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
