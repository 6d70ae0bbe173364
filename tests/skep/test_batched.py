"""Batched tables: many threads that write a little each, none of which fails by another; and what queries share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting_storage import Calls
from sql_lakes import NoSession

import skep
from skep.handles.table import Table
from skep.lake import Lake
from skep.query.sail_server import SERVER
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_format.errors import InputError
from skep_format.options import Options
from tests.tables_at import create_at

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("note", pa.string())])
ROWS = pa.table({"id": [1, 2, 3], "n": [0, 0, 0], "note": ["a", "b", "c"]}, schema=SCHEMA)
ADD = "update counts set n = n + 1 where id = {}"


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.exception() or future.result() for future in [pool.submit(call) for call in calls]]


def rows(table: Table) -> dict[int, int]:
    found = table.read(columns=["id", "n"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_threads_at_one_table(kind: str, tmp_path: Path) -> None:
    create_at(tmp_path, SCHEMA, {}, key="id", type=kind).upsert(ROWS)
    table = skep.open_table(tmp_path)

    def adding(row: int) -> Callable[[], Any]:
        return lambda: table.batched().update(set={"n": "n + 1"}, where=f"id <= {row}").updated

    def inserting(row: int) -> Callable[[], Any]:
        one = pa.table({"id": [row], "n": [0], "note": ["new"]}, schema=SCHEMA)
        return lambda: table.batched().upsert(one).inserted

    def failing() -> Any:
        return table.batched().update(set={"n": "nothing + 1"})

    found = at_once([*(adding(1 + at % 3) for at in range(9)), *(inserting(at) for at in range(10, 15)), failing])
    assert found[:-1] == [1, 2, 3] * 3 + [1] * 5
    assert isinstance(found[-1], InputError)
    assert rows(table) == {1: 9, 2: 6, 3: 3, **dict.fromkeys(range(10, 15), 0)}


def test_every_method_works_as_without(tmp_path: Path) -> None:
    found = []
    for batched in (False, True):
        folder = tmp_path / str(batched)
        create_at(folder, SCHEMA, {}, key="id").upsert(ROWS)
        table = skep.open_table(folder)
        if batched:
            table = table.batched()
        results = [
            table.upsert({"id": [3, 4], "n": [7, 8], "note": ["x", "y"]}),
            table.insert({"id": [5], "n": [9], "note": ["z"]}),
            table.upsert(ROWS.slice(0, 1), batch_id="b1"),
            table.upsert(ROWS.slice(0, 1), batch_id="b1"),
            table.upsert(ROWS.slice(1, 1), **{"hoodie.parquet.compression.codec": "snappy"}),
            table.update(set={"note": "'long'"}, where="n > 7"),
            table.merge({"id": [1, 9], "n": [1, 1], "note": ["m", "m"]}, on="id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(),
            table.delete({"id": [2]}),
            table.delete(where="n = 8"),
        ]
        counts = [(each.inserted, each.updated, each.deleted, each.repeated, each.own) for each in results]
        found.append((counts, table.read(columns=SCHEMA.names).to_arrow().sort_by("id").to_pylist()))
    assert found[0] == found[1]


@pytest.fixture
def lakes(metastore_server: EmbeddedMetastore, database: str, tmp_path: Path) -> Iterator[Callable[..., Lake]]:
    """Lakes on one metastore, as those of several processes."""
    with contextlib.ExitStack() as stack:

        def make(**options: str) -> Lake:
            client = stack.enter_context(Metastore.connect(metastore_server.uri, timeout=30, attempts=2))
            return Lake(client, str(tmp_path), NoSession(), database, Options(options))

        yield make


@pytest.mark.metastore
class TestLake:
    def test_clients_of_two_servers(self, lakes: Callable[..., Lake]) -> None:
        """Clients of one lake never fail by each other; those of two exclude each other by the lock, and try again."""
        shared = {
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.write.num.retries.on.conflict.failures": "30",
        }
        one, other = lakes(**shared), lakes(**shared)
        one.create_table("counts", SCHEMA, key="id", type="mor").upsert(ROWS)

        def client(lake: Lake, row: int) -> Callable[[], Any]:
            own = lake.for_client()
            return lambda: [own.sql(ADD.format(row)).counts["updated"] for _ in range(2)]

        found = at_once([client((one, other)[at % 2], 1 + at % 3) for at in range(6)])
        assert found == [[1, 1]] * 6
        assert rows(one.table("counts")) == {1: 4, 2: 4, 3: 4}

    def test_an_option_of_the_lake_decides(self, lakes: Callable[..., Lake]) -> None:
        lake = lakes()
        lake.create_table("counts", SCHEMA, key="id")
        assert lake.table("counts")._batches is None
        assert lake.for_client().table("counts")._batches is not None
        assert lakes(**{"skep.write.batched": "true"}).table("counts")._batches is not None
        assert lakes(**{"skep.write.batched": "false"}).for_client().table("counts")._batches is None


@pytest.mark.metastore
class TestShared:
    QUERY = "select sum(n) as n, count(*) as c from counts where id > 0"

    @pytest.fixture
    def lake(self, lakes: Callable[..., Lake]) -> Lake:
        lake = lakes()
        lake.create_table("counts", SCHEMA, key="id", type="mor").upsert(ROWS)
        return lake

    def answer(self, lake: Lake, query: str = QUERY) -> list[dict[str, Any]]:
        result = lake.sql(query)
        assert getattr(result, "engine", "sail") == "sail"
        found: list[dict[str, Any]] = result.to_arrow().to_pylist()
        return found

    def test_queries_read_a_snapshot_once(self, lake: Lake, storage_calls: Calls) -> None:
        for _ in range(2):
            assert self.answer(lake) == [{"n": 0, "c": 3}]
        storage_calls.clear()
        calls = lake.metastore.calls
        assert self.answer(lake) == [{"n": 0, "c": 3}]
        assert self.answer(lake.for_client(), "select note from counts where id = 2") == [{"note": "b"}]
        assert storage_calls.timeline_listings() == 2, storage_calls
        assert not storage_calls.partition_listings()
        assert not [path for path in storage_calls.paths("open", "read", "read_range") if ".hoodie" not in path]
        assert lake.metastore.calls - calls == 2

    def test_each_sees_what_was_committed_before_it(self, lake: Lake) -> None:
        other = lake.for_client()
        for turn in range(1, 6):
            for _ in range(turn % 3):
                assert self.answer(lake)[0]["n"] == turn - 1
            other.sql(ADD.format(1))
            assert self.answer(lake)[0]["n"] == turn

    def test_a_new_table_of_the_name_is_another(self, lake: Lake) -> None:
        for _ in range(3):
            self.answer(lake)
        lake.sql("drop table counts purge")
        lake.create_table("counts", SCHEMA, key="id", type="mor").upsert(ROWS.slice(0, 2))
        for _ in range(3):
            assert self.answer(lake) == [{"n": 0, "c": 2}]

    def test_read_optimized_is_another_view(self, lake: Lake) -> None:
        lake.sql(ADD.format(1))
        for _ in range(3):
            assert self.answer(lake)[0]["n"] == 1
            assert self.answer(lake, "select sum(n) n from counts_ro") == [{"n": 0}]

    def test_larger_tables_are_not_kept(self, lakes: Callable[..., Lake], lake: Lake, storage_calls: Calls) -> None:
        small = lakes(**{"skep.sql.shared.max.bytes": "10"})
        for _ in range(3):
            storage_calls.clear()
            assert self.answer(small) == [{"n": 0, "c": 3}]
            assert [path for path in storage_calls.paths() if path.endswith(".parquet")]
        del lake

    @pytest.mark.parametrize("partitions", [3, 40])
    def test_a_table_of_many_partitions_is_not_listed_as_a_whole(
        self, lake: Lake, storage_calls: Calls, partitions: int
    ) -> None:
        """For a query that names one of them."""
        days = pa.table({"id": list(range(partitions)), "day": [f"d{at}" for at in range(partitions)]})
        lake.create_table("days", days.schema, key="id", partition_by="day").bulk_insert(days)
        listed = []
        for _ in range(3):
            storage_calls.clear()
            assert self.answer(lake, "select id from days where day = 'd1'") == [{"id": 1}]
            listed.append(len(set(storage_calls.partition_listings()) - {""}))
        assert listed == ([1, 3, 0] if partitions == 3 else [1, 0, 0])

    def test_after_the_end_of_the_server_of_sail(self, lake: Lake) -> None:
        for _ in range(3):
            self.answer(lake)
        SERVER.lost()
        for _ in range(3):
            assert self.answer(lake) == [{"n": 0, "c": 3}]
