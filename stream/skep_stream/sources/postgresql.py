"""PostgreSQL as a source: its driver by a JDBC URL, and the types of columns, which do not depend on their values."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from skep_format.distribution import install_command
from skep_format.errors import EnvironmentMissingError, OptionError
from skep_stream.options import JDBC_URL

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "numeric": pa.decimal128(38, 18),  # Spark's for one without precision
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "char": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
"""What is of another type is the text that PostgreSQL makes of it: json, uuid, interval, enums."""
_MOST_DIGITS: Final = 38
_OF_JDBC: Final = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connectTimeout": "connect_timeout",
    "ApplicationName": "application_name",
    "options": "options",
}


class UrlParameterWarning(UserWarning):
    """A parameter of a JDBC URL that has no effect here."""


def arguments_of(url: str, user: str, password: str) -> dict[str, object]:
    """What the driver takes, of a JDBC URL. OptionError for one that is none."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    try:
        found = {"host": parts.hostname, "port": parts.port, "dbname": unquote(parts.path.lstrip("/"))}
    except ValueError as error:
        raise OptionError(f"{JDBC_URL.key}: {error}", option=JDBC_URL.key) from error
    given: dict[str, object] = {name: value for name, value in found.items() if value}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        given |= _parameter(name, value)
    return given | ({"user": user} if user else {}) | ({"password": password} if password else {})


def _parameter(name: str, value: str) -> dict[str, object]:
    if name in _OF_JDBC:
        return {_OF_JDBC[name]: value}
    if name == "currentSchema":
        return {"options": f"-csearch_path={value}"}
    if name == "ssl":
        return {} if value.lower() == "false" else {"sslmode": "verify-full"}  # as Java's driver takes it
    warnings.warn(f"{name} in {JDBC_URL.key} has no effect", UrlParameterWarning, stacklevel=4)
    return {}


def connect(arguments: Mapping[str, object]) -> Any:
    """A connection, in UTC, that reads values of types without one of Arrow's as texts."""
    try:
        import psycopg
        from psycopg.types.string import TextLoader
    except ImportError as error:
        raise EnvironmentMissingError(
            f"reading PostgreSQL needs psycopg and libpq: {error}",
            hint=f"{install_command('postgresql')}; libpq is the system's (Debian: libpq5), or that of psycopg[binary]",
            missing="psycopg",
        ) from error
    connection = psycopg.connect(**arguments, autocommit=True)  # a query that failed leaves no transaction behind
    try:
        connection.execute("SET TIME ZONE 'UTC'")
        for info in connection.adapters.types:
            if info.name not in _TYPES:
                for number in filter(None, (info.oid, info.array_oid)):
                    connection.adapters.register_loader(number, TextLoader)
    except BaseException:
        connection.close()
        raise
    return connection


def types_of(connection: Any, columns: Any) -> list[pa.DataType]:
    """The types of a result's columns."""
    return [_type_of(connection.adapters.types.get(column.type_code), column) for column in columns]


def _type_of(info: Any, column: Any) -> pa.DataType:
    if info is None or info.name not in _TYPES:
        return pa.string()
    kind = _TYPES[info.name]
    if info.array_oid == column.type_code:
        return pa.list_(pa.field("element", kind))
    if info.name == "numeric" and column.precision is not None:
        precision = min(column.precision, _MOST_DIGITS)
        return pa.decimal128(precision, min(max(column.scale or 0, 0), precision))
    return kind
