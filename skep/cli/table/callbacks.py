"""`skep callbacks`: commits that a receiver did not get, and sending them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.output import FAILED
from skep.cli.scope import App
from skep_format.instant_time import InstantTime

if TYPE_CHECKING:
    from skep_format.timeline.instant import Instant

callbacks = App(no_args_is_help=True, help="Commit callbacks: what a receiver did not get.")
CallbackGiven = Annotated[Given, {"option": "The hoodie.write.commit.callback keys of the receiver."}]
Since = Annotated[
    str | None, typer.Option(metavar="INSTANT", help="All writes after it, also those that were delivered before.")
]
_COLUMNS = ("instant", "action", "state")


@callbacks.command()
def pending(table: TableTarget, *, given: CallbackGiven) -> None:
    """List the commits that the receiver did not get."""
    with given.opened(table) as found:
        from skep_sync.callbacks import undelivered
        from skep_sync.callbacks.senders import sender_of

        rows = [_row(instant, "undelivered") for instant in undelivered(found.hudi, sender_of(found.options))]
    given.print(rows, _COLUMNS)


@callbacks.command()
def replay(table: TableTarget, since: Since = None, *, given: CallbackGiven) -> None:
    """Send the commits that the receiver did not get, oldest first; stops at the first failure."""
    with given.opened(table) as found:
        from skep_sync.callbacks import deliver
        from skep_sync.callbacks.senders import sender_of

        delivery = deliver(found.hudi, sender_of(found.options), since=InstantTime(since) if since else None)
    sent = [_row(instant, "delivered") for instant in delivery.delivered]
    given.print([*sent, *(_row(instant, "undelivered") for instant in delivery.left)], _COLUMNS)
    if delivery.error is not None:
        typer.echo(f"error: {delivery.error}", err=True)
        raise typer.Exit(FAILED)


def _row(instant: Instant, state: str) -> tuple[str, str, str]:
    return instant.requested_time, instant.action.value, state
