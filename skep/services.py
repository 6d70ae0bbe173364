"""Table services around commits: which run after one by themselves, where they run, and whom they tell."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from skep.background import submit
from skep.spark import SparkHolder
from skep_table.commit.setting import CommitSetting
from skep_table.errors import SkepError
from skep_table.events import NO_EVENTS, Events
from skep_table.hooks import CommitHook, Committed
from skep_table.lock import Lock, NoLock
from skep_table.options import Options
from skep_table.runner import Runner, ThreadRunner
from skep_table.services.automatic import Step, after_commit, check_automatic
from skep_table.services.done import Done, failed
from skep_table.table import HudiTable

log = logging.getLogger("skep.services")


class ServiceWarning(UserWarning):
    """A commit stands, and a service that should have followed it failed: it is tried again after the next one."""


@dataclass(frozen=True, slots=True)
class Services:
    """How the services of a table run: on Spark where the caller brought a session, else on threads right here.

    `hooks` are told of the commits that services make. `runner` takes the place of both.
    """

    options: Options = field(default_factory=Options)
    lock: Callable[[], Lock] = NoLock
    spark: SparkHolder = field(default_factory=SparkHolder)
    events: Events = NO_EVENTS
    hooks: Sequence[CommitHook] = ()
    runner: Runner | None = None

    def with_options(self, more: Mapping[str, object]) -> Services:
        return replace(self, options=self.options.with_values(more)) if more else self

    def setting(self) -> CommitSetting:
        """For one call of a service. UnsupportedError for known options that are not built."""
        self.options.check()
        return CommitSetting(lock=self.lock(), events=self.events, options=self.options, runner=self._runner())

    def run(self, table: HudiTable, steps: Iterable[Step]) -> list[Done]:
        """Runs steps one after the other and tells the hooks. One that fails does not keep the others from running."""
        done = []
        for step in steps:
            try:
                found = step.run()
            except Exception as error:  # a strategy's or Spark's own, too
                log.debug("table %s: %s failed", table.config.name, step.service, exc_info=True)
                found = [failed(step.service, error)]
            self.tell(table, found)
            done += found
        return done

    def tell(self, table: HudiTable, done: Iterable[Done]) -> None:
        """What a hook raises is its own to record: the commit stands."""
        schema = None
        for each in done:
            if each.commit is None:
                continue
            schema = schema or table.reload().schema()
            instant, metadata = each.commit
            told = Committed(table.storage.root, table.config.name, instant, metadata, schema)
            for hook in self.hooks:
                try:
                    hook(told)
                except Exception as error:
                    log.exception("table %s: a hook failed after %s", table.config.name, instant.requested_time)
                    self.events.emit("service.hook_failed", instant=instant.requested_time, error=repr(error))

    def after_commit(self) -> CommitHook:
        """A hook that runs what is due. It comes before those that sync, which then see what services did, too.

        OptionError for settings of services that contradict each other.
        """
        check_automatic(self.options)

        def hook(committed: Committed) -> None:
            table = HudiTable.open(committed.base_path, self.options)
            later = []
            for step in after_commit(table, self.setting()):
                if step.later:
                    later.append(step)
                else:
                    self._attempt(committed, step)
            if later:
                submit(committed.base_path, partial(self._run_later, table, committed, later))

        return hook

    def _run_later(self, table: HudiTable, committed: Committed, steps: Sequence[Step]) -> None:
        for step in steps:
            self.tell(table, self._attempt(committed, step))

    def _attempt(self, committed: Committed, step: Step) -> list[Done]:
        time = committed.instant.requested_time
        try:
            with self.events.step("service", service=step.service, after=time) as found:
                done = step.run()
                found.update(done=[each.what for each in done])
        except Exception as error:  # a strategy's or Spark's own, too
            log.exception("table %s: %s failed after %s", committed.table_name, step.service, time)
            what = error.message if isinstance(error, SkepError) else str(error)
            text = f"commit {time} of {committed.table_name} stands, but {step.service} after it failed: {what}"
            warnings.warn(text, ServiceWarning, stacklevel=2)
            return []
        return done

    def _runner(self) -> Runner:
        if self.runner is not None or self.spark.given is None:
            return self.runner or ThreadRunner()
        from skep_writer.services import service_runner

        return service_runner(self.spark.given)
