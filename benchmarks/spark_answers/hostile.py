"""Random expressions over values at which engines may part, the same ones for the same seed."""

from __future__ import annotations

import random
import re

COLUMNS = {  # of `everyday.edge_rows`, by kind
    "whole": ("whole", "small", "cast(id as int)", "2147483647", "-1", "0"),
    "long": ("id", "cast(whole as bigint)", "3L"),
    "double": ("x", "cast(f as double)", "cast('Infinity' as double)", "-x", "0.1D"),
    "decimal": ("price", "cast(whole as decimal(12,3))", "1.25", "cast(price as decimal(38,10))"),
    "text": ("note", "word", "''", "cast(d as string)", "cast(whole as string)", "' 12 '"),
    "day": ("d", "date'2024-02-29'", "cast(ts as date)"),
    "time": ("ts", "cast(d as timestamp)", "timestamp'2024-03-10 02:30:00'"),
    "flag": ("yes", "x > 0", "note = 'abc'", "whole is null"),
    "list": ("li", "array(whole, small)", "split(note, '')"),
    "map": ("ma",),
}
NUMBERS = ("whole", "long", "double", "decimal")
FORMS = """
{number} + {number}
{number} - {number}
{number} * {number}
{number} / {number}
{number} % {number}
{whole} div {whole}
-{number}
abs({number})
round({number}, {digits})
bround({double}, {digits})
floor({number})
ceil({number})
sign({number})
sqrt({number})
cbrt({double})
exp({double})
ln({number})
log10({number})
log({double}, {double})
power({number}, {number})
sin({double})
atan2({double}, {double})
pmod({whole}, {whole})
greatest({number}, {number})
least({number}, {number})
bin({long})
hex({whole})
conv({text}, 10, 16)
shiftleft({whole}, {small_number})
shiftrightunsigned({whole}, {small_number})
{whole} & {whole}
{whole} ^ {whole}
bit_count({long})
isnan({double})
nanvl({double}, {double})
width_bucket({double}, 0D, 10D, 5)
factorial({small_number})
format_number({number}, 2)
cast({number} as int)
cast({number} as bigint)
cast({number} as double)
cast({number} as float)
cast({number} as decimal(10,2))
cast({number} as string)
cast({number} as boolean)
cast({number} as tinyint)
cast({number} as timestamp)
cast({text} as int)
cast({text} as double)
cast({text} as date)
cast({text} as timestamp)
cast({text} as boolean)
cast({text} as decimal(10,2))
cast({day} as string)
cast({day} as timestamp)
cast({time} as date)
cast({time} as bigint)
cast({time} as double)
cast({time} as string)
cast({flag} as int)
cast({flag} as string)
cast({list} as string)
cast({map} as string)
try_cast({text} as int)
{number} = {number}
{number} <=> {number}
{number} < {number}
{text} < {text}
{text} = {number}
{day} > {text}
{time} >= {text}
{time} = {day}
{number} between {number} and {number}
{number} in ({number}, {number}, null)
{flag} and {flag}
{flag} or not {flag}
{text} like {text}
{text} like '%b%'
{text} rlike 'a.*'
upper({text})
lower({text})
initcap({text})
length({text})
octet_length({text})
bit_length({text})
char_length({text})
trim({text})
ltrim({text})
btrim({text}, 'a')
reverse({text})
{text} || {text}
concat({text}, {whole}, {flag})
concat_ws('-', {text}, {text})
substring({text}, {small_number}, {small_number})
substring({text}, {small_number})
left({text}, {small_number})
right({text}, {small_number})
lpad({text}, {small_number}, 'ab')
rpad({text}, 5, {text})
repeat({text}, {small_number})
replace({text}, 'b', {text})
translate({text}, 'abc', 'x')
instr({text}, {text})
locate({text}, {text}, 1)
position('b', {text})
split({text}, 'b')
split_part({text}, 'b', 1)
substring_index({text}, 'b', -1)
ascii({text})
chr({whole})
soundex({text})
levenshtein({text}, {text})
startswith({text}, 'a')
contains({text}, {text})
overlay({text} placing 'Z' from 2)
regexp_replace({text}, '[a-b]', '<$0>')
regexp_extract({text}, '(.)(.)', 2)
regexp_count({text}, 'b')
md5({text})
sha2({text}, 256)
crc32({text})
hash({any})
xxhash64({any})
base64({text})
hex({text})
unhex({text})
encode({text}, 'UTF-8')
to_number({text}, '999')
coalesce({any}, null)
nvl({text}, {text})
nvl2({any}, {whole}, {whole})
nullif({number}, {number})
if({flag}, {number}, {number})
case when {flag} then {number} when {flag} then {number} end
year({day})
month({day})
dayofmonth({day})
dayofweek({day})
weekday({day})
dayofyear({day})
weekofyear({day})
quarter({day})
last_day({day})
date_add({day}, {whole})
date_sub({day}, {small_number})
{day} + {small_number}
{day} - {day}
datediff({day}, {day})
add_months({day}, {small_number})
months_between({day}, {day})
next_day({day}, 'TU')
trunc({day}, 'QUARTER')
trunc({day}, 'WEEK')
date_trunc('WEEK', {time})
date_trunc('HOUR', {time})
date_format({day}, 'yyyy-MM-dd E')
date_format({time}, 'dd/MM/yy HH:mm:ss.SSS')
to_date({text})
to_timestamp({text})
to_date({text}, 'yyyy-MM-dd')
unix_timestamp({time})
from_unixtime({long})
timestamp_seconds({double})
timestamp_micros({long})
unix_micros({time})
unix_date({day})
date_from_unix_date({small_number})
hour({time})
minute({time})
second({time})
extract(second from {time})
extract(week from {day})
make_date({small_number}, {small_number}, {small_number})
{time} + interval 1 month
{day} - interval 1 year
{time} - {time}
from_utc_timestamp({time}, 'Asia/Tokyo')
to_utc_timestamp({time}, 'America/New_York')
{time} + interval 36 hours
{day} + interval 1 day
size({list})
cardinality({list})
array_contains({list}, null)
sort_array({list})
array_distinct({list})
array_max({list})
array_position({list}, 1)
array_remove({list}, 1)
array_union({list}, {list})
array_except({list}, {list})
arrays_overlap({list}, {list})
array_join({list}, ',')
array_repeat({whole}, {small_number})
array({number}, {number})
slice({list}, 1, {small_number})
element_at({list}, {small_number})
{list}[0]
reverse({list})
flatten(array({list}, {list}))
concat({list}, {list})
sequence(1, {small_number})
transform({list}, v -> v)
filter({list}, v -> v is not null)
exists({list}, v -> v = 1)
aggregate(li, 0L, (a, v) -> a + v)
to_json(named_struct('a', {any}))
map_keys({map})
map_values({map})
map_entries({map})
element_at({map}, 'k')
{map}['k']
map_concat({map}, map('q', 1L))
named_struct('a', {any}, 'b', {any})
struct({any}, {any})
typeof({any})
sum({number}) over ()
avg({number}) over (order by {number})
""".strip().splitlines()
AGGREGATES = """
count({any})
count(distinct {any})
sum({number})
avg({number})
min({any})
max({any})
stddev({number})
variance({number})
stddev_pop({number})
corr({double}, {double})
covar_pop({double}, {double})
skewness({double})
kurtosis({double})
first({any}, true)
last({any}, true)
any_value({any})
bool_and({flag})
bit_xor({whole})
count_if({flag})
approx_count_distinct({any})
percentile({whole}, 0.5)
percentile_approx({whole}, 0.5)
median({double})
mode({whole})
max_by({any}, {number})
sort_array(collect_list({any}))
sort_array(collect_set({number}))
try_sum({number})
regr_slope({double}, {double})
""".strip().splitlines()
OF_ANY = ("whole", "long", "double", "decimal", "text", "day", "time", "flag")
FIXED = {"digits": ("0", "1", "-1", "2"), "small_number": ("0", "1", "2", "-1", "5", "small")}


def queries(seed: int, each: int) -> list[str]:
    """`each` queries of every form over random arguments; a row by its id, an aggregate over all and by groups."""
    chance = random.Random(seed)
    found = []
    for form in FORMS:
        found += [f"select id, {_filled(form, chance)} as c from edge order by id" for _ in range(each)]
    for form in AGGREGATES:
        found += [f"select {_filled(form, chance)} as c from edge" for _ in range(each)]
        found.append(f"select yes, {_filled(form, chance)} as c from edge group by yes")
    return list(dict.fromkeys(found))


def _filled(form: str, chance: random.Random) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: _argument(found[1], chance), form)


def _argument(kind: str, chance: random.Random) -> str:
    kind = chance.choice(NUMBERS) if kind == "number" else chance.choice(OF_ANY) if kind == "any" else kind
    return chance.choice(FIXED.get(kind) or COLUMNS[kind])
