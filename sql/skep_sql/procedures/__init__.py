"""CALL: Hudi's procedures, by its names, with its arguments and result columns; one module for each subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from skep_format.errors import InputError, UnsupportedError
from skep_format.nearest import did_you_mean
from skep_sql.answer import Answer, answer
from skep_sql.parsing.statements import Call
from skep_sql.procedures import bootstraps, commits, copies, files, metadata, repairs, savepoints, services
from skep_sql.procedures.contract import REQUIRED, Argument, Context, Procedure, Rows, procedure
from skep_sql.session import Session

_AUDIT: Final = "the audit of storage locks is Hudi's own; skep's commands show a lock and its history: skep lock"

REFUSED: Final[Mapping[str, str]] = {
    "cleanup_audit_lock": _AUDIT,
    "set_audit_lock": _AUDIT,
    "show_audit_lock_status": _AUDIT,
    "validate_audit_lock": _AUDIT,
    "hdfs_parquet_import": "skep write reads Parquet files into a table",
    "partition_bucket_index_manager": "the number of buckets is the same in all partitions",
    "run_rollback_inflight_tableservice": "CALL rollback_to_instant rolls a pending service back, too",
    "sync_validate": "skep sync check compares a table with its entry",
}
"""Hudi's other procedures: known by name, each with the reason why it is refused."""


@procedure("help(cmd?) -> result")
def _help(context: Context) -> Rows:
    """All procedures, or arguments and result columns of one."""
    name = context["cmd"]
    if not name:
        return [["\n".join(sorted(PROCEDURES))]]
    if name in REFUSED:
        return [[f"{name} is not supported: {REFUSED[name]}"]]
    if name not in PROCEDURES:
        raise InputError(f"there is no procedure {name}", found=name)
    found = PROCEDURES[name]
    arguments = ", ".join(map(_described, found.arguments))
    return [[f"{name}({arguments}) -> {', '.join(column for column, _ in found.columns)}"]]


def _described(argument: Argument) -> str:
    kind = {str: "string", int: "int", bool: "boolean"}[argument.kind]
    return f"{argument.name}: {kind}" + ("" if argument.default is REQUIRED else f" = {argument.default}")


PROCEDURES: Final[Mapping[str, Procedure]] = {
    each.name: each
    for module in (commits, savepoints, services, repairs, files, metadata, copies, bootstraps)
    for each in vars(module).values()
    if isinstance(each, Procedure)
} | {"help": _help}


def call(session: Session, statement: Call) -> Answer:
    """UnsupportedError for procedures of Hudi's that are not built, InputError for unknown ones and wrong arguments."""
    found = PROCEDURES.get(statement.name)
    if found is None:
        if statement.name in REFUSED:
            raise UnsupportedError(f"procedure {statement.name} is not supported", hint=REFUSED[statement.name])
        meant = did_you_mean(statement.name, PROCEDURES)
        raise InputError(
            f"there is no procedure {statement.name}",
            hint=meant or f"there are: {', '.join(sorted(PROCEDURES))}",
            found=statement.name,
        )
    rows = found.run(Context(session, _arguments(statement, found)))
    return answer(found.columns, [[True]] if rows is None else rows)


def _arguments(statement: Call, procedure: Procedure) -> dict[str, Any]:
    """By name, or by position. Unknown names are passed over, as Hudi does."""
    if len(statement.arguments) > len(procedure.arguments):
        raise InputError(
            f"CALL {statement.name} takes {len(procedure.arguments)} arguments, found {len(statement.arguments)}"
        )
    given = {
        each.name.lower(): value for each, value in zip(procedure.arguments, statement.arguments, strict=False)
    } | dict(statement.named)
    found = {}
    for argument in procedure.arguments:
        key = argument.name.lower()
        value = given.get(key, argument.default)
        if value is REQUIRED or (value is None and argument.default is REQUIRED):
            raise InputError(f"CALL {statement.name}: argument {argument.name} is required", option=argument.name)
        if (
            key in given
            and value is not None
            and (not isinstance(value, argument.kind) or (argument.kind is int and isinstance(value, bool)))
        ):
            raise InputError(
                f"CALL {statement.name}: argument {argument.name} is {value!r}",
                option=argument.name,
                found=type(value).__name__,
                expected=argument.kind.__name__,
            )
        if not argument.built and value not in (None, argument.default):
            raise UnsupportedError(
                f"CALL {statement.name}: argument {argument.name} is not supported",
                hint="name the table" if argument.name == "path" else None,
                option=argument.name,
            )
        found[argument.name] = value
    return found
