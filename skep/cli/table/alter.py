"""`skep alter`: columns of a table are renamed, dropped, added, moved or retyped; its settings and its type changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.scope import App, settings_of
from skep.cli.table.repair import print_settings
from skep.cli.table.services import PlanOption
from skep_format.errors import InputError
from skep_format.options import Options

if TYPE_CHECKING:
    from skep.handles.table import Table
    from skep_table.write.result import WriteResult

alter = App(
    no_args_is_help=True, help="Change the columns of a table, which readers find by their ids; its settings, its type."
)

Column = Annotated[str, typer.Argument(metavar="COLUMN", help="Its name; `s.x` in a struct, `l.element`, `m.value`.")]
Type = Annotated[str, typer.Argument(metavar="TYPE", help="As SQL writes it: bigint, decimal(12,2).")]


@dataclass(frozen=True, slots=True)
class ColumnPosition:
    """A place in the order of columns."""

    after: Annotated[str | None, typer.Option(help="The column before it.")] = None
    first: Annotated[bool, typer.Option("--first", help="In a struct: before all others.")] = False

    def of_column(self) -> str | None:
        """As `Table.add_column` takes it. InputError for two places."""
        if self.first and self.after is not None:
            raise InputError("a column has one place", option="--first", hint="--first or --after, not both")
        return "" if self.first else self.after


@alter.command()
def rename(
    table: TableTarget,
    column: Column,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    given: Given,
) -> None:
    """Give a column another name."""
    _alter(lambda found: found.rename_column(column, name), table, given)


@alter.command()
def drop(
    table: TableTarget,
    columns: Annotated[list[str], typer.Argument(metavar="COLUMN...", help="Their names.")],
    given: Given,
) -> None:
    """Take columns out of a table; files keep the values until they are rewritten."""
    _alter(lambda found: found.drop_columns(*columns), table, given)


@alter.command("type")
def change_type(table: TableTarget, column: Column, type: Type, given: Given) -> None:
    """Give a column a type that holds its values: int, long, float, double, decimal, string, in this order."""
    _alter(lambda found: found.change_type(column, type), table, given)


@alter.command()
def add(
    table: TableTarget,
    column: Column,
    type: Type,
    place: ColumnPosition,
    given: Given,
    comment: Annotated[str | None, typer.Option(help="A comment on it.")] = None,
) -> None:
    """Add a column, without values so far."""
    after = place.of_column()
    _alter(lambda found: found.add_column(column, type, after=after, comment=comment), table, given)


@alter.command()
def move(table: TableTarget, column: Column, place: ColumnPosition, given: Given) -> None:
    """Give a column another place in the order of columns."""
    after = place.of_column()
    if after is None:
        raise InputError("name the new place", option="--after", hint="--after COLUMN, or --first in a struct")
    _alter(lambda found: found.move_column(column, after), table, given)


@alter.command("comment")
def comment_column(
    table: TableTarget, column: Column, text: Annotated[str, typer.Argument(metavar="TEXT")], given: Given
) -> None:
    """Put a comment on a column."""
    _alter(lambda found: found.comment_column(column, text), table, given)


@alter.command("nullable")
def allow_null(table: TableTarget, column: Column, given: Given) -> None:
    """Allow nulls in a column that had none."""
    _alter(lambda found: found.allow_null(column), table, given)


@alter.command()
def settings(
    table: TableTarget,
    given_pairs: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a property; repeatable.")
    ] = None,
    removed: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove a property; repeatable.")
    ] = None,
    file: Annotated[str | None, typer.Option(metavar="FILE", help="Set all properties of this file.")] = None,
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Change the table's properties (.hoodie/hoodie.properties); all others stay."""
    from skep_table.services.repairs.settings import load_properties

    changes: dict[str, str | None] = {}
    if file is not None:
        changes |= load_properties(file, Options(settings_of(given.option)))
    changes |= settings_of(given_pairs, "--set")
    changes |= dict.fromkeys(removed or ())
    if not changes:
        raise InputError("name what changes", option="--set", hint="--set KEY=VALUE, --unset KEY or --file FILE")
    with given.running(table) as found:
        change = found.change_settings(changes, dry_run=plan)
    print_settings(change, given)


@alter.command("table-type")
def change_table_type(
    table: TableTarget,
    to: Annotated[str, typer.Argument(metavar="COW|MOR", help="Copy-on-write or merge-on-read.")],
    compact: Annotated[
        bool, typer.Option("--compact/--no-compact", help="To COW: compact first, else fail where that is needed.")
    ] = True,
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Make a table copy-on-write or merge-on-read: its rows stay, log files are compacted first."""
    with given.running(table) as found:
        change = found.change_table_type(to, compact=compact, dry_run=plan)
        if plan and to.lower() in ("cow", "copy_on_write") and not change.is_empty:
            from skep_table.upgrade.table_type import slices_of_delta_commits

            count = sum(1 for _ in slices_of_delta_commits(found.hudi))
            typer.echo(f"file slices that are compacted before it: {count}", err=True)
    print_settings(change, given)


def _alter(change: Callable[[Table], WriteResult], table: str, given: Given) -> None:
    with given.opened(table) as found:
        result = change(found)
        row = (str(result.instant.requested_time), ", ".join(result.schema.names()))
        given.print([row], ("instant", "columns"))
