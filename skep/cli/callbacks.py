"""`skep callbacks`: commits that a receiver has not been told, and telling them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.metastore import MetastoreOption, WarehouseOption
from skep.cli.output import FAILED, Output, OutputOption, print_rows, reported
from skep.cli.tables import TableTarget, opened_table

if TYPE_CHECKING:
    from skep_table.timeline.instant import Instant

app = typer.Typer(no_args_is_help=True, help="Commit callbacks: what a receiver has not been told.")
Settings = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="The hoodie.write.commit.callback keys of the receiver."),
]
Since = Annotated[
    str | None, typer.Option(metavar="INSTANT", help="All writes after it, also those that were told before.")
]
_COLUMNS = ("instant", "action", "state")


@app.command()
def pending(
    table: TableTarget,
    option: Settings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the commits that the receiver has not been told."""
    with reported(), opened_table(table, option, metastore, warehouse) as found:
        from skep_sync.callbacks import untold
        from skep_sync.callbacks.senders import sender_of

        rows = [_row(instant, "untold") for instant in untold(found.hudi, sender_of(found.options))]
    print_rows(rows, output, _COLUMNS)


@app.command()
def replay(
    table: TableTarget,
    since: Since = None,
    option: Settings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell the receiver what it has not been told, oldest first; stops where it fails."""
    with reported(), opened_table(table, option, metastore, warehouse) as found:
        from skep_sync.callbacks import deliver
        from skep_sync.callbacks.senders import sender_of

        delivery = deliver(found.hudi, sender_of(found.options), since=since)
    told = [_row(instant, "told") for instant in delivery.told]
    print_rows([*told, *(_row(instant, "untold") for instant in delivery.left)], output, _COLUMNS)
    if delivery.error is not None:
        typer.echo(f"error: {delivery.error}", err=True)
        raise typer.Exit(FAILED)


def _row(instant: Instant, state: str) -> dict[str, str]:
    return {"instant": instant.requested_time, "action": instant.action.value, "state": state}


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="callbacks")
