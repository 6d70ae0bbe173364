"""Everyday queries of Spark's SQL, and the tables that they read: as statements, so that Spark's own types come out."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa

TABLES = {
    "staff": "(id INT, name STRING, dept STRING, salary DECIMAL(10,2), hired DATE, seen TIMESTAMP,"
    " x DOUBLE, ok BOOLEAN)",
    "orders": "(oid INT, eid INT, item STRUCT<sku: STRING, qty: INT>, tags ARRAY<STRING>, attrs MAP<STRING, INT>,"
    " d STRING)",
}
ROWS = (
    "INSERT INTO staff VALUES (1, 'Ann', 'eng', 1000.50, DATE'2020-01-31', TIMESTAMP'2024-03-10 02:30:00', 1.5, true),"
    " (2, 'bob', 'eng', 2000, DATE'2019-12-31', TIMESTAMP'2024-12-31 23:59:59.123456', 2.5, false),"
    " (3, 'Cy', 'ops', NULL, DATE'2024-02-29', NULL, NULL, NULL),"
    " (4, 'dÉe', 'ops', -15.25, NULL, TIMESTAMP'1969-12-31 23:59:59', -0.0, true),"
    " (5, NULL, NULL, 99999999.99, DATE'1900-01-01', TIMESTAMP'2024-07-01 12:00:00', 1e10, false)",
    "INSERT INTO orders VALUES"
    " (10, 1, named_struct('sku', 'a1', 'qty', 2), array('x', 'y'), map('k', 1, 'j', 2), '2024-01-01'),"
    " (11, 1, named_struct('sku', 'b2', 'qty', null), array(), map(), '2024-01-02'),"
    " (12, 2, NULL, NULL, NULL, '2024-01-02')",
)
QUERIES = """
select id, upper(name) a, initcap(name) b, lpad(name, 5, '*') c, substring(name, -2) d, instr(name, 'n') e from staff
select id, regexp_replace(name, '[aeiou]', '_') a, split(name, 'n') b, concat_ws('-', name, dept) c from staff
select id, dayofweek(hired) a, weekofyear(hired) b, last_day(hired) c, date_trunc('month', seen) d from staff
select id, date_add(hired, 30) a, date_sub(hired, 1) b, datediff(date'2024-03-01', hired) d from staff
select id, date_format(seen, 'yyyy/MM/dd HH:mm') a, unix_timestamp(seen) b, hired + interval 1 month c from staff
select id, cast(seen as string) a, cast(hired as timestamp) b, cast(seen as date) c, cast(seen as bigint) d from staff
select id, salary * 1.1 a, salary / 3 b, salary % 7 c, round(salary, 1) d, cast(salary as string) e from staff
select dept, count(*) n, sum(salary) s, avg(salary) a, stddev(id) d, collect_list(id) l from staff group by dept
select dept, ok, count(*) n, grouping(dept) g from staff group by cube (dept, ok)
select id, rank() over (order by dept) r, avg(id) over (order by id rows 1 preceding) a from staff
select oid, item.sku a, item.qty + 1 b, tags[0] c, size(tags) d, attrs['k'] e, map_keys(attrs) f from orders
select oid, pos, t from orders lateral view posexplode(tags) x as pos, t
select oid, t from orders lateral view outer explode(tags) x as t
select oid, transform(tags, x -> upper(x)) a, filter(tags, x -> x > 'x') b, to_json(item) c from orders
select s.id, o.oid from staff s full outer join orders o on s.id = o.eid and o.d > '2024-01-01'
select s.id from staff s left anti join orders o on s.id = o.eid
with a as (select dept, sum(salary) s from staff group by dept) select * from a where s = (select max(s) from a)
select * from (select dept, id from staff) pivot (sum(id) for dept in ('eng', 'ops'))
select /*+ BROADCAST(o) */ count(*) n from staff s join orders o on s.id = o.eid
select from_utc_timestamp(seen, 'Asia/Tokyo') a, seen >= '2024-07-01' b from staff
select window(seen, '10 minutes').start a, count(*) n from staff group by window(seen, '10 minutes')
select dept, sum(id) over w s from staff window w as (partition by dept)
""".strip().splitlines()
"""Those that the tests of a commit send through a lake, too."""

MORE_QUERIES = """
select dept, count(distinct name) n, min(hired) a, max(seen) b from staff group by dept having count(*) > 1 order by dept
select year(hired) y, month(hired) m, sum(salary) s from staff where hired is not null group by 1, 2 order by y, m
select id, case when salary > 1500 then 'high' when salary is null then 'none' else 'low' end c from staff order by id
select id, coalesce(name, 'n/a') a, nvl(salary, 0) b, nullif(dept, 'ops') c, if(ok, 1, 0) d from staff
select id, name from staff where name like '%n%' or name rlike '^[A-C]' order by name desc nulls last
select id, lag(salary) over (partition by dept order by id) a, lead(id, 2, -1) over (order by id) b from staff
select id, row_number() over (partition by dept order by salary desc) r, ntile(2) over (order by id) t from staff
select id, sum(salary) over (partition by dept order by id rows between unbounded preceding and current row) s from staff
select dept, percentile_approx(id, 0.5) a, approx_count_distinct(id) b, percentile(id, 0.25) c from staff group by dept
select dept, max_by(name, salary) a, min_by(name, id) b, first(id) c, bool_or(ok) d from staff group by dept
select dept, sort_array(collect_set(id)) a, concat_ws(',', sort_array(collect_list(name))) b from staff group by dept
select dept, ok, sum(id) s from staff group by rollup (dept, ok) order by dept nulls first, ok nulls first, s
select dept, ok, count(*) n, grouping_id() g from staff group by grouping sets ((dept), (ok), ())
select count(*) filter (where ok) a, sum(case when ok then 1 else 0 end) b, avg(x) c, count_if(id > 2) d from staff
select s.name, o.oid, o.item.qty q from staff s join orders o on s.id = o.eid where o.item.qty is not null
select s.id, count(o.oid) n from staff s left join orders o on s.id = o.eid group by s.id order by s.id
select s.id from staff s left semi join orders o on s.id = o.eid and o.d <=> '2024-01-02'
select id from staff s where exists (select 1 from orders o where o.eid = s.id) and id not in (select 3)
select id, (select max(oid) from orders o where o.eid = s.id) m from staff s order by id
with recent as (select * from staff where hired >= '2019-01-01'), n as (select count(*) c from recent) select c from n
select id from staff union all select eid from orders union select 7 order by id
select id from staff except select eid from orders order by 1
select id from staff intersect select eid from orders
select to_date('2024-03-01') a, to_timestamp('2024-03-01 10:00', 'yyyy-MM-dd HH:mm') b, date'2024-01-31' + 1 c
select months_between(date'2024-03-31', hired) a, add_months(hired, 1) b, next_day(hired, 'MON') c from staff
select id, extract(year from seen) a, hour(seen) b, date_part('week', hired) c, quarter(hired) d from staff
select timestampdiff(day, timestamp'2024-01-01 00:00:00', seen) a, timestampadd(hour, 3, seen) b from staff
select id, seen - interval 90 minutes a, seen between '2024-01-01' and '2024-12-31' b, trunc(hired, 'YEAR') c from staff
select sequence(date'2024-01-01', date'2024-03-01', interval 1 month) a, explode(array(1, 2)) b
select id, trim(name) a, rpad(name, 4, '.') b, replace(name, 'n', 'N') c, reverse(name) d, translate(name, 'n', 'm') e from staff
select id, length(name) a, regexp_extract(name, '([a-z]+)', 1) b, split(name, '')[0] c, locate('n', name) d from staff
select id, md5(name) a, sha2(name, 256) b, hex(id) c, base64(name) d, crc32(name) e, hash(id) f from staff
select id, cast(x as int) a, cast(x as decimal(12,2)) b, cast('12' as int) + id c, try_cast(name as int) d from staff
select id, round(x, 1) a, floor(x) b, ceil(salary) c, abs(salary) d, power(id, 2) e, sqrt(id) f, id div 2 g from staff
select oid, array_contains(tags, 'x') a, element_at(tags, 1) b, array_join(tags, '|') c, cardinality(attrs) d from orders
select oid, aggregate(transform(tags, t -> length(t)), 0, (a, t) -> a + t) a, exists(tags, t -> t = 'y') b from orders
select get_json_object('{"a": {"b": 1}}', '$.a.b') a, from_json('{"a": 1}', 'a INT').a b, to_json(map('k', 1)) c
select k, v, named_struct('k', k, 'v', v) s from orders lateral view explode(attrs) m as k, v
""".strip().splitlines()  # noqa: E501 - a query is a line


def edge_rows() -> pa.Table:
    """Values at which engines may part: nulls, NaN, zeros of both signs, bounds, signs, letters outside of ASCII."""
    nan = math.nan
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4, 5, -6, 2**63 - 1, -(2**63)], pa.int64()),
            "whole": pa.array([5, None, 5, 1, -7, 2**31 - 1, 3, 0], pa.int32()),
            "small": pa.array([1, 2, 3, None, 5, 6, 7, 8], pa.int32()),
            "x": pa.array([0.5, nan, -0.0, 0.0, 1.005, -2.5, 1e300, None], pa.float64()),
            "f": pa.array([0.1, nan, -0.0, 0.0, 1.5, None, 3.4e38, -1.1], pa.float32()),
            "price": pa.array(
                [Decimal(v) if v else None for v in ("10.50", "-0.05", None, "99999999.99", "0", "10", "9.99", "1")],
                pa.decimal128(10, 2),
            ),
            "note": ["Abc", "abc", None, "", "x", "b%c", "a_b", "Abc"],
            "word": [" ß ", "naïve", "日本語", "🐝🐝x", None, "ascii", "İ", "  "],
            "d": pa.array(
                [
                    dt.date(2026, 1, 1),
                    dt.date(1969, 12, 31),
                    None,
                    dt.date(2024, 2, 29),
                    dt.date(1582, 10, 15),
                    dt.date(2026, 6, 30),
                    dt.date(9999, 12, 31),
                    dt.date(1, 1, 1),
                ]
            ),
            "yes": pa.array([True, False, None, True, False, None, True, False]),
            "ts": pa.array([0, 1, None, 10**15, -1, 123456789, 5, 6], pa.timestamp("us", "UTC")),
            "nt": pa.array([0, 1, None, 10**15, -1, 123456789, 5, 6], pa.timestamp("us")),
            "st": pa.array([{"a": 1, "b": "p"}, None, {"a": None, "b": "q"}] + [{"a": 2, "b": None}] * 5),
            "li": pa.array([[1, 2], [], None, [7], [3], [4], [5], [6]], pa.list_(pa.int64())),
            "ma": pa.array([[("k", 1)], [], None, [("z", None)]] + [[("k", 2)]] * 4, pa.map_(pa.string(), pa.int64())),
        }
    )
