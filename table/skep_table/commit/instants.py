"""Where all new instants come from, and how they are dated.

Hudi 0.x takes an instant's time a while before anybody can see the instant, and without the lock. Who begins and
completes within that while is read by Hudi, and so must be older than what Hudi writes: else that would be hidden below
it. So what shares a table with others is dated back, though never before an instant that is there.
"""

from __future__ import annotations

from collections.abc import Callable

from skep_table.clock import Clock, LateClock
from skep_table.commit.concurrency import Concurrency
from skep_table.commit.options import INSTANT_LAG_SECONDS
from skep_table.commit.setting import CommitSetting
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.plans import Plan
from skep_table.timeline.write import request_instant


def request_write(
    table: HudiTable, action: Action, content: Plan | None, setting: CommitSetting, announce: Callable[[str], None]
) -> Instant:
    """An instant for rows. A single writer's is dated now. `announce` as for `request_instant`."""
    clock = _late(setting) if Concurrency.of(setting.options).is_optimistic else setting.clock
    return request_instant(table, action, content, clock, announce=announce)[0]


def request_plan(table: HudiTable, action: Action, plan: Plan, setting: CommitSetting) -> Instant:
    """An instant for what is planned: a service, or a rollback.

    It works beside writers whose mode it does not know. Dated now, it would bring theirs, which come after it, forward.
    """
    return request_instant(table, action, plan, _late(setting))[0]


def _late(setting: CommitSetting) -> Clock:
    lag = setting.options.value(INSTANT_LAG_SECONDS)
    return LateClock(setting.clock, lag) if lag and setting.lock.leased else setting.clock
