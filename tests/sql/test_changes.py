"""UPDATE, DELETE and MERGE against a plain Python model, both table types, without Spark and without a metastore."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.handles.table import Table
from skep_format.errors import CommitConflictError, InputError, UnsupportedError
from skep_sql.execution import merge
from tests.tables_at import create_at

COLUMNS = ["id", "name", "price", "ts", "day"]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("ts", pa.int64()),
        ("day", pa.string()),
    ]
)
Model = dict[int, dict[str, Any]]


def make(path: Path, kind: str, **more: Any) -> Table:
    spec: dict[str, Any] = {"key": "id", "ordering": "ts", "partition_by": "day", "type": kind, **more}
    return create_at(path, SCHEMA, {}, **spec)


def rows_of(table: Table) -> Model:
    return {row["id"]: row for row in table.read(columns=COLUMNS).to_arrow().to_pylist()}


def frame(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def row(
    id: int, name: str | None = "a", price: float | None = 1.0, ts: int = 10, day: str | None = None
) -> dict[str, Any]:
    return {"id": id, "name": name, "price": price, "ts": ts, "day": day or f"d{id % 3}"}


names = st.one_of(st.none(), st.sampled_from(["a", "b", "it's"]))
prices = st.one_of(st.none(), st.integers(-4, 4).map(float))
given_rows = st.lists(
    st.builds(row, st.integers(0, 8), names, prices, st.integers(8, 12)), max_size=6, unique_by=lambda each: each["id"]
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), given_rows),
        st.tuples(st.just("update"), st.integers(0, 8), st.integers(0, 2)),
        st.tuples(st.just("delete"), st.integers(0, 8)),
        st.tuples(st.just("merge"), given_rows, st.integers(-2, 3)),
        st.tuples(st.just("sync"), given_rows),
    ),
    min_size=1,
    max_size=5,
)


def upserted(model: Model, rows: list[dict[str, Any]]) -> None:
    for each in rows:
        stored = model.get(each["id"])
        if stored is None or each["ts"] >= stored["ts"]:
            model[each["id"]] = each


def step(table: Table, model: Model, what: tuple[Any, ...]) -> None:
    """One operation on the table, and the same on the model."""
    match what:
        case ("upsert", rows):
            if rows:
                table.upsert(frame(rows))
            upserted(model, rows)
        case ("update", most, rise):
            table.update(set={"price": "coalesce(price, 0.0) + id", "ts": f"ts + {rise}"}, where=f"id <= {most}")
            for each in model.values():
                if each["id"] <= most:
                    each.update(price=(each["price"] or 0.0) + each["id"], ts=each["ts"] + rise)
        case ("delete", least):
            table.delete(where=f"id >= {least}")
            for id in [id for id in model if id >= least]:
                del model[id]
        case ("merge", rows, limit):
            merge = table.merge(frame(rows), on="id").when_matched_delete(f"source.price < {limit}")
            merge.when_matched_update({"name": "source.name", "ts": "source.ts"}).when_not_matched_insert_all(
                f"source.price >= {limit}"
            ).execute()
            for each in rows:
                stored, price = model.get(each["id"]), each["price"]
                if stored is None:
                    if price is not None and price >= limit:
                        model[each["id"]] = dict(each)
                elif price is not None and price < limit:
                    del model[each["id"]]
                elif each["ts"] >= stored["ts"]:
                    stored.update(name=each["name"], ts=each["ts"])
        case ("sync", rows):
            table.merge(
                frame(rows), on=["id"]
            ).when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete().execute()
            kept = {each["id"] for each in rows}
            for id in [id for id in model if id not in kept]:
                del model[id]
            upserted(model, rows)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=steps)
def test_statements_do_what_the_model_does(
    kind: str, todo: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = make(tmp_path_factory.mktemp("t") / "t", kind)
    model: Model = {}
    highest: dict[int, int] = {}
    for what in (("upsert", [row(1), row(2, None), row(5, "b", None)]), *todo):
        copied = (what[0], *([dict(each) for each in part] if isinstance(part, list) else part for part in what[1:]))
        if kind == "mor":
            not_before_the_deleted(copied, model, highest)
        step(table, model, copied)
        assert rows_of(table) == model, what
        highest |= {id: max(each["ts"], highest.get(id, 0)) for id, each in model.items()}


def not_before_the_deleted(what: tuple[Any, ...], model: Model, highest: dict[int, int]) -> None:
    """A key comes back with the ordering value that it had at least: Hudi's rule keeps the stored base row otherwise,
    see docs/sql.md."""
    for part in what[1:]:
        for each in part if isinstance(part, list) else ():
            if each["id"] not in model:
                each["ts"] = max(each["ts"], highest.get(each["id"], 0))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_an_update_that_would_lose_against_its_own_row_is_refused(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind)
    table.upsert(frame([row(1), row(2)]))
    before = rows_of(table)
    for value in ("5", "ts - 1", "null"):
        with pytest.raises(InputError, match="ordering column ts"):
            table.update(set={"ts": value}, where="id = 1")
    for column in ("id", "day"):
        with pytest.raises(InputError, match=f"column {column}"):
            table.update(set={column: column})
    assert rows_of(table) == before
    assert len(table.history()) == 1


def test_a_deleted_key_comes_back_with_a_lower_ordering_value(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow")
    table.upsert(frame([row(1), row(2)]))
    table.merge(frame([row(1)]), on="id").when_matched_delete().execute()
    assert set(rows_of(table)) == {2}
    table.upsert(frame([row(1, ts=3)]))
    assert rows_of(table)[1]["ts"] == 3


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_without_keys_is_merged_by_any_column(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", kind, key=(), ordering=None)
    table.insert(frame([row(1, "a"), row(2, "b"), row(2, "c")]))
    source = frame([row(7, "b", 20.0), row(3, "n", 3.0)])
    merge = table.merge(source, on="name").when_matched_update({"price": "source.price"})
    result = merge.when_not_matched_insert_all().execute()
    assert (result.inserted, result.updated) == (1, 1)
    found = table.read(columns=["_hoodie_record_key", *COLUMNS]).to_arrow().to_pylist()
    assert sorted((each["name"], each["price"]) for each in found) == [("a", 1.0), ("b", 20.0), ("c", 1.0), ("n", 3.0)]
    assert len({each["_hoodie_record_key"] for each in found} - {None}) == 4


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_new_row_whose_key_is_stored_is_refused(tmp_path: Path, kind: str) -> None:
    """ON compares another column than the key: Hudi 0.15 and 1.2 leave such a row out without a word."""
    table = make(tmp_path / "t", kind)
    table.upsert(frame([row(1, "a"), row(2, "b")]))
    before = table.read().to_arrow()
    for rows, message in (
        ([row(4, "n"), row(1, "z", 9.0, 11)], "key 1, which is stored already"),
        ([row(4, "n"), row(4, "z")], "key 4, which another row of the source has, too"),
    ):
        merge = table.merge(frame(rows), on="name").when_matched_update_all().when_not_matched_insert_all()
        with pytest.raises(InputError, match=message):
            merge.execute()
    assert table.read().to_arrow() == before
    table.merge(frame([row(4, "n"), row(1, "a", 2.0, 11)]), on="name").when_not_matched_insert_all().execute()
    assert {id: each["name"] for id, each in rows_of(table).items()} == {1: "a", 2: "b", 4: "n"}


def test_versions_of_a_row_need_a_key_of_their_own(tmp_path: Path) -> None:
    """As a snapshot of dbt keeps them: by the key `id` the older version would be lost."""
    versions = pa.table({"scd": ["1a"], "id": [1], "valid_to": pa.array([None], pa.int64())})
    source = pa.table({"scd": ["1a", "1b"], "id": [1, 1], "valid_to": [5, None], "closes": [True, False]})
    for key in ("scd", "id"):
        table = create_at(tmp_path / key, versions.schema, {}, key=key)
        table.upsert(versions)
        merge = table.merge(source, on="scd").when_matched_update({"valid_to": "source.valid_to"}, "source.closes")
        merge = merge.when_not_matched_insert({name: f"source.{name}" for name in versions.schema.names})
        if key == "scd":
            merge.execute()
            found = table.read(columns=["scd", "valid_to"]).to_arrow().sort_by("scd").to_pylist()
            assert found == [{"scd": "1a", "valid_to": 5}, {"scd": "1b", "valid_to": None}]
            continue
        with pytest.raises(InputError, match="key 1, which is stored already"):
            merge.execute()
        assert table.read(columns=["scd"]).to_arrow()["scd"].to_pylist() == ["1a"]


def test_a_merge_on_key_and_partition_adds_the_key_to_other_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an upsert does. Stored keys are looked for once more only where INSERT has another partition than ON."""
    again: list[str] = []
    check_new = merge._Plan._check_new

    def counted(self: Any, *new: pa.Array) -> None:
        again.append("again")
        check_new(self, *new)

    monkeypatch.setattr(merge._Plan, "_check_new", counted)
    table = make(tmp_path / "t", "cow")
    table.upsert(frame([row(1, "a", day="x"), row(2, "b", day="x")]))
    on = "target.id = source.id and target.day = source.day"
    table.merge(
        frame([row(1, "new", day="y"), row(2, "b2", ts=11, day="x")]), on=on
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    read = table.read(columns=["id", "name", "day"]).to_arrow().sort_by("name").to_pylist()
    assert [tuple(each.values()) for each in read] == [(1, "a", "x"), (2, "b2", "x"), (1, "new", "y")]
    assert not again
    values = {name: f"source.{name}" for name in COLUMNS if name != "day"} | {"day": "'x'"}
    with pytest.raises(InputError, match="key 1, which is stored already"):
        table.merge(frame([row(1, "upserted", ts=12, day="z")]), on=on).when_not_matched_insert(values).execute()
    assert again


def test_a_merge_keeps_keys_and_partitions(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow")
    table.upsert(frame([row(1), row(2)]))
    moved = frame([row(1, ts=20, day="elsewhere")])
    with pytest.raises(InputError, match="column day of key 1 from d1 to elsewhere"):
        table.merge(moved, on="id").when_matched_update_all().execute()
    assert rows_of(table)[1]["day"] == "d1"


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_merge_moves_rows_under_a_global_index(tmp_path: Path, kind: str) -> None:
    """As an upsert does, and as Hudi's MERGE: also by its ordering value, which a move does not get around."""
    table = create_at(
        tmp_path / "t",
        SCHEMA,
        {"hoodie.index.type": "GLOBAL_SIMPLE"},
        key="id",
        ordering="ts",
        partition_by="day",
        type=kind,
    )
    table.upsert(frame([row(1, ts=10, day="x"), row(2, ts=10, day="x"), row(3, ts=10, day="y")]))
    given = [row(1, "moved", ts=11, day="y"), row(2, "stays", ts=11, day="x"), row(3, "late", ts=9, day="z")]
    source = frame([*given, row(4, "new", day="z")])
    table.merge(source, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    read = table.read(columns=["id", "name", "day", "_hoodie_partition_path"]).to_arrow().sort_by("id").to_pylist()
    assert [tuple(each.values()) for each in read] == [
        (1, "moved", "y", "y"),
        (2, "stays", "x", "x"),
        (3, "a", "y", "y"),
        (4, "new", "z", "z"),
    ]
    table.update(set={"name": "'again'"}, where="id = 1")
    assert rows_of(table)[1]["name"] == "again"
    stays: dict[str, Any] = {"hoodie.simple.index.update.partition.path": "false"}
    with pytest.raises(InputError, match="column day of key 1 from y to elsewhere"):
        table.merge(frame([row(1, ts=20, day="elsewhere")]), on="id", **stays).when_matched_update_all().execute()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_new_row_takes_the_place_of_one_that_another_clause_deletes(tmp_path: Path, kind: str) -> None:
    """ON compares names: key 1 is deleted for want of a source, and inserted under another name."""
    table = make(tmp_path / "t", kind, partition_by=())
    table.upsert(frame([row(1, "a"), row(2, "b"), row(3, "c")]))

    def replaced(rows: list[dict[str, Any]]) -> None:
        merge = table.merge(frame(rows), on="name").when_not_matched_insert_all()
        merge.when_not_matched_by_source_delete().execute()

    replaced([row(1, "z", 9.0, 11), row(2, "b")])
    assert {id: each["name"] for id, each in rows_of(table).items()} == {1: "z", 2: "b"}
    with pytest.raises(InputError, match="ordering column ts of key 1 would go from 11 down to 10"):
        replaced([row(1, "y"), row(2, "b")])
    with pytest.raises(InputError, match="key 2, which is stored already"):
        replaced([row(1, "z"), row(2, "b"), row(2, "n", 1.0, 12)])
    assert {id: each["name"] for id, each in rows_of(table).items()} == {1: "z", 2: "b"}


def test_two_updates_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each adds to what it finds; a writer that loses computes its rows again."""
    options = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.cleaner.policy.failed.writes": "LAZY",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
        "hoodie.write.num.retries.on.conflict.failures": "20",
    }
    path = tmp_path / "t"
    make(path, "cow").upsert(frame([row(1, price=0.0)]))
    failed: list[Exception] = []

    def add() -> None:
        from skep.handles.by_path import open_table

        for _ in range(3):
            try:
                open_table(path, **options).update(set={"price": "price + 1"}, where="id = 1")
            except CommitConflictError as error:
                failed.append(error)

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    from skep.handles.by_path import open_table

    assert rows_of(open_table(path))[1]["price"] == 9 - len(failed)


def test_merge_rules_that_may_keep_stored_values_refuse_updates(tmp_path: Path) -> None:
    partial = "org.apache.hudi.common.model.PartialUpdateAvroPayload"
    table = make(tmp_path / "t", "cow", properties={"hoodie.compaction.payload.class": partial})
    table.upsert(frame([row(1)]))
    with pytest.raises(UnsupportedError, match=r"merge rule \((.*PartialUpdateAvroPayload|IGNORE_DEFAULTS)\)"):
        table.update(set={"name": "null"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"set": {"nam": "'x'"}}, "has no column nam"),
        ({"set": {"name": "'x"}}, "can't be parsed"),
        ({"set": {"price": "name"}}, "price"),
        ({"set": {}}, "no column is set"),
    ],
)
def test_bad_updates_name_what_is_wrong(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    table = make(tmp_path / "t", "cow")
    table.upsert(frame([row(1, "not a number")]))
    with pytest.raises(InputError, match=message):
        table.update(**wrong)
    assert len(table.history()) == 1


def test_named_partitions_are_replaced_also_by_no_rows(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow", hive_style=True)
    table.upsert(frame([row(1), row(2), row(3)]))
    given = frame([row(10)]).drop_columns(["day"])
    table.insert_overwrite(given, partition={"day": "d1"})
    assert {id: each["day"] for id, each in rows_of(table).items()} == {10: "d1", 2: "d2", 3: "d0"}
    table.insert_overwrite(given.slice(0, 0), partition={"day": "d2"})
    assert set(rows_of(table)) == {10, 3}
    with pytest.raises(InputError, match="rows are in partition day=d0"):
        table.insert_overwrite(frame([row(3)]), partition={"day": "d1"})
    with pytest.raises(InputError, match="name is no partition column"):
        table.insert_overwrite(given, partition={"name": "d1"})
