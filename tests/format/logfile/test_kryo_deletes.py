"""Delete blocks of content versions 1 and 2, as Kryo wrote them.

`kryo_deletes.tsv` is what `KryoDeletes.java` prints with the classes of Hudi 0.15.0. With those of 0.11.1, 0.12.3 and
0.13.1 it prints the same but for Avro's text, and with those of 0.9.0 and 0.10.1 the same keys.
"""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.errors import CorruptFileError, FormatError, UnsupportedError
from skep_format.logfile import BlockType, HeaderKey, format_block, read_blocks

LINES = Path(__file__).with_name("kryo_deletes.tsv").read_text().splitlines()
BYTES = {name: bytes.fromhex(text) for name, text in (line.split("\t") for line in LINES)}


def deletes(content: bytes, version: int) -> pa.Table:
    whole = struct.pack(">ii", version, len(content)) + content
    data = format_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: "1"}, whole)
    (block,) = read_blocks(pa.BufferReader(data), "f.log", len(data))
    found = block.deletes()
    found.validate(full=True)
    return found


def named(name: str) -> pa.Table:
    return deletes(BYTES[name], version_of(name))


def version_of(name: str) -> int:
    return 1 if name.startswith("keys") else 2


KEYS: dict[str, list[tuple[str, str | None]]] = {
    "none": [],
    "one": [("k1", "p")],
    "of_one_partition": [("k1", "2021/03"), ("k2", "2021/03"), ("k3", "2021/03")],
    "without_partition": [("k1", None), ("k2", None)],
    "empty": [("", ""), ("a", "")],
    "texts": [("é", "straße"), ("日本", "😀"), ("\0", "x\0y")],
    "lengths": [("k" * 63, "k" * 64), ("k" * 200, "é" * 70)],
    "twice": [("k1", "p"), ("k1", "p"), ("k2", "p")],
}
ORDERINGS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "none": (pa.null(), []),
    "int": (pa.int32(), [7, -1, -(2**31), 2**31 - 1, None]),
    "long": (pa.int64(), [1_700_000_000_000, -5, -(2**63), 0, 2**63 - 1]),
    "double": (pa.float64(), [20.5, -0.0, 9.999, 10.0, float("-inf")]),
    "float": (pa.float32(), [20.5, -1.5]),
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["2021-03-01", "", "é日", "k" * 64, "0"]),
    "decimal": (
        pa.decimal128(22, 2),
        [Decimal(text) for text in ("12.34", "-99999999999999999999.50", "0.00", "0.00", "1000.00")],
    ),
    "date": (pa.null(), [None, None]),
    "local_date": (pa.date32(), [dt.date(2021, 3, 1), dt.date(1969, 12, 31)]),
    "timestamp": (pa.null(), [None, None]),
    "utf8": (pa.string(), ["2021", "é", ""]),
    "null": (pa.null(), [None]),
    "some_zero": (pa.int64(), [None, 5, None]),
    "one_text": (pa.string(), ["2021", "2021", "2021/03"]),
    "one_decimal": (pa.decimal128(2, 1), [Decimal("1.5"), Decimal("1.5")]),
}


class TestWhatHudiWrote:
    @pytest.mark.parametrize("name", KEYS)
    def test_keys(self, name: str) -> None:
        found = named(f"keys_{name}")
        assert found.schema == pa.schema(
            [("record_key", pa.string()), ("partition_path", pa.string()), ("ordering_value", pa.null())]
        )
        assert [(row["record_key"], row["partition_path"]) for row in found.to_pylist()] == KEYS[name]

    @pytest.mark.parametrize("name", ORDERINGS)
    def test_ordering_values(self, name: str) -> None:
        kind, values = ORDERINGS[name]
        found = named(f"deletes_{name}")
        assert found.column("ordering_value").type == kind
        assert [repr(value) for value in found.column("ordering_value")] == [
            repr(value) for value in pa.array(values, kind)
        ]  # distinguishes -0.0 from 0.0
        assert found.column("record_key").to_pylist() == [f"k{number + 1}" for number in range(len(values))]
        assert found.column("partition_path").to_pylist() == ["2021/03"] * len(values)

    def test_one_delete_twice_and_the_default(self) -> None:
        one = {"record_key": "k1", "partition_path": "2021/03", "ordering_value": 5}
        assert named("deletes_twice").to_pylist() == [one, one]
        always = {"record_key": "k1", "partition_path": "p", "ordering_value": None}
        assert named("deletes_default").to_pylist() == [always]

    def test_many(self) -> None:
        assert named("deletes_many").to_pydict() == {
            "record_key": [f"key-{i}" for i in range(300)],
            "partition_path": [f"p{i % 3}" for i in range(300)],
            "ordering_value": [i * 997 + 1 for i in range(300)],
        }

    @pytest.mark.parametrize("number", [0x0C, 0x1D], ids=["0.12.3", "0.13.1"])
    def test_other_releases_number_avros_text_differently(self, number: int) -> None:
        ours = BYTES["deletes_utf8"]
        assert ours.count(b"\x1e\x01") == 3
        assert deletes(ours.replace(b"\x1e\x01", bytes((number, 1))), 2) == named("deletes_utf8")


# With Hudi 0.11.1 the text has no number: its class is named, and its fields follow one by one.
BY_NAME = bytes.fromhex(
    "01036f72672e6170616368652e6176726f2e7574696c2e557466b801010532303231000801323032b1"
    "01010101020105016bb20103010103c3a900040182c3a901010101020105016bb3010301010100000181"
)


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "message"),
        [("different", "java.lang.Integer, java.lang.Long"), ("short", "class 6"), ("instant", "java.time.Instant")],
    )
    def test_what_no_column_of_hudi_orders_by_is_refused_by_name(self, name: str, message: str) -> None:
        with pytest.raises(FormatError, match=rf"f\.log: .*{message}.*byte \d+") as raised:
            named(f"deletes_{name}")
        assert not isinstance(raised.value, CorruptFileError)

    def test_avros_text_by_name_is_refused_by_name(self) -> None:
        ours = BYTES["deletes_utf8"]
        with pytest.raises(FormatError, match=r"org\.apache\.avro\.util\.Utf8"):
            deletes(ours[: ours.index(b"\x1e\x01")] + BY_NAME, 2)

    def test_a_year_that_no_date_has(self) -> None:
        with pytest.raises(CorruptFileError, match="a date -5-12-31"):
            named("deletes_year_before_christ")

    def test_a_null_for_a_key(self) -> None:
        with pytest.raises(CorruptFileError, match=r"found None, expected .*HoodieKey"):
            named("keys_null")

    @pytest.mark.parametrize("name", ["keys_one", "deletes_int"])
    def test_the_array_of_the_other_version(self, name: str) -> None:
        with pytest.raises(CorruptFileError, match="expected"):
            deletes(BYTES[name], 3 - version_of(name))

    @pytest.mark.parametrize("version", [0, 4])
    def test_other_versions_are_named(self, version: int) -> None:
        with pytest.raises(UnsupportedError, match=rf"version {version}"):
            deletes(b"", version)


class TestDamage:
    @pytest.mark.parametrize("name", [name for name in BYTES if name != "deletes_many"])
    def test_cut_anywhere_and_with_a_byte_behind(self, name: str) -> None:
        content = BYTES[name]
        for size in range(len(content)):
            with pytest.raises(FormatError, match=r"f\.log"):
                deletes(content[:size], version_of(name))
        with pytest.raises(FormatError, match=r"f\.log"):
            deletes(content + b"\1", version_of(name))

    @pytest.mark.parametrize("name", ["keys_of_one_partition", "keys_texts",
                                      *(f"deletes_{name}" for name in ORDERINGS)])  # fmt: skip
    def test_flipped_bits_are_an_error_or_leaves_deletes(self, name: str) -> None:
        content = BYTES[name]
        for bit in (*range(0, len(content) * 8 - 400, 5), *range(max(0, len(content) * 8 - 400), len(content) * 8)):
            bent = bytearray(content)
            bent[bit // 8] ^= 1 << bit % 8
            problem: FormatError | None = None
            try:
                deletes(bytes(bent), version_of(name))
            except FormatError as error:
                problem = error
            assert problem is None or problem.fields["path"] == "f.log"

    def test_counts_lengths_and_numbers_that_are_too_great(self) -> None:
        start = BYTES["keys_none"][:-1]
        for tail in ("ffffffff07", "ffffffff0f", "ffffffffff", "8080808080808080", "00", "7f"):
            with pytest.raises(CorruptFileError):
                deletes(start + bytes.fromhex(tail), 1)
        head = BYTES["keys_one"][: -len(bytes.fromhex("018270016bb1"))]
        for tail in ("01ffffffff07", "01ff8080808080", "0180", "0150" * 9, "00" + "01", "0000", "0003", "00ffffffff0f"):
            with pytest.raises(CorruptFileError):
                deletes(head + bytes.fromhex(tail), 1)

    def test_references_do_not_unfold_without_bound(self) -> None:
        """A hundred thousand times one long key in half a megabyte: fifty gigabytes of keys."""
        start, named_key = (
            BYTES["keys_none"][:-1],
            BYTES["keys_one"][len(BYTES["keys_none"]) :][: -len("018270016bb1") // 2],
        )
        long = b"k" * 500_000 + b"\xeb"
        count = 100_000
        content = start + varint(count + 2) + named_key + b"\0\1" + long + b"\1\1\3" * count
        with pytest.raises(CorruptFileError, match="unfold"):
            deletes(content, 1)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))
