"""Tagging the rows of a write: candidates of all rows, confirmed file by file, each file by one task.

An index with shards names the shard of each key first; each shard is looked into by one task, too.

`locate` does it for rows that this process holds, with the tasks of a runner; `skep_writer/writing/tagging.py` does the
same by Spark's shuffle. Whatever the number of tasks, each candidate file is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.runner import Runner, ThreadRunner
from skep_format.schema.types import RECORD_KEY
from skep_table.keys.text import single
from skep_table.write.indexes.contract import NO_CANDIDATES, Candidates, FileNumbers, KeyLookUp, LookedUp, Span
from skep_table.write.indexes.global_tagging import Relocation
from skep_table.write.keyed import partition_codes
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.planning.profile import pack
from skep_table.write.tags import DELETED, HELD, NEW_KEY, NOT_HELD, Located, Positions, positions_joined, unread

if TYPE_CHECKING:
    from typing_extensions import Self

Hits = tuple[npt.NDArray[np.int64], FileNumbers, Positions | None]
"""Rows, the numbers of the files that hold their keys, and their positions there where the index looks for them.

A row may occur with several files; the number of one in which its row is deleted is inverted (`~`).
"""

# Tasks that confirm; and the bytes of keys that all tasks together get along, where they run elsewhere.
_TASKS: Final = 32
_SENT_BYTES: Final = 256 << 20
# What a key adds to the weight of a file, against a byte of the file: the key column is a small part of it.
_KEY_WEIGHT: Final = 256
_NO_HITS: Final[Hits] = (np.zeros(0, np.int64), np.zeros(0, np.int64), None)


@dataclass(frozen=True, slots=True)
class Tagging:
    """How the rows of one attempt are tagged. `relocation` is set for global indexes."""

    look_up: KeyLookUp
    files: CandidateFiles
    relocation: Relocation | None = None

    def combined(self, keyed: pa.Table) -> pa.Table:
        """The rows that are looked up: of a global index one for each key, given all rows of their keys."""
        return keyed if self.relocation is None else self.relocation.combined(keyed)

    def settled(self, keyed: pa.Table, found: Found) -> tuple[pa.Table, Located]:
        """The rows to be written and where their keys are. A global index may change partitions, and add deletes."""
        numbers, positions = found
        if self.relocation is None:
            paths, codes = partition_codes(keyed)
            firsts = np.array([self.files.first_number(path) for path in paths], np.int64)
            held = numbers >= 0
            return keyed, Located(np.where(held, numbers - firsts[codes], numbers).astype(np.int32), positions)
        places = self.files.places(numbers)
        return self.relocation.settled(keyed, places.partitions, Located(places.tags, positions))


class Found(NamedTuple):
    """By row the number of the file that holds its key, or a tag below zero; and its position, as in `Located`."""

    numbers: FileNumbers
    positions: Positions | None = None

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Of all rows of the parts, one after the other."""
        numbers = np.concatenate([each.numbers for each in parts])
        return cls(numbers, positions_joined([(each.numbers, each.positions) for each in parts]))


def locate(tagging: Tagging, keyed: pa.Table, runner: Runner) -> Found:
    """Finds the keys of the combined rows."""
    look_up = tagging.look_up
    found = look_up.candidates(keyed.select(look_up.columns))
    sizes = look_up.shard_bytes
    if sizes and found.candidates.spans:
        tasks = _shares(found.candidates, sizes.__getitem__, runner)
        known = [each for part in runner.map(partial(_in_shards, look_up), tasks) for each in part]
        numbers, _ = resolved(found.numbers, [hits for hits, _ in known])
        found = LookedUp(numbers, Candidates.joined(unsure for _, unsure in known))
    if not found.candidates.spans:
        return Found(found.numbers)
    hits = _confirmed_by_tasks(tagging, look_up, found.candidates, runner)
    chooses = look_up.among_several
    if chooses is not None:
        hits, unsure = of_several(hits, single(keyed.column(RECORD_KEY)))
        if unsure.spans:
            hits = joined([hits, _confirmed_by_tasks(tagging, chooses, unsure, runner)])
    return resolved(found.numbers, [hits])


def _confirmed_by_tasks(tagging: Tagging, look_up: KeyLookUp, candidates: Candidates, runner: Runner) -> Hits:
    tasks = _shares(candidates, lambda number: tagging.files.numbered(number)[1].size_bytes, runner)
    return joined(runner.map(partial(confirm_all, look_up), tasks))


def of_several(hits: Hits, keys: pa.Array) -> tuple[Hits, Candidates]:
    """The hits of rows that are in one file, and the other hits as candidates. `keys` are those of all rows."""
    rows, files, positions = hits
    several = np.bincount(rows)[rows] > 1
    if not several.any():
        return hits, NO_CANDIDATES
    at = np.flatnonzero(several)
    at = at[np.argsort(files[at], kind="stable")]
    numbers, starts = np.unique(files[at], return_index=True)
    spans = zip(numbers.tolist(), starts.tolist(), [*starts[1:].tolist(), len(at)], strict=True)
    kept = rows[~several], files[~several], None if positions is None else positions[~several]
    return kept, Candidates(keys.take(pa.array(rows[at])), rows[at], tuple(spans))


def _shares(candidates: Candidates, size_of: Callable[[int], int], runner: Runner) -> list[Candidates]:
    """The candidates of each task. All spans of one number are among those of one task."""
    most = _TASKS if isinstance(runner, ThreadRunner) else min(_TASKS, max(1, _SENT_BYTES // candidates.keys.nbytes))
    spans = _by_number(candidates.spans)
    weights = [size_of(number) + sum(high - low for _, low, high in of) * _KEY_WEIGHT for number, of in spans.items()]
    of_numbers = list(spans.values())
    return [share(candidates, [span for at in task for span in of_numbers[at]]) for task in pack(weights, most)]


def _by_number(spans: Iterable[Span]) -> dict[int, list[Span]]:
    found: dict[int, list[Span]] = {}
    for span in spans:
        found.setdefault(span[0], []).append(span)
    return found


def _in_shards(look_up: KeyLookUp, candidates: Candidates) -> list[tuple[Hits, Candidates]]:
    return [(hits, unsure) for _, hits, unsure in in_shards(look_up, [candidates])]


def in_shards(look_up: KeyLookUp, shares: Sequence[Candidates]) -> Iterator[tuple[int, Hits, Candidates]]:
    """What an index with shards knows about the keys of several shares; each shard is looked into once.

    By share: its position, the hits among its rows, and candidate files for the rows of which the index is not sure.
    """
    for number, parts in sorted(parts_by_number(shares).items()):
        keys = pa.concat_arrays([shares[at].keys.slice(low, high - low) for at, low, high in parts])
        found = look_up.in_shard(number, keys)
        start = 0
        for at, low, high in parts:
            end = start + high - low
            rows, numbers = shares[at].rows[low:high], found.numbers[start:end]
            known = numbers != NEW_KEY
            unsure = found.candidates.of_keys(start, end)
            yield at, (rows[known], numbers[known], None), replace(unsure, rows=rows[unsure.rows])
            start = end


def parts_by_number(shares: Sequence[Candidates]) -> dict[int, list[tuple[int, int, int]]]:
    """For each number among the spans of several shares: the share's position, and the bounds in its keys."""
    parts: dict[int, list[tuple[int, int, int]]] = {}
    for at, candidates in enumerate(shares):
        for number, low, high in candidates.spans:
            parts.setdefault(number, []).append((at, low, high))
    return parts


def share(candidates: Candidates, spans: Sequence[Span]) -> Candidates:
    """Those of some files, without the keys that none of them may hold."""
    keys: list[pa.Array] = []
    rows: list[FileNumbers] = []
    kept: list[Span] = []
    start = end = shift = 0  # the part of the keys that is being gathered, and how far it moves

    def gather() -> None:
        if end > start:
            keys.append(candidates.keys.slice(start, end - start))
            rows.append(candidates.rows[start:end])

    for number, low, high in sorted(spans, key=lambda span: span[1:]):
        if low > end or not kept:
            gather()
            shift += low - end
            start = low
        end = max(end, high)
        kept.append((number, low - shift, high - shift))
    gather()
    return Candidates(pa.concat_arrays(keys), np.concatenate(rows), tuple(kept)) if keys else candidates


def confirm_all(look_up: KeyLookUp, candidates: Candidates) -> Hits:
    """One after the other, so that one key column is in memory at a time."""
    return joined(_confirmed(look_up, candidates, number, of) for number, of in _by_number(candidates.spans).items())


def _confirmed(look_up: KeyLookUp, candidates: Candidates, number: int, spans: Sequence[Span]) -> Hits:
    keys = [candidates.keys.slice(low, high - low) for _, low, high in spans]
    rows = np.concatenate([candidates.rows[low:high] for _, low, high in spans])
    return hits_of(
        look_up, number, look_up.confirm(number, keys[0] if len(keys) == 1 else pa.concat_arrays(keys)), rows
    )


def hits_of(look_up: KeyLookUp, number: int, positions: Positions, rows: npt.NDArray[np.int64]) -> Hits:
    """The hits among some rows, given what `confirm` found for their keys in a file."""
    held = positions != NOT_HELD
    found = positions[held]
    numbers = np.where(found == DELETED, ~number, number)
    return rows[held], numbers, found if look_up.positions else None


def joined(parts: Iterable[Hits]) -> Hits:
    """All hits of several parts, in their order."""
    rows, numbers, positions = zip(_NO_HITS, *parts, strict=True)
    known = positions_joined(list(zip(numbers, positions, strict=True)))
    return np.concatenate(rows), np.concatenate(numbers), known


def resolved(numbers: FileNumbers, hits: Iterable[Hits]) -> Found:
    """With what was confirmed: of several files that hold a key the one with the lowest number counts, of those in
    which its row is not deleted if there are any."""
    rows, files, positions = joined(hits)
    deleted = files < 0
    files = np.where(deleted, ~files, files)
    order = np.lexsort((-files, ~deleted))  # the last assignment of a row stays
    found = numbers.copy()
    found[rows[order]] = files[order]
    if positions is None:
        return Found(found)
    places = unread(numbers)
    places[rows[order]] = np.where(deleted, HELD, positions)[order]
    return Found(found, places)
