"""Calls of a metastore: a client's connections, its life, and which calls may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from skep_catalog.settings import ConnectionSettings
from skep_format.errors import UnsupportedError

if TYPE_CHECKING:
    from skep_catalog.connection import Connections

T = TypeVar("T")
C = TypeVar("C", bound="MetastoreCalls")

_HAVE_ANOTHER_WAY = ("get_table_req", "get_table_objects_by_name_req")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Slices of at most `size` items, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


class MetastoreCalls:
    """What all parts of the client share: connections, and which calls may be repeated."""

    def __init__(self, connections: Connections) -> None:
        # The generated code is large: it is imported with the first connection, not with this module.
        from hmsclient.genthrift.hive_metastore import ttypes

        from skep_catalog import thrift_codec

        self._connections = connections
        self._types: Any = ttypes
        self._codec = thrift_codec
        self._has_get_table_req = True
        self._version: str | None = None

    @classmethod
    def connect(
        cls: type[C],
        uris: str | Sequence[str],
        settings: ConnectionSettings | Mapping[str, object] | None = None,
        *,
        timeout_seconds: float | None = None,
        long_timeout_seconds: float | None = None,
        connect_timeout_seconds: float | None = None,
        attempts: int | None = None,
        user: str | None = None,
        revived: Callable[[], str] | None = None,
    ) -> C:
        """`uris`: `thrift://host:port`, several separated by commas. No connection is opened before the first call.

        `settings` may be option keys (`skep.metastore.*`); what is given beside them wins. `attempts` counts the tries
        of calls that may be repeated. `revived` is called when no server answers, and returns the address of one that
        it brought up (see EmbeddedMetastore.revived).
        """
        from skep_catalog.connection import Connections, parse_addresses

        known = settings if isinstance(settings, ConnectionSettings) else ConnectionSettings.of(settings)
        given: dict[str, Any] = {
            "timeout": timeout_seconds,
            "long_timeout": long_timeout_seconds,
            "connect_timeout": connect_timeout_seconds,
            "attempts": attempts,
            "user": user,
        }
        wins = {name: value for name, value in given.items() if value is not None}
        return cls(Connections(parse_addresses(uris), replace(known, **wins), revived))

    @property
    def uri(self) -> str:
        """The addresses of the servers, separated by commas."""
        return self._connections.uri

    @property
    def user(self) -> str:
        """Whom servers that don't authenticate take the caller for."""
        return self._connections.user

    @property
    def calls(self) -> int:
        """How many calls were sent so far."""
        return self._connections.calls

    @property
    def version(self) -> str:
        """As the server reports it; servers before 4 all report 3.0."""
        if self._version is None:
            self._version = str(self._read("getVersion", lambda c: c.getVersion()))
        return self._version

    def setting(self, name: str, default: str) -> str:
        """A setting of the server, by its name in hive-site.xml. CatalogError for settings that it keeps private."""
        return str(self._read("get_config_value", lambda c: c.get_config_value(name, default)))

    def own_connection(self: C) -> C:
        """A client of the same servers that shares no connection with this one: for heartbeats."""
        from skep_catalog.connection import Connections

        mine = self._connections
        return type(self)(Connections(mine.addresses, mine.settings, mine.revived))

    def close(self) -> None:
        """Closes the idle connections; a later call opens new ones."""
        self._connections.close()

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how

    def _read(self, name: str, request: Any, table: str | None = None, *, long: bool = False) -> Any:
        return self._call(name, request, table, idempotent=True, long=long)

    def _repeatable(self, name: str, request: Any, table: str | None) -> None:
        self._call(name, request, table, idempotent=True, long=True)

    def _write(self, name: str, request: Any, table: str | None = None, *, long: bool = False) -> Any:
        return self._call(name, request, table, idempotent=False, long=long)

    def _call(self, name: str, request: Any, table: str | None, *, idempotent: bool, long: bool) -> Any:
        from skep_catalog.connection import UnknownMethodError

        settings = self._connections.settings
        try:
            return self._connections.call(
                name,
                request,
                table=table,
                idempotent=idempotent,
                timeout=settings.long_timeout if long else settings.timeout,
            )
        except UnknownMethodError as error:
            if name in _HAVE_ANOTHER_WAY:
                raise
            raise UnsupportedError(
                f"metastore {self.uri} does not have the call {name}", uri=self.uri, call=name
            ) from error
