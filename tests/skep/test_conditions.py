"""A condition finds the same rows whichever way it comes in: those that Spark's WHERE finds."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from skep.lake import Lake
from skep.query.over_rows import Queries
from skep.query.sail import LeftToSpark, SailEngine
from skep.query.spark import SparkHolder
from skep_catalog.client import Metastore
from skep_catalog.entities import Database
from skep_format.errors import InputError, PredicateError
from skep_sql.parsing.parse import parse
from skep_sql.parsing.statements import Query
from skep_table.query.filters.text import parse_predicate
from skep_writer import arrow_frame, collect_arrow

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

DAY = dt.date(2024, 3, 12)
NOON = dt.datetime(2024, 3, 12, 12, tzinfo=dt.timezone.utc)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [None, 0, 1, 7, -7, 2**31 - 1]),
    "n": (pa.int64(), [None, 0, 1, 7, 2**53 + 1, 2**63 - 1]),
    "f": (pa.float64(), [None, math.nan, 0.0, -0.0, 1.5, 0.1, math.inf, -1.0]),
    "g": (pa.float32(), [None, math.nan, 0.1, 1.5, -0.0]),
    "p": (pa.decimal128(10, 2), [None, Decimal("7.00"), Decimal("0.10"), Decimal("-1.50")]),
    "s": (pa.string(), [None, "", "7", " 7", "07", "7.5", "x", "it's", "a\\b", "a%b", "2024-03-12", "ß", "true"]),
    "d": (pa.date32(), [None, DAY, DAY + dt.timedelta(1), dt.date(1, 1, 1)]),
    "t": (pa.timestamp("us", "UTC"), [None, NOON, NOON.replace(hour=0), NOON + dt.timedelta(microseconds=1)]),
    "y": (pa.bool_(), [None, True, False]),
}
CONSTANTS = [
    *("7", "0", "-7", "1.5", "0.1", "7.00", "1e0", "2147483648", "9223372036854775807", "null", "true"),
    *("'7'", "'07'", "' 7'", "'7.5'", "'x'", "''", r"'it\'s'", r"'a\\b'", "'ß'", "double('NaN')", "'NaN'", "'true'"),
    *("'2024-03-12'", "'2024-03-12 05:00:00'", "'20240312'", "'2024-3-12'", "'2024-02-30'", "date'2024-03-12'"),
    *("'2024-03-12T12:00:00Z'", "'2024-03-12 12:00:00.000001'", "timestamp'2024-03-12 12:00:00'"),
]
CASTS = ("int", "bigint", "double", "string", "date", "timestamp", "boolean", "decimal(10,2)")


def conditions() -> st.SearchStrategy[str]:
    column = st.sampled_from(list(VALUES))
    constant = st.sampled_from(CONSTANTS)
    cast = st.tuples(column, st.sampled_from(CASTS)).map(lambda both: f"cast({both[0]} as {both[1]})")
    sides = st.one_of(column, column, cast, st.tuples(column, constant).map(lambda both: f"{both[0]} + {both[1]}"))
    sign = st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>"])
    texts = st.sampled_from(["'%7'", "'a%'", r"'a\\%b'", "'_'", "'.*'", "'^7$'", "'IT%'", "'[0-9]+'", "'^ ?7'"])
    leaves = st.one_of(
        st.tuples(sides, sign, st.one_of(constant, constant, column)).map(" ".join),
        st.tuples(sides, st.sampled_from(["in", "not in"]), st.lists(constant, min_size=1, max_size=3)).map(
            lambda parts: f"{parts[0]} {parts[1]} ({', '.join(parts[2])})"
        ),
        st.tuples(sides, constant, constant).map(lambda parts: f"{parts[0]} between {parts[1]} and {parts[2]}"),
        st.tuples(column, st.sampled_from(["like", "not like", "rlike", "ilike"]), texts).map(" ".join),
        st.tuples(sides, st.sampled_from(["is null", "is not null"])).map(" ".join),
        st.sampled_from(["y", "not y", "y = i < true", "i = 7 = y", "y is not true", "(i = 1) = y"]),
    )
    joined = st.tuples(leaves, st.sampled_from(["and", "or", "and not"]), leaves)
    return st.one_of(leaves, leaves, joined.map(lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"))


def rows() -> st.SearchStrategy[pa.Table]:
    row = st.tuples(*(st.sampled_from(values) for _, values in VALUES.values()))
    return st.lists(row, min_size=6, max_size=12).map(
        lambda drawn: pa.table(
            {
                "id": pa.array(range(len(drawn)), pa.int64()),
                **{
                    name: pa.array([each[at] for each in drawn], kind)
                    for at, (name, (kind, _)) in enumerate(VALUES.items())
                },
            }
        )
    )


@pytest.fixture(scope="module")
def in_utc(spark: Any) -> Iterator[Any]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def by_reader(condition: str, table: pa.Table) -> list[int] | None:
    """None where it leaves them to an engine."""
    try:
        predicate = parse_predicate(condition, table.schema)
    except PredicateError:
        return None
    if predicate.may_differ:
        return None
    return table.filter(predicate.mask(table)).column("id").to_pylist()


def by_sail(condition: str, table: pa.Table) -> list[int] | None:
    """None where it leaves them to Spark."""
    statement = parse(f"select id from rows where {condition} order by id")
    assert isinstance(statement, Query)
    try:
        return SailEngine().rows(statement.tree, {"rows": table}).column("id").to_pylist()
    except (LeftToSpark, InputError):
        return None


def by_spark(conditions: list[str], table: pa.Table, spark: Any) -> dict[str, list[int]]:
    """Without those that Spark refuses."""
    arrow_frame(spark, table).createOrReplaceTempView("rows_of_conditions")
    known = []
    for condition in conditions:
        try:
            spark.sql(f"select id from rows_of_conditions where {condition}")
        except Exception:
            continue
        known.append(condition)
    listed = ", ".join(f"coalesce(({condition}), false) as c{at}" for at, condition in enumerate(known))
    found = collect_arrow(spark.sql(f"select id, {listed} from rows_of_conditions order by id"))
    return {
        condition: found.filter(found.column(f"c{at}")).column("id").to_pylist() for at, condition in enumerate(known)
    }


@settings(max_examples=4, deadline=None, phases=[Phase.generate])  # to shrink lists asks Spark for minutes
@given(drawn=st.lists(conditions(), min_size=60, max_size=60, unique=True), table=rows())
def test_they_find_the_rows_of_spark(in_utc: Any, drawn: list[str], table: pa.Table) -> None:
    expected = by_spark(drawn, table, in_utc)
    others = [
        (way.__name__, condition, found, expected.get(condition))
        for condition in drawn
        for way in (by_reader, by_sail)
        if (found := way(condition, table)) is not None and found != expected.get(condition)
    ]
    assert not others, table.to_pylist()


def test_lists_with_texts_find_the_rows_of_spark(in_utc: Any) -> None:
    """Spark compares a list that has a text as texts, other than one value with a text."""
    columns = {name: pa.array((values * 12)[:12], kind) for name, (kind, values) in VALUES.items()}
    table = pa.table({"id": pa.array(range(12), pa.int64()), **columns})
    texts = ["'7'", "'07'", "'7.5'", "'2024-03-12'", "'2024-03-12 12:00:00'", "'2024-03-12 12:00:00.000001'", "'true'"]
    texts += ["'0001-01-01'", "'2024-02-30'", "'x'"]
    others = ["7", "1.5", "date'2024-03-12'", "timestamp'2024-03-12 12:00:00'", "null"]
    lists = [f"({text})" for text in texts] + [f"({text}, {other})" for text in texts[:4] for other in others]
    asked = [f"{name} {sign} {each}" for name in VALUES for sign in ("in", "not in") for each in lists]
    expected = by_spark(asked, table, in_utc)
    found = {(way.__name__, each): way(each, table) for each in asked for way in (by_reader, by_sail)}
    others_found = {way: rows for way, rows in found.items() if rows is not None and rows != expected.get(way[1])}
    assert not others_found, {way: expected.get(way[1]) for way in others_found}
    assert found["by_sail", "d in ('2024-03-12')"] == expected["d in ('2024-03-12')"]


# Each means something else to a reader that knows no more than Arrow.
CONDITIONS = [
    *("d >= '2024-03-12 05:00:00'", "d = '20240312'", "cast(s as int) = 7", "cast(t as string) like '2024-03-12%'"),
    *(
        "s = 7",
        "i + 1 < 0",
        r"s rlike '\\d'",
        "y = i < true",
        "i not in (select i from rows_of_ways where i = 7)",
        "f > 1",
    ),
    *("f = double('NaN')", "s = 'it\\'s'", r"s = 'a\\b'", "g = 0.1", "i in (select cast(null as int))"),
]


@pytest.fixture(scope="module")
def ways(
    metastore_server: Any, tmp_path_factory: pytest.TempPathFactory, in_utc: Any
) -> Iterator[tuple[Lake, pa.Table, Callable[[str], list[int]]]]:
    """A lake with a table of all values, and the ids that Spark's own WHERE finds."""
    size = max(len(values) for _, values in VALUES.values())
    table = pa.table(
        {
            "id": pa.array(range(size), pa.int64()),
            **{name: pa.array((values * size)[:size], kind) for name, (kind, values) in VALUES.items()},
        }
    )
    arrow_frame(in_utc, table).createOrReplaceTempView("rows_of_ways")

    def expected(condition: str) -> list[int]:
        return [row[0] for row in in_utc.sql(f"select id from rows_of_ways where {condition} order by id").collect()]

    with Metastore.connect(metastore_server.uri) as metastore:
        metastore.create_database(Database("conditions", None, str(tmp_path_factory.mktemp("conditions"))))
        lake = Lake(metastore, str(tmp_path_factory.mktemp("lake")), SparkHolder(in_utc), "conditions")
        lake.create_table("rows_of_ways", table, key="id").bulk_insert(table)
        yield lake, table, expected
        lake.drop_table("rows_of_ways")
        metastore.drop_database("conditions", cascade=True)


def ids(rows: Any) -> list[int]:
    return sorted(rows.to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("condition", CONDITIONS)
def test_reads_and_plans_find_them(ways: Any, condition: str) -> None:
    lake, _, expected = ways
    wanted = expected(condition)
    table = lake.table("rows_of_ways")
    assert ids(lake.sql(f"SELECT id FROM rows_of_ways WHERE {condition}")) == wanted
    if "select" not in condition:
        assert ids(table.read(where=condition, columns=["id"])) == wanted
        assert table.read(where=condition).count() == len(wanted)
        assert sorted(row.id for row in table.read(where=condition).to_spark().collect()) == wanted
        assert table.delete(where=condition, dry_run=True).rows == len(wanted)


WAYS: dict[str, Callable[[Lake, Any, str], Any]] = {
    "delete": lambda _, table, condition: table.delete(where=condition),
    "update": lambda _, table, condition: table.update(set={"s": "'set'"}, where=condition),
    "DELETE": lambda lake, table, condition: lake.sql(f"DELETE FROM {table.name} WHERE {condition}"),
    "UPDATE": lambda lake, table, condition: lake.sql(f"UPDATE {table.name} SET s = 'set' WHERE {condition}"),
    "MERGE": lambda lake, table, condition: lake.sql(
        f"MERGE INTO {table.name} USING (SELECT 0 AS one) AS o ON one = 0 AND ({condition}) WHEN MATCHED THEN DELETE"
    ),
}


CHANGES = [
    (condition, way)
    for condition in CONDITIONS
    for way in WAYS
    if "select" not in condition or way in ("DELETE", "UPDATE")  # the others name no other tables
]


@pytest.mark.parametrize(("condition", "way"), CHANGES)
def test_changes_find_them(ways: Any, condition: str, way: str) -> None:
    lake, rows, expected = ways
    table = lake.create_table("changed", rows, key="id")
    try:
        table.bulk_insert(rows)
        WAYS[way](lake, table, condition)
        now = dict(zip(*table.read(columns=["id", "s"]).to_arrow().to_pydict().values(), strict=True))
        found = [each for each in range(rows.num_rows) if each not in now or now[each] == "set"]
        assert found == expected(condition)
    finally:
        lake.drop_table("changed", purge=True)


def test_validators_and_transformers_ask_the_same_engine(ways: Any) -> None:
    lake, rows, _ = ways
    queries = (
        "select cast(2.5 as int)#2;select substring('abc', 0, 2)#ab;select count(*) from <TABLE_NAME> where f > 1#5"
    )
    options = {
        "hoodie.precommit.validators": "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator",
        "hoodie.precommit.validators.single.value.sql.queries": queries,
    }
    table = lake.create_table("checked", rows, key="id")
    try:
        assert table.upsert(rows, **options).inserted == rows.num_rows
    finally:
        lake.drop_table("checked", purge=True)
    found = Queries(lake.spark_holder).query("select id, 'it''s' as v from given where f > 1", {"given": rows})
    assert set(found.column("v").to_pylist()) == {"it's"}
    assert found.num_rows == 5
