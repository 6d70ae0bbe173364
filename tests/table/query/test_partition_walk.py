"""A filter on partition columns lists only the folders that can match: nothing else, and no partition too few."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from counting_storage import CountingStorage, Requests
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skep_format.metafile import folders_above
from skep_format.names import PARTITION_METAFILE
from skep_format.runner import ThreadRunner
from skep_format.storage import LocalStorage, Storage, open_storage
from skep_format.table_config import TableConfig, TableType, load_table_config
from skep_table.commit.create import TableSpec, create_table
from skep_table.keys.partition_path import join_values
from skep_table.metadata_table import MetadataTable
from skep_table.query import ReadRequest, plan, read
from skep_table.query.filters.text import parse_predicate
from skep_table.query.options import QueryType
from skep_table.query.pruning.partitions import partition_values
from skep_table.table import HudiTable
from skep_table.view import StorageListing, StorageListings
from skep_table.write.local import LocalWriter

DAYS = [datetime.date(2026, 11, day) for day in (1, 2, 30)]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "a/b", "a/b/c", "ab", "b", "", None, "é x", "7", "2026/11/01", "a%2Fb", "A=1"]),
    "number": (pa.int32(), [0, 7, -7, 2026, None]),
    "day": (pa.date32(), [*DAYS, None]),
    "flag": (pa.bool_(), [True, False, None]),
}
CONDITIONS = {
    "text": [
        "{} = 'a'",
        "{} = 'a/b'",
        "{} in ('a/b/c', 'b')",
        "{} > 'a/b'",
        "{} < 'ab'",
        "{} like 'a/%'",
        "{} <> 'a'",
        "{} = ''",
    ],
    "number": ["{} = 7", "{} < 0", "{} in (7, 2026)", "{} >= 7", "not {} = 7"],
    "day": ["{} = date '2026-11-02'", "{} > date '2026-11-01'", "{} in (date '2026-11-30')"],
    "flag": ["{} = true", "not {}"],
}
NULLS = ["{} is null", "{} is not null"]


def config_of(
    folder: Path, fields: Sequence[str], *, type: TableType, hive_style: bool, url_encode: bool
) -> TableConfig:
    (folder / ".hoodie").mkdir(parents=True)
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.type": type.value,
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": ",".join(fields),
        "hoodie.datasource.write.hive_style_partitioning": str(hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(url_encode).lower(),
    }
    (folder / ".hoodie/hoodie.properties").write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
    return load_table_config(LocalStorage(str(folder)))


def listing_of(folder: str) -> StorageListing:
    return StorageListing(StorageListings(LocalStorage(folder), ThreadRunner(1)))


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, str], list[tuple[Any, ...]], str, bool, bool]:
    """The kinds of partition fields, rows of their values, a filter, and how paths are written."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    fields = {f"f{at}": kind for at, kind in enumerate(kinds)}
    rows = draw(st.lists(st.tuples(*(st.sampled_from(VALUES[kind][1]) for kind in kinds)), min_size=1, max_size=12))
    leaves = [text.format(name) for name, kind in fields.items() for text in (*CONDITIONS[kind], *NULLS)]
    parts = draw(st.lists(st.sampled_from(leaves), min_size=1, max_size=3))
    where = draw(st.sampled_from([" and ", " or "])).join(parts)
    return fields, rows, where, draw(st.booleans()), draw(st.booleans())


@settings(max_examples=150)
@example(({"f0": "text"}, [("",), (None,)], "f0 = ''", True, False), TableType.MERGE_ON_READ)
@given(tables(), st.sampled_from(TableType))
def test_every_partition_of_a_row_that_matches_is_found(
    case: tuple[dict[str, str], list[tuple[Any, ...]], str, bool, bool], type: TableType
) -> None:
    fields, rows, where, hive_style, url_encode = case
    columns = {
        name: pa.array([row[at] for row in rows], VALUES[kind][0]) for at, (name, kind) in enumerate(fields.items())
    }
    texts = [column.cast(pa.string()) for column in columns.values()]
    paths = join_values(texts, list(fields), hive_style=hive_style, url_encode=url_encode, rows=len(rows)).to_pylist()
    # A partition in the folder of another is an error.
    outer = [at for at, path in enumerate(paths) if not any(each in paths for each in folders_above(path))]
    columns, paths = {name: column.take(outer) for name, column in columns.items()}, [paths[at] for at in outer]
    # Empty text lies in the default partition, whose value is null to who reads it from the path. Snapshots of
    # merge-on-read tables read it from the file.
    read_back = (
        columns
        if type is TableType.MERGE_ON_READ
        else {
            name: pa.array([value or None for value in column.to_pylist()], pa.string())
            if fields[name] == "text"
            else column
            for name, column in columns.items()
        }
    )
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        config = config_of(folder, list(fields), type=type, hive_style=hive_style, url_encode=url_encode)
        for path in paths:
            (folder / path).mkdir(parents=True, exist_ok=True)
            (folder / path / PARTITION_METAFILE).touch()
        schema = pa.schema([("id", pa.string()), *((name, column.type) for name, column in columns.items())])
        predicate = parse_predicate(where, schema)
        values = partition_values(config, schema, QueryType.SNAPSHOT)
        every = listing_of(scratch).partitions()
        walk = listing_of(scratch)
        wanted = values.folder_filter(predicate)
        found = walk.partitions(wanted)
        matching = {
            path
            for path, matches in zip(paths, predicate.mask(pa.table(read_back)).to_pylist(), strict=True)
            if matches
        }
        assert matching <= set(found) <= set(every)
        assert wanted is None or not wanted.exact or matching <= set(wanted.start)
        assert matching <= set(values.select(every, predicate))
        assert values.select(found, predicate) == [path for path in values.select(every, predicate) if path in found]
        assert all(walk.files(path) for path in found)


@pytest.mark.parametrize(
    ("where", "folders"),
    [
        ("country = 'NL' and year = 2026", {"NL", "NL/2026"}),
        ("country = 'NL'", {"NL", "NL/2025", "NL/2026"}),
        ("country in ('NL', 'DE') and year > 2025", {"NL", "DE", "NL/2026", "DE/2026"}),
        ("year = 2026", {"", "NL", "DE", "FR", "NL/2026", "DE/2026", "FR/2026"}),
        ("country = 'nowhere'", {"nowhere"}),
        ("v = 1", None),
    ],
)
@pytest.mark.parametrize("url_encode", [True, False])
@pytest.mark.parametrize("hive_style", [True, False])
def test_only_folders_that_can_match_are_listed(
    tmp_path: Path, where: str, folders: set[str] | None, hive_style: bool, url_encode: bool
) -> None:
    schema = pa.schema([("id", pa.string()), ("country", pa.string()), ("year", pa.int32()), ("v", pa.int64())])
    rows = [
        {"id": f"{country}{year}", "country": country, "year": year, "v": 1}
        for country, year in itertools.product(["NL", "DE", "FR"], [2025, 2026])
    ]
    spec = TableSpec(
        name="t",
        schema=schema,
        record_key=("id",),
        partition_by=("country", "year"),
        hive_style=hive_style,
        url_encode=url_encode,
    )
    LocalWriter(create_table(open_storage(tmp_path), spec)).bulk_insert(pa.Table.from_pylist(rows, schema))
    storage = CountingStorage(LocalStorage(str(tmp_path)))
    table = HudiTable.open(storage)
    storage.calls.clear()
    tasks = plan(table, ReadRequest(where=where))
    listed = [path for path in storage.calls.paths("list_folder", "list_prefix") if not path.startswith(".hoodie")]
    plain = [path.replace("country=", "").replace("year=", "") for path in listed]
    if folders is None:
        assert len(tasks) == 6
    elif where == "year = 2026" and not url_encode:
        # a country may hold a slash, so that DE/2025 may be one: the depth of its partitions decides
        assert set(plain) == folders | {"NL/2025", "DE/2025", "FR/2025"}
        assert {task.slice.partition_path.rpartition("/")[2][-4:] for task in tasks} == {"2026"}
    else:
        assert sorted(plain) == sorted(folders)
        assert {task.slice.partition_path for task in tasks} == {path for path in listed if path.count("/") == 1}


@pytest.mark.parametrize(
    ("where", "sought", "found"),
    [
        ("part = 'p7'", [["p7"]], [7]),
        ("part in ('p7', 'p9', 'none') and v > 7", [["p7", "p9", "none"]], [9]),
        ("part = 'none'", [["none"]], []),
        ("part < 'p1'", [["__all_partitions__"], ["p0"]], [0]),
    ],
)
def test_of_a_metadata_table_the_partitions_that_are_named_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, sought: list[list[str]], found: list[int]
) -> None:
    """Not the list of all partitions, and of each of these what the filter makes of its name."""
    rows = pa.table({"id": [f"k{n}" for n in range(10)], "part": [f"p{n}" for n in range(10)], "v": list(range(10))})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("part",), version=9)
    made = create_table(open_storage(tmp_path), spec)
    LocalWriter(made.with_options({"hoodie.metadata.enable": "true"})).bulk_insert(rows)
    looked_up: list[list[str]] = []
    real = MetadataTable._lookup

    def lookup(self: MetadataTable, partition: str, keys: Sequence[str], member: str) -> pa.Table:
        looked_up.append(list(keys))
        return real(self, partition, keys, member)

    monkeypatch.setattr(MetadataTable, "_lookup", lookup)
    answer = read(HudiTable.open(tmp_path), ReadRequest(columns=("v",), where=where)).to_arrow()
    assert sorted(answer["v"].to_pylist()) == found
    assert looked_up == sought


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_one_of_200_partitions_of_an_object_store_takes_three_listings(
    table_version: int, s3_folder: Callable[[], Storage], s3_options: dict[str, str], s3_requests: Requests
) -> None:
    storage = s3_folder()
    rows = pa.table({"id": [f"k{n}" for n in range(200)], "part": [f"p{n}" for n in range(200)], "v": list(range(200))})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), partition_by=("part",))
    LocalWriter(create_table(storage, spec)).bulk_insert(rows)
    s3_requests.clear()
    found = read(HudiTable.open(storage.root, s3_options), ReadRequest(columns=("id", "v"), where="part = 'p7'"))
    assert found.to_arrow().to_pylist() == [{"id": "k7", "v": 7}]
    counts = s3_requests.counts()
    # the timeline, the partition, and the timeline again after that; where `.hoodie` is not the timeline's folder, that
    assert counts["LIST"] <= (3 if table_version == 6 else 4), s3_requests
    assert counts["HEAD"] == 0, s3_requests
    s3_requests.clear()
    assert read(HudiTable.open(storage.root, s3_options), ReadRequest(columns=("id",))).to_arrow().num_rows == 200
    assert s3_requests.counts()["HEAD"] == 0, s3_requests
