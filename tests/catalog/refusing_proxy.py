"""A proxy on loopback before a metastore that refuses calls by name, as an authorizer does: by a MetaException."""

from __future__ import annotations

import re
import socket
from typing import Any

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer, TTransportBase

from benchmarks.metastore_proxy import LoopbackProxy

WRITES = r"(create|alter|add|append|drop|rename|update|grant|revoke)_.*"
LOCKS = r"lock"


class RefusingProxy(LoopbackProxy):
    """Forwards to `uri` the calls whose names do not match `refused`; `seen` lists those that were refused."""

    def __init__(self, uri: str, refused: str = WRITES) -> None:
        super().__init__(uri)
        self._refused = re.compile(refused)
        self.seen: list[str] = []

    def serve(self, client: socket.socket, server: socket.socket) -> None:
        """One call after the other, until either side closes."""
        while True:
            name, sequence, request = _message(client)
            if self._refused.fullmatch(name):
                self.seen.append(name)
                client.sendall(_refusal(name, sequence))
            else:
                server.sendall(request)
                client.sendall(_message(server)[2])


class _Recorded(TTransportBase):  # type: ignore[misc]
    """Reads from a socket and keeps what was read."""

    def __init__(self, source: socket.socket) -> None:
        self._file = source.makefile("rb")
        self.bytes = b""

    def readAll(self, size: int) -> bytes:
        found = self._file.read(size)
        if len(found) < size:
            raise EOFError
        self.bytes += found
        return bytes(found)


def _message(source: socket.socket) -> tuple[str, int, bytes]:
    recorded = _Recorded(source)
    protocol = TBinaryProtocol(recorded)
    name, _, sequence = protocol.readMessageBegin()
    protocol.skip(TType.STRUCT)
    return name, sequence, recorded.bytes


def _refusal(name: str, sequence: int) -> bytes:
    result: Any = getattr(ThriftHiveMetastore, f"{name}_result")
    fields = [field for field in result.thrift_spec if field and field[1] == TType.STRUCT]
    kinds = (ttypes.MetaException, ttypes.InvalidOperationException, ttypes.NoSuchTxnException)
    field = next(f for kind in kinds for f in fields if f[3][0] is kind)
    error = field[3][0]("User guest does not have privileges for this operation")
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    protocol.writeMessageBegin(name, TMessageType.REPLY, sequence)
    result(**{field[2]: error}).write(protocol)
    protocol.writeMessageEnd()
    return bytes(buffer.getvalue())
