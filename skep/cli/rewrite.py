"""`skep compact`, `cluster`, `expire` and `maintain`: services that rewrite or drop files, of one table or of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.metastore import MetastoreOption, WarehouseOption
from skep.cli.output import FAILED, Output, OutputOption, reported
from skep.cli.tables import (
    AllTables,
    OfDatabase,
    OnSpark,
    OptionalTarget,
    ServiceSettings,
    opened_tables,
    running,
)
from skep.service_work import Mode
from skep_table.errors import InputError

if TYPE_CHECKING:
    from skep.service_work import Work
    from skep.table import Table
    from skep_table.services.done import Done

PlanOption = Annotated[bool, typer.Option("--plan", help="Print what would be done; change nothing.")]
ScheduleOption = Annotated[bool, typer.Option("--schedule", help="Only write the plan onto the timeline.")]
ExecuteOption = Annotated[bool, typer.Option("--execute", help="Only carry out what is planned already.")]
InstantOption = Annotated[
    str | None, typer.Option("--instant", metavar="INSTANT", help="With --execute: only the plan of this instant.")
]

Row = dict[str, Any]

_DONE_COLUMNS = ("table", "service", "instant", "state", "what")
_COMPACT_COLUMNS = ("table", "partition", "file_id", "base_instant", "log_files", "log_bytes")
_CLUSTER_COLUMNS = ("table", "group", "partition", "file_id", "log_files", "becomes")


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
        from skep.service_work import compaction, log_compaction

        mode = mode_of(plan=plan, schedule=schedule, execute=execute, instant=instant)
        work = (log_compaction if logs else compaction)(mode)

        def one(table: Table) -> Iterable[Row]:
            if every and not table.hudi.config.is_mor:
                return []
            return _compact_plan(table, logs=logs) if plan else _rows_of(table, work, spark)

        tables.print_each(one, output, _COMPACT_COLUMNS if plan else _DONE_COLUMNS)


def _compact_plan(table: Table, *, logs: bool) -> Iterator[Row]:
    from skep_table.services.compact import check_compactable
    from skep_table.services.compact_plan import plan_compaction
    from skep_table.services.compact_strategy import chooser
    from skep_table.services.log_compact import plan_log_compaction

    hudi, setting = table.hudi, table.services().setting()
    check_compactable(hudi)
    if logs:
        found = plan_log_compaction(hudi, setting)
    else:
        found = plan_compaction(hudi, setting, chooser(setting.options, setting.clock.now()))
    for each in found.operations if found else ():
        yield {
            "table": table.name,
            "partition": each.partition_path,
            "file_id": each.file_id,
            "base_instant": each.base_instant_time,
            "log_files": len(each.delta_file_paths),
            "log_bytes": int((each.metrics or {}).get("TOTAL_LOG_FILES_SIZE", 0)),
        }


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
        from skep.service_work import clustering

        work = clustering(mode_of(plan=plan, schedule=schedule, execute=execute, instant=instant))

        def one(table: Table) -> Iterable[Row]:
            return _cluster_plan(table) if plan else _rows_of(table, work, spark)

        tables.print_each(one, output, _CLUSTER_COLUMNS if plan else _DONE_COLUMNS)


def _cluster_plan(table: Table) -> Iterator[Row]:
    from skep_table.services.cluster import check_clusterable
    from skep_table.services.cluster_plan import plan_clustering

    setting = table.services().setting()
    check_clusterable(table.hudi, setting.options)
    found = plan_clustering(table.hudi, setting)
    for number, group in enumerate(found.clustering_plan.input_groups if found and found.clustering_plan else ()):
        for each in group.slices:
            yield {
                "table": table.name,
                "group": number,
                "partition": each.partition_path,
                "file_id": each.file_id,
                "log_files": len(each.delta_file_paths),
                "becomes": group.num_output_file_groups,
            }


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
        from skep.service_work import expiry

        work = expiry(Mode())

        def one(table: Table) -> Iterable[Row]:
            return _expiry_plan(table) if plan else _rows_of(table, work)

        tables.print_each(one, output, ("table", "partition") if plan else _DONE_COLUMNS)


def _expiry_plan(table: Table) -> Iterator[Row]:
    from skep_table.services.ttl import expired_partitions

    for path in expired_partitions(table.hudi, table.services().setting()):
        yield {"table": table.name, "partition": path}


def maintain(
    table: OptionalTarget = None,
    plan: PlanOption = False,
    spark: OnSpark = False,
    every: AllTables = False,
    database: OfDatabase = None,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Do what is due: plans that wait, compaction, clustering and expiry where asked for, clean, archive.

    What others are at work on is put off. One service that fails does not keep the others from running.
    """
    with reported(), opened_tables(table, option, metastore, warehouse, every=every, database=database) as tables:
        from skep_table.services.automatic import maintain as steps_of
        from skep_table.services.preview import preview_maintenance

        failed = []

        def one(table: Table) -> Iterator[Row]:
            if plan:
                yield from _rows(table, preview_maintenance(table.hudi, table.services().setting()))
                return
            with running(table, spark=spark) as services:
                done = services.run(table.hudi, steps_of(table.hudi, services.setting()))
            yield from _rows(table, (each for each in done if each.error is None))
            for each in done:
                if each.error is not None:
                    failed.append(each)
                    typer.echo(f"error: {table.name}: {each.service}: {each.error}", err=True)

        tables.print_each(one, output, _DONE_COLUMNS)
        if failed:
            raise typer.Exit(FAILED)


def _rows_of(table: Table, work: Work, spark: bool = False) -> Iterator[Row]:
    with running(table, spark=spark) as services:
        done = work(table.hudi, services.setting())
        services.tell(table.hudi, done)
    return _rows(table, done)


def _rows(table: Table, done: Iterable[Done]) -> Iterator[Row]:
    return (
        {"table": table.name, "service": each.service, "instant": each.instant, "state": each.state, "what": each.what}
        for each in done
    )


def mode_of(*, plan: bool, schedule: bool, execute: bool, instant: str | None) -> Mode:
    """InputError for flags that exclude each other."""
    if instant is not None and not execute:
        raise InputError("--instant goes with --execute", option="--instant")
    return Mode.of(plan=plan, schedule=schedule, execute=instant or execute)
