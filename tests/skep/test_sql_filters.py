"""What a query's WHERE implies for the rows of one of its tables."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from skep.query.implied_filters import filter_on
from skep_table.query.filters.text import SqlDialect, parse_predicate

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("Day", pa.date32()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("small", pa.int32()),
    ]
)


def implied(query: str, alias: str = "t", *, in_utc: bool = False) -> str | None:
    tree = sqlglot.parse_one(query, read=SqlDialect)
    (table,) = (node for node in tree.find_all(exp.Table) if node.alias_or_name == alias)
    found = filter_on(table, COLUMNS, in_utc=in_utc)
    if found is None:
        return None
    assert parse_predicate(found.text, COLUMNS).condition == found.condition
    return found.text


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("part = 'x'", "`part` = 'x'"),
        ("part = 'x' and id > 3", "`part` = 'x' AND `id` > 3"),
        ("3 < id", "3 < `id`"),
        ("DAY >= '2026-01-02'", "`Day` >= '2026-01-02'"),
        ("day = date '2026-01-02'", "`Day` = CAST('2026-01-02' AS DATE)"),
        ("id in (1, -2) and part between 'a' and 'c'", "`id` IN (1, -2) AND `part` BETWEEN 'a' AND 'c'"),
        (
            "(id = 1 or (part = 'x' and concat(part) = 'X')) and price > 1",
            "(`id` = 1 OR (`part` = 'x')) AND `price` > 1",
        ),
        ("part is null and not id <> 1", "`part` IS NULL AND NOT `id` <> 1"),
        (
            "id = '1' and id in (1, null) and length(part) = '1'",
            "`id` = '1' AND `id` IN (1, NULL) AND LENGTH(`part`) = '1'",
        ),
        ("small = 3000000000 and id = 1.5 and id = small", "`small` = 3000000000 AND `id` = 1.5 AND `id` = `small`"),
        ("part like 'x%' and unix_timestamp(part) is null", "`part` LIKE 'x%'"),
        ("upper(PART) = 'X'", "UPPER(`part`) = 'X'"),
        ("lower(part) in ('x', 'y')", "LOWER(`part`) IN ('x', 'y')"),
        ("year(day) between 2020 and 2021", "YEAR(`Day`) BETWEEN 2020 AND 2021"),
        ("substring(part, 1, 2) > 'x'", "SUBSTRING(`part`, 1, 2) > 'x'"),
        ("'x' < trim(part) and t.id = 1", "'x' < TRIM(`part`) AND `id` = 1"),
        ("t.id = 1", "`id` = 1"),
        ("substring(part, -2, 2) = 'x'", "SUBSTRING(`part`, -2, 2) = 'x'"),
        ("regexp_extract(part, '^([a-z]+)/', 0) = 'x'", "REGEXP_EXTRACT(`part`, '^([a-z]+)/', 0) = 'x'"),
        ("regexp_replace(part, '[0-9]', '') = 'x'", "REGEXP_REPLACE(`part`, '[0-9]', '') = 'x'"),
        ("year(part) = 2026", "YEAR(`part`) = 2026"),
    ],
)
def test_conditions_on_columns_are_found(where: str, expected: str) -> None:
    assert implied(f"select * from t where {where}") == expected


@pytest.mark.parametrize(
    "where",
    [
        "upper(part) > 'X'",  # not in the same order everywhere
        "upper(part) = 'É'",
        "upper(upper(part)) = 'X'",
        "regexp_extract(part, r'\\d+', 0) = 'x'",  # settings decide what a backslash is
        "regexp_extract(part, 'x$', 0) = 'x'",
        "part like 'a\\\\%'",
        "id + 1 = 2",  # what overflows
        "price = '1'",
        "from_unixtime(id, 'yyyy-MM-dd') = '2026-01-01'",  # in the session's time zone
        "year(at) = 2026",
        "part = 1",
        "day = '2026-02-30'",
        "day = '2026-1-2'",
        "at > '2026-01-01'",  # in the session's time zone
        "id = 1 or concat(part) = 'X'",
        "part = 'it''s'",
        "concat(part) = 'X'",
        "id in (select 1)",
        "other.id = 1",
        "nix = 1",
    ],
)
def test_what_spark_may_take_in_another_way_is_left_to_it(where: str) -> None:
    assert implied(f"select * from t where {where}") is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select * from u left join t on u.id = t.id where t.id = 1", "`id` = 1"),  # null there is not 1
        ("select * from t join u on u.id = t.id where part = 'x'", None),  # of one or the other
        ("select * from t, u where t.id = 1 and u.id = 2", "`id` = 1"),
        ("select * from u left join t on u.id = t.id where t.id is null and t.part = 'x'", "`part` = 'x'"),
        ("select * from u left join t on u.id = t.id where t.id = 1 or t.part is null", None),
        ("select * from u anti join t on u.id = t.id where u.id = 1", None),
        ("select * from (select * from t) where id = 1", None),
        ("with t2 as (select * from t where id = 1) select * from t2", "`id` = 1"),
        ("select * from orders as t where orders.id = 1", None),
        ("select * from u where exists (select 1 from t where t.id = u.id and t.part = 'x')", "`part` = 'x'"),
        ("select count(*) from t tablesample (10 rows) where id = 1", None),
        ("select id from t having id = 1", None),
    ],
)
def test_only_the_where_that_sees_the_rows_of_the_table_counts(query: str, expected: str | None) -> None:
    assert implied(query) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("from_unixtime(id, 'yyyy-MM-dd') = '2026-01-01'", "FROM_UNIXTIME(`id`, 'yyyy-MM-dd') = '2026-01-01'"),
        ("date_format(at, 'yyyy-MM') >= '2026-01'", "DATE_FORMAT(`at`, 'yyyy-MM') >= '2026-01'"),
        ("year(at) = 2026 and hour(at) in (1, 2)", "YEAR(`at`) = 2026 AND HOUR(`at`) IN (1, 2)"),
    ],
)
def test_expressions_over_times_are_found_where_the_session_is_in_utc(where: str, expected: str) -> None:
    assert implied(f"select * from t where {where}", in_utc=True) == expected
