"""`skep compact`, `cluster`, `expire` and `maintain`: services that rewrite or drop files, of one table or of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.metastore import MetastoreOption, WarehouseOption
from skep.cli.output import Output, OutputOption, print_rows, reported
from skep.cli.tables import (
    AllTables,
    OfDatabase,
    OnSpark,
    OptionalTarget,
    ServiceSettings,
    opened_tables,
    running,
)
from skep_table.errors import InputError

if TYPE_CHECKING:
    from skep.services import Services
    from skep.table import Table
    from skep_table.commit.setting import CommitSetting
    from skep_table.services.done import Done
    from skep_table.table import HudiTable
    from skep_table.timeline.instant import Instant

PlanOption = Annotated[bool, typer.Option("--plan", help="Print what would be done; change nothing.")]
ScheduleOption = Annotated[bool, typer.Option("--schedule", help="Only write the plan onto the timeline.")]
ExecuteOption = Annotated[bool, typer.Option("--execute", help="Only carry out what is planned already.")]
InstantOption = Annotated[
    str | None, typer.Option("--instant", metavar="INSTANT", help="With --execute: only the plan of this instant.")
]

_DONE_COLUMNS = ("table", "service", "instant", "state", "what")
_COMPACT_COLUMNS = ("table", "partition", "file_id", "base_instant", "log_files", "log_bytes")
_CLUSTER_COLUMNS = ("table", "group", "partition", "file_id", "log_files", "becomes")

Work = Callable[["HudiTable", "CommitSetting"], "list[Done]"]


def register(app: typer.Typer) -> None:
    for command in (compact, cluster, expire, maintain):
        app.command()(command)


def compact(
    table: OptionalTarget = None,
    logs: Annotated[bool, typer.Option("--logs", help="Only put the log files of each slice together.")] = False,
    plan: PlanOption = False,
    schedule: ScheduleOption = False,
    execute: ExecuteOption = False,
    instant: InstantOption = None,
    spark: OnSpark = False,
    every: AllTables = False,
    database: OfDatabase = None,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Fold the log files of a merge-on-read table into base files.

    hoodie.compaction.strategy says which slices are compacted.
    """
    with reported(), opened_tables(table, option, metastore, warehouse, every=every, database=database) as tables:
        from skep_table.services import compact as service
        from skep_table.services import log_compact
        from skep_table.services.compact_plan import plan_compaction
        from skep_table.services.compact_strategy import chooser
        from skep_table.services.done import compacted, logs_compacted

        _check_modes(plan=plan, schedule=schedule, execute=execute, instant=instant)
        if every:
            tables = [each for each in tables if each.hudi.config.is_mor]

        def planned(one: Table, setting: CommitSetting) -> list[dict[str, Any]]:
            if logs:
                found = log_compact.plan_log_compaction(one.hudi, setting)
            else:
                found = plan_compaction(one.hudi, setting, chooser(setting.options, setting.clock.now()))
            return [
                {
                    "table": one.name,
                    "partition": each.partition_path,
                    "file_id": each.file_id,
                    "base_instant": each.base_instant_time,
                    "log_files": len(each.delta_file_paths),
                    "log_bytes": int((each.metrics or {}).get("TOTAL_LOG_FILES_SIZE", 0)),
                }
                for each in (found.operations if found else ())
            ]

        def do_logs(hudi: HudiTable, setting: CommitSetting) -> list[Done]:
            if schedule:
                return _planned("log-compact", log_compact.schedule_log_compaction(hudi, setting))
            if instant is not None:
                wanted = _pending(hudi, instant, log_compact.pending_log_compactions(hudi))
                done = log_compact.execute_log_compaction(hudi, wanted, setting)
                return [logs_compacted(done)] if done else []
            run = log_compact.execute_pending_log_compactions if execute else log_compact.compact_logs
            return [logs_compacted(each) for each in run(hudi, setting)]

        def do(hudi: HudiTable, setting: CommitSetting) -> list[Done]:
            choose = chooser(setting.options, setting.clock.now())
            if schedule:
                return _planned("compact", service.schedule_compaction(hudi, setting, choose))
            if instant is not None:
                wanted = _pending(hudi, instant, service.pending_compactions(hudi))
                done = service.execute_compaction(hudi, wanted, setting)
                return [compacted(done)] if done else []
            run = service.execute_pending_compactions if execute else _with(service.compact, choose)
            return [compacted(each) for each in run(hudi, setting)]

        if plan:
            print_rows(_each_plan(tables, planned), output, _COMPACT_COLUMNS)
        else:
            print_rows(_each(tables, do_logs if logs else do, spark), output, _DONE_COLUMNS)


def cluster(
    table: OptionalTarget = None,
    sort_by: Annotated[str | None, typer.Option(metavar="A,B,…", help="Order rows by these columns.")] = None,
    curve: Annotated[str | None, typer.Option(metavar="linear|z-order|hilbert", help="How columns count.")] = None,
    partitions: Annotated[str | None, typer.Option(metavar="P,Q,…", help="Only these partition paths.")] = None,
    plan: PlanOption = False,
    schedule: ScheduleOption = False,
    execute: ExecuteOption = False,
    instant: InstantOption = None,
    spark: OnSpark = False,
    every: AllTables = False,
    database: OfDatabase = None,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make large files of small ones, with rows that are asked for together lying together.

    hoodie.clustering.plan.strategy.… say which files are small, how large they become, and which partitions are
    looked into.
    """
    named = {
        "hoodie.clustering.plan.strategy.sort.columns": sort_by,
        "hoodie.layout.optimize.strategy": curve,
        "hoodie.clustering.plan.strategy.partition.selected": partitions,
    }
    pairs = [*(option or ()), *(f"{key}={value}" for key, value in named.items() if value is not None)]
    with reported(), opened_tables(table, pairs, metastore, warehouse, every=every, database=database) as tables:
        from skep_table.services import cluster as service
        from skep_table.services.cluster_plan import plan_clustering
        from skep_table.services.done import clustered

        _check_modes(plan=plan, schedule=schedule, execute=execute, instant=instant)

        def planned(one: Table, setting: CommitSetting) -> list[dict[str, Any]]:
            found = plan_clustering(one.hudi, setting)
            groups = found.clustering_plan.input_groups if found and found.clustering_plan else ()
            return [
                {
                    "table": one.name,
                    "group": number,
                    "partition": each.partition_path,
                    "file_id": each.file_id,
                    "log_files": len(each.delta_file_paths),
                    "becomes": group.num_output_file_groups,
                }
                for number, group in enumerate(groups)
                for each in group.slices
            ]

        def do(hudi: HudiTable, setting: CommitSetting) -> list[Done]:
            if schedule:
                return _planned("cluster", service.schedule_clustering(hudi, setting))
            if instant is not None:
                wanted = _pending(hudi, instant, service.pending_clusterings(hudi))
                done = service.execute_clustering(hudi, wanted, setting)
                return [clustered(done)] if done else []
            run = service.execute_pending_clusterings if execute else service.cluster
            return [clustered(each) for each in run(hudi, setting)]

        if plan:
            print_rows(_each_plan(tables, planned), output, _CLUSTER_COLUMNS)
        else:
            print_rows(_each(tables, do, spark), output, _DONE_COLUMNS)


def expire(
    table: OptionalTarget = None,
    days: Annotated[int | None, typer.Option(help="Partitions not written to for so many days go.", min=1)] = None,
    plan: PlanOption = False,
    every: AllTables = False,
    database: OfDatabase = None,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Drop the partitions whose time is up; the next clean deletes their files."""
    pairs = [*(option or ()), *([f"hoodie.partition.ttl.strategy.days.retain={days}"] if days else ())]
    with reported(), opened_tables(table, pairs, metastore, warehouse, every=every, database=database) as tables:
        from skep_table.services.done import expired
        from skep_table.services.ttl import expire_partitions, expired_partitions

        def planned(one: Table, setting: CommitSetting) -> list[dict[str, Any]]:
            return [{"table": one.name, "partition": path} for path in expired_partitions(one.hudi, setting)]

        def do(hudi: HudiTable, setting: CommitSetting) -> list[Done]:
            return [expired(each) for each in expire_partitions(hudi, setting)]

        if plan:
            print_rows(_each_plan(tables, planned), output, ("table", "partition"))
        else:
            print_rows(_each(tables, do), output, _DONE_COLUMNS)


def maintain(
    table: OptionalTarget = None,
    spark: OnSpark = False,
    every: AllTables = False,
    database: OfDatabase = None,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Do what is due: plans that wait, compaction, clustering and expiry where asked for, clean, archive."""
    with reported(), opened_tables(table, option, metastore, warehouse, every=every, database=database) as tables:
        from skep_table.services.automatic import maintain as steps_of

        rows = []
        for one in tables:
            with running(one, spark=spark) as services:
                hudi = one.hudi
                rows += _rows(one, services.run(hudi, steps_of(hudi, services.setting())))
        print_rows(rows, output, _DONE_COLUMNS)


def _each(tables: Iterable[Table], do: Work, spark: bool = False) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for one in tables:
        with running(one, spark=spark) as services:
            rows += _rows(one, _told(one, services, do))
    return rows


def _told(one: Table, services: Services, do: Work) -> list[Done]:
    hudi = one.hudi
    done = do(hudi, services.setting())
    services.tell(hudi, done)
    return done


def _each_plan(
    tables: Iterable[Table], planned: Callable[[Table, CommitSetting], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    return [row for one in tables for row in planned(one, one.services().setting())]


def _rows(one: Table, done: Iterable[Done]) -> list[dict[str, Any]]:
    return [
        {"table": one.name, "service": each.service, "instant": each.instant, "state": each.state, "what": each.what}
        for each in done
    ]


def _planned(service: str, instant: Instant | None) -> list[Done]:
    from skep_table.services.done import scheduled

    return [scheduled(service, instant)] if instant is not None else []


def _pending(hudi: HudiTable, time: str, pending: Iterable[Instant]) -> Instant:
    times = {instant.requested_time: instant for instant in pending}
    if time not in times:
        hint = f"there are {', '.join(sorted(times))}" if times else "nothing is planned"
        raise InputError(f"table {hudi.config.name}: there is no plan {time}", hint=hint, instant=time)
    return times[time]


def _with(run: Callable[..., Any], *more: object) -> Callable[[HudiTable, CommitSetting], Any]:
    return lambda hudi, setting: run(hudi, setting, *more)


def _check_modes(*, plan: bool, schedule: bool, execute: bool, instant: str | None) -> None:
    flags: Mapping[str, bool] = {"plan": plan, "schedule": schedule, "execute": execute}
    given = [f"--{name}" for name, flag in flags.items() if flag]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other", option=given[0])
    if instant is not None and not execute:
        raise InputError("--instant goes with --execute", option="--instant")
