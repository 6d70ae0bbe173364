"""Procedures that run table services, and show their plans and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from skep_format.errors import InputError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.schema.arrow import to_arrow
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CleanerPlan, CleanMetadata, ClusteringPlan, RequestedReplaceMetadata
from skep_sql.execution.tables import truncate
from skep_sql.parsing.statements import Name, Truncate
from skep_sql.procedures.contract import Context, Rows, completed_plans, completed_times, one_of, procedure, time_of
from skep_table.commit.parts.markers import delete_markers
from skep_table.query.options import QueryType
from skep_table.query.plan import predicate_of
from skep_table.query.pruning.partitions import partition_values
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_table.services.done import Done

_OPTIONS_OF_CLEAN: Final = {
    "clean_policy": "hoodie.cleaner.policy",
    "retain_commits": "hoodie.cleaner.commits.retained",
    "hours_retained": "hoodie.cleaner.hours.retained",
    "file_versions_retained": "hoodie.cleaner.fileversions.retained",
    "trigger_strategy": "hoodie.clean.trigger.strategy",
    "trigger_max_commits": "hoodie.clean.max.commits",
}
_OPTIONS_OF_ARCHIVE: Final = {
    "min_commits": "hoodie.keep.min.commits",
    "max_commits": "hoodie.keep.max.commits",
    "retain_commits": "hoodie.cleaner.commits.retained",
}
_VERSIONS: Final[Mapping[str, int]] = {"SIX": 6, "EIGHT": 8, "NINE": 9}
"""Hudi's names of the versions that are written; numbers are taken, too."""


def _ran(
    context: Context, service: Callable[..., list[Done]], known: str, times: object, **planning: object
) -> set[str | None]:
    """The instants of what ran: planned, executed (these times, or all that is pending), or both, as `op` has it."""
    operation = str(context["op"] or "scheduleAndExecute")
    if operation.lower() not in known.lower().split(", "):
        raise InputError(f"op is {operation!r}", option="op", found=operation, expected=known)
    options = context.options()
    if operation.lower() in ("run", "execute") or context["instants"]:
        wanted = [time.strip() or True for time in str(times or "").split(",")]
        done = [each for time in wanted for each in service(execute=time, **options)]
    else:
        done = service(schedule=operation.lower() == "schedule", **planning, **options)
    return {each.instant for each in done if each.instant is not None}


def _compactions(table: HudiTable) -> Iterator[list[object]]:
    """Pending and completed ones, newest first."""
    for instant in reversed(table.timeline.instants):
        if instant.action is Action.COMPACTION:
            yield [instant.requested_time, len(getattr(table.plan(instant), "operations", ())), instant.state.name]
        elif instant.action is Action.COMMIT and table.config.is_mor and instant.is_completed:
            metadata = table.commit_metadata(instant)
            if metadata.operation_type is not None and metadata.operation_type.value == "COMPACT":
                yield [instant.requested_time, len(metadata.stats), "COMPLETED"]


@procedure("show_compaction(table, path!, limit=20) -> timestamp, operation_size:int, state")
def _show_compaction(context: Context) -> Rows:
    return context.limited(list(_compactions(context.table)))


@procedure("""run_compaction(op, table, path!, timestamp:int?, options?, instants?, limit:int!) -> timestamp,
    operation_size:int, state""")
def _run_compaction(context: Context) -> Rows:
    known, times = "schedule, run, execute, scheduleAndExecute", context["instants"] or context["timestamp"]
    ran = _ran(context, context.services.compact, known, times)
    return [row for row in _compactions(context.table) if row[0] in ran]


@procedure("drop_partition(table, partition) -> result")
def _drop_partition(context: Context) -> Rows:
    paths = str(context["partition"]).split(",")
    context.target.commit(lambda writer: writer.delete_partitions(paths), context.options())
    return [["Success"]]


@procedure("truncate_table(table, partitions?) -> result, time_cost")
def _truncate(context: Context) -> Rows:
    target = context.target
    if context["partitions"]:
        paths = str(context["partitions"]).split(",")
        target.commit(lambda writer: writer.delete_partitions(paths), context.options())
        return [["SUCCESS", "0"]]
    truncate(context.session, Truncate(Name(tuple(target.name.split(".")))))
    return [["SUCCESS", "0"]]


@procedure("""hive_sync(table, metastore_uri!, username!, password!, use_jdbc!, mode!, partition_fields!,
    partition_extractor_class!, strategy!, sync_incremental!) -> result""")
def _hive_sync(context: Context) -> Rows:
    context.target.sync()
    return [["Hive Sync Success"]]


# -- clustering


def _clusterings(table: HudiTable) -> Iterator[tuple[Instant, ClusteringPlan]]:
    """Pending and completed ones, oldest first."""
    for instant in table.timeline.instants:
        if instant.action in (Action.REPLACE_COMMIT, Action.CLUSTERING):
            plan = table.requested_plan(RequestedReplaceMetadata, instant)
            if plan is not None and plan.clustering_plan is not None:
                yield instant, plan.clustering_plan


def _clustering_rows(context: Context) -> list[list[object]]:
    rows: list[list[object]] = []
    for instant, plan in _clusterings(context.table):
        partitions = ",".join(slice_.partition_path or "" for group in plan.input_groups for slice_ in group.slices)
        shown = partitions if context["show_involved_partition"] else "*"
        rows.append([instant.requested_time, len(plan.input_groups), instant.state.name, shown])
    return rows


@procedure("""show_clustering(table, path!, limit=20, show_involved_partition=False) -> timestamp,
    input_group_size:int, state, involved_partitions""")
def _show_clustering(context: Context) -> Rows:
    return context.limited(_clustering_rows(context))


@procedure("""run_clustering(table, path!, predicate?, order?, show_involved_partition=False, op?, order_strategy?,
    options?, instants?, selected_partitions?, partition_regex_pattern!, limit:int!) -> timestamp,
    input_group_size:int, state, involved_partitions""")
def _run_clustering(context: Context) -> Rows:
    partitions = _chosen_partitions(context, context.table)
    order = {"sort_by": context["order"], "curve": context["order_strategy"]}
    known = "schedule, execute, scheduleAndExecute"
    ran = _ran(context, context.services.cluster, known, context["instants"], partitions=partitions, **order)
    return [row for row in _clustering_rows(context) if row[0] in ran]


def _chosen_partitions(context: Context, table: HudiTable) -> list[str] | None:
    """By their paths, or by a predicate over the partition columns; None is all."""
    where, selected = context["predicate"], context["selected_partitions"]
    if where and selected:
        raise InputError("CALL run_clustering takes predicate or selected_partitions, not both", option="predicate")
    if selected:
        return [path.strip() for path in str(selected).split(",")]
    if not where:
        return None
    schema, config = to_arrow(table.schema()), table.config
    predicate = predicate_of(where, schema)
    others = set() if predicate is None else {name for name in predicate.columns if name not in config.partition_fields}
    if others:
        raise InputError(
            f"CALL run_clustering: the predicate names {', '.join(sorted(others))}",
            found=", ".join(sorted(others)),
            expected=", ".join(config.partition_fields) or "no column: the table has no partitions",
        )
    values = partition_values(config, schema, QueryType.SNAPSHOT, from_path=True)
    return values.select(table.view().partitions(), predicate)


# -- clean, archive, expiry


@procedure("""run_clean(table, skip_locking=False!, schedule_in_line=True, clean_policy?, retain_commits:int?,
    hours_retained:int?, file_versions_retained:int?, trigger_strategy?, trigger_max_commits:int?, options?) ->
    start_clean_time, time_taken_in_millis:long, total_files_deleted:int, earliest_commit_to_retain,
    bootstrap_part_metadata, version:int""")
def _run_clean(context: Context) -> Rows:
    done = context.services.clean(execute=not context["schedule_in_line"], **context.options(_OPTIONS_OF_CLEAN))
    times = {each.instant for each in done}
    return [
        [*_of_clean(found), str(dict(found.bootstrap_partition_metadata or {})), found.version]
        for instant, found in completed_plans(context.table, CleanMetadata, Action.CLEAN)
        if instant.requested_time in times
    ]


def _of_clean(found: CleanMetadata) -> list[object]:
    retained = str(found.earliest_commit_to_retain)
    return [str(found.start_clean_time), found.time_taken_in_millis, found.total_files_deleted, retained]


def _completed_cleans(table: HudiTable) -> list[tuple[list[object], CleanMetadata]]:
    """With the first columns of their rows."""
    times, cleans = completed_times(table), completed_plans(table, CleanMetadata, Action.CLEAN)
    return [([one.requested_time, time_of(times, one), one.action.value], found) for one, found in cleans]


@procedure("""show_cleans(table, limit=10, showArchived=False!, filter!) -> clean_time, state_transition_time, action,
    start_clean_time, time_taken_in_millis:long, total_files_deleted:int, earliest_commit_to_retain,
    last_completed_commit_timestamp, version:int""")
def _show_cleans(context: Context) -> Rows:
    found = _completed_cleans(context.table)
    return context.limited(
        [[*row, *_of_clean(one), str(one.last_completed_commit_timestamp), one.version] for row, one in found]
    )


@procedure("""show_cleans_metadata(table, limit=10, showArchived=False!, filter!) -> clean_time,
    state_transition_time, action, start_clean_time, partition_path, policy, delete_path_patterns:int,
    success_delete_files:int, failed_delete_files:int, is_partition_deleted:boolean, time_taken_in_millis:long,
    total_files_deleted:int""")
def _show_cleans_metadata(context: Context) -> Rows:
    rows = [
        [
            *(*row, str(found.start_clean_time), each.partition_path, each.policy, len(each.delete_path_patterns)),
            *(len(each.success_delete_files), len(each.failed_delete_files), bool(each.is_partition_deleted)),
            *(found.time_taken_in_millis, found.total_files_deleted),
        ]
        for row, found in _completed_cleans(context.table)
        for each in found.partition_metadata.values()
    ]
    return context.limited(rows)


@procedure("""show_clean_plans(table, limit=10, showArchived=False!, filter!) -> plan_time, state, action,
    earliest_instant_to_retain, last_completed_commit_timestamp, policy, version:int, total_partitions_to_clean:int,
    total_partitions_to_delete:int, extra_metadata""")
def _show_clean_plans(context: Context) -> Rows:
    table = context.table
    rows: list[list[object]] = []
    for instant in reversed(table.timeline.of(Action.CLEAN).instants):
        plan = table.requested_plan(CleanerPlan, instant)
        if plan is None:
            continue
        retained = plan.earliest_instant_to_retain
        files = plan.file_paths_to_be_deleted_per_partition or plan.files_to_be_deleted_per_partition or {}
        row: list[object] = [instant.requested_time, instant.state.name, instant.action.value]
        row += [retained and str(retained.timestamp), str(plan.last_completed_commit_timestamp), plan.policy]
        row += [plan.version, len(files), len(plan.partitions_to_be_deleted or ())]
        row += [str(dict(plan.extra_metadata)) if plan.extra_metadata else None]
        rows.append(row)
    return context.limited(rows)


@procedure("""archive_commits(table, path!, min_commits=20, max_commits=30, retain_commits=10, enable_metadata=True)
    -> result:int""")
def _archive_commits(context: Context) -> Rows:
    context.services.archive(**context.options(_OPTIONS_OF_ARCHIVE))
    return [[0]]


@procedure("run_ttl(table, ttl_policy?, retain_days:int?, options?) -> deleted_partitions")
def _run_ttl(context: Context) -> Rows:
    if context["ttl_policy"] not in (None, "KEEP_BY_TIME"):
        raise UnsupportedError(
            f"CALL run_ttl: ttl_policy {context['ttl_policy']!r} is not supported", hint="KEEP_BY_TIME is"
        )
    done = context.services.expire(context["retain_days"], **context.options())
    return [[row["partition"]] for each in done for row in each.details]


@procedure("delete_marker(table, instant_time) -> delete_marker_result:boolean")
def _delete_marker(context: Context) -> None:
    table, time = context.table, InstantTime(str(context["instant_time"]))
    if any(instant.requested_time == time for instant in table.timeline.pending()):
        problem = f"{time} is pending, and its markers name the files that a rollback deletes"
        hint = f"CALL rollback_to_instant(table => '{context['table']}', instant_time => '{time}')"
        raise table.error(InputError, problem, hint=hint, instant=time)
    delete_markers(table.storage, time)


@procedure("upgrade_table(table, to_version) -> result:boolean")
def _upgrade(context: Context) -> None:
    context.services.upgrade(_version(context), **context.options())


@procedure("downgrade_table(table, to_version) -> result:boolean")
def _downgrade(context: Context) -> Rows:
    context.services.downgrade(_version(context), **context.options())
    return [[True]]


def _version(context: Context) -> int:
    text = str(context["to_version"]).strip().upper()
    if text.isdecimal():
        return int(text)
    return _VERSIONS[one_of("to_version", text, _VERSIONS)]
