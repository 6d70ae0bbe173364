"""Calls that threads share: none of them returns what was found before its caller came."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from skep.base.shared_calls import SharedCalls


def waiting(calls: SharedCalls[int], key: str, users: int) -> None:
    while calls._calls[key].users < users:
        threading.Event().wait(0.001)


def test_those_that_come_while_a_call_runs_share_the_next_one() -> None:
    calls: SharedCalls[int] = SharedCalls()
    entered, go_on = threading.Event(), threading.Event()
    numbers = iter(range(10))

    def call() -> int:
        number = next(numbers)
        if number == 0:
            entered.set()
            assert go_on.wait(60)
        return number

    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(calls.get, "a", call)
        assert entered.wait(60)
        others = [pool.submit(calls.get, "a", call) for _ in range(4)]
        waiting(calls, "a", 5)
        assert calls.get("b", lambda: 100) == 100
        go_on.set()
        assert first.result() == 0
        assert [each.result() for each in others] == [1] * 4
    assert calls.get("a", call) == 2
    assert not calls._calls


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_an_error_is_that_of_all_who_share_it(error: BaseException) -> None:
    calls: SharedCalls[int] = SharedCalls()

    def fails() -> int:
        raise error

    with pytest.raises(type(error)):
        calls.get("a", fails)
    assert calls.get("a", lambda: 1) == 1
