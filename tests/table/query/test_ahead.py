"""Reading ahead keeps the order, bounds what waits, and stops with its reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from skep_table.query.ahead import BATCHES_AHEAD, in_order


def counted(task: int) -> Iterator[tuple[int, int]]:
    for index in range(task % 4):
        yield task, index


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_order_is_that_of_the_tasks(workers: int) -> None:
    expected = [pair for task in range(20) for pair in counted(task)]
    assert list(in_order(range(20), counted, workers)) == expected


def test_few_batches_wait() -> None:
    made, taken, most = 0, 0, 0
    lock = threading.Lock()

    def many(_: int) -> Iterator[int]:
        nonlocal made, most
        for index in range(50):
            with lock:
                made += 1
                most = max(most, made - taken)
            yield index

    for _ in in_order(range(6), many, 3):
        with lock:
            taken += 1
    assert taken == 300
    assert most <= 3 * (BATCHES_AHEAD + 1) + 1


def test_an_error_comes_in_its_turn_and_stops_the_rest() -> None:
    started = []

    def failing(task: int) -> Iterator[int]:
        started.append(task)
        yield task
        if task == 1:
            raise ValueError("task 1")

    batches = in_order(range(1000), failing, 2)
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(ValueError, match="task 1"):
        next(batches)
    assert len(started) < 10


def test_leaving_early_ends_the_threads() -> None:
    before = threading.active_count()

    def endless(_: int) -> Iterator[int]:
        while True:
            yield 1

    batches = in_order(range(4), endless, 3)
    next(batches)
    batches.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
