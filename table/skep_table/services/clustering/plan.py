"""Which files a clustering rewrites together: partitions, small files in them, groups (format guide 2.6).

In tables with consistent hashing it splits and merges buckets (format guide 17.4).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from skep_format.errors import OptionError, SchemaError, TableMismatchError, UnsupportedError
from skep_format.hashing_metadata import HashingMetadata, HashNode, encode_nodes, merged
from skep_format.names import FileGroupId
from skep_format.options import Options, of_option
from skep_format.schema.arrow import arrow_type
from skep_format.schema.types import Schema
from skep_format.table_config import TableConfig
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import WriteOperation
from skep_format.timeline.plans import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringStrategy,
    RequestedReplaceMetadata,
    SliceInfo,
)
from skep_table.commit.concurrency.changes import groups_in_writing, is_clustering
from skep_table.keys.buckets import MAX_BUCKETS, MERGE_THRESHOLD, MIN_BUCKETS, SPLIT_THRESHOLD
from skep_table.keys.hash_rings import CHILDREN, OF_PARTITION, SEQUENCE, has_rings, ring_of
from skep_table.plug_ins import find_strategy
from skep_table.query.cleaned import refuse_lost_files
from skep_table.services.clustering import options as options_of
from skep_table.services.clustering.options import Curve, PartitionFilter
from skep_table.services.clustering.row_order import can_be_sorted
from skep_table.services.plan_scope import coverage_of, options_key, uncovered_partitions
from skep_table.services.rewriting import slice_metrics
from skep_table.services.strategies import PLAN_GROUP, PlanStrategy, matcher
from skep_table.slices.bootstrap import source_of, with_source_size
from skep_table.table import HudiTable
from skep_table.view import FileSlice, FileView
from skep_table.write.planning.options import MAX_FILE_BYTES, ORC_MAX_FILE_BYTES, most_bytes

log = logging.getLogger("skep.cluster")
_PREFIX: Final = "org.apache.hudi.client.clustering.run.strategy.Spark"
_CHOOSE_CANDIDATES: Final = ("hoodie.clustering.", "hoodie.layout.optimize.")
_CHOOSE_RESIZES: Final = (*_CHOOSE_CANDIDATES, "hoodie.bucket.index.", MAX_FILE_BYTES.key, ORC_MAX_FILE_BYTES.key)
_BUILT_IN: Final = {
    "SizeBasedClusteringPlanStrategy": None,
    "RecentDaysClusteringPlanStrategy": PartitionFilter.RECENT_DAYS,
    "SelectedPartitionsClusteringPlanStrategy": PartitionFilter.SELECTED_PARTITIONS,
}


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Slices of one partition that become so many file groups. `extra`: what the plan records of a resize."""

    slices: tuple[FileSlice, ...]
    outputs: int
    extra: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Resizing:
    """What is too large and what is small, in bytes; how many buckets a partition may have. None: as it began with."""

    split_bytes: int
    merge_bytes: int
    most: int | None
    least: int | None

    @classmethod
    def of(cls, config: TableConfig, options: Options) -> Resizing:
        full = most_bytes(config, options)
        return cls(
            int(full * options.value(SPLIT_THRESHOLD)),
            int(full * options.value(MERGE_THRESHOLD)),
            options.value(MAX_BUCKETS),
            options.value(MIN_BUCKETS),
        )

    def groups(
        self, ring: HashingMetadata, slices: Sequence[FileSlice], rewritten: Collection[str] = ()
    ) -> list[PlannedGroup]:
        """What becomes of the slices of a partition that a clustering may take; `rewritten` are the ids of those that
        are put in order where they are neither split nor merged. TableMismatchError for a slice that is in no ring."""
        node_of = {node.file_id: node for node in ring.nodes}
        by_node = {_known(node_of, slice_): slice_ for slice_ in slices}
        nodes = [node for node in ring.nodes if node in by_node]
        room = (self.most or ring.num_buckets) - len(ring.nodes)
        spare = len(ring.nodes) - (self.least or ring.num_buckets)
        groups, kept = [], []
        for node in nodes:
            halves = ring.split(node) if room > 0 and by_node[node].size_bytes > self.split_bytes else ()
            if halves:
                groups.append(_group(ring, [by_node[node]], halves))
                room -= 1
                spare += 1
            else:
                kept.append(node)
        left = []
        for run in self._runs(ring, kept, by_node, spare):
            if len(run) > 1:
                groups.append(_group(ring, [by_node[node] for node in run], merged(run)))
            else:
                left += run
        ordered = [node for node in left if node.file_id in rewritten]
        return groups + [_group(ring, [by_node[node]], merged([node])) for node in ordered]

    def _runs(
        self, ring: HashingMetadata, nodes: Sequence[HashNode], slices: dict[HashNode, FileSlice], spare: int
    ) -> list[list[HashNode]]:
        """The nodes in runs of small neighbours, as long as a run stays small and a node can be spared."""
        places = {node: place for place, node in enumerate(ring.nodes)}
        runs: list[list[HashNode]] = []
        filled = 0
        for node in nodes:
            size = slices[node].size_bytes
            joins = runs and places[node] == places[runs[-1][-1]] + 1 and max(size, filled) <= self.merge_bytes
            if joins and spare > 0:
                runs[-1].append(node)
                spare -= 1
                filled += size
            else:
                runs.append([node])
                filled = size
        return runs


def _known(node_of: Mapping[str, HashNode], slice_: FileSlice) -> HashNode:
    node = node_of.get(slice_.file_id)
    if node is None:
        raise TableMismatchError(
            f"partition {slice_.partition_path or 'of the table'}: group {slice_.file_id} is in no hash ring",
            hint="all writers of a table have to use one index, with one engine of buckets",
            path=slice_.partition_path,
            found=slice_.file_id,
        )
    return node


def _group(ring: HashingMetadata, slices: Sequence[FileSlice], children: Sequence[HashNode]) -> PlannedGroup:
    extra = {
        OF_PARTITION: ring.partition_path,
        SEQUENCE: str(ring.seq_no),
        CHILDREN: encode_nodes(children),
    }
    return PlannedGroup(tuple(slices), sum(bool(child.prefix) for child in children), extra)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is small, how large a group is and what its files become, in bytes."""

    small: int = of_option(options_of.SMALL_FILE_BYTES)
    group: int = of_option(options_of.GROUP_BYTES)
    target: int = of_option(options_of.TARGET_FILE_BYTES)
    single_files: bool = of_option(options_of.SINGLE_GROUP)

    def is_small(self, slice_: FileSlice) -> bool:
        """Whether its base file is; one without any is, too."""
        return (slice_.base_file.size_bytes if slice_.base_file else 0) < self.small

    def outputs(self, slices: Iterable[FileSlice]) -> int:
        """The number of files that a group becomes."""
        return max(1, -(-sum(slice_.size_bytes for slice_ in slices) // self.target))


def plan_clustering(table: HudiTable) -> RequestedReplaceMetadata | None:
    """The plan of a clustering of this snapshot, None when there is nothing to rewrite. Changes nothing.

    Lists the partitions that changed since an earlier plan with the same options (see `plan_scope`). Recent partitions,
    which depend on all others, and strategies of plug-ins need the whole list.

    OptionError, SchemaError: strategies or sort columns that are not there.
    """
    options = table.options
    params = _params(table, options)
    resizing = Resizing.of(table.config, options) if has_rings(table) else None
    strategy = _strategy(table, options, resizes=resizing is not None)
    if resizing is not None and _is_being_written(table):
        return None
    sizes = options.read(Sizes)
    view = table.view(metadata=False)
    by_partition = strategy is None and _partition_filter(options) is not PartitionFilter.RECENT_DAYS
    chosen_by = options_key(options, _CHOOSE_CANDIDATES if resizing is None else _CHOOSE_RESIZES)
    known = uncovered_partitions(table, view, _earlier_plans(table), chosen_by) if by_partition else view.partitions()
    partitions = choose_partitions(known, options)
    refuse_lost_files(table, view, partitions)
    ordered_by = _ordered_by(table, params)
    scan = (
        partial(_groups_of, table, view, strategy, sizes, ordered_by, options, groups_in_writing(table))
        if resizing is None
        else partial(_resizes_of, table, view, resizing, ordered_by)
    )
    scanned = table.context.threads.map(scan, partitions)
    found = [(path, group) for path, (of_path, _) in zip(partitions, scanned, strict=True) for group in of_path]
    most = options.value(options_of.MAX_GROUPS)
    groups = [group for _, group in found[:most]]
    if not groups:
        return None
    left = {path for path, (_, settled) in zip(partitions, scanned, strict=True) if not settled}
    left.update(path for path, _ in found[most:])
    coverage = coverage_of(table, view, left, chosen_by) if by_partition else {}
    file_bytes = most_bytes(table.config, options)
    execution = options.value(options_of.EXECUTION_STRATEGY) if resizing is None else options_of.RING_EXECUTION_STRATEGY
    if execution in (*options_of.EXECUTION_STRATEGIES, options_of.RING_EXECUTION_STRATEGY):
        execution = f"{_PREFIX}{execution}"  # Hudi loads the class that a plan names
    plan = ClusteringPlan(
        input_groups=tuple(
            ClusteringGroup(
                slices=tuple(_slice_info(table, slice_) for slice_ in group.slices),
                metrics=slice_metrics(group.slices, file_bytes),
                num_output_file_groups=group.outputs,
                extra_metadata=group.extra,
            )
            for group in groups
        ),
        strategy=ClusteringStrategy(strategy_class_name=execution, strategy_params=params),
        extra_metadata={},
        preserve_hoodie_metadata=True,
        missing_schedule_partitions=(),
    )
    return RequestedReplaceMetadata(
        operation_type=WriteOperation.CLUSTER.value, clustering_plan=plan, extra_metadata=coverage, version=1
    )


def commits_since_clustering(table: HudiTable) -> int:
    """Completed commits after the last clustering, be it pending or done."""

    def clusters(instant: Instant) -> bool:
        if instant.is_completed and instant.action is Action.REPLACE_COMMIT:
            return table.commit_metadata(instant).operation_type is WriteOperation.CLUSTER
        return is_clustering(table, instant)

    later = itertools.takewhile(lambda instant: not clusters(instant), reversed(table.timeline.data().instants))
    return sum(instant.is_completed for instant in later)


def choose_partitions(paths: Sequence[str], options: Options) -> list[str]:
    """The partitions to cluster, by the options; RECENT_DAYS has the latest first."""
    selected = options.value(options_of.PARTITION_SELECTED)
    if selected:
        paths = [path for path in paths if path in selected]
    elif options.value(options_of.PARTITION_REGEX):
        paths = list(filter(matcher(options, options_of.PARTITION_REGEX), paths))
    mode = _partition_filter(options)
    if mode is PartitionFilter.RECENT_DAYS:
        skipped = max(0, options.value(options_of.SKIP_LATEST))
        count = options.value(options_of.LOOKBACK_PARTITIONS)
        latest = sorted(paths, reverse=True)[skipped:]
        return latest[:count] if count > 0 else latest
    if mode is not PartitionFilter.SELECTED_PARTITIONS:
        return list(paths)
    begin, end = options.value(options_of.BEGIN_PARTITION), options.value(options_of.END_PARTITION)
    if not begin or not end:
        missing = options_of.END_PARTITION if begin else options_of.BEGIN_PARTITION
        raise OptionError(f"clustering of selected partitions needs {missing.key}", option=missing.key)
    return [path for path in paths if begin <= path <= end]


def _partition_filter(options: Options) -> PartitionFilter:
    return _BUILT_IN.get(options.value(options_of.PLAN_STRATEGY)) or options.value(options_of.PARTITION_FILTER)


def _earlier_plans(table: HudiTable) -> Iterator[tuple[Instant, Mapping[str, str] | None]]:
    """Those of the active timeline, newest first."""
    for instant in reversed(table.timeline.of(Action.REPLACE_COMMIT, Action.CLUSTERING).instants):
        requested = _requested(table, instant)
        if requested is not None and requested.clustering_plan is not None:
            yield instant, requested.extra_metadata


def _requested(table: HudiTable, instant: Instant) -> RequestedReplaceMetadata | None:
    """What the requested file of a clustering holds; None for other replace commits that have no such file."""
    requested = Instant(instant.requested_time, table.layout.clustering, State.REQUESTED)
    return table.requested_plan(RequestedReplaceMetadata, requested)


def group_by_size(
    slices: Sequence[FileSlice], sizes: Sizes, ordered_by: Collection[str] | None = None
) -> list[list[FileSlice]]:
    """Small files, largest first, in groups that don't grow past the limit; groups that gain nothing are left out.

    `ordered_by`: the base instants of slices whose rows are in order already; None when rows are not put in order.
    """
    groups: list[list[FileSlice]] = []
    filled = 0
    small = filter(sizes.is_small, slices)
    for slice_ in sorted(small, key=lambda each: (-each.size_bytes, each.file_id)):
        if not groups or filled + slice_.size_bytes > sizes.group:
            groups.append([])
            filled = 0
        groups[-1].append(slice_)
        filled += slice_.size_bytes
    return [group for group in groups if sizes.single_files or _gains(group, sizes, ordered_by)]


def _gains(group: Sequence[FileSlice], sizes: Sizes, ordered_by: Collection[str] | None) -> bool:
    if any(slice_.log_files for slice_ in group) or len(group) > sizes.outputs(group):
        return True
    bases = {slice_.base_instant for slice_ in group}
    return ordered_by is not None and (len(bases) > 1 or not bases <= set(ordered_by))


def _groups_of(
    table: HudiTable,
    view: FileView,
    strategy: PlanStrategy | None,
    sizes: Sizes,
    ordered_by: Collection[str] | None,
    options: Options,
    in_writing: Collection[FileGroupId],
    partition: str,
) -> tuple[list[PlannedGroup], bool]:
    """The groups of a partition, and whether it is settled: once they are rewritten, it has no candidates.

    It is not while the files that come of it may be small themselves.
    """
    free = [each for group in view.file_groups(partition) if group.is_free and (each := group.latest) is not None]
    eligible = [each for each in free if each.group not in in_writing]
    slices = [with_source_size(table, each, table.options) for each in eligible]
    if strategy is not None:
        chosen = strategy(partition, slices, options)
        return [PlannedGroup(tuple(group), sizes.outputs(group)) for group in chosen], False
    groups = group_by_size(slices, sizes, ordered_by)
    small = sum(map(sizes.is_small, slices))
    is_single = len(groups) == 1 and sizes.outputs(groups[0]) == 1 and small == len(groups[0])
    settled = len(eligible) == len(free) and not sizes.single_files and (not groups or is_single)
    return [PlannedGroup(tuple(group), sizes.outputs(group)) for group in groups], settled


def _resizes_of(
    table: HudiTable, view: FileView, resizing: Resizing, ordered_by: Collection[str] | None, partition: str
) -> tuple[list[PlannedGroup], bool]:
    """The groups of a partition with a hash ring. None while it is being resized, as rings change one by one.

    It is settled where no group comes of it: halves may be too large still, and neighbours small.
    """
    groups = view.file_groups(partition)
    ring = ring_of(table, partition)
    if ring is None or any(group.pending_clustering is not None for group in groups):
        return [], not groups
    slices = [each for group in groups if group.is_free and (each := group.latest) is not None]
    unordered = (
        () if ordered_by is None else [s.file_id for s in slices if s.log_files or s.base_instant not in ordered_by]
    )
    found = resizing.groups(ring, slices, unordered)
    return found, len(slices) == len(groups) and not found


def _is_being_written(table: HudiTable) -> bool:
    """Whether a write is pending: it may have rows for groups that a resize is about to replace."""
    last = table.timeline.pending().of(Action.DELTA_COMMIT).last()
    if last is not None:
        log.info("table %s: no resize is planned while %s is pending", table.config.name, last.requested_time)
    return last is not None


def _ordered_by(table: HudiTable, params: Mapping[str, str]) -> frozenset[str] | None:
    """The clusterings that sorted rows as `params` specify; None when these specify no order."""
    if not params:
        return None
    found = ((instant, _requested(table, instant)) for instant in table.timeline.completed().of(Action.REPLACE_COMMIT))
    plans = ((instant, requested.clustering_plan) for instant, requested in found if requested)
    return frozenset(
        instant.requested_time
        for instant, plan in plans
        if plan and plan.strategy and (plan.strategy.strategy_params or {}) == params
    )


def _strategy(table: HudiTable, options: Options, *, resizes: bool) -> PlanStrategy | None:
    """None for those that are built in: they differ in the partitions they look into.

    UnsupportedError where only one of strategy and table is of consistent hashing.
    """
    for known, of_rings in (
        (options_of.PLAN_STRATEGY, options_of.RING_PLAN_STRATEGY),
        (options_of.EXECUTION_STRATEGY, options_of.RING_EXECUTION_STRATEGY),
    ):
        name = options.value(known)
        if options.is_set(known) and (name == of_rings) != resizes:
            raise table.error(
                UnsupportedError,
                f"{known.key}={name}, and its buckets are {'' if resizes else 'not '}those of consistent hashing",
                hint=f"leave {known.key} out",
                option=known.key,
                found=name,
                expected=of_rings if resizes else None,
            )
    name = options.value(options_of.PLAN_STRATEGY)
    if resizes or name in _BUILT_IN:
        return None
    return find_strategy(PLAN_GROUP, name, options_of.PLAN_STRATEGY, tuple(_BUILT_IN))


def _params(table: HudiTable, options: Options) -> dict[str, str]:
    """The parameters that an executor of the plan needs. Hudi's own executor reads the sort columns only."""
    columns, curve = options.value(options_of.SORT_COLUMNS), options.value(options_of.CURVE)
    check_sort_columns(table, columns, table.stored_schema() if columns else None)
    if not columns:
        return {}
    found = {options_of.SORT_COLUMNS.key: ",".join(columns)}
    return found if curve is Curve.LINEAR else {**found, options_of.CURVE.key: curve.value}


def check_sort_columns(table: HudiTable, columns: Sequence[str], stored: Schema | None) -> None:
    """SchemaError for a column that is not among the `stored` ones, or is of a type without an order."""
    if not columns or stored is None:
        return
    for name in columns:
        fields = stored.with_meta().fields_to(name)
        kind = arrow_type(fields[-1].type) if fields else None
        if kind is None or not can_be_sorted(kind):
            problem = f"sort column {name} " + ("is not there" if kind is None else f"of type {kind} has no order")
            found, option = None if kind is None else str(kind), options_of.SORT_COLUMNS.key
            raise table.error(SchemaError, problem, column=name, option=option, found=found)


def _slice_info(table: HudiTable, slice_: FileSlice) -> SliceInfo:
    uri = table.storage.uri
    source = source_of(table, slice_, table.options)
    return SliceInfo(
        data_file_path=uri(slice_.base_file.path) if slice_.base_file else "",
        delta_file_paths=tuple(uri(log.path) for log in slice_.log_files),
        file_id=slice_.file_id,
        partition_path=slice_.partition_path,
        bootstrap_file_path="" if source is None else source.path,
    )
