"""Where all new instants come from, how they are dated, and whom they wait for.

Hudi dates an instant, shows it, and looks at the table after that; 0.x takes the date a while before anybody can see
it, and without the lock. What completes in between is read by Hudi, never compared with, and so must be older than
what Hudi writes: else that would be hidden below it. So what shares a table with others is dated back, though never
before an instant that is there; and where that makes it later than one that was only just shown, it completes when that
one has looked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from skep_table.clock import Clock, LateClock
from skep_table.commit.concurrency import Concurrency
from skep_table.commit.heartbeat import Heartbeats, Pulse, writer_facts
from skep_table.commit.options import INSTANT_LAG_SECONDS
from skep_table.commit.setting import CommitSetting
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.plans import Plan
from skep_table.timeline.timeline import format_instant_time
from skep_table.timeline.write import request_instant

_LOOK_SECONDS: Final = 0.1


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


def after_others_looked(table: HudiTable, instant: Instant, setting: CommitSetting) -> HudiTable:
    """Before a completion, and without the lock: a look at the table that no JVM writer has yet to take.

    One whose instant is inflight has looked: it compares what completes from now on with what it writes. Others are
    waited for as long as instants are dated back.
    """
    lag = setting.options.value(INSTANT_LAG_SECONDS)
    if not lag or not setting.lock.leased:
        return table
    while True:
        since = format_instant_time(setting.clock.now() - timedelta(seconds=lag), table.config.timezone)
        shown = [
            each.requested_time
            for each in table.timeline.data().pending()
            if each.state is State.REQUESTED and since < each.requested_time < instant.requested_time
        ]
        if not shown or not _any_of_jvm(table, shown, setting):
            return table
        setting.clock.sleep(_LOOK_SECONDS)
        table = table.reload()


def _any_of_jvm(table: HudiTable, times: Sequence[str], setting: CommitSetting) -> bool:
    """Whether one of them is of a living writer that is not skep's, which looks first and then shows its instant."""
    hearts = Heartbeats(table.storage, Pulse.of(setting.options), setting.clock)
    return any(hearts.is_alive(time) and not writer_facts(table.storage, time) for time in times)


def _late(setting: CommitSetting) -> Clock:
    lag = setting.options.value(INSTANT_LAG_SECONDS)
    return LateClock(setting.clock, lag) if lag and setting.lock.leased else setting.clock
