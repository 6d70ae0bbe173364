"""Queries that both engines answer: rows, names and types are the same, whichever of them is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.spark_answers.compare import counted, plain
from benchmarks.spark_answers.everyday import edge_rows
from skep.lake import Lake
from skep.query.result import SqlResult
from skep.query.spark import SparkHolder
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_format.errors import UnsupportedError

pytestmark = pytest.mark.metastore

SAME = """
select * from t
select ID, Note from t
select t.id, T.`Whole` from t
select count(*) from t
select count(*), count(note), count(distinct note), count(distinct whole) from t
select whole, count(*) n, sum(id) s, min(note), max(d) from t group by whole
select whole w, sum(x) from t where x = x and x < 1e300 group by w
select whole, avg(id) from t group by 1
select sum(price), sum(small), max(price) p from t
select sum(price * 2) from t
select price + id as total, price - small as less, price * price as square from t
select price + 1 as a, price + 1.25 as b, 1.5 * price as c, -price as d from t where price is null
select id + 1, id - whole, small * 3, id + 1.5 from t where id < 1000 and id > -1000
select -id, -7, - 7, abs(whole) from t where id > -100 and id < 1000
select id / 2 h, id / 4.0D q, x / 2 y from t where id < 1000
select id % 3 a, -id % 3 b, id % -3 c, whole % 7 d from t where id < 1000 and id > -1000
select id from t where id > 1.5
select id from t where price >= 10
select id from t where price = 10.50
select id from t where x > 0.1
select id from t where f > 0.1D
select id from t where x > 1e299
select id from t where not (id > 2)
select id from t where note = 'Abc' or note is null
select id from t where note <=> null
select id, 'it\\'s' a, "o'clock" b, note like 'o\\'%' c from t where note <> 'O\\'Brien'
select id from t where whole <=> 5
select id from t where note in ('abc', 'x', null)
select id from t where id not in (1, 2)
select id from t where id not in (select whole from t)
select id from t where id in (select other from u)
select id from t where exists (select 1 from u where u.id = t.id)
select id from t where not exists (select 1 from u where u.other = t.whole)
select id, (select max(other) from u where u.id = t.id) m from t
select id from t where d > '2026-01-01'
select id from t where d between date'2025-12-31' and date'2026-06-30'
select id from t where d in ('2026-01-01', '1969-12-31')
select id from t where yes
select id from t where yes is not true
select id from t where yes is false or not yes
select id from t where note like 'a%'
select id from t where note like '_b%' or note not like '%c'
select id, case when whole > 3 then 'many' when whole is null then null else 'few' end size from t
select case whole when 5 then id else 0 end k, if(yes, 1, 2L) l, coalesce(whole, id, 7) m from t
select nullif(whole, 5) n, nvl(note, 'none') o, ifnull(d, date'2000-01-01') p from t
select upper(note), lower(note), length(note) from t where length(note) < 5
select length(word) n, trim(word) w, substring(word, 2, 2) s, substr(word, 3) r from t
select word || note as both, concat(note, '-', word) c from t
select year(d), month(d), day(d), quarter(d) from t
select datediff(d, date'2026-01-01') n from t
select floor(x), ceil(x) from t where x > -1e9 and x < 1e9
select round(x, 2), round(x), round(whole, 1) from t where x > -1e8 and x < 1e8
select round(avg(x), 3) from t where x > 0 and x < 100
select cast(whole as bigint) a, cast(id as double) b, cast(whole as string) c from t
select cast(yes as int) a, cast(yes as string) b, cast(whole as boolean) c from t
select cast(x as int) a, cast(x as bigint) b from t where x > -1e6 and x < 1e6
select cast(whole as decimal(12,2)) a, cast(price as double) b, cast(f as double) c from t
select cast(x + 0.1D as float) d from t where x < 1e30
select cast('2026-01-01' as date) d, cast('1.50' as decimal(5,2)) e, 1.50, 0.05, 1e3 as f, 2147483648, 'text'
select id, st.a, t.st.b from t
select st, li, ma from t
select id from t order by x
select id, note from t order by note, id desc
select id, note from t order by note desc, id
select id, whole from t order by whole nulls last, 1
select id k from t order by k limit 3 offset 1
select note, count(*) from t group by note order by count(*) desc, note nulls last
select note, sum(id) s from t where id < 1000 group by note having s > 1 order by s
select whole from t group by whole having count(*) > 1
select distinct whole, yes from t order by whole, yes
select t.id, u.other from t join u on t.id = u.id
select t.id, u.other from t left join u on t.id = u.id and u.other > 1 order by 1, 2
select t.id, u.other from t right join u on t.id = u.id order by 1, 2
select t.id, u.id as i from t full outer join u on t.id = u.id order by 1, 2
select * from u join (select id, note from t) v using (id)
select id, note, other from t left join u using (id) order by id, other
select a.id from t a, t b where a.id = b.whole
select count(*) from t cross join u
select count(*) n from t a join t b on a.x = b.x
with c as (select id, whole from t where whole > 1), e(k) as (select id from u) select c.* from c join e on e.k = c.id
with c as (select whole w from t) select count(*) from c one join c other on one.w = other.w
select q.n from (select count(*) n from t) q
select w from (select whole as w, id from t) order by id
select id from t where id < 3 union all select other from u
select id from t union select id from u order by id
select id, whole from t union all select 7, null
select id from t except select id from u
select id from t intersect select id from u
select x, y from values (1, 'a'), (2L, null) as v(x, y)
select * from values (1.5), (2.25)
select id, row_number() over (partition by note order by id) n from t
select count(*) filter (where id > 1) n from t
select array(1, 2L) a, named_struct('p', 1, 'q', 'z') s, map('k', 1) m
select true, null as n, 1L a, 2S b, 3Y c, 2.5D d, 'it'
select ts, nt from t
select max(ts), min(nt) from t
select count(*) from t where ts = (select max(ts) from t)
select max(x), min(x), max(f) from t
select id div 2 a from t
select price / 2 from t
select avg(price) from t
select cast(note as int) a from t
select cast(d as timestamp) a from t
select substring(note, 0, 2) s from t
select substring(note, -2) s from t
select id from t where note rlike 'a.*'
select id from t where ts > '2026-01-01'
select id from t where ts > timestamp'2026-01-01 00:00:00'
select date_trunc('month', ts) m from t
select year(ts) from t
select d + interval 1 day as n from t where d < '9999-01-01'
select li[0] from t
select ma['k'] from t
select explode(li) e from t
select id, e from t lateral view explode(li) as e
select id + f as s from t
select round(price, 1) r from t
select whole, count(*) from t group by rollup (whole)
select sum(small) over (order by id rows between 1 preceding and current row) s from t
select case when id > 1 then 2 end from t
select concat(note, null) c, concat(id, 'a') e from t
select hash(id) from t
select md5(note) m from t
select upper(word) u from t
select cast(x as int) i from t
""".strip().splitlines()

LEFT_TO_SPARK = """
select count() as n from t
select id from t where note > 5
select id from t where note = id
select cast(x as string) a from t
select substring(note, whole, 2) s from t
select id from t where note like 'a\\\\_b'
select current_date() d
select x, count(*) from t group by x
select distinct f from t
select count(distinct x) from t
select round(x, -1) r from t
select id from t natural join u
select id from t left semi join u using (id)
select id from t tablesample (50 percent)
select id + 1 as a, a + 1 as b from t
select rand() r
select id from t order by st
select note from t union select id from t
select u.* from t join u using (id)
select * except (id) from t
select * from (select id from t) pivot (count(*) for id in (1, 2))
""".strip().splitlines()

# Sail fails for a value, so that the answer comes from Spark: an error there, or not.
MOVED = """
select sum(id) from t where id > 0
select whole + 2147483647 as s from t
select id + id as s from t
select id % (whole - 5) as r from t where id < 1000
select 1 / (whole - 5) as r from t
select cast(id as int) i from t
select round(x, 2) r from t
select abs(id) a from t
""".strip().splitlines()


@pytest.fixture(scope="module")
def filled(metastore_server: EmbeddedMetastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Tables t and u, of a lake without a session of its own."""
    database, metastore = "meaning", Metastore.connect(metastore_server.uri)
    lake = Lake(metastore, str(tmp_path_factory.mktemp("lake")), database=database)
    lake.sql("set time zone 'UTC'")  # whatever that of a session of other tests is
    rows = edge_rows()
    lake.create_table("t", rows, key="id").insert(rows)
    others = pa.table({"id": pa.array([1, 2, 2, 9], pa.int64()), "other": pa.array([10, 1, None, 3], pa.int64())})
    lake.create_table("u", others, key=["id", "other"]).bulk_insert(others.slice(0, 2))
    lake.table("u").bulk_insert(others.slice(3))
    yield lake
    for name in ("t", "u"):
        lake.drop_table(name)
    metastore.drop_database(database, cascade=True)
    metastore.close()


def asked(lake: Lake, query: str, engine: str) -> SqlResult:
    result = lake.sql(query, engine=engine)
    assert isinstance(result, SqlResult)
    return result


@pytest.mark.spark
@pytest.mark.engine("spark")
@pytest.mark.parametrize("query", SAME)
def test_both_engines_give_one_answer(filled: Lake, in_utc: Any, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filled, "_spark", SparkHolder(in_utc))
    monkeypatch.setattr(filled, "_sql", None)
    ours = asked(filled, query, "sail").to_arrow()
    theirs = asked(filled, query, "spark").to_arrow()
    assert ours.schema.names == theirs.schema.names
    assert [plain(kind) for kind in ours.schema.types] == [plain(kind) for kind in theirs.schema.types]
    assert counted(ours, query) == counted(theirs, query)


@pytest.mark.spark
@pytest.mark.engine("spark")
def test_times_of_a_session_in_another_zone_are_left_to_it(
    filled: Lake, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filled, "_spark", SparkHolder(spark))
    monkeypatch.setattr(filled, "_sql", None)
    with pytest.raises(UnsupportedError, match="timeZone is set"):
        asked(filled, "select year(ts) y from t", "sail")


@pytest.mark.parametrize("query", LEFT_TO_SPARK)
def test_what_may_mean_something_else_is_refused(filled: Lake, query: str) -> None:
    with pytest.raises(UnsupportedError, match="left to Spark"):
        asked(filled, query, "sail")


@pytest.mark.parametrize("query", MOVED)
def test_values_for_which_the_engines_differ_are_refused(filled: Lake, query: str) -> None:
    result = asked(filled, query, "sail")
    with pytest.raises(UnsupportedError, match="Sail: "):
        result.to_arrow()
    with pytest.raises(UnsupportedError, match="Sail: "):
        result.to_reader()
