"""JdbcSource on a real PostgreSQL: types, a column that grows, limits, a server that is killed in a round."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest
from postgresql_server import NoPostgresql, Server, postgresql

import skep
from skep_format.errors import InputError, OptionError, StorageError
from skep_stream.sources.postgresql import UrlParameterWarning, arguments_of

pytest.importorskip("psycopg")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        with postgresql() as made:
            yield made
    except NoPostgresql as missing:
        pytest.skip(str(missing))


@pytest.fixture
def job(server: Server, tmp_path: Path) -> Job:
    return Job(server, tmp_path, f"orders_{uuid.uuid4().hex[:8]}")


class Job:
    """A table of the database and one of Hudi."""

    def __init__(self, server: Server, work: Path, name: str) -> None:
        self.server, self.name, self.table = server, name, str(work / "table")

    def made(self, columns: str, *rows: str) -> None:
        values = [f"INSERT INTO {self.name} VALUES ({row})" for row in rows]
        self.server.run(f"CREATE TABLE {self.name} ({columns})", *values)

    def put(self, *rows: str) -> None:
        self.server.run(*(f"INSERT INTO {self.name} VALUES ({row})" for row in rows))

    def streamer(self, column: str = "ts", table: str = "", **flags: Any) -> skep.Streamer:
        conf = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.streamer.jdbc.url": self.server.url,
            "hoodie.streamer.jdbc.user": "shop",
            "hoodie.streamer.jdbc.table.name": table or self.name,
            "hoodie.streamer.jdbc.incr.pull": str(bool(column)).lower(),
            "hoodie.streamer.jdbc.table.incr.column.name": column,
            **flags.pop("conf", {}),
        }
        named = {"target_base_path": self.table, "target_table": "t", "table_type": "COPY_ON_WRITE", **flags}
        return skep.Streamer(hoodie_conf=conf, source_class="JdbcSource", **named)

    def rows(self) -> pa.Table:
        rows = skep.load(self.table).to_arrow()
        kept = rows.drop_columns([name for name in rows.schema.names if name.startswith("_hoodie_")])
        return kept.sort_by("id")


TYPES = {
    "id": ("text", "'a'", pa.string(), "a"),
    "flag": ("boolean", "true", pa.bool_(), True),
    "small": ("smallint", "-7", pa.int32(), -7),
    "whole": ("integer", "2147483647", pa.int32(), 2147483647),
    "ts": ("bigint", "1", pa.int64(), 1),
    "real": ("real", "1.5", pa.float32(), 1.5),
    "double": ("double precision", "2.25", pa.float64(), 2.25),
    "price": ("numeric(12,2)", "12.3", pa.decimal128(12, 2), Decimal("12.30")),
    "any_number": ("numeric", "0.5", pa.decimal128(38, 18), Decimal("0.5")),
    "at": ("timestamptz", "'2024-03-10 12:00+05:30'", pa.timestamp("us", "UTC"), datetime(2024, 3, 10, 6, 30)),
    "local": ("timestamp", "'2024-03-10 12:00:00.000001'", pa.timestamp("us"), datetime(2024, 3, 10, 12, 0, 0, 1)),
    "day": ("date", "'1969-12-31'", pa.date32(), date(1969, 12, 31)),
    "clock": ("time", "'23:59:59.5'", pa.time64("us"), time(23, 59, 59, 500_000)),
    "raw": ("bytea", r"'\x00ff'", pa.binary(), b"\x00\xff"),
    "padded": ("char(3)", "'x'", pa.string(), "x  "),
    "json": ("jsonb", """'{"a": [1]}'""", pa.string(), '{"a": [1]}'),
    "unique_id": ("uuid", f"'{uuid.UUID(int=5)}'", pa.string(), str(uuid.UUID(int=5))),
    "during": ("interval", "'1 day'", pa.string(), "1 day"),
    "host": ("inet", "'10.0.0.1'", pa.string(), "10.0.0.1"),
    "numbers": ("integer[]", "'{1,2}'", pa.list_(pa.field("element", pa.int32())), [1, 2]),
    "words": ("text[]", "'{x,y}'", pa.list_(pa.field("element", pa.string())), ["x", "y"]),
}


def test_types_are_those_of_the_columns_whatever_their_values(job: Job) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, *_) in TYPES.items())
    nulls = ", ".join({"id": "'b'", "ts": "0"}.get(name, "NULL") for name in TYPES)
    job.made(columns, nulls)
    job.streamer().run_once()
    empty = job.rows()
    job.put(", ".join(text for _, text, *_ in TYPES.values()))
    job.streamer().run_once()
    found = job.rows()
    expected = {name: kind for name, (_, _, kind, _) in TYPES.items()}
    assert {field.name: field.type for field in found.schema} == expected
    assert empty.schema.equals(found.schema)
    row = {name: value for name, (*_, value) in TYPES.items()}
    row["at"] = datetime(2024, 3, 10, 6, 30, tzinfo=timezone.utc)
    assert found.to_pylist() == [row, {**dict.fromkeys(TYPES), "id": "b", "ts": 0}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", ["1", "2", "2", "10"]),
        ("numeric(6,2)", ["1", "2.50", "2.5", "10"]),
        ("date", ["'2024-01-01'", "'2024-01-02'", "'2024-01-02'", "'2024-01-10'"]),
        (
            "timestamptz",
            ["'2024-03-10 01:59-05'", "'2024-03-10 03:00-04'", "'2024-03-10 07:00Z'", "'2024-03-10 08:00Z'"],
        ),
        (
            "timestamp",
            ["'2024-03-10 01:59:00.000001'", "'2024-03-10 02:30'", "'2024-03-10 02:30'", "'2024-03-10 03:00'"],
        ),
    ],
)
def test_rounds_by_a_column_that_grows(job: Job, kind: str, values: list[str]) -> None:
    """All rows of one value are in one round; each process goes on from the commit of the one before."""
    job.made(
        f"id text, ts {kind}", "'null', NULL", *(f"'{key}', {value}" for key, value in zip("abcd", values, strict=True))
    )
    done = [job.streamer(source_limit=2).run_once().rows for _ in range(3)]
    assert done == [3, 1, 0]
    assert job.rows()["id"].to_pylist() == list("abcd")


def test_the_whole_table_and_the_fall_back_to_it(job: Job) -> None:
    job.made("id text, n bigint", "'a', 1", "'b', NULL")
    assert [job.streamer("").run_once().rows for _ in range(2)] == [2, 2]
    conf = {"hoodie.streamer.jdbc.incr.fallback.to.full.fetch": "true"}
    with pytest.raises(StorageError, match="invalid input syntax"):
        job.streamer("n", checkpoint="x").run_once()
    assert job.streamer("n", conf=conf, checkpoint="x").run_once().checkpoint == "1"


def test_names_and_queries_as_postgresql_takes_them(job: Job) -> None:
    job.made("id text, ts bigint", "'a%', 1", "'b', 2")
    query = f"(SELECT * FROM {job.name} WHERE id LIKE '%\\%') AS found"
    assert job.streamer("TS", query).run_once().checkpoint == "1"
    assert job.rows()["id"].to_pylist() == ["a%"]


def test_values_that_no_column_holds_are_an_error(job: Job) -> None:
    job.made("id text, ts bigint, price numeric", "'a', 1, 'NaN'")
    with pytest.raises(InputError, match="column price can't be made one of Arrow"):
        job.streamer().run_once()


def test_a_server_that_is_killed_in_a_round_and_started_again(job: Job) -> None:
    job.made("id text, ts bigint", "'a', 1", "'b', 2", "'c', 3")
    job.streamer(source_limit=1).run_once()
    slow = job.streamer(table=f"(SELECT o.* FROM {job.name} AS o, pg_sleep(60)) AS slow")
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(slow.run_once)
        until_it_runs(job.server)
        job.server.kill()
        try:
            with pytest.raises(StorageError, match=r"jdbc:postgresql://127\.0\.0\.1"):
                done.result(60)
            with pytest.raises(StorageError, match="refused"):
                job.streamer().run_once()
        finally:
            job.server.start()
    assert job.streamer().run_once().rows == 2
    assert job.rows()["id"].to_pylist() == ["a", "b", "c"]


def until_it_runs(server: Server) -> None:
    end = monotonic() + 30
    with server.connected() as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        while not connection.execute(query).fetchone()[0]:
            assert monotonic() < end
            sleep(0.05)


def test_urls() -> None:
    url = "jdbc:postgresql://db:5433/my%20shop?ssl=true&user=u&currentSchema=a"
    assert arguments_of(url, "", "p") == {
        "host": "db",
        "port": 5433,
        "dbname": "my shop",
        "sslmode": "verify-full",
        "user": "u",
        "options": "-csearch_path=a",
        "password": "p",
    }
    with pytest.warns(UrlParameterWarning, match="prepareThreshold in hoodie"):
        assert arguments_of("jdbc:postgresql:shop?prepareThreshold=3", "v", "") == {"dbname": "shop", "user": "v"}
    with pytest.raises(OptionError, match=r"hoodie\.streamer\.jdbc\.url: Port"):
        arguments_of("jdbc:postgresql://db:x/shop", "u", "")
