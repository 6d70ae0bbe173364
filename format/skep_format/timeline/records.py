"""Frozen dataclasses to Avro records and back, by the names and types of their fields."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from skep_format.errors import FormatError

R = TypeVar("R")
_Decode = Callable[[Any], Any]


def to_record(value: Any) -> Any:
    """Converts a dataclass to a record for an Avro encoder; tuples become lists."""
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        return {avro: to_record(getattr(value, name)) for name, avro, _ in _members(kind)}
    if isinstance(value, tuple):
        return [to_record(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_record(item) for key, item in value.items()}
    return value


def from_record(kind: type[R], record: Any, path: str) -> R:
    """Converts a decoded record to a `kind`. Missing members, and nulls where `kind` allows none, get its defaults.

    FormatError naming `path` when a member without a default is missing, or a member has the wrong type.
    """
    try:
        decoded: R = _dataclass(kind)(record)
    except (TypeError, AttributeError, ValueError) as error:
        raise FormatError(
            f"{path} is not a {kind.__name__}: {error}", path=path, expected=kind.__name__, found=str(record)[:200]
        ) from error
    return decoded


@functools.cache
def _members(kind: Any) -> tuple[tuple[str, str, _Decode], ...]:
    hints = typing.get_type_hints(kind)
    return tuple(
        (field.name, field.metadata.get("avro") or camel(field.name), _decoder(hints[field.name]))
        for field in dataclasses.fields(kind)
    )


def camel(name: str) -> str:
    """A name in snake case as Hudi spells it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _dataclass(kind: Any) -> _Decode:
    def decode(record: Any) -> Any:
        given = ((name, found(record.get(avro))) for name, avro, found in _members(kind))
        return kind(**{name: value for name, value in given if value is not _ABSENT})

    return decode


_ABSENT = object()


def _decoder(hint: Any) -> _Decode:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        present = _decoder(inner)
        return lambda value: None if value is None else present(value)
    decode = _present_decoder(hint, origin, arguments)
    return lambda value: _ABSENT if value is None else decode(value)


def _present_decoder(hint: Any, origin: Any, arguments: tuple[Any, ...]) -> _Decode:
    if origin is tuple:
        item = _decoder(arguments[0])
        return lambda value: tuple(item(each) for each in value)
    if origin is Mapping:
        member = _decoder(arguments[1])
        return lambda value: {key: member(each) for key, each in value.items()}
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint)

    kind = str if issubclass(hint, str) else hint

    def plain(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is not a {hint.__name__}")
        return hint(value) if kind is str and hint is not str else value

    return plain
