"""Views that the metastore keeps: queries under names, for every session, for Spark and for Hive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sql_lakes import NoSession

from skep.lake import Lake
from skep_catalog.entities import Column, StorageDescriptor
from skep_catalog.entities import TableEntry as Entry
from skep_format.errors import EntryExistsError, InputError, NoSuchTableError, NotATableError, UnsupportedError

pytestmark = pytest.mark.metastore


@pytest.fixture
def made(lake: Lake) -> Lake:
    """Tables t and u."""
    lake.sql("create table t (id int, name string, price double) tblproperties (primaryKey = 'id')")
    lake.sql("insert into t values (1, 'a', 1.5), (2, 'b', null), (3, 'a', 4.0)")
    lake.sql("create table u (id int, place string) tblproperties (primaryKey = 'id')")
    lake.sql("insert into u values (1, 'hall'), (3, 'yard')")
    return lake


def other(lake: Lake, database: str = "default") -> Lake:
    """Another session of the same metastore."""
    return Lake(lake.metastore, lake.warehouse, NoSession(), database)


def ask(lake: Lake, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(query).to_arrow().to_pylist()]


def test_every_session_reads_a_view(made: Lake) -> None:
    made.sql("create view v as select t.id, name, place from t join u on t.id = u.id where price is not null")
    expected = [(1, "a", "hall"), (3, "a", "yard")]
    assert ask(made, "select * from v order by id") == expected
    assert ask(other(made), f"select x.* from {made.database}.v x order by id") == expected
    assert ask(made, "with w as (select id from v) select max(w.id) from w join v on w.id = v.id") == [(3,)]
    assert ask(made, "with v as (select 7 as n) select * from v") == [(7,)]


def test_columns_have_the_names_of_the_view(made: Lake) -> None:
    made.sql("create view v (name comment 'whose', n) comment 'by name' as select name, count(*) from t group by name")
    assert ask(made, "select name, n from v order by name") == [("a", 2), ("b", 1)]
    assert ask(made, "describe v") == [("name", "string", "whose"), ("n", "bigint", None)]
    entry = made.metastore.table(made.database, "v")
    assert entry.table_type == "VIRTUAL_VIEW"
    assert entry.parameters["comment"] == "by name"
    assert entry.view_written == "select name, count(*) from t group by name"


def test_columns_that_a_table_gets_later_are_not_the_view_s(made: Lake) -> None:
    made.sql("create view v as select * from u")
    names = made.sql("select * from v").columns
    made.sql("alter table u add columns (more int)")
    made.sql("insert into u values (4, 'roof', 5)")
    assert made.sql("select * from v").columns == names
    assert ask(made, "select id, place from v where id = 4") == [(4, "roof")]


def test_views_read_views(made: Lake) -> None:
    made.sql("create view v as select id, price * 2 as twice from t")
    made.sql("create view w as select id from v where twice > 3")
    assert ask(other(made), f"select id from {made.database}.w") == [(3,)]
    made.sql("create or replace view v as select id, price as twice from t")
    assert ask(made, "select id from w") == [(3,)]
    made.sql("create or replace view v as select id, 0.5D as twice from t")
    assert ask(made, "select id from w") == []


def test_statements_read_views(made: Lake) -> None:
    made.sql("create view v as select id + 10 as id, name, 1.0D as price from t where id > 2")
    made.sql("insert into t select * from v")
    made.sql("merge into t using v on t.id = v.id when matched then update set name = 'merged'")
    made.sql("delete from t where id in (select id - 10 from v where id < 20)")
    assert ask(made, "select id, name from t order by id") == [(1, "a"), (2, "b"), (13, "merged")]


def test_views_are_listed_and_dropped(made: Lake) -> None:
    made.sql("create view v as select id from t")
    made.sql("create temporary view w as select 1 as one")
    database = made.database
    assert ask(made, "show views") == [(database, "v", False), ("", "w", True)]
    assert (database, "v", False) in ask(made, "show tables")
    assert made.tables(database) == [f"{database}.t", f"{database}.u"]
    made.sql("drop view v")
    made.sql("drop view if exists v")
    with pytest.raises(NoSuchTableError, match="there is no view v"):
        made.sql("drop view v")
    assert ask(made, "show views like 'v*'") == []


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("create view v as select 1 as one", EntryExistsError, "view v already exists"),
        ("create view t as select 1 as one", EntryExistsError, "t is a table"),
        ("create or replace view t as select 1 as one", EntryExistsError, "t is a table"),
        ("create view w as select * from nothing", NoSuchTableError, "no table nothing"),
        ("create view w (a) as select id, name from t", InputError, "names 1 columns, and its query has 2"),
        ("create view w as select t.id, u.id from t, u", InputError, "two columns id"),
        ("create view w as select * from passing", InputError, "a temporary view"),
        ("create view w as select * from hudi_query('t', 'snapshot')", UnsupportedError, "known to skep alone"),
        ("drop view t", InputError, "t is a table"),
        ("drop table v", NotATableError, "is a view"),
        ("insert into v values (1)", NotATableError, "is a view"),
        ("update v set id = 1", NotATableError, "is a view"),
        ("select * from v timestamp as of '2026-01-01'", InputError, "no earlier versions"),
        ("alter view v as select 2 as two", UnsupportedError, "ALTER VIEW"),
    ],
)
def test_what_is_no_view_is_refused(made: Lake, statement: str, kind: type[Exception], words: str) -> None:
    made.sql("create temporary view passing as select 1 as one")
    made.sql("create view v as select id from t")
    with pytest.raises(kind, match=words):
        made.sql(statement).to_arrow()
    assert ask(made, "select count(*) from v") == [(3,)]


def test_nothing_is_cached(made: Lake) -> None:
    made.sql("uncache table t")
    made.sql("uncache table if exists nothing")
    made.sql("clear cache")
    with pytest.raises(NoSuchTableError, match="no table nothing"):
        made.sql("uncache table nothing")
    for statement in ("cache table t", "cache lazy table x as select 1", "analyze table t compute statistics"):
        with pytest.raises(UnsupportedError, match=r"(CACHE|ANALYZE) TABLE is not supported"):
            made.sql(statement)


def test_a_view_that_is_there_stays(made: Lake) -> None:
    made.sql("create view v as select id from t")
    made.sql("create view if not exists v as select name from t")
    assert made.sql("select * from v").columns == ["id"]


def test_a_view_as_spark_writes_it(made: Lake) -> None:
    """Names without a database are of the one in which it was made, and columns are taken by their names."""
    parameters = {
        "view.catalogAndNamespace.numParts": "2",
        "view.catalogAndNamespace.part.0": "spark_catalog",
        "view.catalogAndNamespace.part.1": made.database,
        "view.query.out.numCols": "2",
        "view.query.out.col.0": "id",
        "view.query.out.col.1": "name",
    }
    storage = StorageDescriptor((Column("k", "int"), Column("n", "string")))
    entry = Entry("default", f"v_{made.database}", storage, parameters=parameters, table_type="VIRTUAL_VIEW")
    query = "SELECT name, id, price FROM t"
    made.metastore.create_table(replace(entry, view_query=query, view_written=query))
    try:
        assert ask(other(made), f"select k, n from {entry.name} where k = 2") == [(2, "b")]
    finally:
        made.metastore.drop_table("default", entry.name)
