"""The server of Sail in this process, which is started by the first query, and its one connection by Arrow Flight.

Sail has no password: any process that reaches its port may query it, and read this user's files. The socket that
listens is therefore replaced by one that nobody finds as soon as the connection is there, which stays.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skep_format.protobuf import format_message

if TYPE_CHECKING:
    from pyarrow import flight

_HOST: Final = "127.0.0.1"
_OPEN_FILES: Final = {"linux": Path("/proc/self/fd"), "darwin": Path("/dev/fd")}
_MEMORY_SHARE: Final = 0.6
_THREADS_PER_CORE: Final = 4  # a query may hold one for each core, and other statements would have to wait
_SETTINGS: Final = {
    "RUST_LOG": "error",  # else each start is reported on stderr
    "SAIL_RUNTIME__STACK_SIZE": str(64 << 20),  # address space, for deep queries: they end the process where it is full
    "SAIL_FLIGHT__SESSION_TIMEOUT_SECS": str(100 * 365 * 86_400),  # it takes no statements afterwards
    "SAIL_RUNTIME__MEMORY_POOL__TYPE": "fair",
}
_FOR_EVER: Final = 2**31 - 1
_HANDLER_SECONDS: Final = 0.5
_STATEMENT: Final = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"


class SailMissingError(Exception):
    """Sail can't be used in this process; the message is the reason."""


class _Server:
    """At most one in a process. A fork of it has the connection without the threads that serve it, and gets none."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._server: Any = None
        self._client: flight.FlightClient | None = None
        self._readers: dict[int, flight.FlightStreamReader] = {}
        self._at_exit: list[Callable[..., object]] = []
        self._why_none: str | None = None
        self.generation = 0
        """How many servers were lost, with the views that they had."""
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a forked process: what belongs to the threads that are missing here is never closed, that would wait for
        them."""
        for each in (self._server, self._client, *self._readers.values()):
            if each is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
        for call in self._at_exit:
            atexit.unregister(call)
        if self._server is not None:
            self._why_none = "this process is a fork of one with Sail"
        self._lock, self._server, self._client, self._readers = Lock(), None, None, {}
        self.generation += 1

    def why_missing(self) -> str | None:
        """Why Sail can't be used; None where it can."""
        if sys.platform not in _OPEN_FILES:
            return "Sail's port can't be closed on this system"
        if importlib.util.find_spec("pysail") is None:
            return "Sail is not installed (pip install pysail)"
        return self._why_none

    def _end(self) -> None:
        """At the end of the process: queries that are closed later than that do not ask it."""
        self._client, self._why_none = None, "the process ends"

    def client(self) -> flight.FlightClient:
        """The connection. SailMissingError where there can't be one."""
        with self._lock:
            if self._client is None:
                why = self._why_none or self.why_missing()
                if why is not None:
                    raise SailMissingError(why)
                try:
                    self._start()
                except (OSError, RuntimeError, ImportError, pa.ArrowException) as error:
                    self._server = self._client = None
                    raise SailMissingError(f"Sail does not start: {error}") from error
            assert self._client is not None
            return self._client

    def _start(self) -> None:
        from pyarrow import flight
        from pysail.flight import FlightSqlServer

        with _environment(_settings()), _at_exit_noted(self._at_exit):
            server = FlightSqlServer(_HOST, 0)
        with _interrupts_kept():
            server.start(background=True)
            port = server.listening_address[1]
            client = flight.connect(
                f"grpc://{_HOST}:{port}",
                generic_options=[("grpc.client_idle_timeout_ms", _FOR_EVER)],  # the port takes no second connection
            )
            _read(client, "SELECT 1").read_all()
        _close_port(port)
        self._server, self._client = server, client
        atexit.register(self._end)

    def lost(self) -> None:
        """The connection is broken: the next query starts a server."""
        with self._lock:
            self._server = self._client = None
            self.generation += 1

    @contextmanager
    def reading(self, reader: flight.FlightStreamReader) -> Iterator[None]:
        """Ends a stream whose rows are not all read."""
        self._readers[id(reader)] = reader
        try:
            yield
        finally:
            if self._readers.pop(id(reader), None) is not None:
                reader.cancel()


SERVER: Final = _Server()


def started(statement: str) -> flight.FlightStreamReader:
    """The answer of a statement as a stream. pa.ArrowException for one that Sail does not take."""
    return _read(SERVER.client(), statement)


def run(statement: str) -> pa.Table:
    """The whole answer of a statement."""
    return started(statement).read_all()


def _read(client: flight.FlightClient, statement: str) -> flight.FlightStreamReader:
    from pyarrow import flight

    # A protobuf Any with the command in it.
    command = format_message({1: _STATEMENT, 2: format_message({1: statement.encode()})})
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
    return client.do_get(info.endpoints[0].ticket)


# -- how it starts


def _settings() -> Mapping[str, str]:
    return {
        **_SETTINGS,
        "SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": str(int(_memory() * _MEMORY_SHARE)),
        "TOKIO_WORKER_THREADS": str((os.cpu_count() or 1) * _THREADS_PER_CORE),
    }


def _memory() -> int:
    """Bytes that this process may use: those of the machine, or of its container."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # `max` where there is none
            found.append(int(Path("/sys/fs/cgroup", limit).read_text()))
    return min(found)


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Variables that the user has not set, while the server reads them."""
    added = {key: value for key, value in settings.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key, None)


@contextmanager
def _at_exit_noted(calls: list[Callable[..., object]]) -> Iterator[None]:
    """What is registered in here to be called at the end of the process: in a fork of it, it would wait for ever."""
    register = atexit.register

    def noted(call: Callable[..., object], *args: Any, **named: Any) -> object:
        calls.append(call)
        return register(call, *args, **named)

    setattr(atexit, "register", noted)  # noqa: B010 - mypy takes no function in place of another
    try:
        yield
    finally:
        setattr(atexit, "register", register)  # noqa: B010


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """The server takes Ctrl-C as its end, by a handler that another of its threads sets after the start.

    Python sets handlers in the main thread only, so the system is called.
    """
    system, size = ctypes.CDLL(None), 512  # more than a `struct sigaction` has
    before, now = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    system.sigaction(signal.SIGINT, None, before)
    try:
        yield
    finally:
        end = time.monotonic() + _HANDLER_SECONDS
        while time.monotonic() < end:
            system.sigaction(signal.SIGINT, None, now)
            if now.raw != before.raw:
                system.sigaction(signal.SIGINT, before, None)
                break
            time.sleep(0.001)


def _close_port(port: int) -> None:
    """Takes the port from the socket that listens on it, and ends connections of others. RuntimeError where it stays
    open."""
    address = (_HOST, port)
    with TemporaryDirectory(prefix="skep-") as folder, socket.socket(socket.AF_UNIX) as hidden:
        hidden.setblocking(False)
        hidden.bind(f"{folder}/socket")
        hidden.listen(1)
        for descriptor, each in _sockets():
            if each.getsockname() == address and each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                os.dup2(hidden.fileno(), descriptor, inheritable=False)
    own = {_plain(each.getsockname()) for _, each in _sockets()}
    for _, each in _sockets():
        if each.getsockname() == address and _plain(each.getpeername()) not in own:
            each.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
        raise RuntimeError(f"port {port} stays open")


def _plain(address: Any) -> object:
    """An address of IPv4 that a socket of IPv6 has, as one of IPv4 names it."""
    return (address[0].removeprefix("::ffff:"), address[1]) if isinstance(address, tuple) else address


def _sockets() -> Iterator[tuple[int, socket.socket]]:
    """The open sockets of this process by their descriptors."""
    for descriptor in [int(each.name) for each in _OPEN_FILES[sys.platform].iterdir()]:
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.socket(fileno=os.dup(descriptor)) as found:
                    yield descriptor, found
