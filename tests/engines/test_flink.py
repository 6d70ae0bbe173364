"""Flink SQL: it reads what skep wrote and synced; what it writes is read, written on and synced here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from engine_asking import Engine, EngineRefused
from engine_launch import Launcher, ProcessLauncher
from engine_matrix import Limit, known
from engine_services import ServiceMissing
from engine_starting import FLINK, start_engine
from engine_tables import RECIPES, Made
from engine_values import difference, rows_answered, rows_of

from skep.handles.table import Table
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore
from skep_format.schema.types import META_FIELDS
from skep_format.timeline.instant import Action

pytestmark = pytest.mark.engine(FLINK)
READ_OPTIMIZED = " /*+ OPTIONS('hoodie.datasource.query.type'='read_optimized') */"
SAMPLE = {("life", "mor"), ("two_levels", "cow")}
READS = [
    pytest.param(name, kind, marks=() if (name, kind) in SAMPLE else pytest.mark.slow)
    for name in RECIPES
    for kind in ("cow", "mor")
]


@pytest.fixture(scope="module")
def flink(
    launcher: Launcher, processes: ProcessLauncher, scratch: Path, metastore_server: EmbeddedMetastore
) -> Iterator[Engine]:
    try:
        running, engine = start_engine(
            FLINK, launcher, processes, scratch, metastore_server.uri, f"file://{scratch}/warehouse"
        )
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    yield engine
    engine.close()
    running.stop()


@pytest.fixture
def lake(metastore_server: EmbeddedMetastore, tmp_path: Path) -> Iterator[Lake]:
    with Metastore.connect(metastore_server.uri, timeout=30, attempts=2) as client:
        yield Lake(client, str(tmp_path), database="of_flink")


@pytest.mark.parametrize(("name", "kind"), READS)
def test_every_row_and_value(flink: Engine, zoo: Callable[[str, str], Made], name: str, kind: str) -> None:
    made = zoo(name, kind)
    for view in made.views:
        select = f"select * from {flink.quote(view.entry)}{READ_OPTIMIZED if view.query == 'read_optimized' else ''}"
        limit = known(FLINK, name, view.kind)
        if limit is not None and limit.pattern is not None:
            with pytest.raises(EngineRefused, match=limit.pattern):
                flink.ask(select)
            continue
        wrong = differs(flink, select, made.table.read(query=view.query).to_arrow(), limit)
        assert not wrong, f"{view.entry}: {wrong}"


def differs(flink: Engine, select: str, held: pa.Table, limit: Limit | None = None) -> str:
    """How Flink's rows differ from those of skep, as the limit has them. It shows no meta columns."""
    held = held.drop_columns([name for name in held.column_names if name in META_FIELDS])
    answer = flink.ask(select)
    assert list(answer.names) == held.column_names
    rows = rows_of(held)
    expected = limit.rows(rows) if limit is not None and limit.rows is not None else rows
    return difference(rows_answered(answer.names, answer.rows, held.schema), expected)


# -- tables of Flink ---------------------------------------------------------------------------------------------------

COLUMNS = (
    "id string, ts bigint, note string, amount double, price decimal(10, 2), a_day date, made timestamp(6),"
    " tags array<string>, labels map<string, bigint>, place row<city string, zip int>, part string,"
    " primary key (id) not enforced"
)
BUCKETS = {"index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
# What a table of Flink has beside its type, and the options of skep's writers that go with it.
WAYS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "logs": ("MERGE_ON_READ", {}, {}),
    "changelog": ("MERGE_ON_READ", {"changelog.enabled": "true"}, {}),
    "to be compacted": ("MERGE_ON_READ", {"compaction.delta_commits": "1"}, {}),
    "buckets in logs": (
        "MERGE_ON_READ",
        BUCKETS,
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
    ),
    "files": ("COPY_ON_WRITE", {}, {}),
    "listed files": ("COPY_ON_WRITE", {"metadata.enabled": "true"}, {}),
    "buckets in files": (
        "COPY_ON_WRITE",
        BUCKETS,
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
    ),
}


def values(ids: Iterable[int], ts: int) -> str:
    return ", ".join(
        f"('id-{i}', cast({ts} as bigint), 'flink {ts}', {i}.25e0, cast({i}.5 as decimal(10, 2)),"
        f" date '2024-02-{i + 1:02}', timestamp '2024-03-01 00:00:00.{i:06}', array['a', 'b{i}'],"
        f" map['k', cast({i} as bigint)], row('c{i}', {i}), 'p{i % 2}')"
        for i in ids
    )


def newer(rows: pa.Table, *ids: int, ts: int) -> pa.Table:
    """Rows of these keys as skep writes them: some of those that are there, under new keys too."""
    first = rows.filter(pc.is_in(rows["id"], value_set=pa.array([f"id-{i}" for i in ids])))
    others = rows.slice(0, len(ids) - first.num_rows)
    new = [f"id-{i}" for i in ids if f"id-{i}" not in first["id"].to_pylist()]
    found = pa.concat_tables([first, with_values(others, id=new)])
    return with_values(found, ts=[ts] * len(ids), note=[f"skep {ts}"] * len(ids))


def with_values(rows: pa.Table, **columns: list[Any]) -> pa.Table:
    for name, given in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(given, rows.schema.field(at).type))
    return rows


def notes(table: Table) -> dict[str, str]:
    rows = table.read().to_arrow()
    found = dict(zip(rows["id"].to_pylist(), rows["note"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "a key twice"
    return found


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way == "changelog" else pytest.mark.slow) for way in WAYS]
)
def test_a_table_of_flink(flink: Engine, lake: Lake, way: str) -> None:
    kind, of_flink, of_skep = WAYS[way]
    name = f"flink_{way.replace(' ', '_')}"
    path = f"{lake.warehouse}/{name}"
    options = {"connector": "hudi", "path": path, "table.type": kind, "precombine.field": "ts", **of_flink}
    options["index.bootstrap.enabled"] = "true"  # its state knows nothing of what others wrote
    own = f"default_catalog.default_database.{name}"
    given = ", ".join(f"'{key}'='{value}'" for key, value in options.items())
    flink.ask(f"create table {own} ({COLUMNS}) partitioned by (part) with ({given})")
    flink.ask(f"insert into {own} values {values(range(8), 1)}")
    flink.ask(f"insert into {own} values {values(range(2, 5), 2)}")
    flink.ask("set 'execution.runtime-mode'='batch'")
    flink.ask(f"delete from {own} where id = 'id-3'")
    flink.ask("set 'execution.runtime-mode'='streaming'")

    table = lake.register(path, name)
    expected = {f"id-{i}": f"flink {2 if i in (2, 4) else 1}" for i in range(8) if i != 3}
    assert notes(table) == expected
    rows = table.read().to_arrow()
    rows = rows.drop_columns([each for each in rows.column_names if each in META_FIELDS])
    table.upsert(newer(rows, 4, 5, 9, ts=3), **of_skep)
    table.delete(rows.filter(pc.equal(rows["id"], "id-6")), **of_skep)
    expected = {**expected, **dict.fromkeys(("id-4", "id-5", "id-9"), "skep 3")}
    del expected["id-6"]
    assert notes(table) == expected

    entry = f"of_flink.{name}{'_rt' if kind == 'MERGE_ON_READ' else ''}"
    wrong = differs(flink, f"select * from {flink.quote(entry)}", table.read().to_arrow())
    assert not wrong, wrong

    flink.ask(f"insert into {own} values {values((1, 5), 4)}")
    expected |= dict.fromkeys(("id-1", "id-5"), "flink 4")
    assert notes(table) == expected
    if kind == "MERGE_ON_READ":
        table.compact()
        assert notes(table) == expected
        if "index.type" not in of_flink:
            # a new key fills up a group: in a log over its base file, in a commit that states updates alone
            flink.ask(f"insert into {own} values {values((10,), 5)}")
            newest = table.hudi
            instant = newest.timeline.of(Action.DELTA_COMMIT).completed().last()
            assert instant is not None
            (stat,) = [each for each in newest.commit_metadata(instant).stats if each.num_writes]
            assert (stat.is_log, stat.num_inserts, stat.num_update_writes) == (True, 0, 1)
            table.upsert(newer(rows, 10, ts=6))
            assert notes(table) == {**expected, "id-10": "skep 6"}
