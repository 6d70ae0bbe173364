"""Arrow batches as JSON text: one kernel call a column and step, never one a row.

Three spellings share the machinery:

* `ROWS`: how skep prints rows (`skep read --output jsonl`): floats widened, decimals as strings with all decimals,
  dates and UTC timestamps as ISO text, binary as base64, maps with their keys in order;
* `AVRO`: how Avro's Java library prints a record, which is what Hudi returns for images in a CDC log:
  dates and timestamps as the numbers in the file, decimals as the signed bytes of the fixed, binary as Latin-1 text;
* `COMPACT`: images that a CDC query takes from data files: no blanks, nulls left out, dates as days and timestamps as
  microseconds, binary as base64, decimals as strings.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.buffers import bytes_and_offsets, joined_lines
from skep_format.schema.arrow import is_text
from skep_format.schema.avro import decimal_size
from skep_format.schema.java_text import java_float

Leaf = Callable[[pa.Array], pa.Array]


class JsonText(pa.ExtensionType):
    """Of texts that are JSON already: they are printed as they are."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "skep.json")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> JsonText:
        return cls(storage_type)


@dataclass(frozen=True, slots=True)
class Spelling:
    """The choices in which spellings differ. A leaf function turns an array without nulls to heed into JSON text."""

    floats: Leaf
    decimals: Leaf
    dates: Leaf
    timestamps: Leaf
    binaries: Leaf
    strings: Leaf
    comma: str = ", "
    colon: str = ": "
    omit_nulls: bool = False
    sort_map_keys: bool = True


def json_lines(batch: pa.RecordBatch, spelling: Spelling | None = None) -> pa.Buffer:
    """The batch as JSON lines, one row a line, as UTF-8 bytes."""
    return joined_lines(json_rows(batch, spelling or ROWS))


def json_rows(batch: pa.RecordBatch, spelling: Spelling) -> pa.Array:
    """One JSON object a row: large strings, none of them null."""
    return _object(batch.schema.names, batch.columns, batch.num_rows, spelling)


def json_values(array: pa.Array, spelling: Spelling) -> pa.Array:
    """The JSON text of each value; null where the value is null."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return json_values(array.dictionary_decode(), spelling)
    if isinstance(array, pa.ExtensionArray):
        if isinstance(kind, JsonText):
            return array.storage.cast(pa.large_string())
        return json_values(array.storage, spelling)
    if pa.types.is_struct(kind):
        return _struct(array, spelling)
    if pa.types.is_map(kind):
        return _map(array, spelling)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list(array, spelling)
    return _with_nulls(_leaf(kind, spelling)(array), array)


def _leaf(kind: pa.DataType, spelling: Spelling) -> Leaf:
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _plain
    if pa.types.is_floating(kind):
        return spelling.floats
    if pa.types.is_decimal(kind):
        return spelling.decimals
    if pa.types.is_date(kind):
        return spelling.dates
    if pa.types.is_timestamp(kind):
        return spelling.timestamps
    if pa.types.is_time(kind):
        return _quoted
    if is_text(kind):
        return spelling.strings
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return spelling.binaries
    raise NotImplementedError(f"no JSON text for Arrow type {kind}")


def _object(names: Sequence[str], columns: Sequence[pa.Array], rows: int, spelling: Spelling) -> pa.Array:
    parts = []
    for name, column in zip(names, columns, strict=True):
        key = _escaped(pa.array([name], pa.large_string()))[0].as_py()
        values = json_values(column, spelling)
        if not spelling.omit_nulls:
            values = pc.fill_null(values, "null")
        parts.append(_join(f'"{key}"{spelling.colon}', values))
    if not parts:
        return pa.array(["{}"] * rows, pa.large_string())
    if not spelling.omit_nulls:
        return _join("{", _join(*parts, separator=spelling.comma), "}")
    # The empty text in front keeps rows of nulls only, which Arrow's kernel would drop from the array.
    inner = _join("", *parts, separator=spelling.comma, null_handling="skip")
    return _join("{", pc.utf8_slice_codeunits(inner, len(spelling.comma)), "}")


def _struct(array: pa.StructArray, spelling: Spelling) -> pa.Array:
    columns = [array.field(at) for at in range(array.type.num_fields)]
    return _with_nulls(_object([field.name for field in array.type], columns, len(array), spelling), array)


def _list(array: pa.Array, spelling: Spelling) -> pa.Array:
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    items = pc.fill_null(json_values(array.flatten(), spelling), "null")
    return _bracketed("[", _offsets(array), items, "]", array, spelling)


def _map(array: pa.MapArray, spelling: Spelling) -> pa.Array:
    kind = array.type
    entry = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    lists = array.cast(pa.list_(entry))
    keys, values = lists.flatten().flatten()
    counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    rows = np.repeat(np.arange(len(counts)), counts)
    if spelling.omit_nulls and values.null_count:
        present = pc.is_valid(values)
        keys, values, rows = keys.filter(present), values.filter(present), rows[np.asarray(present)]
    if spelling.sort_map_keys and len(keys):
        order = pc.sort_indices(
            pa.table({"row": rows, "key": keys}), sort_keys=[("row", "ascending"), ("key", "ascending")]
        )
        keys, values = keys.take(order), values.take(order)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(counts)))))
    texts = pc.fill_null(json_values(values, spelling), "null")
    items = _join(json_values(keys, spelling), spelling.colon, texts)
    return _bracketed("{", offsets, items, "}", array, spelling)


def _offsets(array: pa.Array) -> np.ndarray:
    """Where each list begins in its flattened values (null lists take no room there)."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
    return np.concatenate(([0], np.cumsum(lengths)))


def _bracketed(
    opening: str, offsets: np.ndarray, items: pa.Array, closing: str, array: pa.Array, spelling: Spelling
) -> pa.Array:
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), items.cast(pa.large_string()))
    joined = pc.binary_join(lists, pa.scalar(spelling.comma, pa.large_string()))
    return _with_nulls(_join(opening, joined, closing), array)


def _with_nulls(text: pa.Array, array: pa.Array) -> pa.Array:
    text = text.cast(pa.large_string())
    if not array.null_count:
        return text
    return pc.if_else(pc.is_valid(array), text, pa.scalar(None, pa.large_string()))


def _join(*parts: pa.Array | str, separator: str = "", null_handling: str = "emit_null") -> pa.Array:
    """Strings side by side; a null among them makes the whole null, or is skipped."""
    typed = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in (*parts, separator)]
    return pc.binary_join_element_wise(*typed, null_handling=null_handling)


def _plain(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_string())


def _quoted(text: pa.Array) -> pa.Array:
    return _join('"', text.cast(pa.large_string()), '"')


_SHORT_ESCAPES: Final = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(text: pa.Array, also: str = "", hex_format: str = "\\u{:04x}") -> pa.Array:
    """`text` with quotes, backslashes and control characters escaped, and the characters of the class `also`."""
    text = text.cast(pa.large_string())
    if not pc.any(pc.match_substring_regex(text, f'[\\x00-\\x1f"\\\\{also}]')).as_py():
        return text
    strange = pc.replace_substring_regex(text, f"[^\\x00-\\x1f{also}]", "").unique().to_pylist()
    text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    for character in set("".join(filter(None, strange))):
        text = pc.replace_substring(text, character, _SHORT_ESCAPES.get(character) or hex_format.format(ord(character)))
    return text


def _string(array: pa.Array) -> pa.Array:
    return _quoted(_escaped(array))


def _double(array: pa.Array) -> pa.Array:
    array = array.cast(pa.float64())
    text = array.cast(pa.large_string())
    whole = pc.match_substring_regex(text, "^-?[0-9]+$")
    return _name_special(array, pc.if_else(whole, _join(text, ".0"), text))


def _name_special(array: pa.Array, text: pa.Array) -> pa.Array:
    """NaN and the infinities, which JSON has no numbers for, as strings."""
    if not pc.any(pc.invert(pc.is_finite(array))).as_py():
        return text
    for is_one, name in (
        (pc.is_nan(array), "NaN"),
        (pc.equal(array, float("inf")), "Infinity"),
        (pc.equal(array, float("-inf")), "-Infinity"),
    ):
        text = pc.if_else(is_one, pa.scalar(f'"{name}"', pa.large_string()), text)
    return text


def decimal_text(array: pa.Array) -> pa.Array:
    """Decimals as plain digits with all decimals of their scale, never with an exponent."""
    kind = array.type
    scale = max(kind.scale, 0)
    if kind.scale < 0:
        array = array.cast(pa.decimal256(76, 0))
    array = array.cast(pa.decimal256(76, scale))
    unscaled = pa.Array.from_buffers(pa.decimal256(76, 0), len(array), array.buffers(), offset=array.offset)
    text = unscaled.cast(pa.large_string())
    if not scale:
        return text
    negative = pc.starts_with(text, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(text, "-"), scale + 1, "0")
    point = _join(pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale))
    return pc.if_else(negative, _join("-", point), point)


def _quoted_decimal(array: pa.Array) -> pa.Array:
    return _quoted(decimal_text(array))


def _quoted_date(array: pa.Array) -> pa.Array:
    return _quoted(pc.strftime(array.cast(pa.timestamp("s")), "%Y-%m-%d"))


def _quoted_timestamp(array: pa.Array) -> pa.Array:
    zulu = "Z" if array.type.tz else ""
    local = array.cast(pa.int64()).cast(pa.timestamp(array.type.unit)).cast(pa.timestamp("us"), safe=False)
    return _quoted(pc.strftime(local, f"%Y-%m-%dT%H:%M:%S{zulu}"))


def base64_text(array: pa.Array) -> pa.Array:
    """Binary values as base64 with padding: all values in one buffer, each padded to whole groups of three bytes."""
    data, starts = bytes_and_offsets(pc.fill_null(array.cast(pa.large_binary()), b""))
    lengths = np.diff(starts)
    groups = (lengths + 2) // 3
    begins = np.concatenate(([0], np.cumsum(groups)))
    padded = np.zeros(int(begins[-1]) * 3, np.uint8)
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    padded[np.repeat(begins[:-1] * 3, lengths) + within] = data
    text = np.frombuffer(base64.b64encode(padded.tobytes()), np.uint8).copy()
    missing = groups * 3 - lengths
    text[begins[1:][missing >= 1] * 4 - 1] = ord("=")
    text[begins[1:][missing >= 2] * 4 - 2] = ord("=")
    return pa.Array.from_buffers(
        pa.large_string(), len(array), [None, pa.py_buffer(begins.astype(np.int64) * 4), pa.py_buffer(text)]
    )


def _quoted_base64(array: pa.Array) -> pa.Array:
    return _quoted(base64_text(array))


def _days(array: pa.Array) -> pa.Array:
    return _plain(array.cast(pa.date32()).cast(pa.int32()))


def _epoch_units(array: pa.Array) -> pa.Array:
    return _plain(array.cast(pa.int64()))


def _epoch_micros(array: pa.Array) -> pa.Array:
    return _plain(array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()))


def _java_double(array: pa.Array) -> pa.Array:
    return _name_special(array.cast(pa.float64()), java_float(array).cast(pa.large_string()))


def _avro_decimal(array: pa.Array) -> pa.Array:
    """The bytes of the fixed that holds the decimal, as Java prints an array of signed bytes."""
    size = decimal_size(array.type.precision)
    array = pc.fill_null(array.cast(pa.decimal128(38, array.type.scale)), 0)
    little = np.frombuffer(array.buffers()[1], np.int8).reshape(-1, 16)[array.offset : array.offset + len(array)]
    big = np.ascontiguousarray(little[:, :size][:, ::-1]).reshape(-1)
    lists = pa.LargeListArray.from_arrays(
        pa.array(np.arange(len(array) + 1) * size), pa.array(big).cast(pa.large_string())
    )
    return _join("[", pc.binary_join(lists, pa.scalar(", ", pa.large_string())), "]")


def _avro_string(array: pa.Array) -> pa.Array:
    return _quoted(_escaped(array, "\\x7f-\\x9f\\x{2000}-\\x{20ff}", "\\u{:04X}"))


def _avro_bytes(array: pa.Array) -> pa.Array:
    """Bytes as characters of the same number."""
    data, starts = bytes_and_offsets(pc.fill_null(array.cast(pa.large_binary()), b""))
    # Latin-1 to UTF-8: bytes from 0x80 on become two
    ends = starts + np.concatenate(([0], np.cumsum(data >= 0x80)))[starts]
    text = pa.Array.from_buffers(
        pa.large_string(),
        len(array),
        [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(data.tobytes().decode("latin-1").encode())],
    )
    return _avro_string(text)


ROWS: Final = Spelling(_double, _quoted_decimal, _quoted_date, _quoted_timestamp, _quoted_base64, _string)
AVRO: Final = Spelling(_java_double, _avro_decimal, _days, _epoch_units, _avro_bytes, _avro_string, sort_map_keys=False)
COMPACT: Final = Spelling(
    _java_double,
    _quoted_decimal,
    _days,
    _epoch_micros,
    _quoted_base64,
    _string,
    comma=",",
    colon=":",
    omit_nulls=True,
    sort_map_keys=False,
)


def plain_texts(batch: pa.RecordBatch) -> list[pa.Array]:
    """Each column as text for people: without the quotes of JSON; nulls stay null."""
    return [_unquoted(column, json_values(column, ROWS)) for column in batch.columns]


def _unquoted(column: pa.Array, text: pa.Array) -> pa.Array:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if is_text(kind):
        return column.cast(pa.large_string())
    return text if pa.types.is_nested(kind) else pc.utf8_trim(text, '"')
