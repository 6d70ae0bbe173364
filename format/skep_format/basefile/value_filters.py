"""Bloom filters over the values of columns, in the Parquet format itself: by the keys of Hadoop's Parquet writer."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skep_format.errors import OptionError, UnsupportedError
from skep_format.options import Options, boolean, option

_PREFIX: Final = "parquet.bloom.filter."
_RARELY_WRONG: Final = 0.01

ENABLED = option(f"{_PREFIX}enabled", boolean, False, "All columns get one; `…enabled#column`: one column")
VALUES = option(f"{_PREFIX}expected.ndv", int, 0, "Different values of a row group; unset: all rows")
RATE = option(f"{_PREFIX}fpp", float, _RARELY_WRONG, "Rate of false positives")


@dataclass(frozen=True, slots=True)
class ValueFilters:
    """Which columns get a Parquet bloom filter.

    `columns` are dotted names with on or off; `values` (different values of a row group) and `rates` (of false
    positives) are per column, `others`, `count` and `rate` for columns not named.
    """

    columns: tuple[tuple[str, bool], ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    rates: tuple[tuple[str, float], ...] = ()
    others: bool = False
    rate: float = _RARELY_WRONG
    count: int = 0

    @classmethod
    def of(cls, options: Options) -> ValueFilters:
        """OptionError for a value that does not parse."""
        return cls(
            tuple((name, _parsed(boolean, key, text)) for name, key, text in _named(options, ENABLED.key)),
            tuple((name, _parsed(int, key, text)) for name, key, text in _named(options, VALUES.key)),
            tuple((name, _parsed(float, key, text)) for name, key, text in _named(options, RATE.key)),
            options.value(ENABLED),
            options.value(RATE),
            options.value(VALUES),
        )

    @property
    def wanted(self) -> bool:
        """Whether any column gets a filter."""
        return self.others or any(on for _, on in self.columns)

    def names(self, schema: pa.Schema) -> list[str]:
        """The columns of a file that get a filter, by dotted name."""
        named = dict(self.columns)
        return [name for name in _leaves(schema) if named.get(name, self.others)] if self.wanted else []

    def check(self, schema: pa.Schema) -> None:
        """OptionError for a column that is not there, or whose type has no filters."""
        known = set(_leaves(schema))
        for name, on in self.columns:
            if on and name not in known:
                raise OptionError(
                    f"{ENABLED.key}#{name}: there is no such column of a type that has filters",
                    option=f"{ENABLED.key}#{name}",
                    expected=", ".join(sorted(known)),
                )

    def arguments(self, rows: pa.Table) -> dict[str, Any]:
        """Keyword arguments of Arrow's writer. UnsupportedError where pyarrow is too old to write filters."""
        if not self.wanted:
            return {}
        if "bloom_filter_options" not in inspect.signature(pq.ParquetWriter.__init__).parameters:
            raise UnsupportedError(
                f"{ENABLED.key}: pyarrow {pa.__version__} writes no filters",
                hint="install a newer one",
                option=ENABLED.key,
            )
        values, rates = dict(self.values), dict(self.rates)
        filters = {
            name: {"ndv": values.get(name) or self.count or max(1, rows.num_rows), "fpp": rates.get(name, self.rate)}
            for name in self.names(rows.schema)
        }
        return {"bloom_filter_options": filters} if filters else {}


def _named(options: Mapping[str, str], key: str) -> Iterator[tuple[str, str, str]]:
    """(column, key, value) of the keys that end in a column's name."""
    for given, text in options.items():
        if given.startswith(f"{key}#"):
            yield given[len(key) + 1 :], given, text


def _parsed(parse: Any, key: str, text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise OptionError(f"option {key}: {text!r} is not understood", option=key, found=text) from error


def _leaves(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[str]:
    """The columns that have filters, as they are called in files: no booleans, and nothing inside of lists and maps."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{prefix}{field.name}.")
        elif not pa.types.is_nested(field.type) and not pa.types.is_boolean(field.type):
            yield f"{prefix}{field.name}"
