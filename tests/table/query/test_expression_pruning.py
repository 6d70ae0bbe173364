"""A read that leaves out files by indexes over expressions has the rows of one that does not, whatever the filter."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep_format.expressions.patterns import Pattern
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.query.read import explain
from skep_table.services.metadata.indexing import build_index, index_named
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("line", pa.int32()), ("ts", pa.int64()), ("name", pa.string()), ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")), ("part", pa.string()), ("born", pa.string()), ("raw", pa.binary()),
    ]
)  # fmt: skip
OPTIONS = {"hoodie.metadata.enable": "true", "hoodie.parquet.small.file.limit": "0"}
NAMES = (
    None,
    "",
    " ",
    "apple",
    " Apple ",
    "APPLE",
    "straße",
    "STRASSE",
    "ſ",
    "İ",
    "i̇",
    "ΑΣ",
    "ας",
    "\U00010428",
    "ж",
    "z" * 3000,
)
SECONDS = (0, -1, 86_399, 86_400, -86_400, 1_704_067_199, 1_704_067_200, -62_135_596_801, 253_402_300_800, 951_868_800)
EXPRESSIONS = {
    "from_unixtime(ts, 'yyyy-MM-dd')": ("ts", {"expr": "from_unixtime", "format": "yyyy-MM-dd"}),
    "from_unixtime(ts, 'yyyyMM')": ("ts", {"expr": "from_unixtime", "format": "yyyyMM"}),
    "date_format(at, 'yyyy-MM-dd HH')": ("at", {"expr": "date_format", "format": "yyyy-MM-dd HH"}),
    "upper(name)": ("name", {"expr": "upper"}),
    "lower(name)": ("name", {"expr": "lower"}),
    "trim(name)": ("name", {"expr": "trim"}),
    "substring(name, 1, 2)": ("name", {"expr": "substring", "pos": "1", "len": "2"}),
    "length(name)": ("name", {"expr": "length"}),
    "year(day)": ("day", {"expr": "year"}),
    "month(day)": ("day", {"expr": "month"}),
    "year(at)": ("at", {"expr": "year"}),
    "hour(at)": ("at", {"expr": "hour"}),
    "to_date(at)": ("at", {"expr": "to_date"}),
    "date_sub(day, 7)": ("day", {"expr": "date_sub", "days": "7"}),
    "unix_timestamp(at)": ("at", {"expr": "unix_timestamp"}),
    "unix_timestamp(day)": ("day", {"expr": "unix_timestamp"}),
    "date_format(day, 'MM/yyyy')": ("day", {"expr": "date_format", "format": "MM/yyyy"}),
    "to_date(born)": ("born", {"expr": "to_date"}),
    "year(born)": ("born", {"expr": "year"}),
    "length(raw)": ("raw", {"expr": "length"}),
    "length(ts)": ("ts", {"expr": "length"}),
    "substring(name, -2, 2)": ("name", {"expr": "substring", "pos": "-2", "len": "2"}),
    "regexp_extract(name, '^([A-Za-z]+)', 1)": (
        "name",
        {"expr": "regexp_extract", "pattern": "^([A-Za-z]+)", "idx": "1"},
    ),
    "regexp_replace(name, '[a-m ]', '')": ("name", {"expr": "regexp_replace", "pattern": "[a-m ]", "replacement": ""}),
}
FILTERED = ("upper(name)", "lower(name)", "length(name)", "year(day)", "from_unixtime(ts, 'yyyy-MM-dd')")


def rows(chance: random.Random, part: int, keys: range) -> pa.Table:
    """Each partition has years of its own, so that bounds leave partitions out."""

    def born(days: int) -> str | None:
        """Some texts that are no days, or that releases of Spark need not take alike, where such are."""
        day = (dt.date(1970, 1, 1) + dt.timedelta(days=days)).isoformat()
        return chance.choice([None, day, day, day, f"{day} 12:00", *(["N/A", f" {day}", day[:7]] if part == 4 else [])])

    def row(key: int) -> dict[str, object]:
        near = (part * 5 - 3) * 365 * 86_400 + chance.randrange(-(10**7), 10**7)
        seconds = chance.choice([near, near, near, chance.choice(SECONDS)])
        moment = near * 10**6 + chance.randrange(10**6)
        return {
            "id": f"k{key}", "line": 1, "ts": chance.choice([None, seconds, seconds]), "part": f"p{part}",
            "name": chance.choice(NAMES) if part else "apple", "day": chance.choice([None, dt.date(1970, 1, 1)
            + dt.timedelta(days=near // 86_400)]), "at": moment, "born": born(near // 86_400), "raw": b"r" * part,
        }  # fmt: skip

    return pa.Table.from_pylist([row(key) for key in keys], SCHEMA)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((9, TableType.MERGE_ON_READ), id="9-mor"),
        pytest.param((8, TableType.COPY_ON_WRITE), id="8-cow", marks=pytest.mark.slow),
    ],
)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HudiTable:
    """With an index for each expression, made after some writes and kept by others."""
    version, kind = request.param
    folder: Path = tmp_path_factory.mktemp("expressions") / "t"
    chance = random.Random(version)
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="line", type=kind, version=version
    )
    create_table(LocalStorage(str(folder)), spec, OPTIONS)

    def write(part: int, keys: range) -> None:
        LocalWriter(HudiTable.open(str(folder), OPTIONS)).upsert(rows(chance, part, keys))

    for part in range(5):
        write(part, range(part * 20, part * 20 + 12))
    made = HudiTable.open(str(folder), OPTIONS)
    for number, (column, options) in enumerate(EXPRESSIONS.values()):
        made = build_index(made, index_named("column_stats", f"bounds_{number}", [column], options))
    for number, text in enumerate(FILTERED):
        column, options = EXPRESSIONS[text]
        named = index_named(
            "bloom_filters", f"filters_{number}", [column], {**options, "numentries": "50", "fpp": "0.01"}
        )
        made = build_index(made, named)
    for part in range(1, 5):
        write(part, range(part * 20 + 8, part * 20 + 16))
    LocalWriter(HudiTable.open(str(folder), OPTIONS)).delete(rows(chance, 2, range(42, 45)))
    return HudiTable.open(str(folder))


@pytest.fixture(scope="module")
def everything(table: HudiTable) -> pa.Table:
    return read(table, ReadRequest(metadata=False, data_skipping=False)).to_arrow()


YEARS = st.integers(1940, 2000)
LITERALS: dict[str, st.SearchStrategy[str]] = {
    "from_unixtime(ts, 'yyyy-MM-dd')": st.dates(dt.date(1940, 1, 1), dt.date(2030, 1, 1)).map("'{}'".format),
    "from_unixtime(ts, 'yyyyMM')": st.builds("'{}{:02}'".format, YEARS, st.integers(1, 12)),
    "date_format(at, 'yyyy-MM-dd HH')": st.datetimes(dt.datetime(1940, 1, 1), dt.datetime(2000, 1, 1)).map(
        lambda at: f"'{at:%Y-%m-%d %H}'"
    ),
    "year(day)": YEARS.map(str),
    "year(at)": YEARS.map(str),
    "month(day)": st.integers(1, 12).map(str),
    "hour(at)": st.integers(0, 23).map(str),
    "length(name)": st.integers(0, 9).map(str),
    "to_date(at)": st.dates(dt.date(1940, 1, 1), dt.date(2000, 1, 1)).map("DATE '{}'".format),
    "date_sub(day, 7)": st.dates(dt.date(1940, 1, 1), dt.date(2000, 1, 1)).map("DATE '{}'".format),
    "to_date(born)": st.dates(dt.date(1940, 1, 1), dt.date(2000, 1, 1)).map("DATE '{}'".format),
    "year(born)": YEARS.map(str),
    "unix_timestamp(at)": st.integers(-(10**9), 10**9).map(str),
    "unix_timestamp(day)": st.integers(-(10**4), 10**4).map(lambda day: str(day * 86_400)),
    "date_format(day, 'MM/yyyy')": st.builds("'{1:02}/{0}'".format, YEARS, st.integers(1, 12)),
    "length(raw)": st.integers(0, 5).map(str),
    "length(ts)": st.integers(0, 13).map(str),
}
TEXTS = st.sampled_from(
    ["APPLE", "apple", "STRASSE", "straße", "S", "i̇", "ΑΣ", "", "Ж", "z", "\U00010400", "ap", "none"]
)


@st.composite
def leaves(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(list(EXPRESSIONS)))
    literal = LITERALS.get(text, TEXTS.map("'{}'".format))
    form = draw(st.sampled_from(["compare", "compare", "in", "null", "swapped"]))
    if form == "null":
        return f"{text} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if form == "in":
        listed = draw(st.lists(literal, min_size=1, max_size=3))
        return f"{text} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(listed)})"
    sides = [text, draw(literal)]
    sign = draw(st.sampled_from(["=", "=", "<>", "<", "<=", ">", ">="]))
    return f" {sign} ".join(sides[::-1] if form == "swapped" else sides)


CONDITIONS = st.recursive(
    leaves(),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "AND", "OR"]), inner),
    max_leaves=4,
)


def check(table: HudiTable, everything: pa.Table, where: str) -> None:
    from skep_table.query.filters.text import parse_predicate

    expected = everything.filter(parse_predicate(where, everything.schema).mask(everything))
    found = read(table, ReadRequest(where=where)).to_arrow()
    assert sorted(found["id"].to_pylist()) == sorted(expected["id"].to_pylist()), where


@given(CONDITIONS)
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
def test_no_row_is_lost(table: HudiTable, everything: pa.Table, where: str) -> None:
    check(table, everything, where)


@pytest.mark.slow
@given(CONDITIONS)
@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
def test_no_row_is_lost_by_many_filters(table: HudiTable, everything: pa.Table, where: str) -> None:
    check(table, everything, where)


@pytest.mark.parametrize("text", [text for text in EXPRESSIONS if text != "hour(at)"])
def test_each_index_leaves_files_out(table: HudiTable, text: str) -> None:
    literal = {"month(day)": "13", "length(name)": "99999", "year(day)": "9000", "year(at)": "9000"}.get(text, "'~'")
    if text in ("year(born)", "length(raw)", "length(ts)", "unix_timestamp(at)", "unix_timestamp(day)"):
        literal = "999999999999"
    if text in ("to_date(at)", "date_sub(day, 7)", "to_date(born)"):
        literal = "DATE '9000-01-01'"
    steps = explain(table, ReadRequest(where=f"{text} = {literal}")).steps
    by = [step for step in steps if "expression index" in step.by]
    assert by
    assert by[-1].slices < steps[0].slices


def test_hours_of_an_unknown_zone_are_not_used(table: HudiTable) -> None:
    steps = explain(table, ReadRequest(where="hour(at) = 99")).steps
    assert not any("expression index" in step.by for step in steps)


def test_times_are_widened_by_all_zones(table: HudiTable) -> None:
    """A session of Spark may have had any."""
    pattern = Pattern.parse("yyyy-MM-dd")
    assert pattern is not None
    low, high = pattern.widened(pa.array(["2024-03-01"]), pa.array(["2024-03-01"]))
    assert (low[0].as_py(), high[0].as_py()) == ("2024-02-29", "2024-03-02")


def test_filters_of_an_expression_leave_empty_texts_open(tmp_path: Path) -> None:
    """No Bloom filter can hold an empty text."""
    rows = pa.table({"id": ["a", "b", "c", "d"], "name": ["", "X", "Y", None], "part": ["p", "p", "q", "q"]})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("part",), version=9)
    create_table(LocalStorage(str(tmp_path / "t")), spec, OPTIONS)
    LocalWriter(HudiTable.open(str(tmp_path / "t"), OPTIONS)).upsert(rows.slice(2))
    made = HudiTable.open(str(tmp_path / "t"), OPTIONS)
    build_index(made, index_named("bloom_filters", "small", ["name"], {"expr": "lower"}))
    LocalWriter(HudiTable.open(str(tmp_path / "t"))).upsert(rows)
    now = HudiTable.open(str(tmp_path / "t"))
    for where, expected in [
        ("lower(name) = ''", ["a"]),
        ("lower(name) IN ('', 'y')", ["a", "c"]),
        ("lower(name) = 'x'", ["b"]),
    ]:
        assert sorted(read(now, ReadRequest(where=where)).to_arrow()["id"].to_pylist()) == expected
    assert explain(now, ReadRequest(where="lower(name) = 'x'")).steps[-1].slices == 1
