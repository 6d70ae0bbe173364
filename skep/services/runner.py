"""Where table services run, which run after a commit, and the hooks that their commits call."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from skep.base.background import submit
from skep.query.spark import SparkHolder
from skep_format.errors import SkepError
from skep_format.options import Options
from skep_format.runner import Runner, ThreadRunner
from skep_table.hooks import CommitHook, Committed
from skep_table.lock import Lock, NoLock
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_table.services.automatic import DueService
    from skep_table.services.done import Done

log = logging.getLogger("skep.services")


class ServiceWarning(UserWarning):
    """A commit is complete, and a service that is due after it failed: it is tried again after the next one."""


def _no_lock(_options: Options) -> Lock:
    return NoLock()


@dataclass(frozen=True, slots=True)
class Services:
    """How writes and services of a table run: on Spark where the caller gave a session, else on threads.

    `lock` makes a lock for one call from the options of that call. `hooks` follow each commit. `runner` replaces both
    Spark and threads. `turns` has the turns of services in the background by their names: each such service waits for
    its own, and those of a table no longer run one after another. Options and listeners are those of the table's
    context.
    """

    lock: Callable[[Options], Lock] = _no_lock
    spark: SparkHolder = field(default_factory=SparkHolder)
    hooks: Sequence[CommitHook] = ()
    runner: Runner | None = None
    turns: Mapping[str, Callable[[], AbstractContextManager[None]]] = field(default_factory=dict)

    def on(self, table: HudiTable) -> HudiTable:
        """The table for one call of a service: with a lock of its own, and the runner of its tasks.

        UnsupportedError for known options that are not built.
        """
        table.options.check()
        return table.with_context(lock=self.lock(table.options), runner=self._runner())

    def run(self, table: HudiTable, steps: Iterable[DueService]) -> list[Done]:
        """Runs steps in turn and calls the hooks. A step that fails does not keep the others from running."""
        from skep_table.services.done import failed

        done = []
        for step in steps:
            try:
                found = step.run()
            except Exception as error:  # a strategy's or Spark's own, too
                log.debug("table %s: %s failed", table.config.name, step.service, exc_info=True)
                found = [failed(step.service, error)]
            self.call_hooks(table, found)
            done += found
        return done

    def call_hooks(self, table: HudiTable, done: Iterable[Done]) -> None:
        """Calls the hooks for the commits among `done`. An error of a hook is logged: the commit is complete."""
        for committed in (each.committed for each in done if each.committed is not None):
            after = committed
            for hook in self.hooks:
                try:
                    after = hook(after) or after
                except Exception as error:
                    time = committed.instant.requested_time
                    log.exception("table %s: a hook failed after %s", table.config.name, time)
                    table.context.events.emit("service.hook_failed", instant=time, error=repr(error))

    def after_commit(self, table: HudiTable) -> CommitHook:
        """A hook that runs what is due. It comes before those that sync and gives them the table after the services.

        OptionError for settings of services that contradict each other.
        """
        from skep_table.services.automatic import after_commit, check_automatic

        check_automatic(table.options)

        def hook(committed: Committed) -> Committed | None:
            fresh = self.on(committed.table)
            later, ran = [], False
            for step in after_commit(fresh):
                if step.later:
                    later.append(step)
                else:
                    _attempt(fresh, committed, step)
                    ran = True
            for lane, steps in groupby(later, lambda step: step.service if step.service in self.turns else ""):
                submit(committed.base_path, partial(self._run_later, fresh, committed, list(steps)), lane)
            return replace(committed, table=committed.table.reload()) if ran else None

        return hook

    def _run_later(self, table: HudiTable, committed: Committed, steps: Sequence[DueService]) -> None:
        for step in steps:
            with self.turns.get(step.service, nullcontext)():
                self.call_hooks(table, _attempt(table, committed, step))

    def _runner(self) -> Runner:
        if self.runner is not None or self.spark.given is None:
            return self.runner or ThreadRunner()
        from skep_writer.services import service_runner

        return service_runner(self.spark.given)


def _attempt(table: HudiTable, committed: Committed, step: DueService) -> list[Done]:
    time = committed.instant.requested_time
    try:
        with table.context.events.step("service", service=step.service, after=time) as found:
            done = step.run()
            found.update(done=[each.what for each in done])
    except Exception as error:  # a strategy's or Spark's own, too
        log.exception("table %s: %s failed after %s", committed.table_name, step.service, time)
        what = error.message if isinstance(error, SkepError) else str(error)
        text = f"commit {time} of {committed.table_name} is complete, but {step.service} after it failed: {what}"
        warnings.warn(text, ServiceWarning, stacklevel=2)
        return []
    return done
