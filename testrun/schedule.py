"""Which worker runs what: the longest units first, what shares a server on one worker, so that all end together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from testrun.measured import Measured, file_of, name_of

Announce = Callable[[Sequence[str], int], None]
"""Is given the cases and the number of workers before the first runs."""

WHOLE = ("engines", "peers")
"""Folders that are one unit: their conftest files put the tests of an engine, or of a release of Hudi, together."""


def unit_of(case: str) -> str:
    """What one worker takes whole: a file, since its tests share fixtures, or a folder."""
    file = file_of(case)
    folder = file.partition("/")[0]
    return folder if folder in WHOLE else file


def lanes(cases: Iterable[str], measured: Measured) -> dict[str, str]:
    """Unit → what it shares with the other units of its lane: the Spark session, which one worker starts."""
    needing = {name for name, test in measured.tests.items() if test.kind == "spark"}
    return {unit_of(case): "spark" for case in cases if name_of(case) in needing and unit_of(case) not in WHOLE}


def next_unit(
    left: Mapping[str, float], lane_of: Mapping[str, str], taken: Mapping[str, Any], worker: Any
) -> str | None:
    """Of the units that are `left`, each with its seconds, the one that `worker` takes next.

    A lane is as long as all of its units together, and is left to the worker that has `taken` it. None when nothing but
    lanes of others is left.
    """
    length: dict[str, float] = {}
    for unit, seconds in left.items():
        lane = lane_of.get(unit, unit)
        length[lane] = length.get(lane, 0) + seconds
    free = [unit for unit in left if taken.get(lane_of.get(unit, unit), worker) is worker]
    return max(free, key=lambda unit: (length[lane_of.get(unit, unit)], left[unit]), default=None)


class LongestFirst(LoadScopeScheduling):
    """xdist's scheduler of scopes, with these units in this order, or in that of the collection (`in_order`)."""

    def __init__(self, config: pytest.Config, log: Any, measured: Measured, in_order: bool, announce: Announce) -> None:
        super().__init__(config, log)
        self._measured, self._in_order, self._announce = measured, in_order, announce
        self._lane_of: dict[str, str] = {}
        self._taken: dict[str, WorkerController] = {}

    def schedule(self) -> None:
        if self.collection is None:
            cases = next(iter(self.registered_collections.values()))
            self._lane_of = lanes(cases, self._measured)
            self._announce(cases, len(self.nodes))
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        self._taken = {lane: worker for lane, worker in self._taken.items() if worker is not node}
        found: str | None = super().remove_node(node)
        return found

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        left = {unit: sum(map(self._measured.seconds, cases)) for unit, cases in self.workqueue.items()}
        if self._in_order:
            left = {unit: float(len(left) - place) for place, unit in enumerate(left)}
        unit = next_unit(left, self._lane_of, self._taken, node)
        if unit is None:
            node.shutdown()
            return
        self._taken[self._lane_of.get(unit, unit)] = node
        self.workqueue.move_to_end(unit, last=False)  # where the scheduler takes the next from
        super()._assign_work_unit(node)
