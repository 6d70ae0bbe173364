"""What threads share: calls that many make at the same time, as few; and the values that were used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass
class _Calls(Generic[T]):
    """Of one key."""

    running: Lock = field(default_factory=Lock)
    next: Future[T] | None = None
    """The answer for which no call runs yet."""
    users: int = 0


class SharedCalls(Generic[T]):
    """At most one call of a key runs; what it returns was found after each of its callers came."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._calls: dict[Hashable, _Calls[T]] = {}

    def get(self, key: Hashable, call: Callable[[], T]) -> T:
        """What `call` of this or of another thread returns, or raises, for the key."""
        with self._guard:
            calls = self._calls.setdefault(key, _Calls())
            calls.users += 1
            leads = calls.next is None
            answer = calls.next = calls.next or Future()
        try:
            if not leads:
                return answer.result()
            try:
                with calls.running:
                    self._begin(calls, answer)
                    answer.set_result(call())
            except BaseException as error:  # an interrupt while it waited, too: others wait for the answer
                self._begin(calls, answer)
                answer.set_exception(error)
            return answer.result()
        finally:
            with self._guard:
                calls.users -= 1
                if not calls.users:
                    self._calls.pop(key, None)

    def _begin(self, calls: _Calls[T], answer: Future[T]) -> None:
        """Callers from now on get another answer."""
        with self._guard:
            if calls.next is answer:
                calls.next = None


class Recent(Generic[K, T]):
    """The values that were used last, so many at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._guard = Lock()
        self._kept: OrderedDict[K, T] = OrderedDict()

    def get(self, key: K) -> T | None:
        """None for one that is not kept."""
        with self._guard:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: K, value: T) -> T:
        """Keeps the value."""
        with self._guard:
            self._kept[key] = value
            self._kept.move_to_end(key)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value
