"""Avro records by columns, against fastavro record by record: any schema, any data, any damage."""

from __future__ import annotations

import datetime as dt
import io
import math
import uuid
from decimal import Context, Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.avro import decode_records, encode_records, parse_record
from skep_format.avro.types import UnionType
from skep_format.avro_schemas import hudi_records, schema_of
from skep_format.errors import CorruptFileError, SchemaError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.avro import decimal_size, parse_avro, to_avro
from skep_format.schema.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    EnumType,
    Field,
    FixedType,
    FloatType,
    IntType,
    ListType,
    LongType,
    MapType,
    Schema,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UuidType,
)

# -- schemas and values ------------------------------------------------------------------------------------------------

NAMES = st.sampled_from("abcdefgh")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def decimals(draw: st.DrawFn) -> DecimalType:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    size = draw(st.sampled_from([None, 0, decimal_size(precision), 20]))
    return DecimalType(precision, scale, size)


LEAVES = st.one_of(
    st.sampled_from(
        [
            BooleanType(), IntType(), LongType(), FloatType(), DoubleType(), StringType(), BinaryType(), DateType(),
            TimeType("ms"), TimeType("us"), UuidType(), EnumType(("red", "green", "blue")),
        ]
    ),
    st.builds(FixedType, st.integers(1, 20)),
    st.builds(TimestampType, st.sampled_from(["ms", "us"]), st.booleans()),
    decimals(),
)  # fmt: skip


@st.composite
def structs(draw: st.DrawFn, inner: st.SearchStrategy[DataType]) -> StructType:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return StructType(tuple(draw(fields(name, inner)) for name in names))


def fields(name: str, inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[Field]:
    return st.builds(lambda kind, nullable, last: Field(name, kind, nullable, null_last=nullable and last),
                     inner, st.booleans(), st.booleans())  # fmt: skip


TYPES: st.SearchStrategy[DataType] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(ListType, inner, st.booleans()),
        st.builds(MapType, inner, st.booleans()),
        structs(inner),
    ),
    max_leaves=5,
)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    return Schema(tuple(draw(fields(name, TYPES)) for name in names))


EPOCH = dt.datetime(1970, 1, 1)


def values(kind: DataType) -> st.SearchStrategy[Any]:
    match kind:
        case BooleanType():
            return st.booleans()
        case IntType():
            return st.integers(-(2**31), 2**31 - 1)
        case LongType():
            return st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-300, 300))
        case FloatType():
            return st.floats(width=32, allow_nan=False)
        case DoubleType():
            return st.floats(allow_nan=False)
        case StringType():
            return TEXT
        case BinaryType():
            return st.binary(max_size=12)
        case FixedType():
            return st.binary(min_size=kind.size, max_size=kind.size)
        case DecimalType():
            largest = 10**kind.precision - 1
            exact = Context(prec=60)
            numbers = st.integers(-largest, largest)
            if not kind.fixed_size:
                numbers = numbers.filter(lambda n: not fastavro_pads(n))
            return numbers.map(lambda n: exact.scaleb(Decimal(n), -kind.scale))
        case DateType():
            return st.dates(dt.date(1600, 1, 1), dt.date(2900, 1, 1))
        case TimeType():
            return st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, fold=0))
        case TimestampType():
            step = 1000 if kind.unit == "ms" else 1
            zone = dt.timezone.utc if kind.utc else None
            moments = st.integers(-(10**16), 3 * 10**16)
            return moments.map(lambda n: (EPOCH + dt.timedelta(microseconds=n // step * step)).replace(tzinfo=zone))
        case UuidType():
            return st.uuids().map(str)
        case EnumType():
            return st.sampled_from(kind.symbols)
        case ListType():
            return st.lists(slot(kind.element, kind.element_nullable), max_size=4)
        case MapType():
            return st.dictionaries(TEXT, slot(kind.value, kind.value_nullable), max_size=4)
        case StructType():
            return records(kind.fields)
    raise AssertionError(kind)


def fastavro_pads(number: int) -> bool:
    """-128, -32768 and so on: fastavro writes one byte more than they need, Java's BigInteger does not."""
    return number < 0 and -number == 1 << (-number).bit_length() - 1 and (-number).bit_length() % 8 == 0


def slot(kind: DataType, nullable: bool) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values(kind)) if nullable else values(kind)


def records(members: tuple[Field, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: slot(field.type, field.nullable) for field in members})


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    schema = draw(schemas())
    return schema, draw(st.lists(records(schema.fields), max_size=6))


# -- fastavro as the other implementation ------------------------------------------------------------------------------


def written(schema: Schema | dict[str, Any], rows: list[dict[str, Any]]) -> tuple[bytes, np.ndarray, np.ndarray]:
    parsed = fastavro.parse_schema(to_avro(schema) if isinstance(schema, Schema) else schema)
    parts = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        parts.append(out.getvalue())
    lengths = np.array([len(part) for part in parts], np.int64)
    return b"".join(parts), np.cumsum(lengths) - lengths, lengths


def plain(kind: Any, value: Any) -> Any:
    """What Arrow gives for a value, in the form of the strategies above."""
    if value is None:
        return None
    match kind:
        case MapType():
            return {key: plain(kind.value, item) for key, item in value}
        case ListType():
            return [plain(kind.element, item) for item in value]
        case StructType():
            return {field.name: plain(field.type, value[field.name]) for field in kind.fields}
        case TimestampType(utc=True):
            return value.astimezone(dt.timezone.utc)
    return value


def read_back(schema: Schema, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    record = StructType(schema.fields)
    return [plain(record, row) for row in batch.to_pylist()]


class TestAgainstFastavro:
    @settings(max_examples=150)
    @given(tables())
    def test_decodes_what_fastavro_writes(self, table: tuple[Schema, list[dict[str, Any]]]) -> None:
        schema, rows = table
        batch = decode_records(schema, *written(schema, rows))
        batch.validate(full=True)
        assert batch.schema.equals(to_arrow(schema))
        assert read_back(schema, batch) == rows

    @settings(max_examples=150)
    @given(tables())
    def test_encodes_the_same_bytes_as_fastavro(self, table: tuple[Schema, list[dict[str, Any]]]) -> None:
        schema, rows = table
        data, starts, lengths = written(schema, rows)
        batch = decode_records(schema, data, starts, lengths)
        encoded, offsets = encode_records(schema, batch)
        assert encoded.to_pybytes() == data
        assert offsets.tolist() == [*starts.tolist(), len(data)]

    @pytest.mark.parametrize(
        ("number", "data"), [(-128, "0280"), (-129, "04ff7f"), (-32768, "048000"), (128, "040080")]
    )
    @pytest.mark.parametrize("precision", [5, 30])
    def test_decimals_take_the_fewest_bytes(self, number: int, data: str, precision: int) -> None:
        """As Java's BigInteger.toByteArray gives them."""
        schema = Schema((Field("d", DecimalType(precision, 0, fixed_size=0, full_name=None), nullable=False),))
        batch = pa.RecordBatch.from_pydict({"d": [Decimal(number)]}, schema=to_arrow(schema))
        assert encode_records(schema, batch)[0].to_pybytes().hex() == data

    @given(tables(), st.data())
    def test_columns_left_out_are_passed_over(self, table: Any, data: st.DataObject) -> None:
        schema, rows = table
        some = data.draw(st.sets(st.sampled_from(schema.names())))
        batch = decode_records(schema, *written(schema, rows), columns=some)
        kept = Schema(tuple(field for field in schema.fields if field.name in some))
        assert batch.num_rows == len(rows)
        assert batch.schema.names == list(kept.names())
        assert read_back(kept, batch) == [{name: row[name] for name in kept.names()} for row in rows]

    @given(tables(), st.data())
    def test_encoding_a_slice_encodes_its_rows(self, table: Any, data: st.DataObject) -> None:
        schema, rows = table
        batch = decode_records(schema, *written(schema, rows))
        at = data.draw(st.integers(0, len(rows)))
        some = rows[at : at + 3]
        assert encode_records(schema, batch.slice(at, 3))[0].to_pybytes() == written(schema, some)[0]

    def test_nan_and_signed_zero_keep_their_bits(self) -> None:
        schema = Schema((Field("d", DoubleType()), Field("f", FloatType(), nullable=False)))
        rows = [{"d": math.nan, "f": -0.0}, {"d": -0.0, "f": math.inf}, {"d": None, "f": math.nan}]
        data, starts, lengths = written(schema, rows)
        batch = decode_records(schema, data, starts, lengths)
        assert encode_records(schema, batch)[0].to_pybytes() == data

    def test_many_batches_are_one_answer(self) -> None:
        schema = Schema((Field("n", LongType(), nullable=False), Field("s", StringType())))
        rows = [{"n": i * i * i, "s": None if i % 3 else "x" * (i % 40)} for i in range(40_000)]
        batch = decode_records(schema, *written(schema, rows))
        assert batch.to_pylist() == rows


# -- arrays and maps ---------------------------------------------------------------------------------------------------


def zigzag(value: int) -> bytes:
    value = (value << 1 ^ value >> 63) & 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class TestArrays:
    INTS = Schema((Field("list", ListType(IntType(), element_nullable=False), nullable=False),))

    def decode(self, schema: Schema, *parts: bytes) -> list[Any]:
        lengths = np.array([len(part) for part in parts])
        batch = decode_records(schema, b"".join(parts), np.cumsum(lengths) - lengths, lengths)
        batch.validate(full=True)
        return batch.column(0).to_pylist()

    def test_blocks_follow_one_another_with_or_without_their_size(self) -> None:
        one_two = zigzag(2) + zigzag(1) + zigzag(2) + zigzag(0)
        in_two = zigzag(1) + zigzag(7) + zigzag(1) + zigzag(8) + zigzag(0)
        sized = zigzag(-2) + zigzag(2) + zigzag(3) + zigzag(4) + zigzag(0)
        got = self.decode(self.INTS, one_two, zigzag(0), in_two, sized)
        assert got == [[1, 2], [], [7, 8], [3, 4]]

    @pytest.mark.parametrize("nullable", [True, False])
    @pytest.mark.parametrize(
        "element",
        [
            StringType(), LongType(), DoubleType(), BooleanType(), DecimalType(12, 2, 0), DecimalType(12, 2),
            FixedType(3),
            StructType((Field("a", StringType(), nullable=False), Field("b", IntType(), null_last=True))),
            StructType((Field("a", ListType(StringType())),)),
        ],
        ids=str,
    )  # fmt: skip
    def test_long_arrays_and_maps_beside_short_ones(self, element: DataType, nullable: bool) -> None:
        schema = Schema((
            Field("list", ListType(element, nullable)), Field("map", MapType(element, nullable)), Field("n", IntType()),
        ))  # fmt: skip
        makers: dict[type, Any] = {
            StringType: lambda i: f"é{i}" * (i % 5), LongType: lambda i: i**6 * (-1) ** i, DoubleType: float,
            BooleanType: lambda i: i % 3 == 0, DecimalType: lambda i: Decimal(i * 7919 - 99) / 100,
            FixedType: lambda i: i.to_bytes(3, "big"),
        }  # fmt: skip

        def make(i: int) -> Any:
            if nullable and i % 4 == 1:
                return None
            if isinstance(element, StructType):
                if isinstance(element["a"].type, ListType):
                    return {"a": [str(i)] * (i % 3) if i % 5 else None}
                return {"a": str(i), "b": None if i % 2 else i}
            return makers[type(element)](i)

        sizes = [0, 3, 700, 64, 1, 65, 2]
        rows = [
            {"list": [make(i) for i in range(size)], "map": {f"k{i}": make(i) for i in range(size)}, "n": size}
            for size in sizes
        ]
        data, starts, lengths = written(schema, rows)
        batch = decode_records(schema, data, starts, lengths)
        batch.validate(full=True)
        assert read_back(schema, batch) == rows
        only = decode_records(schema, data, starts, lengths, columns={"n"})
        assert only.column(0).to_pylist() == sizes
        assert encode_records(schema, batch)[0].to_pybytes() == data

    @pytest.mark.timeout(100)  # a round for each takes minutes
    def test_an_array_of_many_elements_takes_no_round_for_each(self) -> None:
        count = 200_000
        schema = Schema((Field("list", ListType(StringType()), nullable=False),))
        data, starts, lengths = written(schema, [{"list": [str(i) for i in range(count)]}])
        batch = decode_records(schema, data, starts, lengths)
        assert batch.column(0)[0].as_py() == [str(i) for i in range(count)]


# -- Hudi's own records ------------------------------------------------------------------------------------------------


class TestUnions:
    def test_every_record_of_hudis_own_has_a_type(self) -> None:
        for name in hudi_records():
            assert parse_record(schema_of(name, "1.1.1")).fields

    def test_a_union_of_records_is_a_struct_of_its_branches(self) -> None:
        document = schema_of("HoodieDeleteRecordList", "1.1.1")
        kind = parse_record(document)
        wrapped = [
            None, {"value": 5, "-type": "org.apache.hudi.avro.model.IntWrapper"},
            {"value": 2**40, "-type": "org.apache.hudi.avro.model.LongWrapper"},
            {"value": "x", "-type": "org.apache.hudi.avro.model.StringWrapper"},
        ]  # fmt: skip
        entries = [
            {"recordKey": f"k{i}", "partitionPath": None, "orderingVal": value} for i, value in enumerate(wrapped)
        ]
        data, starts, lengths = written(document, [{"deleteRecordList": entries}])
        batch = decode_records(kind, data, starts, lengths)
        got = [entry["orderingVal"] for entry in batch.column(0)[0].as_py()]
        set_branches = [None if value is None else {k: v for k, v in value.items() if v is not None} for value in got]
        assert set_branches == [
            None, {"IntWrapper": {"value": 5}}, {"LongWrapper": {"value": 2**40}}, {"StringWrapper": {"value": "x"}},
        ]  # fmt: skip
        assert encode_records(kind, batch)[0].to_pybytes() == data

    def test_unions_of_tables_stay_with_null_only(self) -> None:
        kind = parse_record(
            {"type": "record", "name": "r", "fields": [{"name": "u", "type": ["null", "int", "string"]}]}
        )
        assert isinstance(kind.fields[0].type, UnionType)
        with pytest.raises(SchemaError):
            parse_avro({"type": "record", "name": "r", "fields": [{"name": "u", "type": ["null", "int", "string"]}]})


# -- damage ------------------------------------------------------------------------------------------------------------

WIDE = Schema(
    (
        Field("key", StringType()), Field("n", IntType(), nullable=False), Field("big", LongType()),
        Field("d", DecimalType(20, 3)), Field("b", DecimalType(20, 3, 0)), Field("flag", BooleanType()),
        Field("kind", EnumType(("x", "y")), nullable=False), Field("list", ListType(StringType())),
        Field("map", MapType(StructType((Field("a", LongType()),)))), Field("f", FloatType()),
    )
)  # fmt: skip
ROWS = [
    {"key": f"k{i}", "n": i, "big": i**9, "d": Decimal(i), "b": Decimal(-i), "flag": i % 2 == 0, "kind": "xy"[i % 2],
     "list": ["é"] * (i % 90), "map": {str(j): {"a": j} for j in range(i % 4)}, "f": i / 4}
    for i in range(100)
]  # fmt: skip


class TestDamage:
    def test_a_record_cut_anywhere_is_corrupt(self) -> None:
        data, starts, lengths = written(WIDE, ROWS)
        at = 95
        for cut in range(1, int(lengths[at]) + 1):
            shorter = lengths.copy()
            shorter[at] -= cut
            with pytest.raises(CorruptFileError) as problem:
                decode_records(WIDE, data, starts, shorter, path="f.log", offset=1000)
            assert problem.value.fields["path"] == "f.log"
            offset = problem.value.fields["offset"]
            assert isinstance(offset, int)
            assert 1000 + starts[at] <= offset <= 1000 + starts[at] + lengths[at]

    @settings(max_examples=300)
    @given(st.data())
    def test_flipped_bits_are_an_error_or_other_values(self, data: st.DataObject) -> None:
        clean, starts, lengths = written(WIDE, ROWS)
        broken = bytearray(clean)
        for bit in data.draw(st.lists(st.integers(0, len(clean) * 8 - 1), min_size=1, max_size=3)):
            broken[bit // 8] ^= 1 << bit % 8
        columns = data.draw(st.sampled_from([None, {"key"}, {"f", "map"}]))
        try:
            batch = decode_records(WIDE, broken, starts, lengths, columns=columns)
        except CorruptFileError:
            return
        batch.validate(full=True)
        assert batch.num_rows == len(ROWS)

    def test_a_decimal_of_too_many_digits_is_corrupt(self) -> None:
        schema = Schema((Field("d", DecimalType(2, 0, fixed_size=1), nullable=False),))
        assert decode_records(schema, b"\x63", np.array([0]), np.array([1])).column(0)[0].as_py() == 99
        with pytest.raises(CorruptFileError, match="2 digits"):
            decode_records(schema, b"\x64", np.array([0]), np.array([1]))

    @settings(max_examples=300)
    @given(schemas(), st.lists(st.binary(max_size=30), min_size=1, max_size=3))
    def test_any_bytes_are_records_or_corrupt(self, schema: Schema, parts: list[bytes]) -> None:
        lengths = np.array([len(part) for part in parts])
        try:
            batch = decode_records(schema, b"".join(parts), np.cumsum(lengths) - lengths, lengths)
        except CorruptFileError:
            return
        batch.validate(full=True)

    @pytest.mark.parametrize("count", [2**62, -(2**62), 10**9])
    def test_a_false_element_count_takes_no_memory(self, count: int) -> None:
        data = zigzag(count) + b"\x00" * 20
        with pytest.raises(CorruptFileError):
            decode_records(TestArrays.INTS, data, np.array([0]), np.array([len(data)]))

    def test_records_that_overlap_or_leave_the_data_are_corrupt(self) -> None:
        schema = Schema((Field("n", LongType()),))
        for starts, lengths in (([0, 1], [2, 2]), ([0, 2], [2, 9]), ([0], [-1]), ([-1], [1])):
            with pytest.raises(CorruptFileError):
                decode_records(schema, b"\x02\x02\x02\x02", np.array(starts), np.array(lengths))


class TestEncoder:
    def test_a_column_that_is_not_there_is_null(self) -> None:
        schema = Schema((Field("a", IntType()), Field("b", StringType())))
        encoded, _ = encode_records(schema, pa.table({"a": pa.array([1], pa.int32())}))
        assert encoded.to_pybytes() == b"\x02\x02\x00"

    def test_a_null_where_none_is_allowed_names_the_column(self) -> None:
        schema = Schema((Field("s", StructType((Field("x", IntType(), nullable=False),))),))
        table = pa.table({"s": pa.array([{"x": None}], pa.struct([("x", pa.int32())]))})
        with pytest.raises(SchemaError, match=r"column s: .*'x'"):
            encode_records(schema, table)
        with pytest.raises(SchemaError, match="column x must not be null"):
            encode_records(Schema((Field("x", IntType(), nullable=False),)), pa.table({"y": [1]}))

    def test_a_column_of_another_type_is_cast_or_named(self) -> None:
        schema = Schema((Field("n", IntType()),))
        encoded, _ = encode_records(schema, pa.table({"n": pa.array([3], pa.int64())}))
        assert encoded.to_pybytes() == b"\x02\x06"
        with pytest.raises(SchemaError, match="column n"):
            encode_records(schema, pa.table({"n": pa.array([2**40])}))

    def test_rows_in_chunks_and_slices(self) -> None:
        schema = Schema((Field("n", LongType()), Field("s", StringType())))
        whole = pa.table({"n": [1, None, 3, 4], "s": ["a", "bb", None, "d" * 200]})
        parts = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 2), whole.slice(3)])
        assert encode_records(schema, parts)[0] == encode_records(schema, whole)[0]

    def test_what_lies_under_a_null_struct_is_not_written(self) -> None:
        schema = Schema((Field("s", StructType((Field("x", StringType(), nullable=False),))),))
        member = pa.array(["shown", "hidden"])
        structs_ = pa.StructArray.from_arrays([member], ["x"], mask=pa.array([False, True]))
        encoded, _ = encode_records(schema, pa.table({"s": structs_}))
        assert encoded.to_pybytes() == b"\x02\x0ashown\x00"

    def test_uuids_are_texts(self) -> None:
        schema = Schema((Field("u", UuidType(), nullable=False),))
        value = uuid.uuid4()
        batch = decode_records(schema, *written(schema, [{"u": value}]))
        assert batch.to_pylist() == [{"u": str(value)}]
