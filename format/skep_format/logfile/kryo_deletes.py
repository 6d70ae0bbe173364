"""Delete blocks of Hudi 0.13 and older: an array of keys, or of deletes, as Kryo 4 writes Java objects.

Content version 1 (0.10 and older) is `HoodieKey[]`, version 2 (0.11 to 0.13) is `DeleteRecord[]`. What is read is what
these arrays can hold: a class is named once and then numbered, every object that is no number is numbered as well and
may be referred to again, fields come in the order of their names. References make it a format to be read in one go.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from skep_format.errors import CorruptFileError, FormatError

_MODEL: Final = "org.apache.hudi.common.model."
_KEY, _DELETE = f"{_MODEL}HoodieKey", f"{_MODEL}DeleteRecord"
_STRING, _UTF8 = "java.lang.String", "org.apache.avro.util.Utf8"
# Classes with fixed numbers: Kryo's own, then Avro's text, which Hudi 0.12, 0.13 and 0.14 number differently.
_NUMBERED: Final = {
    0: "java.lang.Integer", 1: _STRING, 2: "java.lang.Float", 3: "java.lang.Boolean", 7: "java.lang.Long",
    8: "java.lang.Double", 10: _UTF8, 27: _UTF8, 28: _UTF8,
}  # fmt: skip
# How each class of ordering values comes in Arrow; the precision of decimals is that of the values.
_TYPES: Final[dict[str, pa.DataType | None]] = {
    "java.lang.Integer": pa.int32(), "java.lang.Long": pa.int64(), "java.lang.Boolean": pa.bool_(),
    "java.lang.Float": pa.float32(), "java.lang.Double": pa.float64(), _STRING: pa.string(), _UTF8: pa.string(),
    "java.math.BigDecimal": None, "java.time.LocalDate": pa.date32(),
}  # fmt: skip
_ASCII: Final = re.compile(rb"[\x00-\x7f]*[\x80-\xff]")
_WIDTHS: Final = (1,) * 8 + (0,) * 4 + (2, 2, 3, 0)  # of a UTF-16 unit in bytes, by the upper half of its first byte
_DECIMAL_BYTES, _DECIMAL_SCALE = 16, 38  # Hudi's decimals have at most 38 digits
_UNFOLDED: Final = 64  # times its size is what a block's references may unfold to: long paths of short keys do not

# The integer 0 is Hudi's word for "no ordering value". Nor do dates and timestamps of java.sql count: the day of the
# first depends on the writer's time zone, the second lost its microseconds. Hudi 0.15 compares neither.
_NONE: Final = ("java.lang.Integer", 0)
_UNORDERED: Final = ("java.sql.Date", "java.sql.Timestamp")

_Ordering = tuple[str, Any]  # the class and the value
_Entry = tuple[str | None, str, _Ordering | None]  # partition path, record key, ordering value


def read_kryo_deletes(content: pa.Buffer, version: int, path: str, offset: int) -> pa.Table:
    """The content behind version and length, as `read_deletes` returns that of version 3."""
    reader = _Reader(content.to_pybytes(), path, offset)
    entries = reader.entries(_KEY if version == 1 else _DELETE)
    partitions, keys = [entry[0] for entry in entries], [entry[1] for entry in entries]
    values = [value if value and value != _NONE and value[0] not in _UNORDERED else None for *_, value in entries]
    texts = [*keys, *partitions, *(value[1] for value in values if value)]
    if sum(len(text) for text in texts if isinstance(text, str)) > _UNFOLDED * len(content) + (1 << 20):
        raise reader.damaged("texts that unfold to many times the block's size")
    return pa.table({
        "record_key": pa.array(keys, pa.string()), "partition_path": pa.array(partitions, pa.string()),
        "ordering_value": _ordering_values(values, reader),
    })  # fmt: skip


def _ordering_values(values: list[_Ordering | None], reader: _Reader) -> pa.Array:
    classes = sorted({value[0] for value in values if value})
    if not classes:
        return pa.nulls(len(values))
    if len({_TYPES[name] for name in classes}) > 1:
        raise reader.refused(f"deletes with ordering values of different types: {', '.join(classes)}", classes)
    try:
        return pa.array([value and value[1] for value in values], _TYPES[classes[0]])
    except (pa.ArrowException, OverflowError) as error:
        raise reader.damaged(f"ordering values of {classes[0]} out of range: {error}") from error


class _Reader:
    def __init__(self, data: bytes, path: str, offset: int) -> None:
        self._data, self._path, self._offset = data, path, offset
        self._at = 0
        self._named: list[str] = []
        self._objects: list[_Ordering | None] = []  # None while it is being read

    def entries(self, kind: str) -> list[_Entry]:
        """The whole content: an array whose elements are of class `kind`."""
        self._expect(f"[L{kind};")
        found = self._object("array", lambda: self._array(kind))
        if self._at != len(self._data):
            raise self.damaged("bytes behind the deletes")
        return self._present(found, "array")

    def _array(self, kind: str) -> list[_Entry]:
        count = self._varint() - 1
        if not 0 <= count <= len(self._data) - self._at:
            raise self.damaged(f"a count of {count} deletes")
        element = self._key if kind == _KEY else self._delete
        found = []
        for _ in range(count):
            self._expect(kind)
            found.append(self._present(self._object(kind, element), kind))
        return found

    def _delete(self) -> _Entry:
        self._expect(_KEY)
        partition, key, _ = self._present(self._object(_KEY, self._key), _KEY)
        return partition, key, self._ordering()

    def _key(self) -> _Entry:
        partition = self._object(_STRING, self._text)
        return partition, self._present(self._object(_STRING, self._text), "record key"), None

    def _ordering(self) -> _Ordering | None:
        name = self._class()
        if name is None:
            return None
        if name in _VALUES:
            return name, _VALUES[name](self)
        if name not in _OBJECTS:
            raise self.refused(f"an ordering value of class {name!r:.100}", name)
        value = self._object(name, lambda: _OBJECTS[name](self))
        return name, self._present(value, name)

    def _class(self) -> str | None:
        """The next class; None for a null. A class with a registered number is never named."""
        number = self._varint()
        if number == 0:
            return None
        if number > 1:
            name = _NUMBERED.get(number - 2)
            if name is None:
                raise self.refused(f"an object of registered class {number - 2} in a delete", number - 2)
            return name
        number = self._varint()
        if number == len(self._named):
            self._named.append(self._text())
            if self._named[number] in _NUMBERED.values():
                # Hudi 0.11 writes Avro's text so, field by field, and differently with each release of Avro
                raise self.refused(f"a named object of class {self._named[number]}", self._named[number])
        elif number > len(self._named):
            raise self.damaged(f"class {number} before class {len(self._named)}")
        return self._named[number]

    def _expect(self, kind: str) -> None:
        name = self._class()
        if name != kind:
            raise self.damaged(f"found {name!s:.100}, expected {kind}")

    def _object(self, kind: str, read: Callable[[], Any]) -> Any:
        """An object that is numbered: a new one, one seen before, or None."""
        mark = self._varint()
        if mark == 0:
            return None
        if mark == 1:
            number = len(self._objects)
            self._objects.append(None)
            value = read()
            self._objects[number] = kind, value
            return value
        seen = self._objects[mark - 2] if mark - 2 < len(self._objects) else None
        if seen is None or seen[0] != kind:
            raise self.damaged(f"object {mark - 2} is no {kind} seen before")
        return seen[1]

    def _present(self, value: Any, what: str) -> Any:
        if value is None:
            raise self.damaged(f"null for a {what}")
        return value

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise self.damaged(f"{size} bytes expected at byte {start}")
        return self._data[start : self._at]

    def _varint(self, bits: int = 32) -> int:
        """Seven bits a byte, the lowest first; the ninth byte of a long has eight."""
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            if shift == 56 or byte < 0x80:
                value |= byte << shift
                break
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > bits:
                raise self.damaged("a number that does not end")
        if value >> bits:
            raise self.damaged(f"a number of more than {bits} bits")
        return value

    def _signed(self, bits: int) -> int:
        value = self._varint(bits)
        return value >> 1 ^ -(value & 1)

    def _text(self) -> str:
        first = self._take(1)[0]
        if first < 0x80:  # plain ASCII, whose last byte has the highest bit
            found = _ASCII.match(self._data, self._at - 1)
            if found is None:
                raise self.damaged("a text that does not end")
            self._at = found.end()
            return (found[0][:-1] + bytes((found[0][-1] & 0x7F,))).decode("ascii")
        count = first & 0x3F
        if first & 0x40:
            count |= self._varint() << 6
        if count == 0:
            raise self.damaged("null for a text")
        start = self._at
        for _ in range(count - 1):
            width = _WIDTHS[self._take(1)[0] >> 4]
            if not width:
                raise self.damaged("a text that is no UTF-8")
            self._at += width - 1
        self._take(0)
        try:
            units = self._data[start : self._at].decode("utf-8", "surrogatepass")
            return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError as error:
            raise self.damaged("a text that is no UTF-8") from error

    def _bytes(self) -> bytes:
        return self._take(self._present(self._varint() or None, "byte array") - 1)

    def _utf8(self) -> str:
        try:
            return self._bytes().decode()
        except UnicodeDecodeError as error:
            raise self.damaged("a text that is no UTF-8") from error

    def _decimal(self) -> Decimal:
        unscaled, scale = self._bytes(), self._signed(32)
        if not 1 <= len(unscaled) <= _DECIMAL_BYTES or abs(scale) > _DECIMAL_SCALE:
            raise self.damaged(f"a decimal of {len(unscaled)} bytes and scale {scale}")
        number = int.from_bytes(unscaled, "big", signed=True)
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    def _date(self) -> dt.date:
        year, (month, day) = self._varint(), self._take(2)
        year -= year >> 31 << 32
        try:
            return dt.date(year, month, day)
        except (ValueError, OverflowError) as error:
            raise self.damaged(f"a date {year}-{month}-{day}") from error

    def damaged(self, what: str) -> CorruptFileError:
        at = self._offset + min(self._at, len(self._data))
        return CorruptFileError.of_file(self._path, f"damaged delete block at byte {at}: {what}", offset=at)

    def refused(self, what: str, found: object) -> FormatError:
        at = self._offset + self._at
        return FormatError.of_file(
            self._path,
            f"{what}, at byte {at}",
            hint="compact the table with the Hudi release that wrote it",
            offset=at,
            found=found,
            expected="ordering values of one known class",
        )


# Classes whose values are never referred to, then those whose values may be.
_VALUES: Final[dict[str, Callable[[_Reader], Any]]] = {
    "java.lang.Integer": lambda reader: reader._signed(32),
    "java.lang.Long": lambda reader: reader._signed(64),
    "java.lang.Float": lambda reader: struct.unpack(">f", reader._take(4))[0],
    "java.lang.Double": lambda reader: struct.unpack(">d", reader._take(8))[0],
    "java.lang.Boolean": lambda reader: reader._take(1) != b"\0",
}
_OBJECTS: Final[dict[str, Callable[[_Reader], Any]]] = {
    _STRING: _Reader._text,
    _UTF8: _Reader._utf8,
    "java.math.BigDecimal": _Reader._decimal,
    "java.time.LocalDate": _Reader._date,
    **dict.fromkeys(_UNORDERED, lambda reader: reader._varint(64)),  # milliseconds
}
