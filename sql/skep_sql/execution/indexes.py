"""CREATE, DROP and REFRESH INDEX: the indexes of a table's metadata table, by the rules of Hudi 1.x."""

from __future__ import annotations

from typing import Final

from skep_format.errors import InputError
from skep_sql.bind import table_to_change
from skep_sql.names import column_of
from skep_sql.parsing.statements import CreateIndex, DropIndex, RefreshIndex
from skep_sql.protocols import TargetTable
from skep_sql.session import Session
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, RECORD_INDEX, SECONDARY
from skep_table.metadata_table.records.expression_index import FUNCTION
from skep_table.metadata_write.definitions import IDENTITY
from skep_table.services.metadata.indexing import KINDS, TableIndex, index_of

_SPELLED: Final = {"trimstring": "trimString"}


def create_index(session: Session, statement: CreateIndex) -> None:
    """Without USING it is the record index, by that name, or a secondary one; over an expression it is of statistics.

    UnsupportedError for an expression of which the values of Spark are not known here.
    """
    target = table_to_change(session.scope, statement.name)
    expression = _expression(statement)
    kind = statement.kind or (RECORD_INDEX if statement.index.lower() == RECORD_INDEX else SECONDARY.name)
    if statement.kind is None and expression is not None:
        kind = COLUMN_STATS
    if kind not in KINDS:
        raise InputError(f"CREATE INDEX … USING {kind}: no kind of index", found=kind, expected=", ".join(KINDS))
    if statement.if_not_exists and _found(target, statement.index) is not None:
        return
    table = target.hudi
    known = [field.name for field in table.schema().fields]
    columns = [name if "." in name else column_of(name, known, table.config.name) for name in statement.columns]
    name = statement.index.lower() if statement.index.lower() in KINDS else statement.index
    options = {key: value for key, value in statement.options.items() if key.startswith("hoodie.")}
    target.build_index(
        kind, name=name, columns=columns, expression=expression, **{**session.settings.hoodie, **options}
    )


def drop_index(session: Session, statement: DropIndex) -> None:
    """InputError where there is no such index, unless IF EXISTS."""
    target = table_to_change(session.scope, statement.name)
    if statement.if_exists and _found(target, statement.index) is None:
        return
    target.drop_index(statement.index, **session.settings.hoodie)


def refresh_index(session: Session, statement: RefreshIndex) -> None:
    """Changes nothing, as in Hudi: every write keeps the index current. InputError where there is no such index."""
    if _found(table_to_change(session.scope, statement.name), statement.index) is None:
        table = str(statement.name)
        raise InputError(f"table {table} has no index {statement.index}", table=table, found=statement.index)


def _found(target: TargetTable, name: str) -> TableIndex | None:
    return index_of(target.indexes(), name)


def _expression(statement: CreateIndex) -> dict[str, str] | None:
    """The options of an index over an expression, by the names that Hudi has for them; None without an expression."""
    given = {key.lower(): value for key, value in statement.options.items() if not key.startswith("hoodie.")}
    function = given.get(FUNCTION, "").strip().lower()
    if function and (function != IDENTITY or statement.kind == BLOOM_FILTERS):
        return {_SPELLED.get(key, key): value for key, value in given.items()}
    given.pop(FUNCTION, None)
    if given:
        raise InputError(
            f"CREATE INDEX {statement.index}: unknown option {min(given)}",
            found=", ".join(sorted(given)),
            expected=f"options of Hudi, which begin with hoodie., or those of an expression, with {FUNCTION}",
        )
    return None
