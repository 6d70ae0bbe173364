"""Protobuf messages as bytes: numbers and fields, for the files whose few messages are read and written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Cut(ValueError):
    """The data ends, or an integer has an impossible form, at `at`. Callers add the file's name."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A protobuf varint of at most 64 bits: (value, position behind it)."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Cut(at, "a number is cut")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Cut(at, "a number of more than 64 bits")


def put_varint(out: bytearray, value: int) -> None:
    """Appends a varint of a number ≥ 0, as protobuf and Thrift have it."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def format_varint(value: int) -> bytes:
    """A protobuf varint of a number ≥ 0."""
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def read_message(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: (number, varint or bytes). Fixed-width fields come as bytes."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if kind == 2:
            length, at = read_varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise Cut(at, f"a field of unknown kind {kind}")
        if at + length > len(data):
            raise Cut(at, "a field is cut")
        yield number, data[at : at + length]
        at += length


def format_message(fields: Mapping[int, int | bytes] | list[tuple[int, int | bytes]]) -> bytes:
    """A protobuf message of numbers (varints) and bytes by field number."""
    out = bytearray()
    for number, value in fields.items() if isinstance(fields, Mapping) else fields:
        if isinstance(value, int):
            out += format_varint(number << 3) + format_varint(value)
        else:
            out += format_varint(number << 3 | 2) + format_varint(len(value)) + value
    return bytes(out)
