"""Typed reads of properties, and the settings that releases of Hudi spell in several ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from skep_format.errors import FormatError
from skep_format.options import comma_list
from skep_format.table_config.keys import (
    KEY_GENERATOR_CLASS,
    KEY_GENERATOR_OF_CLASS,
    KEY_GENERATOR_TYPE,
    USER_PROVIDED,
)

NO_FIELDS: Final[tuple[str, ...]] = ()
V = TypeVar("V")


class PropertyReader:
    """Typed reads of properties; a value that does not parse is a FormatError that names its key."""

    def __init__(self, properties: Mapping[str, str], path: str) -> None:
        self._properties = properties
        self._path = path

    def value(self, key: str, parse: Callable[[str], V], default: V) -> V:
        """The parsed value, or the default where the key has no text."""
        text = self._properties.get(key, "").strip()
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            problem = f"{key}={text} is not understood ({error})"
            raise FormatError.of_file(self._path, problem, key=key, found=text) from error


def plain_fields(text: str) -> tuple[str, ...]:
    """Partition fields without the types of a CUSTOM key generator."""
    return tuple(part.partition(":")[0] for part in comma_list(text))


def typed_fields(text: str) -> tuple[str, ...]:
    """Partition fields with their types; none where no types are given."""
    return comma_list(text) if ":" in text else NO_FIELDS


def key_generator_of(properties: Mapping[str, str]) -> str | None:
    """The key generator\'s type, by its own property or by the class; None where the properties name neither."""
    kind = properties.get(KEY_GENERATOR_TYPE, "").strip().upper()
    if kind:
        return kind.removesuffix("_AVRO")
    name = properties.get(KEY_GENERATOR_CLASS, "").strip()
    if not name:
        return None
    # Every generator has a twin for Avro rows that makes the same keys.
    return KEY_GENERATOR_OF_CLASS.get(name.replace("AvroKeyGenerator", "KeyGenerator"), USER_PROVIDED)
