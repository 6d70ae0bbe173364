"""Time to live of partitions: a replace commit drops expired partitions, the next clean deletes their files."""

from __future__ import annotations

import logging
from datetime import timedelta
from enum import Enum
from typing import Final

from skep_format.errors import OptionError
from skep_format.instant_time import InstantTime
from skep_format.metafile import read_metafile
from skep_format.options import Options, boolean, comma_list, one_of, option
from skep_format.timeline.timeline import format_instant_time
from skep_table.plug_ins import find_strategy
from skep_table.services.clustering.options import class_name
from skep_table.services.strategies import TTL_GROUP, TtlStrategy
from skep_table.table import HudiTable
from skep_table.view import FileView
from skep_table.write.local import LocalWriter
from skep_table.write.result import WriteResult

log = logging.getLogger("skep.ttl")


class Expiry(str, Enum):
    """The write from which a partition's time counts: its last, or its first."""

    KEEP_BY_TIME = "KEEP_BY_TIME"
    KEEP_BY_CREATION_TIME = "KEEP_BY_CREATION_TIME"


_NO_NAMES: tuple[str, ...] = ()
_STRATEGY = "hoodie.partition.ttl.strategy."
TTL_INLINE = option("hoodie.partition.ttl.inline", boolean, False, "Drop expired partitions after a commit")
TTL_STRATEGY = option(
    "hoodie.partition.ttl.management.strategy.type", one_of(Expiry), Expiry.KEEP_BY_TIME, "From when time counts"
)
TTL_DAYS = option(f"{_STRATEGY}days.retain", int, -1, "Days that a partition lives; -1: for ever")
TTL_SELECTED = option(f"{_STRATEGY}partition.selected", comma_list, _NO_NAMES, "Only these partition paths expire")
TTL_MOST = option(f"{_STRATEGY}max.delete.partitions", int, 1000, "Partitions dropped at a time, at most")
TTL_CLASS = option(
    f"{_STRATEGY}class",
    class_name,
    "",
    "KeepByTimeStrategy or KeepByCreationTimeStrategy, as the type names it, or the name of an entry point",
)
_CLASSES: Final = {
    "KeepByTimeStrategy": Expiry.KEEP_BY_TIME,
    "KeepByCreationTimeStrategy": Expiry.KEEP_BY_CREATION_TIME,
}


def expire_partitions(table: HudiTable) -> list[WriteResult]:
    """Drops the expired partitions. OptionError when no time to live is set."""
    if not expires(table.options):
        raise OptionError(f"no time to live of partitions is set: {TTL_DAYS.key}", option=TTL_DAYS.key)
    table = table.reload()
    expired = expired_partitions(table)
    if not expired:
        return []
    return [LocalWriter(table).delete_partitions(expired)]


def expired_partitions(table: HudiTable) -> list[str]:
    """The partitions that would be dropped now, oldest first. Changes nothing."""
    options = table.options
    strategy = strategy_of(options)
    if not table.config.partition_fields:
        return []
    view = table.view(metadata=False)
    selected = options.value(TTL_SELECTED)
    partitions = [path for path in view.partitions() if not selected or path in selected]
    if isinstance(strategy, Expiry):
        found = _before(table, view, partitions, strategy)
    else:
        found = [path for path in strategy(table, partitions, table.context.clock.now(), options) if path in partitions]
    if odd := [path for path in found if _is_pattern(path)]:
        log.warning("table %s: partitions with * in their path don't expire: %s", table.config.name, ", ".join(odd))
    live = [path for path in found if not _is_pattern(path) and view.file_groups(path)]
    return live[: max(0, options.value(TTL_MOST))]


def expires(options: Options) -> bool:
    """Whether the options set a time to live. OptionError for an unknown strategy."""
    return options.value(TTL_DAYS) > 0 or not isinstance(strategy_of(options), Expiry)


def strategy_of(options: Options) -> Expiry | TtlStrategy:
    """The strategy that the options name. OptionError for an unknown one."""
    name = options.value(TTL_CLASS)
    if not name:
        return options.value(TTL_STRATEGY)
    found: Expiry | TtlStrategy = _CLASSES.get(name) or find_strategy(TTL_GROUP, name, TTL_CLASS, tuple(_CLASSES))
    return found


def _before(table: HudiTable, view: FileView, partitions: list[str], strategy: Expiry) -> list[str]:
    """The expired partitions, oldest first."""
    days = table.options.value(TTL_DAYS)
    if days <= 0:
        return []
    bound = format_instant_time(table.context.clock.now() - timedelta(days=days), table.config.timezone)

    def of_partition(path: str) -> InstantTime | None:
        if strategy is Expiry.KEEP_BY_TIME:
            return max((slice_.base_instant for slice_ in view.slices(path)), default=None)
        time = (read_metafile(table.storage, path) or {}).get("commitTime")
        return None if time is None else InstantTime(time)

    times = table.context.threads.map(of_partition, partitions)
    if strategy is Expiry.KEEP_BY_TIME:  # delta commits leave no base file: those of the active timeline count, too
        last: dict[str, InstantTime] = {}
        for instant in table.timeline.data().completed():
            last.update(dict.fromkeys(table.commit_partitions(instant), instant.requested_time))
        times = [
            max(time, last.get(path, time)) if time else None for path, time in zip(partitions, times, strict=True)
        ]
    found = sorted((time, path) for time, path in zip(times, partitions, strict=True) if time and time.is_before(bound))
    return [path for _, path in found]


def _is_pattern(path: str) -> bool:
    """Dropping it by its name would drop others with it."""
    return "*" in path or "%2A" in path
