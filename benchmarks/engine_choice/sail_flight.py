"""Sail in this process, asked over Flight SQL by pyarrow alone, with its port closed once the connection is there.

Sail has no password: any process that reaches its port may query it, and read this user's files. The socket that
listens is replaced by one that nobody can reach; the connection that is there stays.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import flight
from pysail.flight import FlightSqlServer

_STATEMENT = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"


class SailFlight:
    """One server and one session. Times are in UTC, and ANSI's rules hold: what they refuse is an error."""

    def __init__(self) -> None:
        self._server = FlightSqlServer("127.0.0.1", 0)
        self._server.start(background=True)
        address = self._server.listening_address
        assert address is not None
        self._client = flight.connect(f"grpc://127.0.0.1:{address[1]}")
        self.rows("SELECT 1")
        close_port(address[1])

    def rows(self, query: str, seconds: float | None = None) -> pa.Table:
        """The answer to a statement, as it is written. An error where it takes longer than so many seconds."""
        options = flight.FlightCallOptions(timeout=seconds)
        descriptor = flight.FlightDescriptor.for_command(
            field(1, _STATEMENT) + field(2, field(1, query.encode()))  # a protobuf Any with the command in it
        )
        info = self._client.get_flight_info(descriptor, options)
        return pa.concat_tables([self._client.do_get(each.ticket, options).read_all() for each in info.endpoints])


def field(number: int, value: bytes) -> bytes:
    """A field of protobuf's wire format that holds bytes."""
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(number: int) -> bytes:
    """A number in protobuf's wire format."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def close_port(port: int) -> None:
    """Takes the port from the sockets of this process that listen on it. RuntimeError where it stays open."""
    for descriptor in listening(port):
        with socket.socket(socket.AF_UNIX) as unreachable:
            unreachable.bind(f"\0skep-{os.getpid()}-{descriptor}")  # a name without a file
            unreachable.listen(1)
            os.dup2(unreachable.fileno(), descriptor)
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        raise RuntimeError(f"port {port} is still open")


def listening(port: int) -> Iterator[int]:
    """The descriptors of sockets that listen on a port."""
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as found:
                is_listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if is_listening and found.family == socket.AF_INET and found.getsockname()[1] == port:
                    yield descriptor
