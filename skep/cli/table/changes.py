"""`skep changes`: what commits changed, sent to a receiver that gets each commit at least once."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from skep.cli import progress
from skep.cli.opened import Given, TableTarget

ReceiverGiven = Annotated[Given, {"option": "A setting of the receiver; repeatable."}]


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
    *,
    given: ReceiverGiven,
) -> None:
    """Send the changes of a table, commit by commit: operation, instant, and the rows before and after as JSON.

    The next call goes on behind the last commit that the receiver has; a commit may arrive twice. stdout has no
    position of its own: without --consumer it gets all changes that can be read.
    """
    from skep_sync.feed import feed, receiver_of

    opened, _ = given.read_only(table)
    receiver = receiver_of(to, opened.options, lambda: sys.stdout.buffer)
    while True:
        if to == "-":
            progress.make_way()
        rows: list[tuple[str, int]] = []
        try:
            for fed in feed(opened, receiver, consumer=consumer, since=since):
                since = fed.position
                rows.append((fed.instant, fed.changes))
        finally:
            if to != "-" and (rows or every is None):
                given.print(rows, ("instant", "changes"))
        if every is None:
            return
        time.sleep(every)
