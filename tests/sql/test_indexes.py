"""CREATE, SHOW, REFRESH and DROP INDEX."""

from __future__ import annotations

import pytest

from skep.lake import Lake
from skep_format.errors import EntryExistsError, InputError, UnsupportedError
from skep_sql.parsing.parse import parse
from skep_sql.parsing.statements import CreateIndex, DropIndex, Name, RefreshIndex, Show, Statement


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("create index i on t (a)", CreateIndex("i", Name(("t",), 1, 19), None, ("a",))),
        (
            "create index if not exists `i` on table d.t using Column_Stats (a, b.c) options (expr = 'lower', 'k' = 1)",
            CreateIndex("i", Name(("d", "t"), 1, 41), "column_stats", ("a", "b.c"), {"expr": "lower", "k": "1"}, True),
        ),
        ("drop index i on t", DropIndex("i", Name(("t",), 1, 17))),
        ("drop index if exists i on table t", DropIndex("i", Name(("t",), 1, 33), True)),
        ("refresh index i on t", RefreshIndex("i", Name(("t",), 1, 20))),
        ("show indexes from t", Show("indexes", Name(("t",), 1, 19))),
        ("show indexes in t", Show("indexes", Name(("t",), 1, 17))),
        ("show indexes on table t", Show("indexes", Name(("t",), 1, 23))),
    ],
)
def test_statements(text: str, expected: Statement) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["create index on t (a)", "create index i t (a)", "create index i on t", "drop index"])
def test_what_is_no_statement(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


@pytest.fixture
def indexed(lake: Lake) -> Lake:
    """With table t of version 9, which has no index."""
    lake.sql(
        "create table t (id string, name string, price double) using hudi"
        " tblproperties (primaryKey = 'id', hoodie.write.table.version = '9')"
    )
    lake.sql("insert into t values ('1', 'a', 1.5), ('2', 'b', 2.5)")
    return lake


def indexes(lake: Lake) -> list[tuple[str, str, str]]:
    shown = lake.sql("show indexes from t").to_arrow()
    assert shown.schema.names == ["index_name", "index_type", "col_name"]
    return [tuple(row.values()) for row in shown.to_pylist()]


@pytest.mark.metastore
def test_a_secondary_index(indexed: Lake) -> None:
    assert indexes(indexed) == []
    indexed.sql("create index idx_name on t (NAME)")
    assert indexes(indexed) == [
        ("record_index", "record_index", ""),
        ("secondary_index_idx_name", "secondary_index", "name"),
    ]
    indexed.sql("insert into t values ('3', 'b', 3.5)")
    assert indexed.sql("select id from t where name = 'b' order by id").to_arrow()["id"].to_pylist() == ["2", "3"]
    found = indexed.table("t").read(where="name = 'b'").explain()
    assert "by the secondary index idx_name" in str(found)
    indexed.sql("refresh index idx_name on t")
    with pytest.raises(EntryExistsError, match="already has an index idx_name"):
        indexed.sql("create index idx_name on t (name)")
    indexed.sql("create index if not exists idx_name on t (name)")
    indexed.sql("drop index idx_name on t")
    assert indexes(indexed) == [("record_index", "record_index", "")]


@pytest.mark.metastore
def test_an_index_of_each_other_kind(indexed: Lake) -> None:
    indexed.sql("create index record_index on t (id)")
    indexed.sql("create index column_stats on t using column_stats (price, name)")
    indexed.sql("create index bloom_filters on t using bloom_filters (id)")
    kinds = ["bloom_filters", "column_stats", "record_index"]
    assert indexes(indexed) == [(kind, kind, "") for kind in kinds]
    for kind in kinds:
        indexed.sql(f"drop index {kind} on t")
    assert indexes(indexed) == []


@pytest.mark.metastore
def test_indexes_over_expressions(indexed: Lake) -> None:
    indexed.sql("create index of_name on t using column_stats (NAME) options (expr = 'Upper')")
    indexed.sql("create index start on t (name) options (expr = 'substring', pos = '1', len = '2')")
    indexed.sql("create index found on t using bloom_filters (name) options (expr = 'lower', numentries = '100')")
    assert indexes(indexed) == [
        ("expr_index_found", "bloom_filters", "name"),
        ("expr_index_of_name", "column_stats", "name"),
        ("expr_index_start", "column_stats", "name"),
    ]
    indexed.sql("insert into t values ('3', 'c', 3.5)")
    assert not indexed.table("t").validate_metadata().differences
    found = indexed.sql("select id from t where upper(name) = 'C'").to_arrow()
    assert found.to_pylist() == [{"id": "3"}]
    indexed.sql("drop index of_name on t")
    assert [name for name, _, _ in indexes(indexed)] == ["expr_index_found", "expr_index_start"]


@pytest.mark.metastore
@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("create index i on t using nope (name)", InputError, "USING nope: no kind of index"),
        ("create index i on t (nope)", InputError, "has no column nope"),
        ("create index i on t (price)", UnsupportedError, "column price is a double"),
        ("create index i on t (name, price)", InputError, "a secondary index is of one column"),
        ("create index i on t using column_stats (name) options (expr = 'concat')", UnsupportedError, "over concat"),
        (
            "create index i on t using column_stats (price) options (expr = 'year')",
            UnsupportedError,
            "year of a double",
        ),
        (
            "create index i on t using secondary_index (name) options (expr = 'lower')",
            InputError,
            "not secondary_index",
        ),
        (
            "create index i on t using column_stats (name) options (expr = 'lower', len = '1')",
            InputError,
            "no option len",
        ),
        ("create index i on t using bloom_filters (name) options (expr = 'lower', fpp = '2')", InputError, "fpp=2"),
        ("create index i on t using column_stats (nope) options (expr = 'lower')", InputError, "has no column nope"),
        ("create index i on t (name) options (colour = 'red')", InputError, "unknown option colour"),
        ("create index i on t using column_stats (name)", InputError, "has one index of the kind column_stats"),
        ("drop index i on t", InputError, "has no index i"),
        ("refresh index i on t", InputError, "has no index i"),
    ],
)
def test_what_is_refused(indexed: Lake, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        indexed.sql(text)
    assert indexes(indexed) == []
    assert indexed.table("t").hudi.config.metadata_partitions == ()


@pytest.mark.metastore
def test_an_index_that_is_not_there_may_be_dropped(indexed: Lake) -> None:
    indexed.sql("drop index if exists i on t")
