"""Which file groups may have keys in their logs that their base file lacks, as far as commits do not rule it out.

A commit that wrote a log states how many new keys it put into the group: Hudi's writers and ours do. Flink's count the
new keys with which they fill a group as updates (`is_planned`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from skep_format.instant_time import InstantTime
from skep_format.names import LogFileName, join
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.metadata import WriteStat
from skep_table.commit.concurrency.new_keys import is_planned
from skep_table.table import HudiTable
from skep_table.write.planning.candidates import CandidateFiles

# Commits that are read at once, the newest ones first: those that a snapshot has read anyway, then more.
_STEPS: Final = (8, 64)
_MOST_BYTES: Final = 1 << 20
"""Of the commits of a step. Logs are read instead where none of all these commits shows who wrote them."""


def groups_with_log_keys(table: HudiTable, files: CandidateFiles) -> frozenset[int]:
    """The numbers of the files in whose logs there may be keys that the base file lacks.

    So it is taken to be where a log was written by a commit that is archived, or by none that is known.
    """
    logs = {
        join(path, str(name)): (number, name)
        for path, of_path in files.items()
        for number, file in enumerate(of_path, files.first_number(path))
        if file.path and file.tail is not None
        for name in file.tail.logs
    }
    return _Logs(table, logs).found() if logs else frozenset()


class _Logs:
    """The logs over base files, by path, each with the number of its group."""

    def __init__(self, table: HudiTable, logs: dict[str, tuple[int, LogFileName]]) -> None:
        self._table = table
        self._logs = logs
        self._unknown = set(logs)
        """Those of which not all commits are known yet."""
        self._found: set[int] = set()

    def found(self) -> frozenset[int]:
        commits, start = self._commits(), 0
        for count in _STEPS:
            step = commits[start : start + count]
            read = self._table.first_commits(step, _MOST_BYTES)
            for instant in read:
                self._note(instant.requested_time, self._table.commit_metadata(instant).stats)
            start += count
            if not self._unknown or len(read) < count:
                break
        return frozenset(self._found | {self._logs[path][0] for path in self._unknown})

    def _commits(self) -> list[Instant]:
        """Those that may have written the logs, newest first."""
        timeline = self._table.timeline
        times = sorted({name.instant_time for _, name in self._logs.values()})
        if self._table.format.logs.of_delta_commit:
            found = [each for time in times if (each := timeline.completed_write(time)) is not None]
        else:  # named by the base instants of their slices
            found = list(timeline.since(times[0]).of(Action.DELTA_COMMIT).completed())
        return found[::-1]

    def _note(self, time: InstantTime, stats: Iterable[WriteStat]) -> None:
        adds_none = time in self._table.timeline.files.log_compactions  # what they merge are other logs, which stay
        for stat in stats:
            known = self._logs.get(stat.path)
            if known is None:
                continue
            if not stat.log_offset:  # a commit before may have written the begin of a file, as it does on HDFS
                self._unknown.discard(stat.path)
            if not adds_none and (stat.num_inserts or not is_planned(self._table, time)):
                self._found.add(known[0])
