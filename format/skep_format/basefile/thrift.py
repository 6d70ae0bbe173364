"""Thrift's compact protocol, in which Parquet keeps its metadata, as values in which unknown fields survive.

A struct is a dict of field number → (type, value), in the order of the fields; a list is (type of the elements, their
values). Integers are Python's, binary data and doubles are bytes, a struct within a struct or a list is a dict again.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from skep_format.protobuf import put_varint

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct = dict[int, tuple[int, Any]]
"""Field number → (type, value). Of booleans the type is the value."""

Buffer: TypeAlias = bytes | memoryview
_INTEGERS: Final = (I16, I32, I64)
# Structs of Parquet are nested at most nine deep; more is damage, and would exhaust the stack.
_DEEPEST: Final = 32


class ThriftError(ValueError):
    """Bytes that are no struct of the compact protocol, or a struct that lacks a field."""


def parse_struct(data: Buffer, at: int = 0) -> tuple[Struct, int]:
    """The struct that begins at a byte, and where it ends. ThriftError for anything else."""
    try:
        return _struct(data, at, 0)
    except IndexError:
        raise ThriftError(f"a Thrift struct is cut after {len(data)} bytes") from None


def struct_bytes(struct: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def value_of(struct: Struct, field: int) -> Any:
    """The value of a field; None where the struct lacks it."""
    found = struct.get(field)
    return None if found is None else found[1]


def required(struct: Struct, field: int, kind: int) -> Any:
    """The value of a field of a type. ThriftError where the struct lacks it."""
    found = struct.get(field)
    if found is None or found[0] != kind:
        raise ThriftError(f"field {field} of a Thrift struct is missing or of another type than {kind}")
    return found[1]


def _struct(data: Buffer, at: int, depth: int) -> tuple[Struct, int]:
    """Integers and binary data, which most fields are, are read here: calls would take most of the time."""
    if depth > _DEEPEST:
        raise ThriftError(f"Thrift structs are nested more than {_DEEPEST} deep")
    found: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        if number in found:
            raise ThriftError(f"field {number} of a Thrift struct occurs twice, the second time at byte {at}")
        value: Any
        if I16 <= kind <= I64 or kind == BINARY:
            value = data[at]
            at += 1
            if value >= 0x80:
                value, at = _varint(data, at - 1)
            if kind != BINARY:
                value = (value >> 1) ^ -(value & 1)
            else:
                end = at + value
                if end > len(data):
                    raise IndexError
                value, at = bytes(data[at:end]), end
        elif kind in (TRUE, FALSE):
            value = kind == TRUE
        else:
            value, at = _value(data, at, kind, depth)
        found[number] = kind, value
    return found, at + 1


def _value(data: Buffer, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if I16 <= kind <= I64:
        return _integer(data, at)
    if kind == BINARY:
        size, at = _varint(data, at)
        if at + size > len(data):
            raise IndexError
        return bytes(data[at : at + size]), at + size
    if kind == STRUCT:
        return _struct(data, at, depth + 1)
    if kind in (LIST, SET):
        head = data[at]
        size, at = (head >> 4, at + 1) if head >> 4 < 0x0F else _varint(data, at + 1)
        of = head & 0x0F
        if size > len(data) - at:  # an element takes a byte at least
            raise IndexError
        values = []
        for _ in range(size):
            if of in (TRUE, FALSE, BYTE):
                value, at = data[at], at + 1
            else:
                value, at = _value(data, at, of, depth + 1)
            values.append(value)
        return (of, values), at
    if kind == DOUBLE:
        if at + 8 > len(data):
            raise IndexError
        return bytes(data[at : at + 8]), at + 8
    if kind == BYTE:
        return data[at], at + 1
    raise ThriftError(f"type {kind} at byte {at} of a Thrift struct is not known in Parquet")


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ThriftError(f"an integer at byte {at} of a Thrift struct has more than 64 bits")


def _integer(data: Buffer, at: int) -> tuple[int, int]:
    zigzag, at = _varint(data, at)
    return (zigzag >> 1) ^ -(zigzag & 1), at


def _put_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in sorted(struct.items()):
        step = number - before
        if 0 < step < 0x10:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _put_integer(out, number)
        before = number
        if kind not in (TRUE, FALSE):
            _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _put_integer(out, value)
    elif kind == BINARY:
        put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, SET):
        of, values = value
        if len(values) < 0x0F:
            out.append(len(values) << 4 | of)
        else:
            out.append(0xF0 | of)
            put_varint(out, len(values))
        for each in values:
            if of in (TRUE, FALSE, BYTE):
                out.append(each)
            else:
                _put(out, of, each)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)


def _put_integer(out: bytearray, value: int) -> None:
    put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
