"""Log files (format guide 6): Hudi's own files read and written back, any block round trip, damage by Hudi's rule."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.avro import encode_records
from skep_format.errors import CorruptFileError, FormatError, SchemaError, SkepError, UnsupportedError
from skep_format.hfile import format_hfile
from skep_format.logfile import (
    BlockRule,
    BlockType,
    HeaderKey,
    LogBlock,
    avro_block,
    delete_block,
    format_block,
    format_positions,
    read_blocks,
    rollback_block,
    valid_blocks,
)
from skep_format.logfile.writer import avro_content, delete_content
from skep_format.schema.avro import avro_text
from skep_format.schema.types import Field, LongType, Schema, StringType

SCHEMA = Schema((Field("key", StringType()), Field("n", LongType())))
MAGIC = b"#HUDI#"


def parsed(data: bytes, path: str = "f.log") -> list[LogBlock]:
    return list(read_blocks(pa.BufferReader(data), path, len(data)))


def rows(*keys: str) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.string()), "n": pa.array(range(len(keys)), pa.int64())})


def log_files(golden: Path) -> list[Path]:
    found = [path for path in sorted(golden.rglob(".*.log.*")) if not path.name.endswith(".crc")]
    assert len(found) > 300
    return found


class TestGolden:
    def test_every_block_is_written_back_as_hudi_wrote_it(self, golden: Path) -> None:
        kinds = set()
        for path in log_files(golden):
            data = path.read_bytes()
            blocks = parsed(data, str(path))
            assert b"".join(format_block(b.type, b.headers, b.content().to_pybytes()) for b in blocks) == data
            kinds |= {block.type for block in blocks}
        assert kinds == set(BlockType) - {BlockType.CORRUPT}

    def test_rows_and_deletes_become_the_same_bytes_again(self, golden: Path) -> None:
        for path in log_files(golden):
            for block in parsed(path.read_bytes(), str(path)):
                content = block.content().to_pybytes()
                if block.type in (BlockType.AVRO_DATA, BlockType.CDC_DATA):
                    table = block.records()
                    table.validate(full=True)
                    assert avro_content(block.schema, table) == content, path
                elif block.type is BlockType.DELETE:
                    deletes = block.deletes()
                    deletes.validate(full=True)
                    assert delete_content(deletes) == content, path

    def test_positions_are_one_a_row_and_become_the_same_text_again(self, golden: Path) -> None:
        seen = 0
        for path in log_files(golden):
            for block in parsed(path.read_bytes(), str(path)):
                positions = block.record_positions
                if positions is None:
                    continue
                seen += 1
                assert format_positions(positions) == block.headers[HeaderKey.RECORD_POSITIONS]
                count = len(block.deletes() if block.type is BlockType.DELETE else block.records())
                assert len(positions) == count
        assert seen > 100

    def test_parquet_blocks_have_the_rows_that_their_avro_schema_has(self, golden: Path) -> None:
        seen = 0
        for path in sorted(golden.glob("*/mor_parquet_log/table/*/.*.log.*")):
            for block in parsed(path.read_bytes(), str(path)):
                if block.type is BlockType.PARQUET_DATA:
                    seen += 1
                    table = block.records()
                    assert table.schema.names == list(block.schema.names())
                    some = block.records(["order_id", "_hoodie_record_key"])
                    assert some.column("order_id") == table.column("order_id")
                    assert some.column("order_id") == some.column("_hoodie_record_key")
        assert seen


# -- round trips -------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WRITTEN = st.sampled_from(sorted(set(BlockType) - {BlockType.CORRUPT}))
HEADERS = st.dictionaries(st.sampled_from(HeaderKey), TEXT, max_size=5)


class TestFraming:
    @given(st.lists(st.tuples(WRITTEN, HEADERS, st.binary(max_size=60)),
                    max_size=5))  # fmt: skip
    def test_parse_of_format_is_the_same(self, blocks: list[Any]) -> None:
        data = b"".join(format_block(*block) for block in blocks)
        got = parsed(data)
        assert [(b.type, b.headers, b.content().to_pybytes()) for b in got] == blocks
        assert sum(block.size for block in got) == len(data)

    def test_bytes_of_the_guides_rollback_block(self) -> None:
        block = rollback_block("20261121015353203", "20261121015350203")
        assert len(block) == 105
        assert struct.unpack(">q", block[6:14]) == (91,)
        assert struct.unpack(">q", block[-8:]) == (97,)

    def test_an_empty_file_and_a_few_odd_bytes_at_the_end_are_no_blocks(self) -> None:
        assert parsed(b"") == []
        block = rollback_block("2", "1")
        assert len(parsed(block + b"#HUD")) == 1

    @given(st.lists(st.lists(TEXT, max_size=4), min_size=1, max_size=4))
    def test_rows_round_trip(self, tables: list[list[str]]) -> None:
        data = b"".join(avro_block(str(i), SCHEMA, rows(*keys)) for i, keys in enumerate(tables))
        got = [(block.instant_time, block.records()) for block in parsed(data)]
        assert got == [(str(i), rows(*keys)) for i, keys in enumerate(tables)]

    def test_only_the_wanted_columns_are_answered(self) -> None:
        (block,) = parsed(avro_block("1", SCHEMA, rows("a", "b")))
        assert block.records(["n"]) == rows("a", "b").select(["n"])
        assert block.records([]).num_rows == 2

    def test_content_is_read_when_asked_for(self, tmp_path: Path) -> None:
        path = tmp_path / "f.log"
        path.write_bytes(format_block(BlockType.AVRO_DATA, {HeaderKey.INSTANT_TIME: "1"}, bytes(50 << 20)) * 2)

        class Counting:
            read = 0

            def __init__(self, file: pa.NativeFile) -> None:
                self.file = file

            def read_at(self, size: int, offset: int) -> bytes:
                data: bytes = self.file.read_at(size, offset)
                Counting.read += len(data)
                return data

        blocks = list(read_blocks(Counting(pa.OSFile(str(path))), "f.log", path.stat().st_size))
        assert [block.content_size for block in blocks] == [50 << 20] * 2
        assert Counting.read < 1 << 20


ORDERINGS: list[Any] = [
    pa.array([True, None]),
    pa.array([7, None], pa.int32()),
    pa.array([2**40, None]),
    pa.array([1.5, None], pa.float32()),
    pa.array([2.5, None]),
    pa.array(["x", None]),
    pa.array([b"x", None]),
    pa.array([dt.date(2026, 1, 2), None]),
    pa.array([Decimal("12.345000000000000"), None], pa.decimal128(30, 15)),
    pa.array([5, None], pa.time64("us")),
    pa.nulls(2),
]


class TestDeletes:
    def deletes(self, ordering: Any) -> pa.Table:
        return pa.table({"record_key": ["k0", "k1"], "partition_path": ["a/b", None], "ordering_value": ordering})

    @pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda values: str(values.type))
    def test_ordering_values_of_every_type(self, ordering: Any) -> None:
        (block,) = parsed(delete_block("1", self.deletes(ordering)))
        assert block.deletes() == self.deletes(ordering)

    def test_several_ordering_fields_are_a_struct(self) -> None:
        ordering = pa.array(
            [{"0": 7, "1": "x"}, {"0": 8, "1": "y"}], pa.struct([("0", pa.int64()), ("1", pa.string())])
        )
        (block,) = parsed(delete_block("1", self.deletes(ordering)))
        assert block.deletes().column("ordering_value").to_pylist() == ordering.to_pylist()

    def test_an_integer_0_among_several_is_a_value(self) -> None:
        """By itself it is none (format guide 8.2), and so is a null, which other types have in its place."""
        kind = pa.struct([("0", pa.int64()), ("1", pa.int32())])
        ordering = pa.array([{"0": 7, "1": 0}, {"0": None, "1": -1}], kind)
        (block,) = parsed(delete_block("1", self.deletes(ordering)))
        assert block.deletes().column("ordering_value").to_pylist() == ordering.to_pylist()

    def test_bytes_of_the_guides_example_of_several(self) -> None:
        """Format guide 14.4: the values are in ArrayWrapper, branch 12 of the union."""
        ordering = pa.array([{"0": 7, "1": 5}], pa.struct([("0", pa.int64()), ("1", pa.int32())]))
        one = pa.table({"record_key": ["k3"], "partition_path": ["b"], "ordering_value": ordering})
        assert delete_content(one).hex().endswith("02046b33" + "020262" + "18" + "0204" + "060e" + "040a" + "00" + "00")

    def test_timestamps_are_wrapped_as_the_numbers_that_avro_hands_on(self) -> None:
        ordering = pa.array([1_000_000, 2], pa.timestamp("us", "UTC"))
        (block,) = parsed(delete_block("1", self.deletes(ordering)))
        assert block.deletes().column("ordering_value") == pa.chunked_array([[1_000_000, 2]])

    def test_bytes_of_the_guides_example(self) -> None:
        one = pa.table({"record_key": ["k3"], "partition_path": ["b"], "ordering_value": pa.nulls(1)})
        assert delete_content(one).hex() == "000000030000000b" + "02" + "02046b33" + "020262" + "0400" + "00"

    def test_an_empty_list_is_the_metadata_tables_first_block(self) -> None:
        none = pa.table({"record_key": pa.array([], pa.string()), "partition_path": pa.array([], pa.string()),
                         "ordering_value": pa.nulls(0)})  # fmt: skip
        assert delete_content(none).hex() == "000000030000000100"
        assert len(delete_block("00000000000000010", none)) == 80

    def test_many_deletes(self) -> None:
        count = 50_000
        many = pa.table({
            "record_key": [f"key-{i}" for i in range(count)], "partition_path": ["2026/01"] * count,
            "ordering_value": pa.array(np.arange(count) * 997 + 1),
        })  # fmt: skip
        (block,) = parsed(delete_block("1", many))
        assert block.deletes() == many

    def test_a_type_that_no_wrapper_holds_is_refused(self) -> None:
        with pytest.raises(SchemaError, match="duration"):
            delete_block("1", self.deletes(pa.array([1, 2], pa.duration("s"))))


# -- which blocks count ------------------------------------------------------------------------------------------------


def block(instant: str, *, kind: BlockType = BlockType.AVRO_DATA, replaces: str = "", target: str = "") -> LogBlock:
    headers = {HeaderKey.INSTANT_TIME: instant}
    if replaces:
        headers[HeaderKey.COMPACTED_BLOCK_TIMES] = replaces
    if target:
        kind = BlockType.COMMAND
        headers |= {HeaderKey.TARGET_INSTANT_TIME: target, HeaderKey.COMMAND_BLOCK_TYPE: "0"}
    return LogBlock(kind, {} if kind is BlockType.CORRUPT else headers, "f", 0, 0, 0, 0, None)


def kept(*blocks: LogBlock, completed: str = "123456789", as_of: str | None = None) -> str:
    rule = BlockRule(lambda instant: instant in completed, as_of)
    return "".join(found.instant_time for found in valid_blocks(blocks, rule))


class TestValidity:
    def test_blocks_of_instants_that_are_not_completed_do_not_count(self) -> None:
        assert kept(block("1"), block("2"), block("3"), completed="13") == "13"

    def test_a_rollback_takes_its_targets_blocks_before_it_only(self) -> None:
        assert kept(block("1"), block("2"), block("2"), block("3", target="2"), block("4")) == "14"
        assert kept(block("3", target="2"), block("2")) == "2"

    def test_a_rollback_counts_whenever_it_happened(self) -> None:
        assert kept(block("1"), block("2"), block("5", target="2"), block("3"), as_of="3") == "13"

    def test_later_blocks_are_passed_over_not_the_end(self) -> None:
        assert kept(block("1"), block("5"), block("2"), as_of="3") == "12"

    def test_corrupt_blocks_are_left_out(self) -> None:
        assert kept(block("1"), block("x", kind=BlockType.CORRUPT), block("2")) == "12"

    def test_a_log_compaction_remains_where_the_last_block_it_replaces_stood(self) -> None:
        assert kept(block("1"), block("2"), block("3"), block("4", replaces="1,2")) == "43"

    def test_a_log_compaction_of_a_log_compaction(self) -> None:
        compactions = block("4", replaces="1,2"), block("5"), block("6", replaces="4,3")
        assert kept(block("1"), block("2"), block("3"), *compactions) == "65"

    def test_a_log_compaction_that_is_not_completed_replaces_nothing(self) -> None:
        assert kept(block("1"), block("2"), block("4", replaces="1,2"), completed="12") == "12"

    def test_a_log_compaction_whose_sources_were_deleted_stays(self) -> None:
        assert kept(block("3"), block("4", replaces="1,2")) == "34"

    def test_only_instants_in_range(self) -> None:
        rule = BlockRule(lambda _: True, in_range=lambda instant: instant > "1")
        assert [b.instant_time for b in valid_blocks([block("1"), block("2")], rule)] == ["2"]


class TestHFileBlocks:
    """Rows in an HFile: sorted by key, each with its key column blank."""

    SCHEMA = Schema((Field("_hoodie_record_key", StringType()), Field("n", LongType())))

    def block(self, **rows: int) -> LogBlock:
        listed = sorted(rows.items())
        blank = pa.table({"_hoodie_record_key": [""] * len(listed), "n": [n for _, n in listed]})
        data, offsets = encode_records(self.SCHEMA, blank)
        values = [data.to_pybytes()[start:end] for start, end in pairwise(offsets.tolist())]
        content = format_hfile(pa.array([key for key, _ in listed], pa.string()), pa.array(values, pa.binary()))
        headers = {HeaderKey.INSTANT_TIME: "1", HeaderKey.SCHEMA: avro_text(self.SCHEMA)}
        (found,) = parsed(format_block(BlockType.HFILE_DATA, headers, content if rows else b""))
        return found

    def test_rows_come_with_their_keys(self) -> None:
        found = self.block(b=1, a=2)
        assert found.records().to_pydict() == {"_hoodie_record_key": ["a", "b"], "n": [2, 1]}
        assert found.records(["_hoodie_record_key"]).to_pydict() == {"_hoodie_record_key": ["a", "b"]}
        assert found.records(["n"]).to_pydict() == {"n": [2, 1]}

    def test_a_key_that_is_no_text_is_corrupt(self) -> None:
        data, _ = encode_records(self.SCHEMA, pa.table({"_hoodie_record_key": [""], "n": [1]}))
        content = format_hfile(pa.array([b"\xff"]), pa.array([data.to_pybytes()]))
        headers = {HeaderKey.INSTANT_TIME: "1", HeaderKey.SCHEMA: avro_text(self.SCHEMA)}
        (found,) = parsed(format_block(BlockType.HFILE_DATA, headers, content))
        with pytest.raises(CorruptFileError, match="UTF-8"):
            found.records()

    def test_a_block_without_content_has_no_rows(self) -> None:
        assert self.block().records().num_rows == 0


# -- damage ------------------------------------------------------------------------------------------------------------


def everything(data: bytes) -> list[Any]:
    """All that a file holds, down to the values."""
    found: list[Any] = []
    for item in parsed(data):
        if item.type is BlockType.DELETE:
            found.append(item.deletes())
        elif item.type.has_records:
            table = item.records()
            table.validate(full=True)
            found.append(table)
    return found


def names_its_file_or_reads(data: bytes) -> None:
    problem: SkepError | None = None
    try:
        everything(data)
    except SkepError as error:
        problem = error
    assert problem is None or problem.fields["path"] == "f.log"


GOOD = [avro_block("1", SCHEMA, rows("a", "b")), rollback_block("2", "1"), avro_block("3", SCHEMA, rows("c"))]


class TestDamage:
    def test_a_file_cut_by_a_crash_reads_as_far_as_it_was_written(self) -> None:
        data = b"".join(GOOD)
        whole = len(GOOD[0]) + len(GOOD[1])
        for size in range(whole + 6, len(data)):
            blocks = parsed(data[:size])
            assert [b.type for b in blocks] == [BlockType.AVRO_DATA, BlockType.COMMAND, BlockType.CORRUPT]
            assert blocks[0].records() == rows("a", "b")
            assert blocks[2].offset + blocks[2].size == size

    def test_reading_goes_on_at_the_next_magic_number(self) -> None:
        for cut in (20, 60, len(GOOD[0]) - 1):
            blocks = parsed(GOOD[0][:cut] + GOOD[2])
            assert [b.type for b in blocks] == [BlockType.CORRUPT, BlockType.AVRO_DATA]
            assert blocks[1].records() == rows("c")

    def test_a_magic_number_far_away_is_found(self) -> None:
        filler = GOOD[0][:30] + bytes((1 << 20) - 20)
        assert [b.type for b in parsed(filler + GOOD[2])] == [BlockType.CORRUPT, BlockType.AVRO_DATA]

    def test_a_file_that_does_not_begin_with_a_block_is_an_error(self) -> None:
        with pytest.raises(CorruptFileError, match=r"f\.log.*byte 0"):
            parsed(b"PAR1" + GOOD[0])

    @pytest.mark.parametrize(
        ("at", "value", "error"),
        [(14, 0, UnsupportedError), (14, 9, UnsupportedError), (18, 7, CorruptFileError), (22, 2**30, CorruptFileError),
         (22, -1, CorruptFileError), (26, 99, CorruptFileError), (30, -5, CorruptFileError),
         (30, 2**20, CorruptFileError)],
    )  # fmt: skip
    def test_a_block_that_is_framed_well_and_broken_inside_is_an_error(self, at: int, value: int, error: type) -> None:
        broken = bytearray(GOOD[0])
        broken[at : at + 4] = struct.pack(">i", value)
        with pytest.raises(error, match=r"f\.log"):
            parsed(bytes(broken))

    @pytest.mark.parametrize(
        "content",
        [b"", b"\0\0\0\3", struct.pack(">ii", 3, 5), struct.pack(">iii", 3, 1, 9), struct.pack(">iii", 3, 1, -4),
         struct.pack(">ii", 3, -1), struct.pack(">iii", 3, 1, 1) + b"\0", struct.pack(">ii", 3, 0) + b"x",
         struct.pack(">iii", 3, 2, -8) + bytes(4)],
    )  # fmt: skip
    def test_rows_that_do_not_fill_their_block_are_corrupt(self, content: bytes) -> None:
        headers = {HeaderKey.INSTANT_TIME: "1", HeaderKey.SCHEMA: avro_text(SCHEMA)}
        (item,) = parsed(format_block(BlockType.AVRO_DATA, headers, content))
        with pytest.raises(CorruptFileError):
            item.records()

    def test_old_and_unknown_content_versions_are_named(self) -> None:
        headers = {HeaderKey.INSTANT_TIME: "1", HeaderKey.SCHEMA: avro_text(SCHEMA)}
        (item,) = parsed(format_block(BlockType.AVRO_DATA, headers, struct.pack(">ii", 4, 0)))
        with pytest.raises(UnsupportedError, match="version 4"):
            item.records()

    def test_headers_that_must_be_there(self) -> None:
        (item,) = parsed(format_block(BlockType.AVRO_DATA, {}, struct.pack(">ii", 3, 0)))
        with pytest.raises(FormatError, match="INSTANT_TIME"):
            _ = item.instant_time
        with pytest.raises(FormatError, match="SCHEMA"):
            item.records()

    def test_unreadable_positions_and_parquet(self) -> None:
        headers = {HeaderKey.SCHEMA: avro_text(SCHEMA), HeaderKey.RECORD_POSITIONS: "AAAA"}
        (item,) = parsed(format_block(BlockType.PARQUET_DATA, headers, b"PAR1 no PAR1"))
        with pytest.raises(CorruptFileError, match=r"f\.log"):
            _ = item.record_positions
        with pytest.raises(CorruptFileError, match=r"f\.log"):
            item.records()

    def test_a_parquet_block_that_lacks_a_column_is_corrupt(self) -> None:
        out = pa.BufferOutputStream()
        pq.write_table(rows("a").select(["key"]), out)
        headers = {HeaderKey.SCHEMA: avro_text(SCHEMA)}
        (item,) = parsed(format_block(BlockType.PARQUET_DATA, headers, out.getvalue().to_pybytes()))
        with pytest.raises(CorruptFileError, match=r"f\.log"):
            item.records()

    @settings(max_examples=300)
    @given(st.data())
    def test_flipped_bits_are_an_error_or_passed_over(self, data: st.DataObject) -> None:
        broken = bytearray(b"".join([*GOOD, delete_block("4", TestDeletes().deletes(ORDERINGS[2]))]))
        for bit in data.draw(st.lists(st.integers(0, len(broken) * 8 - 1), min_size=1, max_size=3)):
            broken[bit // 8] ^= 1 << bit % 8
        names_its_file_or_reads(bytes(broken))

    def test_golden_files_cut_and_bent(self, golden: Path) -> None:
        random = np.random.default_rng(7)
        for path in log_files(golden)[::23]:
            data = path.read_bytes()
            for at in random.integers(0, len(data), 6).tolist():
                bent = bytearray(data)
                bent[at] ^= 1 << int(random.integers(8))
                for hostile in (data[:at], bytes(bent)):
                    names_its_file_or_reads(hostile)
