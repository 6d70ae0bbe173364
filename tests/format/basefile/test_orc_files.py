"""Base files in ORC: what is written is read again, with the entries of Hudi's footers; damage is named."""

from __future__ import annotations

import datetime as dt
import io
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from skep_format.basefile import BaseFileOptions, BaseFileWriter, can_copy, open_base, read_base, read_footer
from skep_format.basefile.orc_output import OrcOutput
from skep_format.basefile.pages import damaged_pages
from skep_format.errors import CorruptFileError, SkepError, UnsupportedError
from skep_format.names import BaseFormat
from skep_format.options import Options
from skep_format.schema.arrow import from_arrow, to_arrow
from skep_format.schema.types import RECORD_KEY
from skep_format.storage import LocalStorage

NAME = "f-0_0-0-0_1.orc"
UTC = dt.timezone.utc
MOMENT = dt.datetime(1960, 2, 3, 4, 5, 6, 123456, UTC)
LATER = dt.datetime(2024, 3, 31, 2, 30, 0, 1, UTC)
ORC = BaseFileOptions(format=BaseFormat.ORC)

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small": (pa.int16(), [1, -2]),
    "n": (pa.int32(), [2**31 - 1, -(2**31)]),
    "big": (pa.int64(), [2**63 - 1, -(2**63)]),
    "f": (pa.float32(), [1.5, float("inf")]),
    "x": (pa.float64(), [1e300, -0.0]),
    "ok": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["", "ü\N{GRINNING FACE}"]),
    "data": (pa.binary(), [b"", b"\x00\xff"]),
    "fixed": (pa.binary(3), [b"abc", b"\x00\x01\x02"]),
    "amount": (pa.decimal128(10, 2), [Decimal("-12345678.90"), Decimal("0.01")]),
    "most": (pa.decimal128(38, 6), [Decimal("1" * 32 + ".123456"), Decimal("-0.000001")]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [MOMENT, LATER]),
    "at_ms": (pa.timestamp("ms", "UTC"), [MOMENT.replace(microsecond=123000), LATER.replace(microsecond=0)]),
    "local": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "of_day": (pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time(0)]),
    "of_day_ms": (pa.time32("ms"), [dt.time(1, 2, 3, 4000), dt.time(0)]),
    "texts": (pa.list_(pa.string()), [["a", None, "b"], []]),
    "times": (pa.list_(pa.timestamp("us", "UTC")), [[MOMENT, None], [LATER]]),
    "named": (pa.map_(pa.string(), pa.timestamp("us", "UTC")), [[("a", MOMENT), ("b", None)], []]),
    "place": (
        pa.struct([("city", pa.string()), ("at", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.time64("us")))]),
        [{"city": "x", "at": MOMENT, "l": [dt.time(1), None]}, {"city": None, "at": None, "l": None}],
    ),
}


def rows_of_all_types(count: int) -> pa.Table:
    dice = random.Random(7)
    drawn = {name: [dice.choice([*values, None]) for _ in range(count)] for name, (_, values) in COLUMNS.items()}
    columns = {name: pa.array(drawn[name], kind) for name, (kind, _) in COLUMNS.items()}
    return pa.table({RECORD_KEY: [f"k{at:05}" for at in range(count)], **columns})


def written(folder: Path, rows: pa.Table, options: BaseFileOptions = ORC) -> LocalStorage:
    storage = LocalStorage(str(folder))
    with BaseFileWriter(storage, NAME, from_arrow(rows.schema), options) as writer:
        for batch in rows.to_batches(max_chunksize=97):
            writer.write(batch)
        found = writer.close()
    assert (found.num_rows, found.size_bytes) == (rows.num_rows, (folder / NAME).stat().st_size)
    return storage


def times(folder: Path, values: list[dt.datetime], zone: bytes = b"GMT") -> LocalStorage:
    """A file of timestamps that was written in a time zone: the stripe's footer names it."""
    rows = pa.table({"at": pa.array(values, pa.timestamp("us", "UTC"))})
    storage = written(folder, rows, BaseFileOptions(format=BaseFormat.ORC, orc_codec="uncompressed"))
    data = (folder / NAME).read_bytes()
    assert data.count(b"\x1a\x03GMT") == 1
    (folder / NAME).write_bytes(data.replace(b"\x1a\x03GMT", b"\x1a\x03" + zone))
    return storage


@pytest.mark.parametrize("codec", ["none", "ZLIB", "SNAPPY", "LZ4", "ZSTD"])
def test_rows_of_all_types_come_back_from_files_of_several_stripes(tmp_path: Path, codec: str) -> None:
    rows = rows_of_all_types(30_000 if codec == "SNAPPY" else 500)
    given = Options({"hoodie.orc.compression.codec": codec, "hoodie.orc.stripe.size": 64 << 10})
    storage = written(tmp_path, rows, BaseFileOptions.of(given, format=BaseFormat.ORC))
    schema = from_arrow(rows.schema)
    back = pa.Table.from_batches(read_base(storage, NAME, schema=schema))
    back.validate(full=True)
    assert back.schema == to_arrow(schema)
    assert back.equals(rows.cast(back.schema))
    file = orc.ORCFile(tmp_path / NAME)
    assert file.compression == {"NONE": "UNCOMPRESSED"}.get(codec.upper(), codec)
    assert codec != "SNAPPY" or file.nstripes > 1
    # as files of others: by their own types, where the Avro schema states what ORC has no type for
    plain = pa.Table.from_batches(read_base(storage, NAME, columns=["local", "at", "times"]))
    assert plain.equals(rows.select(["local", "at", "times"]).cast(plain.schema))
    assert list(damaged_pages(storage, NAME)) == []


@pytest.mark.parametrize("codec", ["uncompressed", "zlib"])
def test_the_footer_has_what_hudi_keeps_in_it(tmp_path: Path, codec: str) -> None:
    """A filter larger than a block of the compression, too."""
    rows = pa.table({RECORD_KEY: [f"k{at}" for at in range(5)], "v": ["x"] * 5})
    options = BaseFileOptions(format=BaseFormat.ORC, orc_codec=codec, filter_fits=False)
    footer = read_footer(written(tmp_path, rows, options), NAME)
    metadata = orc.ORCFile(tmp_path / NAME).metadata
    assert set(metadata) == {
        b"orc.avro.schema",
        b"hoodie_min_record_key",
        b"hoodie_max_record_key",
        b"org.apache.hudi.bloomfilter",
        b"hoodie_bloom_filter_type_code",
    }
    assert len(metadata[b"org.apache.hudi.bloomfilter"]) > 400_000
    assert (footer.num_rows, footer.min_key, footer.max_key) == (5, "k0", "k4")
    assert footer.bloom is not None
    assert footer.bloom.might_contain(pa.array(["k0", "k4", "k5"])).to_pylist() == [True, True, False]
    assert footer.schema.names() == (RECORD_KEY, "v")


def test_slices_of_nested_columns_are_written_as_such(tmp_path: Path) -> None:
    rows = rows_of_all_types(300)
    schema = from_arrow(rows.schema)
    storage = LocalStorage(str(tmp_path))
    with BaseFileWriter(storage, NAME, schema, ORC) as writer:
        for start, count in ((7, 50), (57, 1), (58, 200)):
            writer.write(rows.slice(start, count))
    back = pa.Table.from_batches(read_base(storage, NAME, schema=schema))
    assert back.equals(rows.slice(7, 251).cast(back.schema))


NESTED = pa.struct([("s", pa.struct([("q", pa.int32()), ("l", pa.list_(pa.int32()))]))])


@pytest.mark.parametrize("kind", [NESTED, pa.list_(NESTED), pa.map_(pa.string(), NESTED), pa.list_(pa.list_(NESTED))])
def test_structs_are_written_as_they_are(tmp_path: Path, kind: pa.DataType) -> None:
    """With nulls above members that are none, with offsets, in lists and maps."""
    dice = random.Random(3)

    def drawn(kind: pa.DataType, count: int) -> pa.Array:
        if pa.types.is_struct(kind):
            mask = pa.array([dice.random() < 0.3 for _ in range(count)])
            members = [drawn(member.type, count) for member in kind]
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
        if pa.types.is_list(kind) or pa.types.is_map(kind):
            offsets = pa.array([0, *sorted(dice.choices(range(900), k=count - 1)), 900], pa.int32())
            if pa.types.is_list(kind):
                return pa.ListArray.from_arrays(offsets, drawn(kind.value_type, 900))
            return pa.MapArray.from_arrays(offsets, [f"k{at}" for at in range(900)], drawn(kind.item_type, 900))
        return pa.array([dice.choice([None, at]) for at in range(count)], kind)

    column = drawn(kind, 500)
    rows = pa.table({RECORD_KEY: [f"k{at}" for at in range(len(column))], "v": column})
    schema = from_arrow(rows.schema)
    back = pa.Table.from_batches(read_base(written(tmp_path, rows.slice(3)), NAME, schema=schema))
    assert back.column("v").to_pylist() == rows.column("v").slice(3).to_pylist()


def test_a_file_without_rows_has_its_columns(tmp_path: Path) -> None:
    rows = rows_of_all_types(1).slice(0, 0)
    storage = written(tmp_path, rows)
    (batch,) = read_base(storage, NAME, columns=["at", RECORD_KEY])
    assert (batch.num_rows, batch.schema.names) == (0, ["at", RECORD_KEY])
    assert read_footer(storage, NAME).min_key is None


def test_keys_of_an_older_file_go_on_and_nothing_is_copied_as_bytes(tmp_path: Path) -> None:
    options = BaseFileOptions(format=BaseFormat.ORC, bloom_entries=1000, filter_fits=False)
    storage = written(tmp_path, rows_of_all_types(1000), options)
    schema = from_arrow(rows_of_all_types(1).schema)
    with open_base(storage, NAME) as held, BaseFileWriter(storage, "g-0_0-0-0_2.orc", schema, options) as writer:
        assert writer.continue_keys(held.footer())
        assert held.row_groups is None
        assert not can_copy(held, schema, options)
        for batch in held.rows(schema=schema):
            writer.write(batch, new_keys=False)
        assert (writer.close().min_key, writer.close().max_key) == ("k00000", "k00999")


def test_the_size_of_a_file_is_known_before_its_first_stripe(tmp_path: Path) -> None:
    rows = pa.table({RECORD_KEY: [f"k{at:07}" for at in range(50_000)], "v": ["constant"] * 50_000})
    storage = LocalStorage(str(tmp_path))
    with BaseFileWriter(storage, NAME, from_arrow(rows.schema), ORC) as writer:
        writer.write(rows)
        assert not writer.reaches(1 << 20)
        guessed = writer.record_bytes
        assert writer.reaches(guessed // 2)
    filter_bytes = ORC.filter_bytes(rows.num_rows)
    assert abs(guessed - (tmp_path / NAME).stat().st_size + filter_bytes) < guessed


def test_an_abandoned_file_is_deleted(tmp_path: Path) -> None:
    rows = rows_of_all_types(10)
    storage = LocalStorage(str(tmp_path))

    def abandon() -> None:
        with BaseFileWriter(storage, NAME, from_arrow(rows.schema), ORC) as writer:
            writer.write(rows)
            writer.flush()
            raise KeyError

    with pytest.raises(KeyError):
        abandon()
    assert not (tmp_path / NAME).exists()


class FullError(Exception):
    """The error of a storage."""


class Full(io.BytesIO):
    """A sink that takes no more than its first bytes."""

    def write(self, data: Any) -> int:
        if self.tell() > 100:
            raise FullError("no space left")
        return super().write(data)


def test_the_error_of_a_storage_is_raised_as_it_is() -> None:
    noise = random.Random(1)
    rows = pa.table({"v": [noise.random() for _ in range(400_000)]})
    output = OrcOutput(Full(), NAME, rows.schema, BaseFileOptions(format=BaseFormat.ORC, stripe_bytes=1000))

    def write() -> None:
        output.write(rows.to_batches(max_chunksize=10_000))
        output.close({})

    with pytest.raises(FullError):
        write()
    output.drop()


def test_times_count_in_the_time_zone_of_their_writer(tmp_path: Path) -> None:
    """ORC keeps a wall clock. EST is five hours behind."""
    storage = times(tmp_path, [MOMENT, LATER], b"EST")
    rows = pa.Table.from_batches(read_base(storage, NAME))
    late = dt.timedelta(hours=5)
    assert rows.column("at").to_pylist() == [MOMENT + late, LATER + late]


def test_a_time_of_two_instants_is_refused_by_column(tmp_path: Path) -> None:
    """When clocks go back, an hour comes twice."""
    storage = times(
        tmp_path, [dt.datetime(2024, 10, 27, 0, 30, tzinfo=UTC), dt.datetime(2024, 10, 27, 1, 30, tzinfo=UTC)], b"CET"
    )
    with pytest.raises(UnsupportedError, match=r"f-0_0-0-0_1\.orc, column at: .*CET"):
        list(read_base(storage, NAME))


@pytest.mark.parametrize("moment", [dt.datetime(1500, 1, 1), dt.datetime(9999, 12, 31)])
def test_times_that_do_not_fit_nanoseconds_are_neither_written_nor_read(tmp_path: Path, moment: dt.datetime) -> None:
    rows = pa.table({"day": [dt.date(2020, 1, 1)], "in": [{"at": [moment]}]})
    orc.write_table(rows, tmp_path / NAME)
    storage = LocalStorage(str(tmp_path))
    with pytest.raises(UnsupportedError, match="column in: timestamps before 1677 or after 2262"):
        list(read_base(storage, NAME))
    assert next(read_base(storage, NAME, columns=["day"])).num_rows == 1
    typed = rows.cast(
        pa.schema([rows.schema.field(0), ("in", pa.struct([("at", pa.list_(pa.timestamp("us", "UTC")))]))])
    )
    with (
        pytest.raises(UnsupportedError, match="column in: timestamps before 1677 or after 2262"),
        BaseFileWriter(storage, "g-0_0-0-0_1.orc", from_arrow(typed.schema), ORC) as writer,
    ):
        writer.write(typed)
    assert not (tmp_path / "g-0_0-0-0_1.orc").exists()


def test_damaged_files_are_errors_that_name_them(tmp_path: Path) -> None:
    rows = pa.table({RECORD_KEY: [f"k{at}" for at in range(2000)], "n": range(2000)})
    schema = from_arrow(rows.schema)
    storage = written(tmp_path, rows, BaseFileOptions(format=BaseFormat.ORC, key_filter=False))
    whole = (tmp_path / NAME).read_bytes()
    for keep in range(0, len(whole), max(1, len(whole) // 60)):
        (tmp_path / NAME).write_bytes(whole[:keep])
        with pytest.raises(CorruptFileError, match=r"f-0_0-0-0_1\.orc"):
            list(read_base(storage, NAME, schema=schema))
    tail = orc.ORCFile(pa.BufferReader(whole)).file_footer_length + 300
    for place in range(len(whole) - tail, len(whole), 7):
        broken = bytearray(whole)
        broken[place] ^= 1 << (place % 8)
        (tmp_path / NAME).write_bytes(broken)
        try:
            _ = read_footer(storage, NAME).schema
            assert sum(batch.num_rows for batch in read_base(storage, NAME, schema=schema)) == rows.num_rows
        except SkepError as error:
            assert NAME in str(error)  # noqa: PT017


def test_damage_that_can_be_read_shows_in_statistics(tmp_path: Path) -> None:
    """Where bytes are not compressed: whole numbers, lengths and bounds of texts, how many values there are."""
    rows = pa.table({RECORD_KEY: [f"k{at:04}" for at in range(2000)], "n": [at * at * 7919 for at in range(2000)]})
    storage = written(tmp_path, rows, BaseFileOptions(format=BaseFormat.ORC, orc_codec="uncompressed"))
    assert list(damaged_pages(storage, NAME)) == []
    whole = (tmp_path / NAME).read_bytes()
    numbers = whole.index(b"k0000k0001") + 5 * 2000
    (tmp_path / NAME).write_bytes(whole.replace(b"k0000k0001", b"j0000k0001"))
    assert list(damaged_pages(storage, NAME)) == [f"column {RECORD_KEY}: values that its statistics do not state"]
    broken = bytearray(whole)
    broken[numbers + 2000] ^= 1
    (tmp_path / NAME).write_bytes(broken)
    assert [problem for problem in damaged_pages(storage, NAME) if "column n:" in problem or "stripe" in problem]
