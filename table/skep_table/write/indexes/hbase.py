"""HBASE: an HBase table that says where each key is, by way of a Thrift gateway.

Rows are as Hudi writes them: the record key, and in family `_s` the commit, the file group and the partition path. They
are written before the commit completes. So an entry counts only when its commit is on the timeline and its file group
lives: keys of all others, and only these, are looked up in the base files, where the truth is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.basefile import read_base
from skep_table.errors import EnvironmentMissingError, OptionError, StorageError
from skep_table.merge import MergeRule
from skep_table.options import Options
from skep_table.runner import ThreadRunner
from skep_table.schema.types import COMMIT_TIME, RECORD_KEY
from skep_table.table import HudiTable
from skep_table.timeline.metadata import WriteStat
from skep_table.write.index import NEW_KEY
from skep_table.write.indexes.base import Files, GlobalIndex, Places
from skep_table.write.indexes.footers import GlobalFooterIndex, place_of
from skep_table.write.options import (
    HBASE_GATEWAY,
    HBASE_GET_BATCH,
    HBASE_MOVES,
    HBASE_PUT_BATCH,
    HBASE_QUORUM,
    HBASE_TABLE,
)

COMMIT, GROUP, PARTITION = b"_s:commit_ts", b"_s:file_name", b"_s:partition_path"
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
        """StorageError when nobody answers, OptionError when the table is not there."""
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
        entry = {COMMIT: commit.encode(), GROUP: group.encode(), PARTITION: partition.encode()}
        cells = self.put_batch * len(entry)  # happybase counts those
        with self._connected() as connection, connection.table(self.table).batch(batch_size=cells) as batch:
            for key in keys:
                batch.put(key.encode(), entry)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            import happybase
            from thriftpy2.thrift import TException
        except ImportError as error:
            raise EnvironmentMissingError(
                "happybase is not installed", hint="pip install 'skep[hbase]'", package="happybase"
            ) from error
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
class HbaseIndex(GlobalIndex):
    """Asks HBase, and the base files for what HBase does not know for sure."""

    gateway: Gateway
    table: HudiTable
    files: Files
    rule: MergeRule
    combine: bool
    update_partition_path: bool

    @classmethod
    def of(cls, table: HudiTable, files: Files, options: Options, rule: MergeRule, combine: bool) -> HbaseIndex:
        gateway = Gateway.of(options)
        gateway.check()
        return cls(gateway, table, files, rule, combine, options.value(HBASE_MOVES))

    def find(self, keys: pa.Array) -> Places:
        number_of = {
            (path, file.file_id): number
            for number, (path, file) in enumerate((path, file) for path, each in self.files.items() for file in each)
        }
        encoded = keys.dictionary_encode()
        distinct = encoded.dictionary
        found = np.full(len(distinct), NEW_KEY, np.int64)
        unsure: list[int] = []
        counts = self.table.timeline.is_completed_or_archived
        for at, entry in self.gateway.get(distinct.to_pylist()):
            group = entry[PARTITION].decode(), entry[GROUP].decode()
            if counts(entry[COMMIT].decode()) and group in number_of:
                found[at] = number_of[group]
            else:
                unsure.append(at)
        places = place_of(found[encoded.indices.to_numpy()], self.files)
        return self._checked(keys, places, np.isin(encoded.indices.to_numpy(), unsure)) if unsure else places

    def _checked(self, keys: pa.Array, places: Places, unsure: np.ndarray) -> Places:
        footers = GlobalFooterIndex(self.table, self.files, self.rule, self.combine, self.update_partition_path)
        rows = np.flatnonzero(unsure)
        answer = footers.find(keys.take(pa.array(rows)))
        tags = places.tags.copy()
        tags[rows] = answer.tags
        return Places(pc.replace_with_mask(places.partitions, pa.array(unsure), answer.partitions), tags)


def record_keys(table: HudiTable, options: Options, instant_time: str, stats: Sequence[WriteStat]) -> None:
    """Tells HBase where the new keys of a write are: after its files are written, before it commits."""
    gateway = Gateway.of(options)
    with_new = [stat for stat in stats if stat.num_inserts and not stat.is_log]
    ThreadRunner().map(partial(_record, table, gateway, instant_time), with_new)


def _record(table: HudiTable, gateway: Gateway, instant_time: str, stat: WriteStat) -> None:
    for batch in read_base(table.storage, stat.path, columns=[RECORD_KEY, COMMIT_TIME]):
        keys = batch.column(0).filter(pc.equal(batch.column(1), instant_time)).to_pylist()
        if stat.num_update_writes:
            # A key that is updated has an entry, which must outlive this write should it fail.
            known = {
                at
                for at, entry in gateway.get(keys)
                if entry[GROUP].decode() == stat.file_id
                and table.timeline.is_completed_or_archived(entry[COMMIT].decode())
            }
            keys = [key for at, key in enumerate(keys) if at not in known]
        gateway.put(keys, instant_time, stat.file_id, stat.partition_path)
