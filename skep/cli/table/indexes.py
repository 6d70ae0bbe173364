"""`skep index`: the indexes of a table's metadata table shown, built, dropped."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.scope import App
from skep_format.errors import InputError

if TYPE_CHECKING:
    from skep_table.services.metadata.indexing import TableIndex

app = App(no_args_is_help=True, help="The indexes of a table, which its metadata table has.")
_COLUMNS = ("name", "kind", "columns", "state")


class IndexKind(str, Enum):
    """The kinds of indexes, by Hudi's names."""

    COLUMN_STATS = "column_stats"
    PARTITION_STATS = "partition_stats"
    BLOOM_FILTERS = "bloom_filters"
    RECORD_INDEX = "record_index"
    SECONDARY_INDEX = "secondary_index"


def register(parent: typer.Typer) -> None:
    """Adds the commands of this module."""
    parent.add_typer(app, name="index")


def _row(index: TableIndex, state: str) -> dict[str, object]:
    return {"name": index.name, "kind": index.kind, "columns": ",".join(index.columns), "state": state}


@app.command()
def show(table: TableTarget, *, given: Given) -> None:
    """List the indexes with the columns that they are defined of."""
    with given.opened(table) as found:
        indexes = found.indexes()
    given.print([_row(each, "ready") for each in indexes], _COLUMNS)


@app.command()
def build(
    table: TableTarget,
    kind: Annotated[
        IndexKind,
        typer.Option(
            "--kind",
            help="What the index is of; one of each, but any number of the last and of those with --expression.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="N",
            help="The name of a secondary index (else its column's), or of one over an expression.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="C",
            help="The column of a secondary index or an expression, or of statistics; repeatable.",
        ),
    ] = None,
    expression: Annotated[
        str | None,
        typer.Option("--expression", metavar="F", help="A function of Spark: statistics or filters are of its values."),
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", metavar="K=V", help="An option of the expression (format=yyyy-MM-dd); repeatable."),
    ] = None,
    *,
    given: Given,
) -> None:
    """Make an index from the table's files, under its lock; writes keep it from then on."""
    over = _over(expression, argument or [])
    with given.running(table) as found:
        before = {each.partition for each in found.indexes()}
        found.build_index(kind.value, name=name, columns=column or None, expression=over)
        made = [each for each in found.indexes() if each.partition not in before]
    given.print([_row(each, "made") for each in made], _COLUMNS)


def _over(expression: str | None, arguments: list[str]) -> dict[str, str] | None:
    pairs = [each.partition("=") for each in arguments]
    strange = next((each for each, (_, sign, _) in zip(arguments, pairs, strict=True) if not sign), None)
    if strange is not None or (pairs and expression is None):
        raise InputError(
            f"--argument {strange or arguments[0]}: name=value beside an --expression",
            found=strange or arguments[0],
            expected="name=value",
        )
    return None if expression is None else {"expr": expression, **{name: value for name, _, value in pairs}}


@app.command()
def drop(
    table: TableTarget,
    name: Annotated[str, typer.Option("--name", metavar="N", help="The index; its kind where there is one of that.")],
    *,
    given: Given,
) -> None:
    """Drop an index; secondary ones go with the record index, to which they lead."""
    with given.opened(table) as found:
        there = {each.name: each for each in found.indexes()}
        dropped = found.drop_index(name)
    given.print([_row(there[each], "dropped") for each in dropped], _COLUMNS)
