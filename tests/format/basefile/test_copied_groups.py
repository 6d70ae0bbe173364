"""Row groups that are copied from one base file into another: what is copied, what is refused, and wrong footers."""

from __future__ import annotations

import io
import math
import re
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.basefile import BaseFileOptions, BaseFileWriter, can_copy, open_base, read_base, read_footer
from skep_format.basefile import parquet_metadata as parquet
from skep_format.basefile.output import ParquetOutput
from skep_format.basefile.pages import damaged_pages
from skep_format.basefile.row_groups import RowGroups, share_of_columns
from skep_format.basefile.thrift import I32, I64, STRUCT, Struct, parse_struct, required, value_of
from skep_format.basefile.value_filters import ValueFilters
from skep_format.errors import CorruptFileError, SkepError
from skep_format.schema.arrow import from_arrow, to_arrow
from skep_format.schema.types import COMMIT_SEQNO, FILE_NAME, META_FIELDS, RECORD_KEY, Schema
from skep_format.storage import LocalStorage

COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("number", pa.int64()),
        ("price", pa.float64()),
        ("cents", pa.decimal128(12, 2)),
        ("moment", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float32()), ("y", pa.float32())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("note", pa.string()),
    ]
)
SCHEMA = from_arrow(COLUMNS).with_meta()
WITHOUT_STATISTICS = (COMMIT_SEQNO, FILE_NAME)
OLD, NEW = "f-0_0-0-0_20260101000000000.parquet", "f-0_0-0-0_20260102000000000.parquet"


def rows(first: int, count: int, file: str = OLD) -> pa.Table:
    """Rows with keys in ascending order; NaN, nulls and empty lists among them."""
    numbers = range(first, first + count)
    columns: dict[str, list[Any]] = {
        "_hoodie_commit_time": ["20260101000000000"] * count,
        "_hoodie_commit_seqno": [f"20260101000000000_0_{at}" for at in numbers],
        RECORD_KEY: [f"k{at:06d}" for at in numbers],
        "_hoodie_partition_path": [""] * count,
        FILE_NAME: [file] * count,
        "id": [f"k{at:06d}" for at in numbers],
        "number": [None if at % 7 == 0 else at for at in numbers],
        "price": [math.nan if at % 100 == 3 else at / 8 for at in numbers],
        "cents": list(numbers),
        "moment": [at * 1_000_003 for at in numbers],
        "tags": [[f"t{at % 5}"] * (at % 4) for at in numbers],
        "place": [{"x": float(at), "y": None} for at in numbers],
        "counts": [[(f"c{at % 3}", at)] for at in numbers],
        "note": [f"note {at % 11}" for at in numbers],
    }
    target = to_arrow(SCHEMA)
    return pa.table([pa.array(columns[field.name], field.type) for field in target], schema=target)


def write(storage: LocalStorage, name: str, groups: list[pa.Table], options: BaseFileOptions | None = None) -> None:
    with BaseFileWriter(storage, name, SCHEMA, options) as writer:
        for group in groups:
            writer.write(group)
            writer.flush()


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


@pytest.fixture
def old(storage: LocalStorage) -> LocalStorage:
    """A file of four row groups of 50 rows."""
    write(storage, OLD, [rows(at, 50) for at in range(0, 200, 50)])
    return storage


def spliced(storage: LocalStorage, parts: list[int | pa.Table], options: BaseFileOptions | None = None) -> str:
    """A file of row groups of the old file, by number, and of rows; keys are hashed again."""
    with open_base(storage, OLD) as held, BaseFileWriter(storage, NEW, SCHEMA, options) as writer:
        assert writer.takes(held)
        for part in parts:
            if isinstance(part, int):
                writer.copy(held, part)
            else:
                writer.write(part)
    return NEW


def read(storage: LocalStorage, name: str) -> pa.Table:
    return pa.Table.from_batches(read_base(storage, name, schema=SCHEMA))


def without_name(table: pa.Table) -> list[dict[str, Any]]:
    """As text, for which NaN equals itself."""
    return [repr(row) for row in table.drop_columns([FILE_NAME]).to_pylist()]


PARTS = {
    "all": [0, 1, 2, 3],
    "one is written": [0, rows(50, 50, NEW), 2, 3],
    "rows first": [rows(900, 20, NEW), 1, 2],
    "rows last": [3, rows(900, 20, NEW)],
    "rows alone": [rows(900, 20, NEW)],
    "in another order": [2, rows(900, 3, NEW), 0, rows(950, 3, NEW), 0],
    "nothing": [],
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_every_reader_finds_the_rows(parts: list[int | pa.Table], old: LocalStorage) -> None:
    name = spliced(old, parts)
    path = f"{old.root}/{name}"
    expected = pa.concat_tables(
        [rows(part * 50, 50) if isinstance(part, int) else part for part in parts] or [rows(0, 0)]
    )
    found = read(old, name)
    assert without_name(found) == without_name(expected)
    assert found[FILE_NAME].unique().to_pylist() == ([NEW] if len(found) else [])
    assert without_name(pq.read_table(path, page_checksum_verification=True)) == without_name(expected)
    assert list(damaged_pages(old, name)) == []
    count, total = duckdb.sql(f"select count(*), sum(number) from read_parquet('{path}')").fetchall()[0]
    assert (count, total or 0) == (len(expected), sum(filter(None, expected["number"].to_pylist())))
    footer = read_footer(old, name)
    keys = expected[RECORD_KEY]
    assert footer.num_rows == len(expected)
    if len(keys):
        assert footer.bloom is not None
        assert footer.bloom.might_contain(keys).to_pylist() == [True] * len(keys)
        assert (footer.min_key, footer.max_key) == (min(keys.to_pylist()), max(keys.to_pylist()))


def test_the_footer_states_the_new_places(old: LocalStorage) -> None:
    """Each row group begins where the one before it ends, and totals are those of its chunks."""
    name = spliced(old, [1, rows(900, 20, NEW), 3])
    metadata = pq.read_metadata(f"{old.root}/{name}")
    assert [metadata.row_group(at).num_rows for at in range(3)] == [50, 20, 50]
    footer, size = parquet.footer_of(Path(old.root, name).read_bytes())
    at = 4
    for number, group in enumerate(parquet.groups_of(footer)):
        assert value_of(group, parquet.ORDINAL) == number
        assert value_of(group, parquet.FILE_OFFSET) == at
        for chunk in parquet.chunks_of(group):
            assert parquet.chunk_start(chunk) == at
            at += parquet.chunk_bytes(chunk)
        assert value_of(group, parquet.COMPRESSED_BYTES) == sum(map(parquet.chunk_bytes, parquet.chunks_of(group)))
    assert at == old.size(name) - size
    assert value_of(footer, parquet.NUM_ROWS) == 120


def test_statistics_are_those_of_the_old_file_and_the_new_rows(old: LocalStorage) -> None:
    with open_base(old, OLD) as held, BaseFileWriter(old, NEW, SCHEMA) as writer:
        assert writer.takes(held)
        writer.copy(held, 2)
        writer.write(rows(900, 20, NEW))
        writer.close()
        found = writer.column_statistics()
    assert (found["number"].low, found["number"].high) == (100, 919)
    assert (found["id"].low, found["id"].high, found["id"].nulls) == ("k000100", "k000919", 0)
    assert (found["price"].low, found["price"].high) == (None, None)  # NaN is among them
    before, after = (
        pq.read_metadata(f"{old.root}/{OLD}").row_group(2),
        pq.read_metadata(f"{old.root}/{NEW}").row_group(0),
    )
    for at in range(before.num_columns):
        if before.column(at).path_in_schema not in WITHOUT_STATISTICS:
            assert before.column(at).statistics == after.column(at).statistics


def test_row_groups_that_are_read_ahead_are_those_that_are_copied_one_by_one(old: LocalStorage) -> None:
    numbers = [0, 1, 3]
    with open_base(old, OLD) as held:
        with BaseFileWriter(old, "one.parquet", SCHEMA) as writer:
            for number in numbers:
                writer.copy(held, number)
        with BaseFileWriter(old, "all.parquet", SCHEMA) as writer:
            writer.copy_all(held, numbers)
    kept = [name for name in SCHEMA.names() if name != FILE_NAME]
    one, every = (pq.read_table(old.local_path(name)) for name in ("one.parquet", "all.parquet"))
    assert repr(one.select(kept).to_pylist()) == repr(every.select(kept).to_pylist())
    assert set(every.column(FILE_NAME).to_pylist()) == {"all.parquet"}
    assert list(damaged_pages(old, "all.parquet")) == []


def test_of_a_damaged_row_group_nothing_is_written(old: LocalStorage) -> None:
    """Those before it may be: the write fails, and leaves no file."""
    metadata = pq.read_metadata(old.local_path(OLD))
    data = bytearray(old.read(OLD))
    data[metadata.row_group(2).column(0).data_page_offset] ^= 0xFF
    old.create_exclusive("cut.parquet", bytes(data))
    with (
        pytest.raises(CorruptFileError, match=r"cut\.parquet"),
        open_base(old, "cut.parquet") as held,
        BaseFileWriter(old, NEW, SCHEMA) as writer,
    ):
        writer.copy_all(held, [0, 1, 2, 3])
    assert not old.exists(NEW)


def test_a_footer_that_is_kept_stays_as_it_is(old: LocalStorage) -> None:
    with open_base(old, OLD) as held, BaseFileWriter(old, NEW, SCHEMA) as writer:
        writer.copy_all(held, [0, 1])
        writer.copy(held, 2, changed=rows(100, 50).select(["price", "note"]).combine_chunks().to_batches()[0])
        assert held.row_groups is not None
        kept = held.row_groups._footer
        with open_base(old, OLD) as again:
            assert again.row_groups is not None
            assert again.row_groups._footer is kept
    fresh, _ = parquet.footer_of(Path(old.local_path(OLD)).read_bytes())
    ignored = parquet.KEY_VALUES  # without the filter
    assert {k: v for k, v in kept.items() if k != ignored} == {k: v for k, v in fresh.items() if k != ignored}


def test_the_filter_goes_on_without_hashing_keys(old: LocalStorage) -> None:
    """The keys of the old file are known from its footer, in a filter of the size that the new file has."""
    options = BaseFileOptions(filter_fits=False)
    write(old, OLD, [rows(at, 50) for at in range(0, 200, 50)], options)
    with open_base(old, OLD) as held, BaseFileWriter(old, NEW, SCHEMA, options) as writer:
        assert writer.continue_keys(held.footer())
        for number in range(4):
            writer.copy(held, number, new_keys=False)
    assert read_footer(old, NEW).bloom == read_footer(old, OLD).bloom or (
        read_footer(old, NEW).bloom.to_bytes() == read_footer(old, OLD).bloom.to_bytes()  # type: ignore[union-attr]
    )


def test_bounds_of_changed_columns_with_nan_are_left_out(old: LocalStorage) -> None:
    changed = rows(0, 50).select(["price"]).combine_chunks().to_batches()[0]
    with open_base(old, OLD) as held, BaseFileWriter(old, NEW, SCHEMA) as writer:
        writer.copy(held, 0, changed=changed)
    metadata = pq.read_metadata(f"{old.root}/{NEW}").row_group(0)
    found = {metadata.column(at).path_in_schema: metadata.column(at).statistics for at in range(metadata.num_columns)}
    assert not found["price"].has_min_max
    assert found["number"].has_min_max


class Reads:
    """An open file that takes note of what is read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.found = data, list[tuple[int, int]]()

    def size(self) -> int:
        return len(self.data)

    def read_at(self, length: int, start: int) -> bytes:
        self.found.append((start, length))
        return self.data[start : start + length]


def test_only_pages_that_are_kept_are_read_where_they_lie_apart(storage: LocalStorage) -> None:
    table = rows(0, 50)
    large = pa.array([np.random.default_rng(at).bytes(40_000).hex() for at in range(50)])
    table = table.set_column(table.schema.get_field_index("id"), "id", large)
    write(storage, OLD, [table], BaseFileOptions(dictionary=False))
    source: Any = Reads(Path(storage.root, OLD).read_bytes())
    groups = RowGroups(source, OLD)
    every = {parquet.name_of(each.chunk): each for each in groups.read(0).columns}
    source.found.clear()
    assert groups.read(0).columns == tuple(every.values())
    assert len(source.found) == 1
    source.found.clear()
    assert groups.read(0, {"id": every["id"]}).columns == tuple(every.values())
    assert len(source.found) == 2
    assert sum(length for _, length in source.found) < len(every["id"].data)


def test_pages_are_passed_on_together(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    write_one = ParquetOutput.write
    monkeypatch.setattr(ParquetOutput, "write", lambda self, data: passed.append(len(data)) or write_one(self, data))  # type: ignore[func-returns-value]
    write(storage, OLD, [rows(0, 5000)])
    assert len(passed) < len(SCHEMA.names())


def test_one_row_group_is_in_memory_at_a_time(old: LocalStorage) -> None:
    random = np.random.default_rng(1)
    noise = pa.array([random.bytes(1000).hex() for _ in range(500)])
    group = rows(0, 500).set_column(SCHEMA.names().index("note"), "note", noise)
    write(old, OLD, [group] * 20, BaseFileOptions(codec="none"))
    assert old.size(OLD) > 20_000_000
    with open_base(old, OLD) as held, BaseFileWriter(old, NEW, SCHEMA, BaseFileOptions(codec="none")) as writer:
        assert writer.takes(held)
        tracemalloc.start()
        for number in range(20):
            writer.copy(held, number)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 6_000_000


# -- indexes and filters apart from the pages


def with_indexes(storage: LocalStorage) -> None:
    """The old file as Java's writers make it: with page indexes; and with filters of two columns."""
    file_schema = pq.read_schema(f"{storage.root}/{OLD}").remove_metadata()
    table = pq.read_table(f"{storage.root}/{OLD}").cast(file_schema)
    entries = read_footer(storage, OLD).entries
    with pq.ParquetWriter(
        f"{storage.root}/{OLD}",
        file_schema,
        store_schema=False,
        write_page_index=True,
        write_page_checksum=True,
        data_page_size=64,
        write_batch_size=8,
        use_dictionary=False,
        bloom_filter_options={"id": {"ndv": 100, "fpp": 0.01}, "note": {"ndv": 100, "fpp": 0.01}},
    ) as writer:
        for at in range(0, 200, 50):
            writer.write_table(table.slice(at, 50))
        writer.add_key_value_metadata(dict(entries))


def test_page_indexes_and_filters_move_along(old: LocalStorage) -> None:
    with_indexes(old)
    name = spliced(old, [3, rows(900, 20, NEW), 1])
    data = Path(old.root, name).read_bytes()
    source = Path(old.root, OLD).read_bytes()
    groups, sources = (parquet.groups_of(parquet.footer_of(each)[0]) for each in (data, source))
    for number, of in ((0, 3), (2, 1)):
        for chunk, before in zip(parquet.chunks_of(groups[number]), parquet.chunks_of(sources[of]), strict=True):
            index, _ = parse_struct(data, value_of(chunk, parquet.OFFSET_INDEX))
            for location in value_of(index, parquet.PAGE_LOCATIONS)[1]:
                offset, size = value_of(location, parquet.PAGE_OFFSET), value_of(location, 2)
                header, start = parse_struct(data, offset)
                assert start + value_of(header, 3) == offset + size
                assert parquet.chunk_start(chunk) <= offset < parquet.chunk_start(chunk) + parquet.chunk_bytes(chunk)
            if parquet.name_of(chunk) in WITHOUT_STATISTICS:
                assert parquet.COLUMN_INDEX not in chunk
                continue
            assert part(data, chunk, parquet.COLUMN_INDEX) == part(source, before, parquet.COLUMN_INDEX)
            meta, old_meta = parquet.meta_data(chunk), parquet.meta_data(before)
            if parquet.name_of(chunk) in ("id", "note"):
                assert part(data, meta, parquet.BLOOM_FILTER) == part(source, old_meta, parquet.BLOOM_FILTER)
            else:
                assert parquet.BLOOM_FILTER not in meta
    probe = "select row_group_id, bloom_filter_excludes from parquet_bloom_probe('{}', 'id', 'k000170')"
    found = duckdb.sql(probe.format(f"{old.root}/{name}")).fetchall()
    assert dict(found)[0] is False
    assert dict(found)[2] is True
    for key in ("k000170", "k000060", "k000905"):
        sought = duckdb.sql(f"select count(*) from read_parquet('{old.root}/{name}') where id = '{key}'").fetchall()
        assert sought == [(1,)]


def part(data: bytes, struct: Struct, field: int) -> bytes:
    """What an offset and the length beside it name."""
    start = value_of(struct, field)
    return data[start : start + value_of(struct, field + 1)]


def test_a_filter_without_its_length_is_copied_whole(old: LocalStorage) -> None:
    """As writers before version 2.10 of the format left it out."""
    with_indexes(old)
    edited(old, lambda footer: [
        parquet.meta_data(chunk).pop(parquet.BLOOM_FILTER_BYTES, None)
        for group in parquet.groups_of(footer) for chunk in parquet.chunks_of(group)
    ])  # fmt: skip
    spliced(old, [0])
    (found,) = duckdb.sql(
        f"select bloom_filter_excludes from parquet_bloom_probe('{old.root}/{NEW}', 'id', 'k000170')"
    ).fetchall()
    assert found == (True,)


def test_filters_that_the_options_ask_for_are_not_left_out(old: LocalStorage) -> None:
    options = BaseFileOptions(value_filters=ValueFilters(columns=(("id", True),)))
    with open_base(old, OLD) as held:
        assert not can_copy(held, SCHEMA, options)
    with_indexes(old)
    spliced(old, [0, rows(900, 20, NEW), 2], options)
    probe = f"select bloom_filter_excludes from parquet_bloom_probe('{old.root}/{NEW}', 'id', 'k000001')"
    assert duckdb.sql(probe).fetchall() == [(False,), (True,), (True,)]


# -- what is not copied


def edited(storage: LocalStorage, edit: Any, name: str = OLD) -> None:
    """The file with another footer."""
    path = Path(storage.root, name)
    data = path.read_bytes()
    footer, size = parquet.footer_of(data)
    edit(footer)
    path.write_bytes(data[:-size] + parquet.footer_bytes(footer))


def first_meta(footer: Struct) -> Struct:
    return parquet.meta_data(parquet.chunks_of(parquet.groups_of(footer)[0])[0])


def changed(fields: list[pa.Field]) -> Schema:
    return from_arrow(pa.schema(fields)).with_meta()


OTHERS = {
    "added": changed([*COLUMNS, pa.field("more", pa.int32())]),
    "dropped": changed([*COLUMNS][:-1]),
    "renamed": changed([*[*COLUMNS][:-1], pa.field("remark", pa.string())]),
    "reordered": changed([*[*COLUMNS][:-2], COLUMNS.field("note"), COLUMNS.field("counts")]),
    "widened": changed([pa.field(each.name, pa.float64()) if each.name == "number" else each for each in COLUMNS]),
    "required": changed([each.with_nullable(each.name != "number") for each in COLUMNS]),
    "another unit": changed(
        [each.with_type(pa.timestamp("ms", "UTC")) if each.name == "moment" else each for each in COLUMNS]
    ),
    "another scale": changed(
        [each.with_type(pa.decimal128(12, 3)) if each.name == "cents" else each for each in COLUMNS]
    ),
}


@pytest.mark.parametrize("schema", OTHERS.values(), ids=OTHERS.keys())
def test_files_with_other_columns_are_not_copied(schema: Schema, old: LocalStorage) -> None:
    with open_base(old, OLD) as held:
        assert can_copy(held, SCHEMA, BaseFileOptions())
        assert not can_copy(held, schema, BaseFileOptions())


UNKNOWN = {
    "in the file": lambda footer: footer.update({10: (I64, 4)}),
    "in a row group": lambda footer: parquet.groups_of(footer)[1].update({8: (I64, 4)}),
    "in a chunk": lambda footer: parquet.chunks_of(parquet.groups_of(footer)[1])[2].update({10: (I64, 4)}),
    "in its metadata": lambda footer: first_meta(footer).update({18: (I64, 4)}),
    "a file of its own": lambda footer: parquet.chunks_of(parquet.groups_of(footer)[0])[0].update({1: (8, b"x")}),
    "encrypted": lambda footer: footer.update({8: (STRUCT, {})}),
    "an old writer": lambda footer: footer.update({parquet.CREATED_BY: (8, b"parquet-mr version 1.8.1 (build x)")}),
    "an unknown writer": lambda footer: footer.update({parquet.CREATED_BY: (8, b"somebody")}),
    "no writer": lambda footer: footer.pop(parquet.CREATED_BY),
    "no orders": lambda footer: footer.pop(parquet.COLUMN_ORDERS),
}


@pytest.mark.parametrize("edit", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_footers_that_hold_what_is_not_known_are_not_copied(edit: Any, old: LocalStorage) -> None:
    edited(old, edit)
    with old.open_input(OLD) as source:
        footer = parquet.footer_of(write_empty(old))[0]
        assert not RowGroups(source, OLD).can_be_copied(footer, 1, ())


def write_empty(storage: LocalStorage) -> bytes:
    write(storage, "empty.parquet", [])
    return Path(storage.root, "empty.parquet").read_bytes()


@pytest.mark.parametrize("version", [b"1.10.1", b"1.13.1", b"1.16.0", b"2.0.0", b"10.2.0"])
def test_files_of_javas_writers_are_copied(version: bytes, old: LocalStorage) -> None:
    edited(
        old, lambda footer: footer.update({parquet.CREATED_BY: (8, b"parquet-mr version " + version + b" (build x)")})
    )
    with open_base(old, OLD) as held:
        assert can_copy(held, SCHEMA, BaseFileOptions())


def test_another_codec_and_another_calendar_are_not_copied(old: LocalStorage) -> None:
    with open_base(old, OLD) as held:
        assert not can_copy(held, SCHEMA, BaseFileOptions(codec="zstd"))

    def by_spark_2(footer: Struct) -> None:
        for entry in value_of(footer, 5)[1]:
            if value_of(entry, 1).endswith(b"spark.version"):
                entry[2] = 8, b"2.4.8"

    edited(old, by_spark_2)
    with open_base(old, OLD) as held:
        assert held.row_groups is None
        assert not can_copy(held, SCHEMA, BaseFileOptions())


def test_what_nobody_here_knows_of_statistics_and_columns_survives(old: LocalStorage) -> None:
    def edit(footer: Struct) -> None:
        value_of(footer, parquet.SCHEMA)[1][1][20] = I32, 7
        value_of(first_meta(footer), parquet.STATISTICS or 12)
        for chunk in parquet.chunks_of(parquet.groups_of(footer)[0]):
            meta = parquet.meta_data(chunk)
            known = value_of(meta, parquet.STATISTICS) or {}
            meta[parquet.STATISTICS] = STRUCT, {**known, 40: (I64, 99)}

    edited(old, edit)
    spliced(old, [0])
    footer, _ = parquet.footer_of(Path(old.root, NEW).read_bytes())
    statistics = [
        value_of(parquet.meta_data(chunk), parquet.STATISTICS)
        for chunk in parquet.chunks_of(parquet.groups_of(footer)[0])
        if parquet.name_of(chunk) not in WITHOUT_STATISTICS
    ]
    assert all(value_of(each, 40) == 99 for each in statistics)


# -- wrong footers


def set_meta(field: int, value: int, group: int = 1, column: int = 6) -> Any:
    def edit(footer: Struct) -> None:
        parquet.meta_data(parquet.chunks_of(parquet.groups_of(footer)[group])[column])[field] = I64, value

    return edit


WRONG = {
    "rows of a group": lambda footer: parquet.groups_of(footer)[1].update({parquet.GROUP_ROWS: (I64, 49)}),
    "rows of the file": lambda footer: footer.update({parquet.NUM_ROWS: (I64, 199)}),
    "values": set_meta(parquet.NUM_VALUES, 49),
    "an offset beyond the file": set_meta(parquet.DATA_PAGE, 1 << 40),
    "an offset before the file": set_meta(parquet.DATA_PAGE, 1),
    "an offset of another column": set_meta(parquet.DATA_PAGE, 4, column=7),
    "more bytes": set_meta(parquet.COMPRESSED, 1 << 40),
    "a chunk less": lambda footer: parquet.chunks_of(parquet.groups_of(footer)[1]).pop(),
    "chunks in another order": lambda footer: parquet.chunks_of(parquet.groups_of(footer)[1]).reverse(),
}


@pytest.mark.parametrize("edit", WRONG.values(), ids=WRONG.keys())
def test_a_footer_that_contradicts_itself_is_an_error(edit: Any, old: LocalStorage) -> None:
    edited(old, edit)
    empty = parquet.footer_of(write_empty(old))[0]
    with old.open_input(OLD) as source, pytest.raises(CorruptFileError, match=re.escape(OLD)):
        RowGroups(source, OLD).can_be_copied(empty, 1, ())


CONTRADICTING_PAGES = {
    "fewer bytes": lambda footer: shrink(footer, 1),
    "the first page of values": lambda footer: shift_data(footer, 1),
}


def shrink(footer: Struct, by: int) -> None:
    meta = parquet.meta_data(parquet.chunks_of(parquet.groups_of(footer)[1])[6])
    meta[parquet.COMPRESSED] = I64, required(meta, parquet.COMPRESSED, I64) - by


def shift_data(footer: Struct, by: int) -> None:
    for chunk in parquet.chunks_of(parquet.groups_of(footer)[1]):
        meta = parquet.meta_data(chunk)
        if parquet.DICTIONARY_PAGE in meta:
            meta[parquet.DATA_PAGE] = I64, required(meta, parquet.DATA_PAGE, I64) + by


@pytest.mark.parametrize("edit", CONTRADICTING_PAGES.values(), ids=CONTRADICTING_PAGES.keys())
def test_pages_that_are_not_as_the_footer_states_are_an_error_before_a_byte_is_copied(
    edit: Any, old: LocalStorage
) -> None:
    edited(old, edit)
    with open_base(old, OLD) as held, BaseFileWriter(old, NEW, SCHEMA) as writer:
        assert writer.takes(held)
        writer.copy(held, 0)
        with pytest.raises(CorruptFileError, match=OLD):
            writer.copy(held, 1)
        writer.copy(held, 2)
    assert without_name(read(old, NEW)) == without_name(pa.concat_tables([rows(0, 50), rows(100, 50)]))


@pytest.fixture(scope="module")
def small() -> bytes:
    """A file of three row groups."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(LocalStorage(folder), OLD, [rows(at, 9) for at in range(0, 27, 9)])
        return Path(folder, OLD).read_bytes()


@settings(max_examples=150)
@given(data=st.data())
def test_a_footer_with_a_wrong_bit_gives_an_error_or_the_rows(
    small: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever bit it is. Bounds that are wrong stay so, but no row is lost or changed."""
    _, size = parquet.footer_of(small)
    at, bit = data.draw(st.tuples(st.integers(len(small) - size, len(small) - 9), st.integers(0, 7)))
    bad = bytearray(small)
    bad[at] ^= 1 << bit
    storage = LocalStorage(str(tmp_path_factory.mktemp("bits")))
    Path(storage.root, OLD).write_bytes(bad)
    with suppress(SkepError, UnicodeDecodeError):  # no bit makes Arrow end the process
        share_of_columns(storage, OLD, {"id"})
        list(damaged_pages(storage, OLD))
    try:
        with open_base(storage, OLD) as held, BaseFileWriter(storage, NEW, SCHEMA) as writer:
            held.footer()
            if not writer.takes(held) or held.row_groups is None:
                return
            for number in range(len(held.row_groups.rows)):
                writer.copy(held, number)
        found = read(storage, NEW)
    except (SkepError, UnicodeDecodeError):
        return
    assert without_name(found) == without_name(rows(0, 27))


# -- any rows


VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.bool_(): st.booleans(),
    pa.list_(pa.int64()): st.lists(st.integers(-9, 9), max_size=3),
}


@given(data=st.data())
def test_any_rows_are_the_same_when_they_are_copied(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    fields = [pa.field("id", pa.string()), *(pa.field(f"c{at}", kind) for at, kind in enumerate(kinds))]
    schema = from_arrow(pa.schema(fields)).with_meta()
    target = to_arrow(schema)
    storage = LocalStorage(str(tmp_path_factory.mktemp("any")))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    tables, first = [], 0
    for size in sizes:
        keys = [f"k{at}" for at in range(first, first + size)]
        first += size
        columns: dict[str, list[Any]] = {name: ["x"] * size for name in META_FIELDS}
        columns |= {RECORD_KEY: keys, "id": keys}
        for at, kind in enumerate(kinds):
            columns[f"c{at}"] = data.draw(st.lists(st.none() | VALUES[kind], min_size=size, max_size=size))
        tables.append(pa.table([pa.array(columns[f.name], f.type) for f in target], schema=target))
    options = replace(BaseFileOptions(), codec=data.draw(st.sampled_from(["snappy", "gzip", "zstd", "lz4", "none"])))
    with BaseFileWriter(storage, OLD, schema, options) as writer:
        for table in tables:
            writer.write(table)
            writer.flush()
    copied = data.draw(st.lists(st.booleans(), min_size=len(tables), max_size=len(tables)))
    with open_base(storage, OLD) as held, BaseFileWriter(storage, NEW, schema, options) as writer:
        assert writer.takes(held)
        for number, (table, is_copied) in enumerate(zip(tables, copied, strict=True)):
            if is_copied:
                writer.copy(held, number)
            else:
                writer.write(table)
    found = pa.Table.from_batches(read_base(storage, NEW, schema=schema))
    assert without_name(found) == without_name(pa.concat_tables(tables))
    assert list(damaged_pages(storage, NEW)) == []
    assert io.BytesIO(Path(storage.root, NEW).read_bytes()).read(4) == b"PAR1"
