"""CREATE, DROP and REFRESH INDEX: the indexes of a table's metadata table, by the rules of Hudi 1.x."""

from __future__ import annotations

from typing import Final

from skep_sql.bind import Scope, look_up
from skep_sql.names import column_of
from skep_sql.protocols import Target
from skep_sql.settings import Settings
from skep_sql.statements import CreateIndex, DropIndex, Name, RefreshIndex
from skep_table.errors import InputError, UnsupportedError
from skep_table.metadata_table.partitions import RECORD_INDEX
from skep_table.metadata_write.definitions import IDENTITY, SECONDARY_INDEX
from skep_table.services.indexing import KINDS, Index, index_of

_EXPRESSION: Final = "expr"


def create_index(statement: CreateIndex, scope: Scope, settings: Settings) -> None:
    """Without USING it is the record index, by that name, or a secondary one.

    UnsupportedError for an index over an expression.
    """
    target = _target(statement.name, scope)
    kind = statement.kind or (RECORD_INDEX if statement.index.lower() == RECORD_INDEX else SECONDARY_INDEX)
    if kind not in KINDS:
        raise InputError(f"CREATE INDEX … USING {kind}: no kind of index", found=kind, expected=", ".join(KINDS))
    _check_options(statement)
    if statement.if_not_exists and _found(target, statement.index) is not None:
        return
    table = target.hudi
    known = [field.name for field in table.schema().fields]
    columns = [name if "." in name else column_of(name, known, table.config.name) for name in statement.columns]
    name = statement.index.lower() if statement.index.lower() in KINDS else statement.index
    options = {key: value for key, value in statement.options.items() if key.startswith("hoodie.")}
    target.build_index(kind, name=name, columns=columns, **{**settings.hoodie, **options})


def drop_index(statement: DropIndex, scope: Scope, settings: Settings) -> None:
    """InputError where there is no such index, unless IF EXISTS."""
    target = _target(statement.name, scope)
    if statement.if_exists and _found(target, statement.index) is None:
        return
    target.drop_index(statement.index, **settings.hoodie)


def refresh_index(statement: RefreshIndex, scope: Scope) -> None:
    """Changes nothing, as in Hudi: every write keeps the index current. InputError where there is no such index."""
    if _found(_target(statement.name, scope), statement.index) is None:
        table = str(statement.name)
        raise InputError(f"table {table} has no index {statement.index}", table=table, found=statement.index)


def _target(name: Name, scope: Scope) -> Target:
    return scope.catalog.table(look_up(scope.catalog, name))


def _found(target: Target, name: str) -> Index | None:
    return index_of(target.indexes(), name)


def _check_options(statement: CreateIndex) -> None:
    given = {key.lower(): value for key, value in statement.options.items() if not key.startswith("hoodie.")}
    expression = given.pop(_EXPRESSION, IDENTITY).lower()
    if expression not in ("", IDENTITY):
        raise UnsupportedError(
            f"CREATE INDEX {statement.index}: indexes over expressions ({_EXPRESSION}={expression}) are not supported",
            hint="an index of the column itself is left out by USING secondary_index, or USING column_stats",
            found=expression,
        )
    if given:
        raise InputError(
            f"CREATE INDEX {statement.index}: unknown option {min(given)}",
            found=", ".join(sorted(given)),
            expected="options of Hudi, which begin with hoodie.",
        )
