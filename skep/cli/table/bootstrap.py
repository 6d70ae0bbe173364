"""`skep bootstrap`: a table made of a folder of files, which stay where they are or are written into it."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from skep.cli.opened import TableTarget
from skep.cli.progress import listening
from skep.cli.scope import settings_of
from skep.cli.table.services import DONE_COLUMNS, PlanOption
from skep.cli.table.write import EventsAsJson, NewTable, WriteGiven, destinations, found_or_described
from skep_format.options import Options
from skep_table.events import Events

_PLAN_COLUMNS = ("folder", "partition", "mode", "files", "rows", "bytes_read", "bytes_written")


class ModeOfFolders(str, Enum):
    """Of the folders of a source."""

    METADATA_ONLY = "metadata_only"
    FULL_RECORD = "full_record"


def bootstrap(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The folder of Parquet or ORC files.")],
    table: TableTarget,
    mode: Annotated[
        ModeOfFolders | None,
        typer.Option(
            case_sensitive=False,
            help="metadata_only: rows stay in their files. full_record: they are written.  [default: metadata_only]",
        ),
    ] = None,
    matching: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="--mode is that of folders whose whole path matches."),
    ] = None,
    plan: PlanOption = False,
    *,
    new: Annotated[
        NewTable, {"partition_by": "Of a new table: columns, by comma.  [default: those in names of folders]"}
    ],
    events: EventsAsJson = False,
    given: WriteGiven,
) -> None:
    """Make a table of a folder of Parquet or ORC files, which stays as it is.

    A bootstrap is the first write of a table. One that was ended is repeated: it begins again, or goes on.
    """
    from skep.handles.bootstraps import bootstrap as run
    from skep.handles.bootstraps import with_mode

    described = new.described()
    options = with_mode(Options(settings_of(given.option)), source, mode.value if mode else None, matching)
    with listening(f"bootstrap {table}", as_json=events) as listener, destinations(table, given) as describe:
        found_or_described(describe, described)
        done = run(describe, described, options, Events(listener), plan=plan, listener=listener)
    if plan:
        given.print([dict(row) for each in done for row in each.details], _PLAN_COLUMNS)
    else:
        given.print_fields(done, DONE_COLUMNS)
