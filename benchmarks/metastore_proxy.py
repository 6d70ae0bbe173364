"""Proxies on loopback before a metastore: what all share, and one that counts calls by name."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from contextlib import suppress

from typing_extensions import Self

_CALL = 0x80010001  # Thrift's strict binary protocol, version 1: a call


def close_sockets(*sockets: socket.socket) -> None:
    """Ends what other threads wait for on these sockets before their descriptors are free to be used again.

    After a mere close a thread stays in its system call, and goes on with whatever has that number when a signal
    restarts the call: it would take the connections of a stranger's server.
    """
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


class LoopbackProxy:
    """Forwards each connection to the server at `uri` (thrift://host:port), as `serve` does it. A context manager."""

    def __init__(self, uri: str) -> None:
        host, _, port = uri.removeprefix("thrift://").rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []

    @property
    def uri(self) -> str:
        """The proxy's own address."""
        return f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        close_sockets(self._listener, *self._open)

    def serve(self, client: socket.socket, server: socket.socket) -> None:
        """Forwards in both directions until one side closes; runs in a thread per connection."""
        back = threading.Thread(target=self._forward, args=(server, client, client, True), daemon=True)
        back.start()
        self._forward(client, server, client, False)
        back.join()

    def passes(self, client: socket.socket, data: bytes, *, answer: bool) -> bool:  # noqa: ARG002
        """Called before a piece of a call, or of an answer, is forwarded; False ends the connection."""
        return True

    def _forward(self, source: socket.socket, target: socket.socket, client: socket.socket, answer: bool) -> None:
        with suppress(OSError):
            while (data := source.recv(1 << 16)) and self.passes(client, data, answer=answer):
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [client, server]
            threading.Thread(target=self._handle, args=(client, server), daemon=True).start()

    def _handle(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError, EOFError):
            self.serve(client, server)


class CountingProxy(LoopbackProxy):
    """`calls` counts the calls that were forwarded, by name."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.calls: Counter[str] = Counter()
        self._waiting: set[socket.socket] = set()

    def passes(self, client: socket.socket, data: bytes, *, answer: bool) -> bool:
        """Thrift clients send no call before the last one is answered: data that follows an answer begins a call."""
        if answer:
            self._waiting.discard(client)
        elif client not in self._waiting:
            self._waiting.add(client)
            self.calls[_name(data)] += 1
        return True


def _name(data: bytes) -> str:
    version, length = struct.unpack_from(">II", data)
    return data[8 : 8 + length].decode() if version == _CALL else "?"
