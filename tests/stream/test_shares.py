"""Turns of rounds, compactions and clusterings: parts of the time, least shares, and that all get theirs."""

from __future__ import annotations

import heapq
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.clock import SystemClock
from skep_stream.flags import Flags
from skep_stream.shares import FairQueue, SharedTurns, TurnShare, Work, shares_of

SHARES = st.fixed_dictionaries({work: st.builds(TurnShare, st.integers(1, 5), st.just(0)) for work in Work})


@settings(max_examples=60, deadline=None)
@given(shares=SHARES, seed=st.integers(0, 10_000))
def test_the_time_is_divided_by_weight_among_those_that_always_want_it(
    shares: dict[Work, TurnShare], seed: int
) -> None:
    """Start-time fair queueing: no two are further apart than a turn of each, whatever turns take."""
    chance, longest = random.Random(seed), dict.fromkeys(Work, 0.0)
    queue, spent = FairQueue(shares), dict.fromkeys(Work, 0.0)
    for work in Work:
        queue.wants(work)
    for _ in range(200):
        work = queue.next()
        assert work is not None
        queue.begins(work)
        assert queue.next() is None
        seconds = chance.choice((0.0, 0.1, 1.0, 30.0)) * chance.random()
        if work is Work.ROUND:
            queue.returns(work)
        queue.ends(work, seconds)
        if work is not Work.ROUND or chance.random() < 0.5:
            queue.wants(work)
        elif (other := queue.next()) is not None:  # one that is in front of the round that returns
            queue.begins(other)
            queue.ends(other, 0.0)
            queue.wants(other)
            queue.wants(work)
        else:
            queue.wants(work)
        spent[work] += seconds / shares[work].weight
        longest[work] = max(longest[work], seconds / shares[work].weight)
        for one in Work:
            for another in Work:
                assert abs(spent[one] - spent[another]) <= longest[one] + longest[another] + 1e-9


@settings(max_examples=100, deadline=None)
@given(
    shares=st.fixed_dictionaries({work: st.builds(TurnShare, st.integers(1, 3), st.integers(0, 2)) for work in Work}),
    seed=st.integers(0, 10_000),
)
def test_least_shares_never_wait_and_all_others_get_their_turn(shares: dict[Work, TurnShare], seed: int) -> None:
    chance, queue = random.Random(seed), FairQueue(shares)
    waiting, running = dict.fromkeys(Work, 0), dict.fromkeys(Work, 0)
    ends: list[tuple[float, int, Work]] = []
    now, left = 0.0, 120
    returning = False
    while left or ends or any(waiting.values()):
        if left and chance.random() < 0.5:
            work = chance.choice(list(Work))
            queue.wants(work)
            waiting[work] += 1
            left -= 1
        elif ends:
            now, _, work = heapq.heappop(ends)
            running[work] -= 1
            if work is Work.ROUND and (left or waiting[work]):
                queue.returns(work)
                returning = True
            queue.ends(work, chance.random())
        elif returning and not waiting[Work.ROUND]:
            queue.rests(Work.ROUND)
            returning = False
        while (found := queue.next()) is not None:
            within = [work for work in Work if waiting[work] and running[work] < shares[work].least]
            assert not within or found in within
            queue.begins(found)
            returning = returning and found is not Work.ROUND
            waiting[found] -= 1
            running[found] += 1
            heapq.heappush(ends, (now + chance.random(), left, found))
            assert sum(max(0, running[work] - shares[work].least) for work in Work) <= 1
        assert not any(waiting[work] and running[work] < shares[work].least for work in Work)


def test_one_that_wanted_nothing_for_a_while_has_saved_nothing_up() -> None:
    queue = FairQueue({})
    for _ in range(100):
        queue.wants(Work.ROUND)
        queue.begins(Work.ROUND)
        queue.returns(Work.ROUND)
        queue.ends(Work.ROUND, 1.0)
    for _ in range(2):  # not a hundred
        queue.wants(Work.COMPACTION)
        order = [queue.next()]
        if order != [Work.COMPACTION]:
            break
        queue.begins(Work.COMPACTION)
        queue.ends(Work.COMPACTION, 1.0)
    assert order == [None]
    queue.rests(Work.ROUND)
    assert queue.next() is Work.COMPACTION


class SetClock(SystemClock):
    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_threads_take_their_turns_and_what_is_interrupted_leaves_the_queue() -> None:
    clock, order = SetClock(), list[str]()
    turns, began = SharedTurns({}, clock), threading.Event()

    def compaction() -> None:
        with turns.turn(Work.COMPACTION):
            order.append("compaction")
            clock.seconds += 5

    def clustering() -> None:
        began.set()
        with turns.turn(Work.CLUSTERING):
            order.append("clustering")

    with ThreadPoolExecutor(2) as pool:
        with turns.turn(Work.ROUND):
            clock.seconds += 1
            jobs = [pool.submit(compaction), pool.submit(clustering)]
            began.wait()
            order.append("round")
        turns.rest()
        for job in jobs:
            job.result()
    assert (order[0], sorted(order[1:])) == ("round", ["clustering", "compaction"])
    with pytest.raises(KeyboardInterrupt), turns.turn(Work.CLUSTERING):
        raise KeyboardInterrupt
    with turns.turn(Work.ROUND):
        pass


def test_flags_give_shares() -> None:
    target = {"target_base_path": "t", "target_table": "t", "table_type": "MERGE_ON_READ"}
    assert shares_of(Flags.of(target)) == {}
    found = shares_of(Flags.of({**target, "compact_scheduling_weight": "2", "cluster_scheduling_minshare": 1}))
    assert found == {Work.ROUND: TurnShare(), Work.COMPACTION: TurnShare(2), Work.CLUSTERING: TurnShare(1, 1)}
