"""HBASE: an HBase table that stores where each key is, used through a Thrift gateway.

Rows are as Hudi writes them: the record key, and in family `_s` the commit, the file group and the partition path. They
are written before the commit completes. So an entry counts only when its commit is on the timeline and its file group
is live; the keys of all others, and only these, are looked up in the base files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from skep_format.basefile import read_footer
from skep_format.errors import OptionError, StorageError, TableMismatchError, needs
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_format.options import Options
from skep_format.schema.types import RECORD_KEY
from skep_table.commit.parts.index_entries import entries_are_kept, entries_begin, entries_count, uncounted
from skep_table.keys.text import single
from skep_table.table import HudiTable
from skep_table.write.indexes.bloom_lookup import BloomLookUp
from skep_table.write.indexes.contract import Index, KeyLookUp, LookedUp
from skep_table.write.output.written import WrittenKeys
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.planning.options import (
    HBASE_GATEWAY,
    HBASE_GET_BATCH,
    HBASE_MOVES,
    HBASE_PUT_BATCH,
    HBASE_QUORUM,
    HBASE_TABLE,
)
from skep_table.write.tags import NEW_KEY, Positions

COMMIT, GROUP, PARTITION = b"_s:commit_ts", b"_s:file_name", b"_s:partition_path"
_VERIFIED_FILES: Final = 8
_TIMEOUT_MS: Final = 30_000
_PORT: Final = 9090


@dataclass(frozen=True, slots=True)
class Gateway:
    """One HBase table behind a Thrift gateway."""

    host: str
    port: int
    table: str
    get_batch: int
    put_batch: int

    @classmethod
    def of(cls, options: Options) -> Gateway:
        """The gateway that is named, else the default port of the first host of the quorum."""
        address = options.value(HBASE_GATEWAY) or options.value(HBASE_QUORUM).partition(",")[0].partition(":")[0]
        table = options.value(HBASE_TABLE)
        for known, value in ((HBASE_GATEWAY, address), (HBASE_TABLE, table)):
            if not value:
                raise OptionError(f"the HBASE index needs {known.key}", option=known.key)
        host, _, port = address.partition(":")
        batches = options.value(HBASE_GET_BATCH), options.value(HBASE_PUT_BATCH)
        return cls(host, int(port) if port else _PORT, table, *batches)

    def check(self) -> None:
        """StorageError when the gateway does not answer, OptionError when the table is missing."""
        with self._connected() as connection:
            if self.table.encode() not in connection.tables():
                raise OptionError(
                    f"HBase at {self.host}:{self.port} has no table {self.table}",
                    hint=f"create '{self.table}', '_s'",
                    option=HBASE_TABLE.key,
                    found=self.table,
                )

    def get(self, keys: Sequence[str]) -> Iterator[tuple[int, dict[bytes, bytes]]]:
        """(position, entry) of the keys that have one."""
        with self._connected() as connection:
            table = connection.table(self.table)
            for start in range(0, len(keys), self.get_batch):
                # in the order of the keys, each key once: positions are found by the key itself
                part = keys[start : start + self.get_batch]
                at = {key.encode(): start + place for place, key in enumerate(part)}
                for key, entry in table.rows(list(at), columns=[COMMIT, GROUP, PARTITION]):
                    yield at[key], entry

    def put(self, keys: Sequence[str], commit: str, group: str, partition: str) -> None:
        """Puts one entry for each key, in batches; an existing one is replaced."""
        entry = {COMMIT: commit.encode(), GROUP: group.encode(), PARTITION: partition.encode()}
        cells = self.put_batch * len(entry)  # happybase counts those
        with self._connected() as connection, connection.table(self.table).batch(batch_size=cells) as batch:
            for key in keys:
                batch.put(key.encode(), entry)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with needs("hbase", "happybase is not installed", package="happybase"):
            import happybase
            from thriftpy2.thrift import TException
        try:
            with closing(happybase.Connection(self.host, self.port, timeout=_TIMEOUT_MS)) as connection:
                yield connection
        except (TException, OSError) as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(
                f"HBase's Thrift gateway at {self.host}:{self.port}: {error}",
                path=f"{self.host}:{self.port}",
                call="hbase",
            ) from error


@dataclass(frozen=True)
class HbaseIndex(Index):
    """Looks keys up in HBase; those whose entry does not count, in the base files."""

    gateway: Gateway
    moves: bool = False
    is_global = True
    keeps_keys = True

    @classmethod
    def of(cls, options: Options) -> HbaseIndex:
        """OptionError when the gateway or the table is not named."""
        return cls(Gateway.of(options), options.value(HBASE_MOVES))

    def look_up(self, table: HudiTable, files: CandidateFiles) -> HbaseLookUp:
        self.gateway.check()
        if not entries_are_kept(table):
            self._refuse_table_of_another_index(table, files)
        by_files = BloomLookUp(table, files, is_global=True)
        return HbaseLookUp(self.gateway, table, files, by_files, uncounted(table))

    def _refuse_table_of_another_index(self, table: HudiTable, files: CandidateFiles) -> None:
        """TableMismatchError where HBase has none of some keys that the table holds: it would take all keys for new."""
        paths = [file.path for of_path in files.values() for file in of_path if file.path][:_VERIFIED_FILES]
        footers = table.context.threads.map(partial(read_footer, table.storage), paths)
        keys = list(dict.fromkeys(key for each in footers for key in (each.min_key, each.max_key) if key is not None))
        if keys and not any(True for _ in self.gateway.get(keys)):
            raise TableMismatchError(
                f"table {table.config.name}: HBase table {self.gateway.table} has no entry of key {keys[0]}, which"
                f" {paths[0]} holds: keys that another index found would be written twice",
                hint="all writers of a table have to use one index; GLOBAL_BLOOM finds keys in any table",
                path=paths[0],
                found=self.gateway.table,
            )

    def before_writing(self, table: HudiTable, instant_time: InstantTime) -> None:
        entries_begin(table, instant_time)

    def on_written(self, written: WrittenKeys) -> None:
        """Puts the new keys before the commit completes. The entry of a key that is updated stays as it is: it must
        be valid when this write fails."""
        for keys in written.keys.chunks:
            self.gateway.put(keys.to_pylist(), written.instant_time, written.file_id, written.partition_path)

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
            group = FileGroupId(entry[PARTITION].decode(), entry[GROUP].decode())
            if self._counts(InstantTime(entry[COMMIT].decode())) and group in self._numbers:
                found[at] = self._numbers[group]
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
