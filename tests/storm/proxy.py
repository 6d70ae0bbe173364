"""A proxy that loses answers: the request arrives, and the connection is cut before the answer is delivered."""

from __future__ import annotations

import random
import socket

from benchmarks.metastore_proxy import LoopbackProxy


class LossyProxy(LoopbackProxy):
    """Forwards to `uri`; `loss` is the share of answers that are lost, `lost` their number."""

    def __init__(self, uri: str, seed: int, loss: float) -> None:
        super().__init__(uri)
        self._dice = random.Random(seed)
        self._loss = loss
        self.lost = 0

    def passes(self, client: socket.socket, data: bytes, *, answer: bool) -> bool:
        """Ends the connection in place of an answer."""
        if not answer or self._dice.random() >= self._loss:
            return True
        self.lost += 1
        return False
