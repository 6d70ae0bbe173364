"""`skep compact`, `cluster`, `expire` and `maintain`: services that rewrite or drop files, of one table or of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import ManyGiven, OnSpark, OptionalTarget, running
from skep.cli.output import FAILED
from skep.services.modes import Mode
from skep_format.errors import InputError

if TYPE_CHECKING:
    from skep.handles.table import Table
    from skep.services.modes import Work
    from skep_table.services.done import Done
    from skep_table.table import HudiTable

PlanOption = Annotated[bool, typer.Option("--plan", help="Print what would be done; change nothing.")]
ScheduleOption = Annotated[bool, typer.Option("--schedule", help="Only write the plan onto the timeline.")]
ExecuteOption = Annotated[bool, typer.Option("--execute", help="Only execute pending plans.")]
InstantOption = Annotated[
    str | None, typer.Option("--instant", metavar="INSTANT", help="With --execute: only the plan of this instant.")
]

Row = dict[str, Any]

_DONE_COLUMNS = ("table", "service", "instant", "state", "what")
_COMPACT_COLUMNS = ("table", "partition", "file_id", "base_instant", "log_files", "log_bytes")
_CLUSTER_COLUMNS = ("table", "group", "partition", "file_id", "log_files", "becomes")


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    for command in (compact, cluster, expire, maintain):
        app.command()(command)


def compact(
    table: OptionalTarget = None,
    logs: Annotated[bool, typer.Option("--logs", help="Only merge the log files of each slice into one.")] = False,
    plan: PlanOption = False,
    schedule: ScheduleOption = False,
    execute: ExecuteOption = False,
    instant: InstantOption = None,
    spark: OnSpark = False,
    *,
    given: ManyGiven,
) -> None:
    """Fold the log files of a merge-on-read table into base files.

    hoodie.compaction.strategy selects the file slices.
    """
    with given.opened(table) as tables:
        from skep.services.modes import compaction, log_compaction
        from skep_table.services.preview import compaction_rows

        mode = mode_of(plan=plan, schedule=schedule, execute=execute, instant=instant)
        work = (log_compaction if logs else compaction)(mode)

        def one(table: Table) -> Iterable[Row]:
            if given.every and not table.hudi.config.is_mor:
                return []
            return _preview(table, partial(compaction_rows, logs=logs)) if plan else _rows_of(table, work, spark)

        tables.print_each(one, given.output, _COMPACT_COLUMNS if plan else _DONE_COLUMNS)


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
    *,
    given: ManyGiven,
) -> None:
    """Make large files of small ones, with rows that are queried together stored together.

    hoodie.clustering.plan.strategy.… define which files are small, how large they become, and which partitions are
    considered.
    """
    named = {
        "hoodie.clustering.plan.strategy.sort.columns": sort_by,
        "hoodie.layout.optimize.strategy": curve,
        "hoodie.clustering.plan.strategy.partition.selected": partitions,
    }
    pairs = [f"{key}={value}" for key, value in named.items() if value is not None]
    with given.opened(table, *pairs) as tables:
        from skep.services.modes import clustering
        from skep_table.services.preview import clustering_rows

        work = clustering(mode_of(plan=plan, schedule=schedule, execute=execute, instant=instant))

        def one(table: Table) -> Iterable[Row]:
            return _preview(table, clustering_rows) if plan else _rows_of(table, work, spark)

        tables.print_each(one, given.output, _CLUSTER_COLUMNS if plan else _DONE_COLUMNS)


def expire(
    table: OptionalTarget = None,
    days: Annotated[int | None, typer.Option(help="Drop partitions not written to for so many days.", min=1)] = None,
    plan: PlanOption = False,
    *,
    given: ManyGiven,
) -> None:
    """Drop expired partitions; the next clean deletes their files."""
    pairs = [f"hoodie.partition.ttl.strategy.days.retain={days}"] if days else []
    with given.opened(table, *pairs) as tables:
        from skep.services.modes import expiry

        work = expiry(Mode())

        def one(table: Table) -> Iterable[Row]:
            return _expiry_plan(table) if plan else _rows_of(table, work)

        tables.print_each(one, given.output, ("table", "partition") if plan else _DONE_COLUMNS)


def _expiry_plan(table: Table) -> Iterator[Row]:
    from skep_table.services.cleaning.ttl import expired_partitions

    for path in expired_partitions(table.services().on(table.hudi)):
        yield {"table": table.name, "partition": path}


def maintain(
    table: OptionalTarget = None, plan: PlanOption = False, spark: OnSpark = False, *, given: ManyGiven
) -> None:
    """Run what is due: pending plans, compaction, clustering and expiry where configured, clean, archive.

    Services that other processes are running are postponed. One that fails does not keep the others from running.
    """
    with given.opened(table) as tables:
        from skep_table.services.automatic import maintain as steps_of
        from skep_table.services.preview import preview_maintenance

        failed = []

        def one(table: Table) -> Iterator[Row]:
            if plan:
                yield from _rows(table, preview_maintenance(table.services().on(table.hudi)))
                return
            with running(table, spark=spark) as services:
                hudi = services.on(table.hudi)
                done = services.run(hudi, steps_of(hudi))
            yield from _rows(table, (each for each in done if each.error is None))
            for each in done:
                if each.error is not None:
                    failed.append(each)
                    typer.echo(f"error: {table.name}: {each.service}: {each.error}", err=True)

        tables.print_each(one, given.output, _DONE_COLUMNS)
        if failed:
            raise typer.Exit(FAILED)


def _preview(table: Table, rows: Callable[[HudiTable], list[Row]]) -> list[Row]:
    return [{"table": table.name, **row} for row in rows(table.services().on(table.hudi))]


def _rows_of(table: Table, work: Work, spark: bool = False) -> Iterator[Row]:
    with running(table, spark=spark) as services:
        hudi = services.on(table.hudi)
        done = work(hudi)
        services.call_hooks(hudi, done)
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
