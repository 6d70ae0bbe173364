"""Bytes of a connection: Thrift messages, bare or in the frames of SASL, each bounded in size and in time."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer, TTransportBase

from skep_format.errors import SkepError

_CHUNK: Final = 1 << 16
_CONTAINER: Final = 10_000  # entries of a map or list of a request
_NEGOTIATION_BYTES: Final = 1 << 16
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)


class BadMessageError(SkepError):
    """Bytes that are no message, or too many of them."""


class DisconnectedError(SkepError):
    """The client closed its end, or sent nothing for too long."""


class Channel(TTransportBase):
    """Reads messages of a socket for a Thrift protocol. Memory grows with the bytes that came, not those announced."""

    def __init__(self, connection: socket.socket, message_bytes: int, seconds: float) -> None:
        self._socket, self._limit, self._seconds = connection, message_bytes, seconds
        self._received = bytearray()
        self._frame = bytearray()
        self._left = message_bytes
        self._until = time.monotonic() + seconds
        self.is_framed = False

    def begin(self, idle_seconds: float) -> bool:
        """Waits for the first byte of a message, which then has its own time. False where the client closed its end."""
        self._left = self._limit
        self._until = time.monotonic() + idle_seconds
        if not self._received and not self._frame and not self._receive():
            return False
        self._until = time.monotonic() + self._seconds
        return True

    def first_byte(self) -> int:
        """Of the message, which is still to be read."""
        return self._received[0]

    def readAll(self, sz: int) -> bytes:
        """Exactly so many bytes of the message."""
        if sz < 0 or sz > self._left:
            raise BadMessageError(f"a message of more than {self._limit} bytes is refused")
        self._left -= sz
        if not self.is_framed:
            return self._exactly(sz)
        while len(self._frame) < sz:
            (size,) = struct.unpack("!I", self._exactly(4))
            if not 0 < size <= self._limit:
                raise BadMessageError(f"a frame of {size} bytes is refused, the limit is {self._limit}")
            self._frame += self._exactly(size)
        return _taken(self._frame, sz)

    def read(self, sz: int) -> bytes:
        """The same."""
        return self.readAll(sz)

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            if not self._receive():
                raise DisconnectedError("the client closed its connection within a message")
        return _taken(self._received, size)

    def _receive(self) -> bool:
        """False where the client closed its end."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise DisconnectedError("the client sent nothing for too long")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(_CHUNK)
        except TimeoutError as error:
            raise DisconnectedError("the client sent nothing for too long") from error
        self._received += data
        return bool(data)

    def send(self, data: bytes) -> None:
        """A whole answer, which the client has to take in time."""
        self._socket.settimeout(self._seconds)
        header = struct.pack("!I", len(data)) if self.is_framed else b""
        self._socket.sendall(header + data)

    # -- negotiation of SASL: status, length, payload

    def negotiation(self) -> tuple[int, bytes]:
        """One message of it."""
        status, size = struct.unpack("!BI", self._exactly(5))
        if size > _NEGOTIATION_BYTES:
            raise BadMessageError(f"a SASL message of {size} bytes is refused")
        return status, self._exactly(size)

    def negotiate(self, status: int, payload: bytes = b"") -> None:
        """Sends one."""
        self._socket.settimeout(self._seconds)
        self._socket.sendall(struct.pack("!BI", status, len(payload)) + payload)


def _taken(buffer: bytearray, size: int) -> bytes:
    data = bytes(buffer[:size])
    del buffer[:size]
    return data


class Sasl(IntEnum):
    """The status of a message of the negotiation."""

    START = 1
    OK = 2
    BAD = 3
    ERROR = 4
    COMPLETE = 5


def plain_credentials(channel: Channel) -> tuple[str, str]:
    """User and password of a negotiation by PLAIN. BadMessageError, which the client receives too, for any other."""
    try:
        status, mechanism = channel.negotiation()
        if status != Sasl.START or mechanism != b"PLAIN":
            raise BadMessageError(f"of SASL only PLAIN is supported, not {mechanism[:20]!r}")
        status, payload = channel.negotiation()
        parts = payload.split(b"\0")
        if status not in (Sasl.OK, Sasl.COMPLETE) or len(parts) != 3:
            raise BadMessageError("not an answer of SASL PLAIN")
        identity, name, password = (part.decode("utf-8") for part in parts)
    except UnicodeDecodeError as error:
        refuse(channel, "user and password are UTF-8")
        raise BadMessageError("user and password are UTF-8") from error
    except BadMessageError as error:
        refuse(channel, error.message)
        raise
    if identity not in ("", name):
        refuse(channel, "acting for another user is not supported")
        raise BadMessageError("acting for another user is not supported")
    return name, password


def refuse(channel: Channel, reason: str) -> None:
    """Ends a negotiation, as far as the client is still there."""
    with contextlib.suppress(OSError):
        channel.negotiate(Sasl.BAD, reason.encode())


class _Reader(TBinaryProtocol):
    """Skips what the generated code does not know: in the protocol texts are bytes, such as those of handles."""

    def skip(self, ttype: int, *depth: int) -> None:
        """Calls and fields of newer clients are read over, whatever bytes are in them."""
        if ttype == TType.STRING:
            self.readBinary()
        else:
            super().skip(ttype, *depth)


def reader(transport: Any, limit: int) -> Any:
    """The protocol for requests: in Python, whose depth and sizes are bounded."""
    return _Reader(transport, strictRead=True, string_length_limit=limit, container_length_limit=_CONTAINER)


def answered(processor: Any, protocol: Any) -> bytes:
    """The answer of a processor to the next message."""
    out = TMemoryBuffer()
    processor.process(protocol, TBinaryProtocol(out))
    return bytes(out.getvalue())


@contextlib.contextmanager
def hang_up_seen(connection: socket.socket) -> Iterator[Any]:
    """A function that returns whether the client has closed its end, without reading."""
    poll = select.poll() if hasattr(select, "poll") and _HUNG_UP else None
    if poll is not None:
        poll.register(connection.fileno(), _HUNG_UP)
    yield lambda: poll is not None and bool(poll.poll(0))
