"""A proxy on loopback before a metastore that refuses calls by name, as an authorizer does: by a MetaException."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from typing import Any

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer, TTransportBase

WRITES = r"(create|alter|add|append|drop|rename|update|grant|revoke)_.*"
LOCKS = r"lock"


class RefusingProxy:
    """Forwards to `uri` what does not match `refused`. A context manager; `seen` are the names that were refused."""

    def __init__(self, uri: str, refused: str = WRITES) -> None:
        host, _, port = uri.removeprefix("thrift://").rpartition(":")
        self._target, self._refused = (host, int(port)), re.compile(refused)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.seen: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> RefusingProxy:
        return self

    def __exit__(self, *error: object) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target, timeout=60)
            self._open += [client, server]
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError, EOFError):
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
