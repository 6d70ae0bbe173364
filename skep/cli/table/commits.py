"""`skep commits` and `skep stats`: what commits wrote, file by file; exported, compared with another table; sizes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import TableTarget
from skep.cli.scope import App
from skep.cli.table.read import ReadGiven
from skep_format.instant_time import InstantTime

if TYPE_CHECKING:
    from skep_table.reports.commits import CommittedFile
    from skep_table.table import HudiTable

commits = App(no_args_is_help=True, help="What the commits of a table wrote, file by file; exported, compared.")
stats = App(no_args_is_help=True, help="Figures of a table: sizes of files, rows written for rows updated.")

Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the newest N.")]
_FILE_COLUMNS = (
    *("requested_time", "action", "partition", "file_id", "file", "previous", "writes", "inserts", "updates"),
    *("deletes", "errors", "bytes", "file_bytes"),
)
_PARTITION_COLUMNS = (
    *("requested_time", "action", "partition", "files_added", "files_updated", "inserts", "updates"),
    *("bytes", "errors"),
)
_SIZE_COLUMNS = ("commit", "files", "smallest", "at_10", "at_50", "average", "at_95", "greatest", "deviation")


@commits.command()
def files(
    table: TableTarget,
    instant: Annotated[str | None, typer.Option(metavar="INSTANT", help="Only what this commit wrote.")] = None,
    partition: Annotated[str | None, typer.Option(metavar="PATH", help="Only this partition path.")] = None,
    file_id: Annotated[str | None, typer.Option("--file-id", metavar="ID", help="Only this file group.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only commits from this time on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only commits up to this time.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Archived commits too.")] = False,
    limit: Limit = None,
    *,
    given: ReadGiven,
) -> None:
    """Print what each completed commit wrote to each file, newest first.

    With --file-id or --partition: how a file group or a partition came to what it is.
    """
    from skep_table.reports.commits import committed_files

    opened, _ = given.read_only(table)
    found = committed_files(
        opened,
        instant=_time(opened, instant),
        partition=partition,
        file_id=file_id,
        since=_time(opened, since),
        until=_time(opened, until),
        archived=archived,
    )
    given.print([_of_file(each) for each in islice(found, limit)], _FILE_COLUMNS)


@commits.command()
def partitions(
    table: TableTarget,
    instant: Annotated[str, typer.Argument(metavar="INSTANT", help="The requested time of the commit.")],
    archived: Annotated[bool, typer.Option("--archived", help="It may be an archived one.")] = False,
    *,
    given: ReadGiven,
) -> None:
    """Print what a commit wrote to each partition."""
    from skep_format.timeline.metadata import stats_by_partition, write_totals
    from skep_table.reports.commits import committed_files

    opened, _ = given.read_only(table)
    found = list(committed_files(opened, instant=_time(opened, instant), archived=archived))
    rows = []
    for path, stats in sorted(stats_by_partition(each.stat for each in found).items()):
        total = write_totals(stats)
        inserts = sum(stat.num_inserts for stat in stats)
        counts = (total["added"], total["updated"], inserts, total["updates"], total["bytes"], total["errors"])
        rows.append((*_of_instant(found[0]), path, *counts))
    given.print(rows, _PARTITION_COLUMNS)


@commits.command()
def compare(
    table: TableTarget,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other table: its path, or [database.]table.")],
    *,
    given: ReadGiven,
) -> None:
    """Print the commits by which a table is ahead of another one, or behind it."""
    from skep_table.reports.commits import compare_commits

    compared = compare_commits(given.read_only(table)[0], given.read_only(other)[0])
    state = "ahead" if compared.is_ahead else "behind"
    rows = [(state, each.requested_time, each.action.value) for each in compared.instants]
    given.print(rows, ("state", "requested_time", "action"))
    typer.echo(str(compared), err=True)


@commits.command()
def restores(
    table: TableTarget,
    instant: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Only this restore, also a pending one.")
    ] = None,
    inflight: Annotated[bool, typer.Option("--inflight", help="Restores that are not complete, too.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N rows.")] = None,
    *,
    given: ReadGiven,
) -> None:
    """Print each instant that a restore has rolled back, oldest restore first."""
    from skep_table.reports.commits import restored_instants

    opened, _ = given.read_only(table)
    found = restored_instants(opened, _time(opened, instant), pending=inflight)
    rows = [
        (each.restore.requested_time, each.rolled_back, each.milliseconds, each.restore.state.name.lower())
        for each in islice(found, limit)
    ]
    given.print(rows, ("instant", "rolled_back", "milliseconds", "state"))


@commits.command()
def export(
    table: TableTarget,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of this machine that is there.")],
    actions: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Instants of these actions. [default: as Hudi's shell]")
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the first N.")] = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Begin with the newest.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Archived instants too.")] = False,
    *,
    given: ReadGiven,
) -> None:
    """Write each completed instant into a file of a folder, as JSON."""
    from skep_table.reports.commits import EXPORTED, export_instants

    opened, _ = given.read_only(table)
    wanted = EXPORTED if actions is None else tuple(each.strip() for each in actions.split(","))
    written = export_instants(
        opened, folder, actions=wanted, limit=limit or -1, newest_first=newest_first, archived=archived
    )
    rows = [(each.requested_time, each.action.value, str(path)) for each, path in written]
    given.print(rows, ("requested_time", "action", "file"))


@stats.command()
def sizes(
    table: TableTarget,
    partition: Annotated[
        str | None, typer.Option(metavar="PATH", help="Only partitions with this path; * stands for any text.")
    ] = None,
    limit: Limit = None,
    *,
    given: ReadGiven,
) -> None:
    """Print the sizes of the base files that each commit wrote, in bytes: by commit, newest first, and of all."""
    from skep_table.reports.commits import file_sizes

    opened, _ = given.read_only(table)
    found = file_sizes(opened, lambda path: partition is None or fnmatchcase(path, partition), limit or -1)
    given.print_fields(found, _SIZE_COLUMNS)


@stats.command()
def writes(table: TableTarget, limit: Limit = None, *, given: ReadGiven) -> None:
    """Print how many rows each commit wrote for those that it updated: its write amplification."""
    from skep_table.reports.commits import write_amplification

    found = write_amplification(given.read_only(table)[0], limit or -1)
    given.print_fields(found, ("commit", "updated", "written", "factor"))


def _time(table: HudiTable, text: str | None) -> InstantTime | None:
    from skep_table.query.request import instant_text

    return None if text is None else instant_text(text, table.config.timezone.value)


def _of_instant(found: CommittedFile) -> tuple[str, str]:
    return found.instant.requested_time, found.instant.action.value


def _of_file(found: CommittedFile) -> tuple[Any, ...]:
    stat = found.stat
    file = (stat.path or "").rpartition("/")[2] or None
    rows = (stat.num_writes, stat.num_inserts, stat.num_update_writes, stat.num_deletes, stat.total_write_errors)
    sizes = (stat.total_write_bytes, stat.file_size_in_bytes)
    return (*_of_instant(found), stat.partition_path, stat.file_id, file, stat.prev_commit, *rows, *sizes)
