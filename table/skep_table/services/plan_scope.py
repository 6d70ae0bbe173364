"""Which partitions the plan of a compaction or clustering has to list: those that changed since an earlier plan.

A plan that has seen every candidate of the table records its coverage in its extra metadata: up to which write, and the
partitions in which it left candidates out (for a limit, or since another plan had claimed them). The next plan of the
same service lists these and the partitions that writes and rollbacks touched since. It lists the whole table where that
is not known: no plan of the last few on the timeline records it (Hudi's do not), the commits since are archived, the
table was restored, or other options choose the candidates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import RollbackMetadata
from skep_format.timeline.timeline import WRITE_ACTIONS, format_instant_time
from skep_table.commit.options import INSTANT_LAG_SECONDS
from skep_table.table import HudiTable
from skep_table.view import FileView

COVERAGE: Final = "skep.plan.coverage"
"""In the extra metadata of a plan: its coverage, as JSON."""

_MOST_LEFT: Final = 1_000  # a plan that leaves more partitions out does not list them, and covers nothing
_PLANS_READ: Final = 5


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a plan has seen: the writes requested up to `until`, but for candidates in the partitions `left`.

    `chosen_by` identifies the options that choose candidates; plans with others see other candidates.
    """

    until: InstantTime
    left: tuple[str, ...] = ()
    chosen_by: str = ""

    @classmethod
    def of(cls, extra: Mapping[str, str] | None) -> Coverage | None:
        """That of a plan with this extra metadata; None where it records none that can be read."""
        try:
            found = json.loads((extra or {})[COVERAGE])
            return cls(InstantTime.parse(found["until"]), tuple(found["left"]), found["chosen_by"])
        except (KeyError, TypeError, ValueError):
            return None


def coverage_of(table: HudiTable, view: FileView, left: Iterable[str], chosen_by: str = "") -> dict[str, str]:
    """The extra metadata of a plan made from this snapshot; empty where it can't cover the table.

    Writes that are pending, or that a Hudi 0.x writer may have dated and not shown yet, are not covered. Neither are
    file groups that other pending plans have claimed: such a plan may be taken off the timeline.
    """
    claimed = {group[0] for group in (*view.states.pending_compactions, *view.states.pending_clusterings)}
    remaining = tuple(sorted({*left, *claimed}))
    timeline = table.timeline
    seen = timeline.data().completed()
    pending = [i.requested_time for i in timeline.pending() if i.action in WRITE_ACTIONS]
    if pending:
        seen = seen.before(min(pending))
    lag = 0 if table.format.chooses_times_under_lock else table.options.value(INSTANT_LAG_SECONDS)
    if lag and table.context.lock.leased:
        now = table.context.clock.now()
        seen = seen.before(format_instant_time(now - timedelta(seconds=lag), table.config.timezone))
    last = seen.last()
    if last is None or len(remaining) > _MOST_LEFT:
        return {}
    return {COVERAGE: json.dumps({"until": last.requested_time, "left": remaining, "chosen_by": chosen_by})}


def uncovered_partitions(
    table: HudiTable, view: FileView, plans: Iterator[tuple[Instant, Mapping[str, str] | None]], chosen_by: str = ""
) -> list[str]:
    """The partitions that may hold candidates. `plans` are those of the service, newest first.

    Each is the instant of a plan, pending or completed, with its extra metadata.
    """
    changed = None
    for _, (instant, extra) in zip(range(_PLANS_READ), plans, strict=False):
        coverage = Coverage.of(extra)
        if coverage is not None:
            changed = _since(table, coverage, instant) if coverage.chosen_by == chosen_by else None
            break
    return view.partitions() if changed is None else changed


def options_key(options: Mapping[str, str], prefixes: Collection[str]) -> str:
    """Identifies the options below some prefixes."""
    chosen = sorted((key, text) for key, text in options.items() if key.startswith(tuple(prefixes)))
    return hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:16]


def _since(table: HudiTable, coverage: Coverage, planned: Instant) -> list[str] | None:
    timeline = table.timeline
    if timeline.is_archived(coverage.until):
        return None
    later = timeline.completed().after(coverage.until)
    if len(later.of(Action.RESTORE)):
        return None
    touched = set(coverage.left)
    for instant in later.data():
        if instant.requested_time != planned.requested_time:  # what the plan itself wrote was foreseen by it
            touched.update(table.commit_partitions(instant))
    for instant in later.of(Action.ROLLBACK):
        rolled_back = table.plan(instant)
        if not isinstance(rolled_back, RollbackMetadata):
            return None
        touched.update(rolled_back.partition_metadata)
    return sorted(touched)
