"""The HBase table of the HBASE index, behind HBase's Thrift gateway: its entries, in batches and at the rates allowed.

HBase's own protocol, which finds region servers by ZooKeeper, is spoken by the gateway: no client of it on PyPI sends
rows in batches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from skep_format.clock import SYSTEM_CLOCK, Clock
from skep_format.errors import OptionError, StorageError, needs
from skep_format.options import Option, Options, of_option
from skep_table.write.planning.options import (
    HBASE_AUTO_RATE,
    HBASE_GATEWAY,
    HBASE_GET_BATCH,
    HBASE_PUT_BATCH,
    HBASE_SERVER_RATE,
    HBASE_SHARE,
    HBASE_TABLE,
)

FAMILY: Final = b"_s"
COMMIT, GROUP, PARTITION = b"_s:commit_ts", b"_s:file_name", b"_s:partition_path"
COLUMNS: Final = (COMMIT, GROUP, PARTITION)
_TIMEOUT_MS: Final = 30_000
_SCAN_TIMEOUT_MS: Final = 3_600_000
"""Of a scan whose filter may pass no row of a large table."""
_PORT: Final = 9090
_WHO: Final = "the HBASE index needs"
_GETS_A_PUT: Final = 10
"""Hudi takes a batch of look-ups for those of a tenth of a second."""


class Entry(NamedTuple):
    """What a row of the table states of a key: the commit that wrote it, and into which file group."""

    commit: str
    group: str
    partition: str

    @classmethod
    def of(cls, cells: Mapping[bytes, bytes]) -> Entry | None:
        """That of a row's cells; None where one is missing or no text."""
        try:
            return cls(*(cells[column].decode() for column in COLUMNS))
        except (KeyError, UnicodeDecodeError):
            return None

    def cells(self) -> dict[bytes, bytes]:
        """As a row of the table."""
        return {column: text.encode() for column, text in zip(COLUMNS, self, strict=True)}


class Rate:
    """So many rows a second, by the rule of Hudi's limiter: those of a second at once, then none until the next one."""

    def __init__(self, rows: int, clock: Clock) -> None:
        self._rows, self._clock = rows, clock
        self._left, self._end = 0, clock.monotonic()
        self._lock = threading.Lock()

    def take(self, rows: int) -> None:
        """Returns once so many more may be sent. Threads share what there is."""
        with self._lock:
            while rows > 0:
                now = self._clock.monotonic()
                if now >= self._end:
                    self._left, self._end = self._rows, now + 1
                elif not self._left:
                    self._clock.sleep(self._end - now)
                taken = min(rows, self._left)
                rows, self._left = rows - taken, self._left - taken


@dataclass(frozen=True, slots=True)
class Gateway:
    """One HBase table behind a Thrift gateway.

    `get_rate` and `put_rate` are rows a second of one task. With `share` the puts of this process have instead that
    part of what the region servers of the table may take, `server_rate` puts a second each.
    """

    host: str
    port: int
    table: str
    get_batch: int = of_option(HBASE_GET_BATCH)
    put_batch: int = of_option(HBASE_PUT_BATCH)
    get_rate: int | None = None
    put_rate: int | None = None
    share: float | None = None
    server_rate: int = of_option(HBASE_SERVER_RATE)
    clock: Clock = SYSTEM_CLOCK

    @classmethod
    def of(cls, options: Options) -> Gateway:
        """The gateway and the table that are named. Batches whose size is given are rates, too, as in Hudi."""
        hint = "host:port of HBase's Thrift gateway (hbase thrift start): ZooKeeper does not know it"
        host, port = _address(options.needed(HBASE_GATEWAY, _WHO, hint))
        table = options.needed(HBASE_TABLE, _WHO, "the name of the HBase table of keys")

        def rate(batch: Option[int], times: int) -> int | None:
            return options.value(batch) * times if options.is_set(batch) else None

        return options.read(
            cls,
            host=host,
            port=port,
            table=table,
            get_rate=rate(HBASE_GET_BATCH, _GETS_A_PUT),
            put_rate=rate(HBASE_PUT_BATCH, 1),
            share=options.value(HBASE_SHARE) if options.value(HBASE_AUTO_RATE) else None,
        )

    def check(self) -> None:
        """StorageError when the gateway does not answer, OptionError when there is no such table with the family."""
        with self._connected() as connection:
            has_table = self.table.encode() in connection.tables()
            if not has_table or FAMILY not in connection.table(self.table).families():
                missing = f"column family _s in table {self.table}" if has_table else f"table {self.table}"
                raise OptionError(
                    f"HBase at {self.host}:{self.port} has no {missing}",
                    hint=f"create '{self.table}', '_s'",
                    option=HBASE_TABLE.key,
                    found=self.table,
                )

    def get(self, keys: Sequence[str]) -> Iterator[tuple[int, Entry | None]]:
        """(position, entry) of the keys that have a row; None for a row that is not one of an index."""
        rate = Rate(self.get_rate, self.clock) if self.get_rate else None
        with self._connected() as connection:
            table = connection.table(self.table)
            for start in range(0, len(keys), self.get_batch):
                # in the order of the keys, each key once: positions are found by the key itself
                part = keys[start : start + self.get_batch]
                at = {key.encode(): start + place for place, key in enumerate(part)}
                if rate is not None:
                    rate.take(len(part))
                for key, cells in table.rows(list(at), columns=list(COLUMNS)):
                    yield at[key], Entry.of(cells)

    def put(self, keys: Sequence[str], entry: Entry) -> None:
        """Puts one entry for each key, in batches; an existing one is replaced."""
        cells = entry.cells()
        with self._connected() as connection:
            for part, table in self._mutated(connection, keys):
                with table.batch() as batch:
                    for key in part:
                        batch.put(key.encode(), cells)

    def of_commits(self, commits: Sequence[str], size: int) -> Iterator[tuple[list[str], int]]:
        """The keys whose entries are of some commits, so many at once, with a time: none of these entries is younger.

        Region servers look at each row of the table.
        """
        wanted = " OR ".join(
            f"SingleColumnValueFilter('_s','commit_ts',=,'binary:{commit}',true,true)" for commit in commits
        )
        with self._connected(_SCAN_TIMEOUT_MS) as connection:
            keys, youngest = list[str](), 0
            scan = connection.table(self.table).scan(filter=wanted, include_timestamp=True, batch_size=self.get_batch)
            for key, cells in scan:
                keys.append(key.decode())
                youngest = max(youngest, *(time for _, time in cells.values()))
                if len(keys) == size:
                    yield keys, youngest
                    keys, youngest = [], 0
            if keys:
                yield keys, youngest

    def replace(self, entries: Mapping[str, Entry | None], time: int) -> None:
        """Puts or deletes (None) entries at a time of HBase: those that others put since stay as they are."""
        with self._connected() as connection:
            for part, table in self._mutated(connection, list(entries)):
                with table.batch(timestamp=time) as batch:
                    for key in part:
                        entry = entries[key]
                        if entry is None:
                            batch.delete(key.encode(), list(COLUMNS))
                        else:
                            batch.put(key.encode(), entry.cells())

    def _mutated(self, connection: Any, keys: Sequence[str]) -> Iterator[tuple[Sequence[str], Any]]:
        """The keys of each call that changes rows, at the rate of puts; and the table."""
        table, rate = connection.table(self.table), self._put_rate(connection)
        for start in range(0, len(keys), self.put_batch):
            part = keys[start : start + self.put_batch]
            if rate is not None:
                rate.take(len(part))
            yield part, table

    def _put_rate(self, connection: Any) -> Rate | None:
        if self.share is not None:
            servers = {(each["server_name"], each["port"]) for each in connection.table(self.table).regions()}
            rows = max(1, int(self.share * len(servers) * self.server_rate))
            return _shared_rate(self, rows)
        return Rate(self.put_rate, self.clock) if self.put_rate else None

    @contextmanager
    def _connected(self, timeout_ms: int = _TIMEOUT_MS) -> Iterator[Any]:
        with needs("hbase", "happybase is not installed", package="happybase"):
            import happybase
            from thriftpy2.thrift import TException
        try:
            with closing(happybase.Connection(self.host, self.port, timeout=timeout_ms)) as connection:
                yield connection
        except (TException, OSError) as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(
                f"HBase's Thrift gateway at {self.host}:{self.port}, table {self.table}:"
                f" {getattr(error, 'message', None) or error}",
                path=f"{self.host}:{self.port}",
                call="hbase",
            ) from error


@cache
def _shared_rate(gateway: Gateway, rows: int) -> Rate:
    """That of all tasks of this process."""
    return Rate(rows, gateway.clock)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.partition(":")
    if not host or not (port or str(_PORT)).isdecimal():
        raise OptionError(
            f"option {HBASE_GATEWAY.key}: {text!r} is not host:port",
            option=HBASE_GATEWAY.key,
            found=text,
            expected="host:port",
        )
    return host, int(port) if port else _PORT
