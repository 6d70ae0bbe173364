"""`skep changes`: what commits changed, sent to a receiver that gets each commit at least once."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from skep.cli import progress
from skep.cli.output import Output, OutputOption, print_rows, reported
from skep.cli.scope import MetastoreOption, WarehouseOption
from skep.cli.tables import TableTarget, read_only_table

_COLUMNS = ("instant", "changes")


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command("changes")(changes)


def changes(
    table: TableTarget,
    to: Annotated[
        str, typer.Option(metavar="-|FOLDER|URL", help="stdout, a folder, http(s)://…, or kafka://servers/topic.")
    ] = "-",
    consumer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose position is kept.  [default: that of the receiver]")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="After this time, whatever was sent before.")
    ] = None,
    every: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Look for new commits until it is stopped.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="A setting of the receiver; repeatable.")
    ] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send the changes of a table, commit by commit: operation, instant, and the rows before and after as JSON.

    The next call goes on behind the last commit that the receiver has; a commit may arrive twice. stdout has no
    position of its own: without --consumer it gets all changes that can be read.
    """
    with reported():
        from skep_sync.feed import feed, receiver_of

        opened = read_only_table(table, option, metastore, warehouse)
        receiver = receiver_of(to, opened.options, lambda: sys.stdout.buffer)
        while True:
            if to == "-":
                progress.make_way()
            rows: list[dict[str, Any]] = []
            try:
                for fed in feed(opened, receiver, consumer=consumer, since=since):
                    since = fed.position
                    rows.append({"instant": fed.instant, "changes": fed.changes})
            finally:
                if to != "-" and (rows or every is None):
                    print_rows(rows, output, _COLUMNS)
            if every is None:
                return
            time.sleep(every)
