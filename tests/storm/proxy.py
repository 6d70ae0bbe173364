"""A proxy on loopback that loses answers: the request comes through, and the line is cut before the answer does."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress


class LossyProxy:
    """Forwards to `uri`; `loss` is the share of answers that are lost. A context manager."""

    def __init__(self, uri: str, seed: int, loss: float) -> None:
        host, _, port = uri.removeprefix("thrift://").rpartition(":")
        self._target = host, int(port)
        self._dice = random.Random(seed)
        self._loss = loss
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> LossyProxy:
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
            try:
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._open += [client, server]
            threading.Thread(target=self._pump, args=(client, server, 0.0), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, self._loss), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, loss: float) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._dice.random() < loss:
                    self.lost += 1
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
