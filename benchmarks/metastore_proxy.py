"""A metastore's calls, counted on the way: a proxy on loopback that passes everything on."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from contextlib import suppress

from typing_extensions import Self

_CALL = 0x80010001  # Thrift's strict binary protocol, version 1: a call


class CountingProxy:
    """Listens while it is entered. `calls` counts the calls that went through, by name."""

    def __init__(self, port: int) -> None:
        self.calls: Counter[str] = Counter()
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """A client says nothing until it was answered: what comes first after an answer begins a call."""
        with client, socket.create_connection(self._target) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            turn = threading.Event()
            turn.set()
            back = threading.Thread(target=_answers, args=(server, client, turn), daemon=True)
            back.start()
            with suppress(OSError):
                while data := client.recv(1 << 16):
                    if turn.is_set():
                        turn.clear()
                        self.calls[_name(data)] += 1
                    server.sendall(data)
                server.shutdown(socket.SHUT_RDWR)
            back.join()


def _answers(server: socket.socket, client: socket.socket, turn: threading.Event) -> None:
    with suppress(OSError):
        while data := server.recv(1 << 16):
            turn.set()
            client.sendall(data)


def _name(data: bytes) -> str:
    version, length = struct.unpack_from(">II", data)
    return data[8 : 8 + length].decode() if version == _CALL else "?"
