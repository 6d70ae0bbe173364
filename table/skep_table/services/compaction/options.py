"""Options of compaction and log compaction, by Hudi's names and with Hudi's defaults."""

from __future__ import annotations

from skep_format.options import Options, Status, at_least, boolean, comma_list, one_of, option
from skep_format.timeline.trigger import Trigger
from skep_table.services.clustering.options import class_name

_DEFAULT_STRATEGIES: tuple[str, ...] = ("LogFileSizeBased",)


def _strategies(text: str) -> tuple[str, ...]:
    names = tuple(class_name(name).removesuffix("CompactionStrategy") for name in comma_list(text))
    if not names:
        raise ValueError("the name of a strategy, or several by comma")
    return names


COMPACT_INLINE = option(
    "hoodie.compact.inline",
    boolean,
    True,
    "Plan and carry out a compaction after a commit of a merge-on-read table; on unless another way is chosen",
)
COMPACT_SCHEDULE_INLINE = option(
    "hoodie.compact.schedule.inline", boolean, False, "Only plan a compaction after a commit; others carry it out"
)
COMPACT_ASYNC = option(
    "hoodie.datasource.compaction.async.enable",
    boolean,
    False,
    "Plan a compaction after a commit, and carry it out beside the writes that follow",
)


def compacts_inline(options: Options) -> bool:
    """Whether a compaction that is due runs before the write returns: Hudi's default for all but streaming queries.

    One that is only planned, or carried out beside the next writes, takes its place; without the latter it is inline.
    """
    if options.is_set(COMPACT_INLINE):
        return options.value(COMPACT_INLINE)
    return not options.value(COMPACT_SCHEDULE_INLINE) and not options.value(COMPACT_ASYNC)


def streaming_defaults(options: Options) -> dict[str, str]:
    """What a streaming query adds to its options: it compacts beside its next batches unless they name another way."""
    chosen = options.is_set(COMPACT_ASYNC) or options.value(COMPACT_SCHEDULE_INLINE)
    if chosen or (options.is_set(COMPACT_INLINE) and options.value(COMPACT_INLINE)):
        return {}
    return {COMPACT_ASYNC.key: "true"}


COMPACT_TRIGGER = option(
    "hoodie.compact.inline.trigger.strategy", one_of(Trigger), Trigger.NUM_COMMITS, "What starts a compaction"
)
COMPACT_DELTA_COMMITS = option(
    "hoodie.compact.inline.max.delta.commits",
    at_least(1),
    5,
    "Delta commits that start a compaction; archiving leaves these active",
)
COMPACT_DELTA_SECONDS = option(
    "hoodie.compact.inline.max.delta.seconds", at_least(0), 3600, "Seconds since the last compaction that start one"
)
COMPACT_STRATEGY = option(
    "hoodie.compaction.strategy",
    _strategies,
    _DEFAULT_STRATEGIES,
    "Which slices are compacted, by the names of Hudi's strategies or of entry points; several narrow down in turn",
)
COMPACT_TARGET_IO = option(
    "hoodie.compaction.target.io", at_least(1), 500 * 1024, "Mebibytes to read and write in one compaction"
)
COMPACT_LOG_BYTES = option(
    "hoodie.compaction.logfile.size.threshold", int, 0, "LogFileSizeBased: only slices with so many bytes of logs"
)
COMPACT_LOG_FILES = option(
    "hoodie.compaction.logfile.num.threshold", int, 0, "LogFileNumBased: only slices with so many log files"
)
COMPACT_TARGET_PARTITIONS = option(
    "hoodie.compaction.daybased.target.partitions", at_least(1), 10, "DayBased: how many of the latest days"
)
COMPACT_PARTITION_REGEX = option(
    "hoodie.compaction.partition.path.regex", str, "", "PartitionRegexBased: only partition paths that match as a whole"
)

LOG_COMPACT_INLINE = option(
    "hoodie.log.compaction.inline", boolean, False, "Merge the log files of slices after a commit"
)
LOG_COMPACT_FILES = option(
    "hoodie.log.compaction.blocks.threshold", at_least(2), 5, "Slices with so many log files have them merged"
)

for key, doc in {
    "hoodie.log.compaction.enable": "the metadata table is compacted as a whole",
    "hoodie.optimized.log.blocks.scan.enable": "blocks that a log compaction stands for are always left out",
    "hoodie.compaction.sort.merge": "slices stream in bounded memory",
    "hoodie.compaction.lazy.block.read": "blocks are read when they are needed",
    "hoodie.compaction.reverse.log.read": "logs are read forward",
}.items():
    option(key, str, "", doc, status=Status.NO_EFFECT)
