"""Connections to a metastore: addresses, one Thrift client per connection, a pool, fail-over, retries, time-outs.

Thrift clients are not thread-safe, so a call takes a connection out of the pool and puts it back. A connection that
broke is closed; a refusal by the server (any declared exception) leaves it usable.
"""

from __future__ import annotations

import getpass
import logging
import os
import random
import re
import select
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TApplicationException, TException
from thrift.transport import TTransport

from skep_catalog.kept_entries import KeptEntries, NotKeptError
from skep_catalog.settings import ConnectionSettings
from skep_catalog.thrift_codec import MetastoreProtocol
from skep_catalog.transport import Transport
from skep_format.clock import doubled, retried
from skep_format.errors import (
    CatalogError,
    EntryChangedError,
    EntryExistsError,
    InputError,
    MetastoreUnreachableError,
    NoSuchLockError,
    NoSuchTableError,
)

T = TypeVar("T")

# Thrift logs as errors what this module raises with a better message.
logging.getLogger("thrift.transport.TSocket").setLevel(logging.CRITICAL)
logging.getLogger("thrift.transport.TSSLSocket").setLevel(logging.CRITICAL)

_DEFAULT_PORT: Final = 9083
_LONGEST_TEXT: Final = 1000  # of a server's message in one of ours
_IDLE_CONNECTIONS: Final = 8
_MODIFIED: Final = re.compile(r"has been (concurrently )?modified|expected_parameter", re.IGNORECASE)
_NO_TABLE: Final = re.compile(
    r"(table .* (doesn't|does not) exist|table not found|unable to find table)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of one metastore."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"thrift://{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """`thrift://host:port`, `host:port` or `host`; IPv6 hosts in brackets."""
        match = re.fullmatch(r"(?:thrift://)?(\[[^\]]+\]|[^:/\[\]]+)(?::(\d{1,5}))?/?", text.strip())
        if match is None:
            hint = "a folder for tables is given as warehouse" if "/" in text else None
            raise InputError(
                f"not a metastore's address: {text!r}", hint=hint, expected="thrift://host:port", found=text
            )
        return cls(match[1].strip("[]"), int(match[2] or _DEFAULT_PORT))


def parse_addresses(uris: str | Sequence[str]) -> tuple[Address, ...]:
    """Addresses from a list, or separated by commas. InputError for none, or for a malformed one."""
    texts = uris.split(",") if isinstance(uris, str) else list(uris)
    addresses = tuple(Address.parse(text) for text in texts if text.strip())
    if not addresses:
        raise InputError("no metastore's address is given", expected="thrift://host:port")
    return addresses


class UnknownMethodError(Exception):
    """The server is older or newer and lacks this call. Callers use another call or raise UnsupportedError."""


class _Connection(Transport):
    """One open socket and its client."""

    def __init__(self, address: Address, settings: ConnectionSettings, user: str) -> None:
        super().__init__(address.host, address.port, settings)
        self.address = address
        self.client: Any = ThriftHiveMetastore.Client(MetastoreProtocol(self.thrift))
        if settings.kerberos is not None:
            return  # the ticket identifies the caller
        try:
            self.client.set_ugi(user, [])
        except TApplicationException:
            pass  # a server that authenticates does not take it
        except BaseException:
            self.close()
            raise

    def is_stale(self) -> bool:
        """Whether the server closed the connection while it was in the pool: nothing else makes it readable."""
        return self.handle is None or bool(select.select([self.handle], [], [], 0)[0])


class Connections:
    """A pool over one or several equal servers. The first that answers is used until it fails.

    `calls` counts what was sent; good enough for reports, not exact under threads.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        settings: ConnectionSettings,
        revived: Callable[[], str] | None = None,
        kept: Callable[[], KeptEntries | None] | None = None,
    ) -> None:
        """`revived` is called when no server answers: it brings one up, or raises, and returns its address. Without
        addresses the first call does so that what `kept` returns can't answer."""
        self.addresses = tuple(addresses)
        self.settings = settings
        self.revived = revived
        self.kept = kept
        self._idle: list[_Connection] = []
        self._preferred = 0
        self._guard = threading.Lock()
        self._process = os.getpid()
        self.user = settings.user or user_name()
        self.calls = 0

    @property
    def uri(self) -> str:
        """All addresses, separated by commas."""
        if not self.addresses and self.revived is not None:
            self.addresses = parse_addresses(self.revived())
        return ",".join(map(str, self.addresses))

    def call(
        self,
        name: str,
        request: Callable[[Any], T],
        *,
        table: str | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
        attempts: int | None = None,
    ) -> T:
        """Runs `request` with a client. Broken connections are tried again only where that can do no harm:
        idempotent calls, and any call as long as no connection could be opened."""

        def once() -> T:
            kept = self.kept() if self.kept is not None and not self.addresses else None
            if kept is not None:
                try:
                    return request(kept)
                except NotKeptError:
                    pass
                except TException as error:
                    raise self._refused(name, table, error, kept.uri) from error
            connection = self._take(name, table)
            self.calls += 1
            connection.set_timeout(timeout or self.settings.timeout)
            try:
                answer = request(connection.client)
            except TApplicationException as error:
                if error.type == TApplicationException.UNKNOWN_METHOD:
                    self._give_back(connection)
                    raise UnknownMethodError(name) from error
                connection.close()  # an undeclared failure of the server's thread: it may close the connection
                raise self._refused(name, table, error, self.uri) from error
            except (TTransport.TTransportException, TProtocolException, OSError, EOFError, struct.error) as error:
                connection.close()
                raise self._broken(name, table, connection.address, error) from error
            except TException as error:
                self._give_back(connection)
                raise self._refused(name, table, error, self.uri) from error
            except BaseException:
                connection.close()
                raise
            self._give_back(connection)
            return answer

        # Repeated at once, as a connection of the pool may have broken long ago, and then behind a pause.
        tries = (attempts or self.settings.attempts) if idempotent else 1
        pauses = (number and random.uniform(0, doubled(0.2, 3, number)) for number in range(tries - 1))
        return retried(once, MetastoreUnreachableError, pauses)

    def close(self) -> None:
        """Closes the idle connections; a later call opens new ones."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # -- the pool

    def _take(self, name: str, table: str | None) -> _Connection:
        with self._guard:
            if self._process != os.getpid():  # a forked child must not speak on its parent's sockets
                self._idle, self._process = [], os.getpid()
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_stale():
                    return connection
                connection.close()
            first = self._preferred
        found = self._opened(first, name, table)
        if isinstance(found, list) and self.revived is not None:
            self.addresses = parse_addresses(self.revived())
            found = self._opened(0, name, table)
        if isinstance(found, _Connection):
            return found
        errors = found
        if len(errors) == 1:
            raise errors[0]
        raise MetastoreUnreachableError(
            f"{_subject(table)}none of {len(errors)} metastores answers: " + "; ".join(e.message for e in errors),
            uri=self.uri,
            call=name,
            table=table,
        ) from errors[-1]

    def _opened(self, first: int, name: str, table: str | None) -> _Connection | list[MetastoreUnreachableError]:
        """A connection to the first server that answers, else why each did not."""
        errors: list[MetastoreUnreachableError] = []
        for step in range(len(self.addresses)):
            index = (first + step) % len(self.addresses)
            try:
                connection = _Connection(self.addresses[index], self.settings, self.user)
            except (TException, OSError, EOFError, struct.error) as error:
                errors.append(self._broken(name, table, self.addresses[index], error))
                errors[-1].__cause__ = error
                continue
            self._preferred = index
            return connection
        return errors

    def _give_back(self, connection: _Connection) -> None:
        with self._guard:
            if len(self._idle) < _IDLE_CONNECTIONS and self._process == os.getpid():
                self._idle.append(connection)
                return
        connection.close()

    # -- errors

    def _broken(
        self, name: str, table: str | None, address: Address, error: BaseException
    ) -> MetastoreUnreachableError:
        kind = error.type if isinstance(error, TTransport.TTransportException) else None
        if isinstance(error, TimeoutError) or kind == TTransport.TTransportException.TIMED_OUT:
            what, hint = f"{address} did not answer {name} in time", None
        elif isinstance(error, TProtocolException | struct.error):
            what, hint = f"{address} does not speak the metastore's protocol", "is it SASL, TLS or another service?"
        elif kind == TTransport.TTransportException.NOT_OPEN:
            what, hint = f"no metastore answers at {address}", "is it running, and is the address right?"
            if self.revived is not None:
                what, hint = (
                    f"the embedded metastore does not answer at {address}",
                    "see its log: .metastore/metastore.log",
                )
        else:
            what, hint = f"{address} closed the connection during {name}: {error}", None
        return MetastoreUnreachableError(_subject(table) + what, hint=hint, uri=str(address), call=name, table=table)

    def _refused(self, name: str, table: str | None, error: TException, uri: str) -> CatalogError:
        """The server's exception as one of ours."""
        text = getattr(error, "message", None) or str(error) or type(error).__name__
        if len(text) > _LONGEST_TEXT:  # some repeat a whole value
            text = f"{text[:_LONGEST_TEXT]}…"
        kind: type[CatalogError] = _KINDS.get(type(error), CatalogError)
        if _MODIFIED.search(text):
            kind = EntryChangedError
        elif kind is CatalogError and _NO_TABLE.search(text):
            kind = NoSuchTableError
        return kind(
            f"{_subject(table)}metastore {uri} refused {name}: {text}",
            uri=uri,
            call=name,
            table=table,
            error=type(error).__name__,
        )


_KINDS: Final[dict[type[TException], type[CatalogError]]] = {
    ttypes.NoSuchObjectException: NoSuchTableError,
    ttypes.UnknownTableException: NoSuchTableError,
    ttypes.UnknownDBException: NoSuchTableError,
    ttypes.AlreadyExistsException: EntryExistsError,
    ttypes.NoSuchLockException: NoSuchLockError,
}


def _subject(table: str | None) -> str:
    return f"table {table}: " if table else ""


def user_name() -> str:
    """As Hadoop's clients have it: HADOOP_USER_NAME, else the login name."""
    user = os.environ.get("HADOOP_USER_NAME")
    if user:
        return user
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return str(os.getuid())
