"""Which writer takes a frame, and with what: the place where writer, lock and hooks meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from skep.callbacks import callback_hooks
from skep.services import Services
from skep.spark import SparkHolder
from skep_table.commit.setting import CommitSetting
from skep_table.events import Events
from skep_table.hooks import CommitHook
from skep_table.lock import Lock, NoLock
from skep_table.options import Options
from skep_table.table import HudiTable
from skep_table.write.flow import TableWriter
from skep_table.write.given import arrow_table
from skep_table.write.local import LocalWriter


@dataclass(frozen=True, slots=True)
class WriteSetting:
    """What a table's writes share. `lock` makes a lock for one write; `hooks` follow each commit."""

    spark: SparkHolder
    options: Options = field(default_factory=Options)
    lock: Callable[[], Lock] = NoLock
    events: Events = field(default_factory=Events)
    hooks: Sequence[CommitHook] = ()

    def with_options(self, more: Mapping[str, object]) -> WriteSetting:
        return replace(self, options=self.options.with_values(more))


def writer_for(frame: object, table: HudiTable, setting: WriteSetting) -> TableWriter:
    """Spark writes Spark frames, and all frames where the caller brought a session; others are written right here."""
    from skep_writer import SparkWriter
    from skep_writer.session import is_spark_frame

    setting.options.check()
    services = Services(setting.options, setting.lock, setting.spark, setting.events, setting.hooks)
    hooks = (services.after_commit(), *setting.hooks, *callback_hooks(setting.options, setting.events))
    session = frame.sparkSession if is_spark_frame(frame) else setting.spark.given  # type: ignore[attr-defined]
    if session is None:
        commit = CommitSetting(lock=setting.lock(), events=setting.events, options=setting.options)
        return LocalWriter(table, commit, hooks)
    return SparkWriter(table, session, setting.options, lock=setting.lock(), events=setting.events, hooks=hooks)


def held(frame: object) -> object:
    """A frame that may be looked at again and again: those of Spark as they are, others as Arrow tables."""
    from skep_writer.session import is_spark_frame

    return frame if is_spark_frame(frame) else arrow_table(frame)
