"""Partition paths, partition values and the metastore's partition names: one decoder and one encoder for all uses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from itertools import zip_longest
from typing import Final

from skep_format.errors import FormatError
from skep_format.escaping import unescape
from skep_format.names import DEFAULT_PARTITION


class Extractor(Enum):
    """How values are read from a partition path, by the short name of Hudi's PartitionValueExtractor classes."""

    MULTI_PART = "MultiPartKeysValueExtractor"
    SINGLE_PART = "SinglePartPartitionValueExtractor"
    HIVE_STYLE = "HiveStylePartitionValueExtractor"
    SLASH_ENCODED_DAY = "SlashEncodedDayPartitionValueExtractor"
    SLASH_ENCODED_HOUR = "SlashEncodedHourPartitionValueExtractor"
    NON_PARTITIONED = "NonPartitionedExtractor"

    @classmethod
    def of(cls, text: str) -> Extractor:
        """By Hudi's class name, with or without its package, or by skep's short name (`multi_part`)."""
        name = text.strip().rsplit(".", 1)[-1]
        for member in cls:
            if name.lower() in (member.value.lower(), member.name.lower()):
                return member
        raise ValueError(f"one of {', '.join(member.value for member in cls)}")

    @classmethod
    def fitting(cls, keys: int, *, hive_style: bool) -> Extractor:
        """The one that Hudi infers for so many partition keys."""
        if keys == 0:
            return cls.NON_PARTITIONED
        if keys > 1:
            return cls.MULTI_PART
        return cls.HIVE_STYLE if hive_style else cls.SINGLE_PART

    def values(self, path: str, *, decode: bool, keys: Sequence[str] = ()) -> tuple[str, ...]:
        """The values in a partition path. `decode`: the table URL-encodes them; `keys`: what levels begin with may be
        their names, and all that comes behind is a value then. FormatError when it does not fit."""
        values = self._raw(path, keys)
        return tuple(unescape(value) for value in values) if decode else values

    def _raw(self, path: str, keys: Sequence[str]) -> tuple[str, ...]:
        parts = path.split("/") if path else []
        match self:
            case Extractor.NON_PARTITIONED:
                return ()
            case Extractor.MULTI_PART:
                return tuple(self._value(part, path, key) for part, key in zip_longest(parts, keys[: len(parts)]))
            case Extractor.SINGLE_PART:
                return ("-".join(parts),)
            case Extractor.HIVE_STYLE:
                name, equals, value = path.partition("=")
                key = keys[0] if len(keys) == 1 else None
                # A value with slashes: Spark's reader of Hudi takes all levels for the value of a single key.
                slashes = len(parts) > 1 and _is_key(name, key) and "=" not in "".join(parts[1:])
                if not equals or (len(parts) > 1 and not slashes):
                    raise self._unfit(path, "key=value")
                return (value if slashes else self._value(path, path, key),)
            case Extractor.SLASH_ENCODED_DAY:
                return self._date(parts, 3, path)
            case Extractor.SLASH_ENCODED_HOUR:
                return self._date(parts, 4, path)

    def _value(self, part: str, path: str, key: str | None = None) -> str:
        name, equals, value = part.partition("=")
        if "=" in value and not _is_key(name, key):
            raise self._unfit(path, "one = a level")
        return value if equals else part

    def _date(self, parts: list[str], count: int, path: str) -> tuple[str, ...]:
        if len(parts) != count:
            raise self._unfit(path, "yyyy/MM/dd" + "/HH" * (count - 3))
        return ("-".join(self._value(part, path) for part in parts),)

    def _unfit(self, path: str, expected: str) -> FormatError:
        return FormatError(
            f"partition path {path!r} does not fit {self.value}: it expects {expected}",
            hint="choose another hoodie.datasource.hive_sync.partition_extractor_class",
            path=path,
            expected=expected,
        )


def _is_key(name: str, key: str | None) -> bool:
    """Whether a level's name is that of a key; of a field within a struct the entry has the last part."""
    return key is not None and name.rpartition(".")[2].lower() == key.lower()


def partition_values(path: str, extractor: Extractor, keys: Sequence[str], *, decode: bool) -> tuple[str, ...]:
    """The values of a partition path, one a key. An empty value is the default partition, as for Hive."""
    values = extractor.values(path, decode=decode, keys=keys)
    if len(values) != len(keys):
        raise FormatError(
            f"partition path {path!r} has {len(values)} values by {extractor.value}, "
            f"the table {len(keys)} partition keys ({', '.join(keys)})",
            hint="choose another hoodie.datasource.hive_sync.partition_extractor_class",
            path=path,
            found=values,
            expected=tuple(keys),
        )
    return tuple(value or DEFAULT_PARTITION for value in values)


INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")


def is_number(text: str) -> bool:
    """Whether a value is a whole number."""
    return re.fullmatch(r"[+-]?\d+", text) is not None


def canonical_value(text: str, kind: str) -> str:
    """A value as the metastore's type writes it. Values of other types (the default partition, for example) stay."""
    if kind in INTEGERS and is_number(text):
        return str(int(text))
    if kind == "date" and (match := re.fullmatch(r"(\d{4})-(\d{1,2})-(\d{1,2})", text)):
        return f"{match[1]}-{match[2]:0>2}-{match[3]:0>2}"
    return text
