"""`skep repair` and `skep compaction`: repairs by the names of Hudi's shell, and planned compactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.output import FAILED
from skep.cli.scope import App
from skep.cli.table.fsck import context_of
from skep.cli.table.read import ReadGiven
from skep.cli.table.services import InstantArgument, PlanOption
from skep_format.errors import InputError
from skep_format.instant_time import InstantTime

if TYPE_CHECKING:
    from skep_table.services.compaction.planned import PlannedSlice
    from skep_table.services.repairs.duplicates import MovedPartition
    from skep_table.services.repairs.metafiles import PartitionMetafile
    from skep_table.services.repairs.settings import SettingsChange

repair = App(no_args_is_help=True, help="Repairs by the names of Hudi's shell; skep fsck finds what needs one.")
compaction = App(no_args_is_help=True, help="Planned compactions: shown, compared with the files, taken back.")

_SLICE_COLUMNS = ("partition", "file_id", "base_instant", "base_file", "log_files")


@repair.command("add-partition-meta")
def add_partition_meta(table: TableTarget, plan: PlanOption = False, *, given: Given) -> None:
    """Write the metafiles of partitions that have none: without them readers do not find their rows."""
    with given.running(table) as found:
        done = found.add_partition_metafiles(dry_run=plan)
    _print_metafiles(done, "write" if plan else "written", lambda each: each.changed or not each.is_there, given)


@repair.command("migrate-partition-meta")
def migrate_partition_meta(table: TableTarget, plan: PlanOption = False, *, given: Given) -> None:
    """Bring all partition metafiles from properties to the format of base files, and the table to write these."""
    with given.running(table) as found:
        done = found.migrate_partition_metafiles(dry_run=plan)
    _print_metafiles(done, "migrate" if plan else "migrated", lambda each: each.as_text, given)


@repair.command()
def deduplicate(
    table: TableTarget,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Its path; '' of a table without partitions.")],
    keep: Annotated[
        str, typer.Option(metavar="insert_type|update_type|upsert_type", help="Which of several rows stays.")
    ] = "insert_type",
    copy_to: Annotated[
        str | None, typer.Option("--copy-to", metavar="FOLDER", help="Also write the rows that stay into a file there.")
    ] = None,
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Delete rows of a partition whose key another row of it has; print all of them.

    The row of the newest commit stays; of several of that commit update_type and upsert_type keep the last one.
    """
    with given.running(table) as found:
        done = found.deduplicate(partition, keep=keep, copy_to=copy_to, dry_run=plan)
    goes = "delete" if plan else "deleted"
    names = [f"_hoodie_{name}" for name in ("record_key", "commit_time", "partition_path", "file_name")]
    rows = [(*map(row.get, names), "stays" if row["kept"] else goes) for row in done.rows.to_pylist()]
    given.print(rows, ("key", "commit_time", "partition", "file_id", "action"))


@repair.command("rename-partition")
def rename_partition(
    table: TableTarget,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Its path.")],
    to: Annotated[str, typer.Argument(metavar="PATH", help="The path that its rows get; one without rows.")],
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Bring all rows of a partition to another path, by one commit."""
    with given.running(table) as found:
        done = found.rename_partition(partition, to, dry_run=plan)
    _print_moved([done], given)


@repair.command("deprecated-partition")
def deprecated_partition(table: TableTarget, plan: PlanOption = False, *, given: Given) -> None:
    """Bring rows of partitions named default, where Hudi before 0.12 put nulls, to where these are now."""
    with given.running(table) as found:
        done = found.move_deprecated_partitions(dry_run=plan)
    _print_moved(done, given)


@repair.command("corrupted-clean-files")
def corrupted_clean_files(table: TableTarget, plan: PlanOption = False, *, given: Given) -> None:
    """Delete pending cleans whose plan can't be read: they keep every later clean from running."""
    with given.running(table) as found:
        done = found.delete_unreadable_cleans(dry_run=plan)
    rows = [
        (
            each.instant.requested_time,
            each.instant.state.name.lower(),
            each.problem,
            "deleted" if each.deleted else "delete",
        )
        for each in done
    ]
    given.print(rows, ("requested_time", "state", "problem", "action"))


@repair.command("overwrite-hoodie-props")
def overwrite_hoodie_props(
    table: TableTarget,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The new properties, all of them.")],
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Replace the table's settings (.hoodie/hoodie.properties), also where the file is damaged or missing."""
    with context_of(table, given) as context:
        from skep_table.services.repairs.settings import load_properties, overwrite_settings

        change = overwrite_settings(context, load_properties(file, context.options), plan=plan)
    print_settings(change, given)


@repair.command("recover-configs")
def recover_configs(table: TableTarget, plan: PlanOption = False, *, given: Given) -> None:
    """Finish a change of the table's settings that was interrupted, by their backup."""
    with context_of(table, given) as context:
        from skep_table.services.repairs.settings import recover_settings

        change = recover_settings(context, plan=plan)
    print_settings(change, given)


@compaction.command("show")
def show_compaction(table: TableTarget, instant: InstantArgument, *, given: ReadGiven) -> None:
    """Print the file slices that a compaction names."""
    from skep_table.services.compaction.planned import planned_slices

    _print_slices(planned_slices(given.read_only(table)[0], InstantTime(instant)), given)


@compaction.command("validate")
def validate_compaction(table: TableTarget, instant: InstantArgument, *, given: Given) -> None:
    """Compare the plan of a pending compaction with the files of the table. Exit code 1 when something differs."""
    with given.opened(table) as found:
        slices = found.validate_compaction(instant)
    _print_slices(slices, given, "error")
    if any(each.error for each in slices):
        raise typer.Exit(FAILED)


@compaction.command("unschedule")
def unschedule_compaction(
    table: TableTarget,
    instant: InstantArgument,
    file_id: Annotated[
        str | None, typer.Option("--file-id", metavar="ID", help="Only this file group, of --partition.")
    ] = None,
    partition: Annotated[str | None, typer.Option(metavar="PATH", help="With --file-id: its partition path.")] = None,
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Take a planned compaction off the timeline, or one file group out of it; print what is not compacted then."""
    if partition is not None and file_id is None:
        raise InputError("--partition goes with --file-id", option="--partition")
    with given.running(table) as found:
        slices = found.unschedule_compaction(instant, file_id=file_id, partition=partition or "", dry_run=plan)
    _print_slices(slices, given)


def print_settings(change: SettingsChange, given: Given) -> None:
    """The properties that a change sets, changes or removes."""
    rows = [each for each in change.properties() if each[1] != each[2]]
    given.print(rows, ("property", "before", "after"))


def _print_moved(done: Sequence[MovedPartition], given: Given) -> None:
    rows = [(each.before, each.after, each.rows, "moved" if each.moved else "move") for each in done]
    given.print(rows, ("partition", "to", "rows", "action"))


def _print_metafiles(
    done: Sequence[PartitionMetafile], action: str, acts: Callable[[PartitionMetafile], bool], given: Given
) -> None:
    rows = [(each.partition, each.as_text, each.as_base_file, action if acts(each) else "none") for each in done]
    given.print(rows, ("partition", "text", "base_format", "action"))


def _print_slices(slices: Sequence[PlannedSlice], given: Given, *more: str) -> None:
    columns = (*_SLICE_COLUMNS, *more)
    given.print_fields(slices, columns)
