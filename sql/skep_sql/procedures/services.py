"""Procedures that run table services, and show their plans and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from skep_format.errors import InputError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.schema.arrow import to_arrow
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CleanerPlan, CleanMetadata, ClusteringPlan, RequestedReplaceMetadata
from skep_sql.execution.tables import truncate
from skep_sql.parsing.statements import Name, Truncate
from skep_sql.procedures.contract import (
    BOOL,
    FILTER,
    INT,
    LIMIT,
    LONG,
    OPTIONS,
    PATH,
    TABLE,
    TEXT,
    Argument,
    Context,
    Procedure,
    Rows,
    columns,
    completed_times,
    time_of,
)
from skep_table.commit.parts.markers import delete_markers
from skep_table.query.options import QueryType
from skep_table.query.plan import predicate_of
from skep_table.query.pruning.partitions import partition_values
from skep_table.table import HudiTable


def _compaction_rows(table: HudiTable, limit: int) -> Rows:
    """Pending and completed ones, newest first."""
    rows: list[list[object]] = []
    for instant in reversed(table.timeline.instants):
        if instant.action is Action.COMPACTION:
            plan = table.plan(instant)
            rows.append([instant.requested_time, len(getattr(plan, "operations", ())), instant.state.name])
        elif instant.action is Action.COMMIT and table.config.is_mor and instant.is_completed:
            metadata = table.commit_metadata(instant)
            if metadata.operation_type is not None and metadata.operation_type.value == "COMPACT":
                rows.append([instant.requested_time, len(metadata.stats), "COMPLETED"])
    return rows[:limit]


def _show_compaction(context: Context) -> Rows:
    return _compaction_rows(context.target.hudi, context["limit"])


def _run_compaction(context: Context) -> Rows:
    operation, target = str(context["op"]).lower(), context.target
    service: Any = target
    options = {**context.settings.hoodie, **context.options()}
    done = []
    if operation == "schedule":
        done = service.compact(schedule=True, **options)
    elif operation in ("run", "execute"):
        for time in str(context["instants"] or context["timestamp"] or "").split(","):
            done += service.compact(execute=time.strip() or True, **options)
    elif operation == "scheduleandexecute":
        done = service.compact(**options)
    else:
        raise InputError(
            f"CALL run_compaction: op is {operation!r}",
            found=operation,
            expected="schedule, run, execute, scheduleAndExecute",
        )
    times = {each.instant for each in done if each.instant is not None}
    return [row for row in _compaction_rows(target.hudi, len(target.hudi.timeline)) if row[0] in times]


def _drop_partition(context: Context) -> Rows:
    context.target.drop_partitions(str(context["partition"]).split(","), context.settings.hoodie)
    return [["Success"]]


def _truncate(context: Context) -> Rows:
    target = context.target
    if context["partitions"]:
        target.drop_partitions(str(context["partitions"]).split(","), context.settings.hoodie)
        return [["SUCCESS", "0"]]
    truncate(Truncate(Name(tuple(target.name.split(".")))), context.scope, context.settings)
    return [["SUCCESS", "0"]]


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


def _clustering_rows(table: HudiTable, show_partitions: bool) -> list[list[object]]:
    rows: list[list[object]] = []
    for instant, plan in _clusterings(table):
        partitions = ",".join(slice_.partition_path or "" for group in plan.input_groups for slice_ in group.slices)
        shown = partitions if show_partitions else "*"
        rows.append([instant.requested_time, len(plan.input_groups), instant.state.name, shown])
    return rows


def _show_clustering(context: Context) -> Rows:
    return context.limited(_clustering_rows(context.target.hudi, context["show_involved_partition"]))


def _run_clustering(context: Context) -> Rows:
    target: Any = context.target
    operation = str(context["op"] or "scheduleAndExecute").lower()
    if operation not in ("schedule", "execute", "scheduleandexecute"):
        raise InputError(
            f"CALL run_clustering: op is {context['op']!r}",
            found=context["op"],
            expected="schedule, execute, scheduleAndExecute",
        )
    options = {**context.settings.hoodie, **context.options()}
    done = []
    if operation == "execute" or context["instants"]:
        for time in str(context["instants"] or "").split(","):
            done += target.cluster(execute=time.strip() or True, **options)
    else:
        done = target.cluster(
            sort_by=context["order"],
            curve=context["order_strategy"],
            partitions=_chosen_partitions(context, target.hudi),
            schedule=operation == "schedule",
            **options,
        )
    times = {each.instant for each in done if each.instant is not None}
    found = _clustering_rows(target.hudi, context["show_involved_partition"])
    return [row for row in found if row[0] in times]


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


def _run_clean(context: Context) -> Rows:
    target: Any = context.target
    named = {
        "hoodie.cleaner.policy": context["clean_policy"],
        "hoodie.cleaner.commits.retained": context["retain_commits"],
        "hoodie.cleaner.hours.retained": context["hours_retained"],
        "hoodie.cleaner.fileversions.retained": context["file_versions_retained"],
        "hoodie.clean.trigger.strategy": context["trigger_strategy"],
        "hoodie.clean.max.commits": context["trigger_max_commits"],
    }
    given = {key: str(value) for key, value in named.items() if value is not None}
    options = {**context.settings.hoodie, **given, **context.options()}
    done = target.clean(execute=not context["schedule_in_line"], **options)
    times = {each.instant for each in done}
    rows: list[list[object]] = []
    for instant, found in _cleans(target.hudi):
        if instant.requested_time in times:
            rows.append(
                [
                    str(found.start_clean_time),
                    found.time_taken_in_millis,
                    found.total_files_deleted,
                    str(found.earliest_commit_to_retain),
                    str(dict(found.bootstrap_partition_metadata or {})),
                    found.version,
                ]
            )
    return rows


def _cleans(table: HudiTable) -> Iterator[tuple[Instant, CleanMetadata]]:
    """The completed ones, newest first."""
    for instant in reversed(table.timeline.completed().of(Action.CLEAN).instants):
        found = table.plan(instant)
        if isinstance(found, CleanMetadata):
            yield instant, found


def _show_cleans(context: Context) -> Rows:
    table = context.target.hudi
    times = completed_times(table)
    rows = [
        [
            instant.requested_time,
            time_of(times, instant),
            instant.action.value,
            str(found.start_clean_time),
            found.time_taken_in_millis,
            found.total_files_deleted,
            str(found.earliest_commit_to_retain),
            str(found.last_completed_commit_timestamp),
            found.version,
        ]
        for instant, found in _cleans(table)
    ]
    return context.limited(rows)


def _show_cleans_metadata(context: Context) -> Rows:
    table = context.target.hudi
    times = completed_times(table)
    rows = [
        [
            instant.requested_time,
            time_of(times, instant),
            instant.action.value,
            str(found.start_clean_time),
            each.partition_path,
            each.policy,
            len(each.delete_path_patterns),
            len(each.success_delete_files),
            len(each.failed_delete_files),
            bool(each.is_partition_deleted),
            found.time_taken_in_millis,
            found.total_files_deleted,
        ]
        for instant, found in _cleans(table)
        for each in found.partition_metadata.values()
    ]
    return context.limited(rows)


def _show_clean_plans(context: Context) -> Rows:
    table = context.target.hudi
    rows: list[list[object]] = []
    for instant in reversed(table.timeline.of(Action.CLEAN).instants):
        plan = table.requested_plan(CleanerPlan, instant)
        if plan is None:
            continue
        retained = plan.earliest_instant_to_retain
        files = plan.file_paths_to_be_deleted_per_partition or plan.files_to_be_deleted_per_partition or {}
        rows.append(
            [
                instant.requested_time,
                instant.state.name,
                instant.action.value,
                None if retained is None else str(retained.timestamp),
                str(plan.last_completed_commit_timestamp),
                plan.policy,
                plan.version,
                len(files),
                len(plan.partitions_to_be_deleted or ()),
                str(dict(plan.extra_metadata)) if plan.extra_metadata else None,
            ]
        )
    return context.limited(rows)


def _archive_commits(context: Context) -> Rows:
    target: Any = context.target
    options = {
        "hoodie.keep.min.commits": context["min_commits"],
        "hoodie.keep.max.commits": context["max_commits"],
        "hoodie.cleaner.commits.retained": context["retain_commits"],
    }
    target.archive(**{**context.settings.hoodie, **options})
    return [[0]]


def _run_ttl(context: Context) -> Rows:
    target: Any = context.target
    if context["ttl_policy"] not in (None, "KEEP_BY_TIME"):
        raise UnsupportedError(
            f"CALL run_ttl: ttl_policy {context['ttl_policy']!r} is not supported", hint="KEEP_BY_TIME is"
        )
    done = target.expire(context["retain_days"], **{**context.settings.hoodie, **context.options()})
    table = target.hudi
    times = {each.instant for each in done}
    return [
        [path]
        for instant in table.timeline.completed().of(Action.REPLACE_COMMIT)
        if instant.requested_time in times
        for path in table.commit_metadata(instant).partitions
    ]


def _delete_marker(context: Context) -> Rows:
    table, time = context.target.hudi, InstantTime(str(context["instant_time"]))
    if any(instant.requested_time == time for instant in table.timeline.pending()):
        raise InputError(
            f"table {table.config.name}: {time} is pending, and its markers name the files that a rollback deletes",
            hint=f"CALL rollback_to_instant(table => '{context['table']}', instant_time => '{time}')",
            instant=time,
        )
    delete_markers(table.storage, time)
    return [[True]]


_COMPACTION: Final = (*columns(TEXT, "timestamp"), *columns(INT, "operation_size"), *columns(TEXT, "state"))
_CLUSTERING: Final = (
    *columns(TEXT, "timestamp"),
    *columns(INT, "input_group_size"),
    *columns(TEXT, "state involved_partitions"),
)
_SHOW_PARTITIONS: Final = Argument("show_involved_partition", bool, False)
_OF_CLEANS: Final = (TABLE, LIMIT, Argument("showArchived", bool, False, built=False), FILTER)

PROCEDURES: Final[Mapping[str, Procedure]] = {
    "run_compaction": Procedure(
        (
            Argument("op"),
            TABLE,
            PATH,
            Argument("timestamp", int, None),
            OPTIONS,
            Argument("instants", str, None),
            Argument("limit", int, None, built=False),
        ),
        _COMPACTION,
        _run_compaction,
    ),
    "show_compaction": Procedure((TABLE, PATH, Argument("limit", int, 20)), _COMPACTION, _show_compaction),
    "run_clustering": Procedure(
        (
            TABLE,
            PATH,
            Argument("predicate", str, None),
            Argument("order", str, None),
            _SHOW_PARTITIONS,
            Argument("op", str, None),
            Argument("order_strategy", str, None),
            OPTIONS,
            Argument("instants", str, None),
            Argument("selected_partitions", str, None),
            Argument("partition_regex_pattern", str, None, built=False),
            Argument("limit", int, None, built=False),
        ),
        _CLUSTERING,
        _run_clustering,
    ),
    "show_clustering": Procedure(
        (TABLE, PATH, Argument("limit", int, 20), _SHOW_PARTITIONS), _CLUSTERING, _show_clustering
    ),
    "run_clean": Procedure(
        (
            TABLE,
            Argument("skip_locking", bool, False, built=False),
            Argument("schedule_in_line", bool, True),
            Argument("clean_policy", str, None),
            Argument("retain_commits", int, None),
            Argument("hours_retained", int, None),
            Argument("file_versions_retained", int, None),
            Argument("trigger_strategy", str, None),
            Argument("trigger_max_commits", int, None),
            OPTIONS,
        ),
        (
            *columns(TEXT, "start_clean_time"),
            *columns(LONG, "time_taken_in_millis"),
            *columns(INT, "total_files_deleted"),
            *columns(TEXT, "earliest_commit_to_retain bootstrap_part_metadata"),
            *columns(INT, "version"),
        ),
        _run_clean,
    ),
    "show_cleans": Procedure(
        _OF_CLEANS,
        (
            *columns(TEXT, "clean_time state_transition_time action start_clean_time"),
            *columns(LONG, "time_taken_in_millis"),
            *columns(INT, "total_files_deleted"),
            *columns(TEXT, "earliest_commit_to_retain last_completed_commit_timestamp"),
            *columns(INT, "version"),
        ),
        _show_cleans,
    ),
    "show_cleans_metadata": Procedure(
        _OF_CLEANS,
        (
            *columns(TEXT, "clean_time state_transition_time action start_clean_time partition_path policy"),
            *columns(INT, "delete_path_patterns success_delete_files failed_delete_files"),
            *columns(BOOL, "is_partition_deleted"),
            *columns(LONG, "time_taken_in_millis"),
            *columns(INT, "total_files_deleted"),
        ),
        _show_cleans_metadata,
    ),
    "show_clean_plans": Procedure(
        _OF_CLEANS,
        (
            *columns(TEXT, "plan_time state action earliest_instant_to_retain last_completed_commit_timestamp policy"),
            *columns(INT, "version total_partitions_to_clean total_partitions_to_delete"),
            *columns(TEXT, "extra_metadata"),
        ),
        _show_clean_plans,
    ),
    "archive_commits": Procedure(
        (
            TABLE,
            PATH,
            Argument("min_commits", int, 20),
            Argument("max_commits", int, 30),
            Argument("retain_commits", int, 10),
            Argument("enable_metadata", bool, True),
        ),
        columns(INT, "result"),
        _archive_commits,
    ),
    "run_ttl": Procedure(
        (TABLE, Argument("ttl_policy", str, None), Argument("retain_days", int, None), OPTIONS),
        columns(TEXT, "deleted_partitions"),
        _run_ttl,
    ),
    "delete_marker": Procedure(
        (TABLE, Argument("instant_time")), columns(BOOL, "delete_marker_result"), _delete_marker
    ),
    "drop_partition": Procedure((TABLE, Argument("partition")), columns(TEXT, "result"), _drop_partition),
    "truncate_table": Procedure(
        (TABLE, Argument("partitions", str, None)), columns(TEXT, "result time_cost"), _truncate
    ),
    "hive_sync": Procedure(
        (
            TABLE,
            *(
                Argument(name, str, None, built=False)
                for name in (
                    "metastore_uri",
                    "username",
                    "password",
                    "use_jdbc",
                    "mode",
                    "partition_fields",
                    "partition_extractor_class",
                    "strategy",
                    "sync_incremental",
                )
            ),
        ),
        columns(TEXT, "result"),
        _hive_sync,
    ),
}
