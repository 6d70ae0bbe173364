"""Options of clustering, by Hudi's names and with Hudi's defaults."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from skep_format.options import Status, at_least, boolean, comma_list, one_of, option

_PLAN = "hoodie.clustering.plan.strategy."
_GIB = 1 << 30
_NO_NAMES: tuple[str, ...] = ()


class PartitionFilter(str, Enum):
    """Which partitions a plan looks into."""

    NONE = "NONE"
    RECENT_DAYS = "RECENT_DAYS"
    SELECTED_PARTITIONS = "SELECTED_PARTITIONS"


class Curve(str, Enum):
    """How rows are ordered by several columns: by the first, then the second, …; or along a curve through all."""

    LINEAR = "LINEAR"
    ZORDER = "ZORDER"
    HILBERT = "HILBERT"


def _curve(text: str) -> Curve:
    name = text.strip().upper().replace("-", "").replace("_", "")
    if name not in Curve.__members__:
        raise ValueError("one of linear, z-order, hilbert")
    return Curve[name]


def class_name(text: str) -> str:
    """What a Java class is known by here: the last part of its name."""
    return text.strip().rpartition(".")[2]


def known_class(*prefixes: str) -> Callable[[str], str]:
    """Strategies of Hudi come with the engine in front of their name."""

    def parse(text: str) -> str:
        name = class_name(text)
        for prefix in prefixes:
            name = name.removeprefix(prefix)
        return name

    return parse


_strategy = known_class("Spark", "Java", "Flink")

CLUSTER_INLINE = option(
    "hoodie.clustering.inline",
    boolean,
    False,
    "Plan and carry out a clustering after a commit",
    "hoodie.datasource.clustering.inline.enable",
)
CLUSTER_SCHEDULE_INLINE = option(
    "hoodie.clustering.schedule.inline", boolean, False, "Only plan a clustering after a commit; others carry it out"
)
CLUSTER_ASYNC = option(
    "hoodie.clustering.async.enabled",
    boolean,
    False,
    "Plan a clustering after a commit, and carry it out beside the writes that follow",
    "hoodie.datasource.clustering.async.enable",
)
CLUSTER_INLINE_COMMITS = option(
    "hoodie.clustering.inline.max.commits", at_least(1), 4, "Commits since the last clustering that start one"
)
CLUSTER_ASYNC_COMMITS = option(
    "hoodie.clustering.async.max.commits",
    at_least(1),
    4,
    "The same, for one beside writes",
)
PLAN_STRATEGY = option(
    "hoodie.clustering.plan.strategy.class",
    _strategy,
    "SizeBasedClusteringPlanStrategy",
    "SizeBased, RecentDays or SelectedPartitions ClusteringPlanStrategy, or the name of an entry point; of a table with"
    " consistent hashing ConsistentBucketClusteringPlanStrategy alone, which is its default",
)
EXECUTION_STRATEGIES = (
    "SortAndSizeExecutionStrategy",
    "BinaryCopyClusteringExecutionStrategy",
    "StreamCopyClusteringExecutionStrategy",
)
"""Those that are built in. Rows that are not put in order are copied as row groups by all of them."""
RING_PLAN_STRATEGY = "ConsistentBucketClusteringPlanStrategy"
RING_EXECUTION_STRATEGY = "ConsistentBucketClusteringExecutionStrategy"
"""The only ones of a table with consistent hashing, and of no other."""
EXECUTION_STRATEGY = option(
    "hoodie.clustering.execution.strategy.class",
    _strategy,
    EXECUTION_STRATEGIES[0],
    f"{', '.join(EXECUTION_STRATEGIES)}, or the name of an entry point; rows that are not sorted are copied by all",
)
option(
    "hoodie.file.stitching.binary.copy.schema.evolution.enable",
    boolean,
    True,
    "a file with other columns than the table has now is decoded",
    status=Status.NO_EFFECT,
)
TARGET_FILE_BYTES = option(f"{_PLAN}target.file.max.bytes", at_least(1), _GIB, "Clustered files are about this large")
SMALL_FILE_BYTES = option(f"{_PLAN}small.file.limit", int, 300 << 20, "Base files smaller than this are clustered")
GROUP_BYTES = option(f"{_PLAN}max.bytes.per.group", at_least(1), 2 * _GIB, "Bytes of files in a group, at most")
MAX_GROUPS = option(f"{_PLAN}max.num.groups", at_least(1), 30, "Groups of one plan")
SINGLE_GROUP = option(
    f"{_PLAN}single.group.clustering.enabled", boolean, False, "Rewrite single files that are neither sorted nor split"
)
SORT_COLUMNS = option(f"{_PLAN}sort.columns", comma_list, _NO_NAMES, "Columns to order rows by")
PARTITION_FILTER = option(
    "hoodie.clustering.plan.partition.filter.mode",
    one_of(PartitionFilter),
    PartitionFilter.NONE,
    "Which partitions a plan looks into",
)
LOOKBACK_PARTITIONS = option(
    f"{_PLAN}daybased.lookback.partitions", int, 2, "RECENT_DAYS: how many of the latest partitions"
)
SKIP_LATEST = option(f"{_PLAN}daybased.skipfromlatest.partitions", int, 0, "RECENT_DAYS: without the very latest ones")
BEGIN_PARTITION = option(f"{_PLAN}cluster.begin.partition", str, "", "SELECTED_PARTITIONS: from this one on")
END_PARTITION = option(f"{_PLAN}cluster.end.partition", str, "", "SELECTED_PARTITIONS: up to this one")
PARTITION_REGEX = option(f"{_PLAN}partition.regex.pattern", str, "", "Only partition paths that match as a whole")
PARTITION_SELECTED = option(f"{_PLAN}partition.selected", comma_list, _NO_NAMES, "Only these partition paths")
CURVE = option("hoodie.layout.optimize.strategy", _curve, Curve.LINEAR, "linear, z-order or hilbert")

for key, doc in {
    "hoodie.layout.optimize.enable": "hoodie.layout.optimize.strategy names the curve",
    "hoodie.layout.optimize.curve.build.method": "curves go through the exact ranks of the values",
    "hoodie.layout.optimize.build.curve.sample.size": "curves go through the exact ranks of the values",
    "hoodie.layout.optimize.data.skipping.enable": "reads skip files by hoodie.enable.data.skipping",
    "hoodie.clustering.plan.generation.use.local.engine.context": "clusterings are planned on threads",
    "hoodie.clustering.max.parallelism": "one task a group",
    "hoodie.clustering.group.read.parallelism": "one task a group",
    "hoodie.clustering.preserve.commit.metadata": "rows keep their commit time",
}.items():
    anyway = "true" if key == "hoodie.clustering.preserve.commit.metadata" else ""
    option(key, str, anyway, doc, status=Status.NO_EFFECT)
