"""A session of HiveServer2 at an address as JDBC writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from skep_format.errors import CatalogError, InputError, NoSuchTableError, needs

_PORT: Final = 10000
_URL: Final = re.compile(r"jdbc:hive2://(?P<host>[^:/;,]+)(:(?P<port>\d+))?(/(?P<database>[^;?#]*))?(?P<more>;[^?#]*)?")


@dataclass(frozen=True, slots=True)
class HiveAddress:
    """A HiveServer2 as JDBC names it."""

    host: str
    port: int
    database: str
    http_path: str | None

    @classmethod
    def parse(cls, url: str) -> HiveAddress:
        """InputError for what is no address of one server, or has settings that are not known here."""
        found = _URL.fullmatch(url)
        given = dict(pair.partition("=")[::2] for pair in (found["more"] or "").split(";") if pair) if found else {}
        mode = given.pop("transportMode", "binary")
        path = given.pop("httpPath", "cliservice")
        if found is None or given or mode not in ("binary", "http"):
            raise InputError(
                f"hiveUrl {url!r} can't be used",
                option="hiveUrl",
                found=url,
                expected="jdbc:hive2://host:port/database[;transportMode=http;httpPath=path]",
            )
        in_http = path if mode == "http" else None
        return cls(found["host"], int(found["port"] or _PORT), found["database"] or "default", in_http)


@dataclass(frozen=True, slots=True)
class HiveClient:
    """A session of HiveServer2, as PyHive opens it."""

    connection: Any

    def run(self, statements: Iterable[str]) -> None:
        """Carries them out in this order. CatalogError with the statement that failed."""
        for statement in statements:
            self._rows(statement)

    def location_of(self, table: str) -> str:
        """Where a table lies. NoSuchTableError where Hive has none of that name."""
        try:
            rows = self._rows(f"DESCRIBE FORMATTED {table}")
        except CatalogError as error:
            if "not found" in error.message.lower():
                raise NoSuchTableError(f"Hive has no table {table}", table=table) from error
            raise
        for name, value, *_ in rows:
            if str(name).strip() == "Location:":
                return str(value).strip()
        raise NoSuchTableError(f"Hive knows no location of table {table}", table=table)

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        try:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []
        except import_module("pyhive.exc").Error as error:
            status = getattr(error.args[0], "status", None) if error.args else None
            raise CatalogError(f"Hive: {getattr(status, 'errorMessage', error)}", call=statement) from error
        finally:
            cursor.close()


@contextmanager
def connected(url: str, user: str = "hive", password: str = "") -> Iterator[HiveClient]:
    """A session for one pull. CatalogError where the server is not reachable or refuses the user."""
    address = HiveAddress.parse(url)
    with needs("hive", "PyHive is not installed"):
        hive = import_module("pyhive.hive")
    try:
        connection = hive.connect(database=address.database, **_how(address, user, password))
    except Exception as error:  # PyHive raises what Thrift, SASL and sockets raise
        raise CatalogError(f"HiveServer2 at {url} can't be used: {error}", uri=url) from error
    try:
        yield HiveClient(connection)
    finally:
        connection.close()


def _how(address: HiveAddress, user: str, password: str) -> dict[str, Any]:
    if address.http_path is None:
        secret = {"auth": "LDAP", "password": password} if password else {"auth": "NONE"}
        return {"host": address.host, "port": address.port, "username": user, **secret}
    from base64 import b64encode

    from thrift.transport.THttpClient import THttpClient

    transport = THttpClient(f"http://{address.host}:{address.port}/{address.http_path}")
    secret_text = b64encode(f"{user}:{password or 'anonymous'}".encode()).decode()
    transport.setCustomHeaders({"Authorization": f"Basic {secret_text}"})
    return {"thrift_transport": transport}
