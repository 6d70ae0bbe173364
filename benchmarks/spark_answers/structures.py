"""Queries of every form of Spark's SQL over the everyday tables and their edges: joins, subqueries, sets, groups."""

from __future__ import annotations

QUERIES = """
select e.id, o.id from edge e join edge o on e.whole = o.small
select e.id, o.id from edge e left join edge o on e.whole = o.small and o.yes
select e.id, o.id from edge e right join edge o on e.whole = o.small where e.id is null
select e.id, o.id from edge e full join edge o on e.whole = o.small
select e.id, o.id from edge e cross join edge o where e.small = 1 and o.small = 2
select e.id, o.id from edge e, edge o where e.whole <=> o.small
select e.id from edge e left semi join edge o on e.whole = o.small
select e.id from edge e left anti join edge o on e.whole = o.small
select * from (select id, whole from edge) a join (select id, small from edge) b using (id)
select a.id, b.id from (select id, whole from edge) a left join (select id, small from edge where yes) b using (id)
select id, whole, small from (select id, whole from edge) a join (select id, small from edge) b using (id) order by id
select e.id, s.id from edge e join staff s on e.price = s.salary
select e.id, s.id from edge e join staff s on e.d = s.hired or e.ts > s.seen
select e.id from edge e join staff s on e.x > s.x
select e.id, o.id from edge e join edge o on e.x = o.x
select e.id, o.id from edge e join edge o on e.f = o.x
select id from edge where whole in (select small from edge)
select id from edge where whole not in (select small from edge)
select id from edge where whole not in (select small from edge where small is not null)
select id from edge where id not in (select id from edge where yes)
select id from edge e where exists (select 1 from staff s where s.id = e.small)
select id from edge e where not exists (select 1 from staff s where s.id = e.small and s.ok)
select id from edge e where exists (select 1 from staff s where s.id > e.small)
select id, (select count(*) from staff s where s.id = e.small) n from edge e
select id, (select count(s.ok) + 1 from staff s where s.id = e.small) n from edge e
select id, (select max(s.salary) from staff s where s.id = e.small) n from edge e
select id, (select sum(s.id) from staff s where s.dept = e.note) n from edge e
select id, (select max(id) from staff) m, (select min(name) from staff where id > 100) n from edge
select id from edge where whole > (select avg(small) from edge)
select id from edge where whole = (select max(whole) from edge where id < 0)
select id from edge e where whole > (select min(s.id) from staff s where s.id <= e.small)
select whole from edge union select small from edge
select whole from edge union all select small from edge
select whole from edge intersect select small from edge
select whole from edge intersect all select small from edge
select whole from edge except select small from edge
select whole from edge except all select small from edge
select whole, note from edge except select small, note from edge
select id, whole from edge union select small, id from edge
select price from edge union select salary from staff
select price from edge union all select id from staff
select d from edge union select hired from staff order by 1 desc
select d from edge union all select ts from edge
select note from edge union select name from staff union all select dept from staff
(select id from edge order by id limit 2) union all (select id from staff order by id desc limit 1)
select distinct yes from edge
select distinct whole, yes from edge
select distinct note from edge order by note
select distinct price + 1 as p from edge order by p desc
select count(*) from (select distinct whole from edge) q
select yes, count(*) from edge group by yes
select yes, whole, sum(small) from edge group by yes, whole
select yes, sum(whole) s from edge group by yes having sum(whole) > 5
select yes from edge group by yes having count(*) > 2 and max(id) > 4
select yes y, count(*) c from edge group by y order by c, y
select count(*) c, whole + 1 w from edge group by whole + 1
select whole + 1 w, whole + 2 v from edge group by whole
select count(*), sum(whole), min(d), max(note), avg(small) from edge where id > 100000
select sum(whole), count(small) from edge having count(*) > 100
select yes, count(distinct whole), count(distinct note), count(whole), sum(distinct small) from edge group by yes
select yes, count(distinct whole, note) from edge group by yes
select count(*) filter (where yes), sum(whole) filter (where whole > 0), min(id) filter (where false) from edge
select yes, whole, count(*) from edge group by cube (yes, whole)
select yes, whole, count(*), grouping(yes), grouping_id() from edge group by rollup (yes, whole)
select yes, whole, sum(id) from edge group by grouping sets ((yes), (whole), (yes, whole), ())
select yes, count(*) from edge group by yes with rollup
select yes, count(*) from edge group by yes with cube
select id, row_number() over (order by id) from edge
select id, rank() over (order by yes) r, dense_rank() over (order by yes desc) d from edge
select id, row_number() over (partition by yes order by id desc nulls first) from edge
select id, sum(whole) over (partition by yes) s, count(*) over () c from edge
select id, sum(whole) over (order by id) s from edge
select id, sum(whole) over (order by yes) s from edge
select id, sum(whole) over (order by id rows between 1 preceding and 1 following) s from edge
select id, min(whole) over (order by id rows between unbounded preceding and 1 preceding) m from edge
select id, max(note) over (partition by yes order by id rows between current row and unbounded following) m from edge
select id, lag(whole) over (order by id) a, lag(whole, 2) over (order by id) b, lag(whole, 1, 0) over (order by id) c from edge
select id, lead(note) over (partition by yes order by id) a, lead(d, 1) over (order by id) b from edge
select id, ntile(3) over (order by id) a, percent_rank() over (order by yes) b, cume_dist() over (order by yes) c from edge
select id, first_value(whole) over (order by id) a, last_value(whole) over (order by id) b from edge
select id, nth_value(whole, 2) over (order by id) a from edge
select id, avg(price) over (order by id rows 2 preceding) a, count(price) over (partition by yes) b from edge
select id from (select id, row_number() over (partition by yes order by id) r from edge) q where r = 1
select yes, sum(count(*)) over (order by yes) from edge group by yes
select yes, sum(whole) s, rank() over (order by sum(whole) desc) r from edge group by yes
select id from edge order by whole, id desc
select id from edge order by whole desc, id
select id from edge order by whole nulls last, id
select id from edge order by note desc nulls first, id
select id, x from edge order by x, id
select id, f from edge order by f desc, id
select id, -id as id2 from edge order by id2
select whole as id, id as w from edge order by id, w
select id from edge order by whole + small, id
select id from edge order by 1 limit 3
select id from edge order by id limit 3 offset 2
select id from edge order by id desc limit 0
select id from edge limit 0
with a as (select id, whole from edge where yes), b as (select id from a where whole > 1) select * from b order by id
with a as (select 1 x), b as (select x + 1 y from a) select x, y from a, b
with a as (select 1 x) select * from (with a as (select 2 x) select * from a) q
with a(p, q) as (select id, note from edge) select p from a where q = 'Abc' order by p
select q.x from (select id as x from edge) q where q.x > 1 order by x
select * from (values (1, 'a'), (2, null), (null, 'c')) as v(n, t)
select * from values (1, 1.5), (2, 2) as v(a, b)
select v.a from values (1), (null) as v(a) where a is null
select t.* from (select id, note from edge) t where id between 2 and 4
select a.*, b.whole from (select id from edge) a join (select id, whole from edge) b on a.id = b.id
select id, item.sku, item from (select oid id, item from orders) q
select o.item.qty q, o.item.sku from orders o where o.item.qty > 1
select oid, tags[0] a, tags[5] b, attrs['k'] c, attrs['none'] d from orders
select oid, t from orders lateral view explode(tags) x as t order by oid, t
select oid, k, v from orders lateral view outer explode(attrs) x as k, v order by oid, k
select oid, t, k from orders lateral view explode(tags) x as t lateral view explode(attrs) y as k, v order by 1, 2, 3
select oid, count(*) from orders lateral view explode(tags) x as t group by oid
select oid, explode(tags) t from orders order by oid, t
select posexplode(tags) from orders where oid = 10
select oid, pos, t from orders lateral view posexplode_outer(tags) x as pos, t order by oid, pos
select case whole when 5 then 'five' when null then 'none' else 'other' end c from edge order by id
select case when yes then 1 when whole > 1 then 2.5 end c from edge order by id
select if(yes, id, whole) a, if(null, 1, 2) b from edge order by id
select coalesce(whole, small, 0) a, nvl(note, 'n') b, nullif(whole, 5) c, nvl2(whole, 1, 0) d from edge order by id
select id from edge where not yes
select id from edge where yes or whole > 1
select id from edge where yes and null
select id from edge where whole is not null and (yes is null or not yes)
select id from edge where yes is not true
select id from edge where yes is false
select id from edge where whole between small and 5
select id from edge where whole not between 1 and 3
select id from edge where note like 'A%' or note like '%c'
select id from edge where note not like '%b%'
select id from edge where d > '2020-01-01' and ts < '2024-01-01'
select id from edge where ts between '1970-01-01' and '2000-01-01 00:00:00'
select id from edge where cast(id as int) = 5 and id < 100
select id from edge where id < 100 and id > -100 and cast(id as tinyint) = 5
select id from edge where cast(ts as date) = date'1970-01-01'
select id from edge where year(d) = 2026 and month(d) in (1, 6)
select id from edge where x = 0.0D
select id from edge where x <> x
select id from edge where x > 1e299
select id from edge where f = x
select yes, max(x) a, min(x) b, max(f) c, min(f) d from edge group by yes
select count(distinct x), count(distinct f) from edge
select id, x in (0.0D, 0.5D) a, x not in (0.5D, null) b from edge order by id
select id, whole in (5, null) a, whole in (1, 2) b, note in ('abc', 'x') c from edge order by id
select id, greatest(whole, small) a, least(whole, small, 3) b from edge order by id
select /*+ repartition(2) */ id from edge where yes order by id
select upper(note) u, count(*) c from edge group by upper(note) order by u
select substring(word, 1, 2) a, length(word) b from edge order by id
select concat(note, '-', word) a, note || word b, concat_ws('/', note, word) c from edge order by id
select sum(case when yes then whole else 0 end) a, count(case when yes then 1 end) b from edge
select sum(price) a, avg(price) b, sum(price * 2) c, avg(price + 1.5) d from edge
select yes, sum(price) / count(price) a, sum(price) * 1.1 b, max(price) - min(price) c from edge group by yes
select price / 3 a, price / 1.25 b, price * price c, price % 7 d, price div 2 e from edge where price is not null order by id
select price / whole a from edge where whole <> 0 order by id
select id / 3 a, whole / small b, whole % small c, whole div small d from edge where small <> 0 order by id
select whole + small a, whole - small b, small * 3 c, -small d, small + 1.5 e, x + small f from edge where id < 6 order by id
select date_add(d, 1) a, d - 1 b, datediff(d, date'2020-01-01') c, d + interval 1 month e from edge where id < 5 order by id
select ts + interval 1 day a, ts - interval 2 hours b, ts + interval 1 month c from edge order by id
select count(*) from edge e join edge o on e.whole = o.whole join staff s on s.id = o.small
select e.id, n from edge e join (select small, count(*) n from edge group by small) g on e.whole = g.small
select a.yes, b.c from (select distinct yes from edge) a left join (select yes, count(*) c from edge group by yes) b on a.yes <=> b.yes
select max(c) from (select yes, count(*) c from edge group by yes) q
select yes, collect from (select yes, max(whole) collect from edge group by yes) q order by yes
select id, (select max(whole) from edge i where i.yes = e.yes and i.id <= e.id) m from edge e order by id
select id from edge e where whole = (select max(i.whole) from edge i where i.yes <=> e.yes)
select id from edge where (whole, small) in ((5, 1), (5, 3))
select id from edge where (whole, small) in (select whole, small from edge where yes)
select first(note, true) f from (select note from edge where note = 'abc')
select transform(li, v -> v + 1) a, filter(li, v -> v > 1) b, exists(li, v -> v = 3) c from edge order by id
select aggregate(li, 0L, (a, v) -> a + v) a, size(li) b, sort_array(li) c, array_contains(li, 2L) d from edge order by id
select named_struct('a', id, 'b', note) s, array(whole, small) l, map('k', whole) m from edge order by id
select st.a, st.b, st from edge order by id
select (whole + 1) * 2 - small / 2 as r from edge order by id
select id from edge tablesample (100 percent)
select * from (select yes, whole, small from edge) pivot (sum(small) for whole in (5, 1))
select yes, a, b from (select yes, whole, id from edge) pivot (max(id) for whole in (5 a, 1 b)) order by yes
select whole, count(*) from edge group by 1 order by 2 desc, 1 limit 2
select count(1), count(null), sum(null) from edge
select 1 a, 'x' b, null c, true d, 1.5 e, 1e0 f, date'2024-01-01' g, timestamp'2024-01-01 10:00:00' h
select id, price from edge where price = 10.5 or price = 10
select id from edge where price > 9.989999 and price <= 10.50
select id from edge where id = 9223372036854775807
select id from edge where whole = 2147483648
select id from edge where whole < 2147483648.5
select id from edge where small = 1.0 or small = '2'
select id from edge where note = 5
select id, row_number() over w r, sum(id) over w s from (select cast(small as bigint) id from edge) window w as (order by id)
""".strip().splitlines()  # noqa: E501 - a query is a line
