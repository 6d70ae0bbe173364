"""HBASE: an HBase table that stores where each key is.

Rows are as Hudi writes them: the record key, and in family `_s` the commit, the file group and the partition path. They
are written before the commit completes. So an entry counts only when its commit is on the timeline and its file group
is live; the keys of all others, and only these, are looked up in the file slices. Rows that are deleted keep their
entry, with which they come back to their file group: a deletion that is rolled back needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from skep_format.basefile import read_footer
from skep_format.errors import TableMismatchError
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_format.options import Options, of_option
from skep_format.schema.types import PARTITION_PATH, RECORD_KEY
from skep_table.commit.parts.index_entries import (
    entries_are_kept,
    entries_begin,
    entries_count,
    entries_repaired,
    uncounted,
)
from skep_table.keys.text import single
from skep_table.table import HudiTable
from skep_table.write.indexes.bloom_lookup import BloomLookUp
from skep_table.write.indexes.contract import Index, KeyLookUp, LookedUp
from skep_table.write.indexes.hbase_gateway import Entry, Gateway
from skep_table.write.indexes.tagging import Tagging, locate
from skep_table.write.output.written import WrittenKeys
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.planning.options import HBASE_MOVES, HBASE_REPAIRS
from skep_table.write.tags import NEW_KEY, Positions

_VERIFIED_FILES: Final = 8
_REPAIRED_KEYS: Final = 50_000
"""That are looked up in the base files at once."""


@dataclass(frozen=True)
class HbaseIndex(Index):
    """Looks keys up in HBase; those whose entry does not count, in the file slices.

    `repairs`: entries of writes that failed or were rolled back are replaced by those that were valid before.
    """

    gateway: Gateway
    moves: bool = of_option(HBASE_MOVES)
    repairs: bool = of_option(HBASE_REPAIRS)
    is_global = True
    keeps_keys = True

    @classmethod
    def of(cls, options: Options) -> HbaseIndex:
        """OptionError when the gateway or the table is not named."""
        return options.read(cls, gateway=Gateway.of(options))

    def look_up(self, table: HudiTable, files: CandidateFiles) -> HbaseLookUp:
        self.gateway.check()
        if not entries_are_kept(table):
            self._refuse_table_of_another_index(table, files)
        by_files = BloomLookUp(table, files, is_global=True).with_log_keys()
        known = uncounted(table)
        if self.repairs and known.unrepaired:
            self._repair(by_files, known.unrepaired)
        return HbaseLookUp(self.gateway, table, files, by_files, known.times)

    def _repair(self, by_files: BloomLookUp, times: frozenset[InstantTime]) -> None:
        """Replaces the entries of writes that failed or were rolled back: by where their keys are, or by none.

        JVM writers see nothing of what `uncounted` knows: such entries count for them once the timeline begins later.
        """
        table, files = by_files.table, by_files.files
        timeline = table.reload().timeline  # a writer that began since has its sign, and is on no older snapshot
        there = {instant.requested_time for instant in timeline.data()}
        ended = sorted(time for time in times if time not in there)
        for keys, time in self.gateway.of_commits(ended, _REPAIRED_KEYS) if ended else ():
            keyed = pa.table({RECORD_KEY: keys, PARTITION_PATH: pa.nulls(len(keys), pa.string())})
            found = locate(Tagging(by_files, files), keyed, table.context.runner).numbers.tolist()
            places = [files.numbered(number) if number >= 0 else None for number in found]
            entries = [place and Entry(place[1].base_instant, place[1].file_id, place[0]) for place in places]
            self.gateway.replace(dict(zip(keys, entries, strict=True)), time)
        entries_repaired(table, ended)

    def _refuse_table_of_another_index(self, table: HudiTable, files: CandidateFiles) -> None:
        """TableMismatchError where HBase has none of some keys that the table holds: it would take all keys for new."""
        paths = [file.path for of_path in files.values() for file in of_path if file.path][:_VERIFIED_FILES]
        footers = table.context.threads.map(partial(read_footer, table.storage), paths)
        keys = list(dict.fromkeys(key for each in footers for key in (each.min_key, each.max_key) if key is not None))
        if keys and not any(True for _ in self.gateway.get(keys)):
            raise table.error(
                TableMismatchError,
                f"HBase table {self.gateway.table} has no entry of key {keys[0]}, which {paths[0]} holds: keys that"
                " another index found would be written twice",
                hint="all writers of a table have to use one index; GLOBAL_BLOOM finds keys in any table",
                path=paths[0],
                found=self.gateway.table,
            )

    def before_writing(self, table: HudiTable, instant_time: InstantTime) -> None:
        entries_begin(table, instant_time)

    def on_written(self, written: WrittenKeys) -> None:
        """Puts the new keys before the commit completes. The entry of a key that is updated stays as it is: it must
        be valid when this write fails."""
        entry = Entry(written.instant_time, written.file_id, written.partition_path)
        for keys in written.keys.chunks:
            self.gateway.put(keys.to_pylist(), entry)

    def after_commit(self, table: HudiTable, instant_time: InstantTime) -> None:
        entries_count(table, instant_time)


@dataclass(frozen=True)
class HbaseLookUp(KeyLookUp):
    """An entry counts when its commit is completed and its file group is live; `by_files` finds the other keys.

    `uncounted`: instants that are not completed, however old they are.
    """

    confirms: ClassVar[bool] = True

    gateway: Gateway
    table: HudiTable
    files: CandidateFiles
    by_files: BloomLookUp
    uncounted: frozenset[InstantTime]

    def candidates(self, keyed: pa.Table) -> LookedUp:
        keys = single(keyed.column(RECORD_KEY))
        encoded = keys.dictionary_encode()
        found = np.full(len(encoded.dictionary), NEW_KEY, np.int64)
        unsure = np.zeros(len(encoded.dictionary), np.bool_)
        for at, entry in self.gateway.get(encoded.dictionary.to_pylist()):
            number = None if entry is None else self._numbers.get(FileGroupId(entry.partition, entry.group))
            if entry is not None and number is not None and self._counts(InstantTime(entry.commit)):
                found[at] = number
            else:
                unsure[at] = True
        of_rows = encoded.indices.to_numpy(zero_copy_only=False)
        numbers, rows = found[of_rows], np.flatnonzero(unsure[of_rows])
        if not len(rows):
            return LookedUp(numbers)
        looked_up = self.by_files.candidates(keyed.take(pa.array(rows))).candidates
        return LookedUp(numbers, replace(looked_up, rows=rows[looked_up.rows]))

    def confirm(self, number: int, keys: pa.Array) -> Positions:
        return self.by_files.confirm(number, keys)

    def _counts(self, time: InstantTime) -> bool:
        return time not in self.uncounted and self.table.timeline.is_completed_or_archived(time)

    @cached_property
    def _numbers(self) -> dict[FileGroupId, int]:
        return self.files.numbers()
