"""Table functions: other reads of a table within a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from skep_sql.bind import TableFunction, look_up
from skep_sql.protocols import Catalog, Relation
from skep_sql.statements import Name
from skep_table.errors import InputError, UnsupportedError

_CHANGES: Final = {"latest_state": "incremental", "cdc": "cdc"}


def hudi_query(catalog: Catalog, arguments: tuple[str, ...]) -> Relation:
    """`hudi_query(table, 'snapshot' | 'read_optimized' | 'incremental' [, since [, until]])`."""
    _count("hudi_query", arguments, 2, 4, "table, query type[, since[, until]]")
    name, kind, *times = arguments
    if kind.lower() not in ("snapshot", "read_optimized", "incremental"):
        raise InputError(
            f"hudi_query: unknown query type {kind!r}", found=kind, expected="snapshot, read_optimized or incremental"
        )
    return _target(catalog, name).rows(query=kind.lower(), **_times(times))


def hudi_table_changes(catalog: Catalog, arguments: tuple[str, ...]) -> Relation:
    """`hudi_table_changes(table, 'latest_state' | 'cdc', 'earliest' | since [, until])`: since exclusive."""
    _count("hudi_table_changes", arguments, 3, 4, "table, 'latest_state' or 'cdc', since[, until]")
    name, kind, *times = arguments
    if kind.lower() not in _CHANGES:
        raise InputError(f"hudi_table_changes: unknown kind {kind!r}", found=kind, expected="latest_state or cdc")
    return _target(catalog, name).rows(query=_CHANGES[kind.lower()], **_times(times))


def _times(times: list[str]) -> dict[str, Any]:
    return dict(zip(("since", "until"), times, strict=False))


def _target(catalog: Catalog, name: str) -> Any:
    return catalog.table(look_up(catalog, Name(tuple(part.strip("`") for part in name.split(".")))))


def _count(function: str, arguments: tuple[str, ...], least: int, most: int, expected: str) -> None:
    if not least <= len(arguments) <= most:
        raise InputError(f"{function} takes ({expected}), found {len(arguments)} arguments", expected=expected)


def _unsupported(name: str, hint: str) -> TableFunction:
    def refuse(_catalog: Catalog, _arguments: tuple[str, ...]) -> Relation:
        raise UnsupportedError(f"{name}(…) is not supported", hint=hint)

    return refuse


FUNCTIONS: Final[Mapping[str, TableFunction]] = {
    "hudi_query": hudi_query,
    "hudi_table_changes": hudi_table_changes,
    "hudi_filesystem_view": _unsupported("hudi_filesystem_view", "skep files lists a table's file groups"),
    "hudi_query_timeline": _unsupported("hudi_query_timeline", "CALL show_timeline(table => '…'), or skep timeline"),
    "hudi_metadata": _unsupported("hudi_metadata", "skep read of the table's .hoodie/metadata folder"),
}
