"""Streams of many tables in one process: each in a thread of its own, so many rounds at once, in turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


class Turns:
    """So many blocks at once, in the order in which they come: a stream without a pause keeps no other waiting."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for a turn, which is passed on at the end of the block."""
        mine = threading.Event()
        with self._guard:
            if self._free:
                self._free -= 1
                mine.set()
            else:
                self._waiting.append(mine)
        mine.wait()
        try:
            yield
        finally:
            with self._guard:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._free += 1


def run_at_once(
    streams: Mapping[str, Callable[[], None]], failed: Callable[[str, Exception], None], stop: threading.Event
) -> None:
    """All streams to their ends. An error of one goes to `failed` and ends no other.

    A reader of the output that is away ends all: BrokenPipeError, after the rounds at hand.
    """

    def run(name: str, stream: Callable[[], None]) -> None:
        try:
            stream()
        except BrokenPipeError:
            stop.set()
            raise
        except Exception as error:
            failed(name, error)

    with ThreadPoolExecutor(len(streams), thread_name_prefix="skep-stream") as pool:
        ends = [pool.submit(run, name, stream) for name, stream in streams.items()]
    for end in ends:
        end.result()
