"""`skep callbacks`: commits that a receiver did not get, and sending them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.output import FAILED
from skep.cli.scope import App
from skep_format.instant_time import InstantTime

if TYPE_CHECKING:
    from skep_format.timeline.instant import Instant

app = App(no_args_is_help=True, help="Commit callbacks: what a receiver did not get.")
Settings = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="The hoodie.write.commit.callback keys of the receiver."),
]
Since = Annotated[
    str | None, typer.Option(metavar="INSTANT", help="All writes after it, also those that were delivered before.")
]
_COLUMNS = ("instant", "action", "state")


@dataclass(frozen=True, slots=True)
class CallbackGiven(Given):
    """As of other commands, with the options of the receiver."""

    option: Settings = None


@app.command()
def pending(table: TableTarget, *, given: CallbackGiven) -> None:
    """List the commits that the receiver did not get."""
    with given.opened(table) as found:
        from skep_sync.callbacks import undelivered
        from skep_sync.callbacks.senders import sender_of

        rows = [_row(instant, "undelivered") for instant in undelivered(found.hudi, sender_of(found.options))]
    given.print(rows, _COLUMNS)


@app.command()
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


def _row(instant: Instant, state: str) -> dict[str, str]:
    return {"instant": instant.requested_time, "action": instant.action.value, "state": state}


def register(parent: typer.Typer) -> None:
    """Adds the commands of this module."""
    parent.add_typer(app, name="callbacks")
