"""Bloom filters over the values of columns, in the Parquet format itself: by the keys of Hadoop's Parquet writer."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from skep_format.errors import OptionError, UnsupportedError
from skep_format.options import Option, Options, boolean, of_option, option

_PREFIX: Final = "parquet.bloom.filter."

ENABLED = option(f"{_PREFIX}enabled", boolean, False, "All columns get one; `…enabled#column`: one column")
VALUES = option(f"{_PREFIX}expected.ndv", int, 0, "Different values of a row group; unset: all rows")
RATE = option(f"{_PREFIX}fpp", float, 0.01, "Rate of false positives")


@dataclass(frozen=True, slots=True)
class ValueFilters:
    """Which columns get a Parquet bloom filter.

    `columns` are dotted names with on or off; `values` (different values of a row group) and `rates` (of false
    positives) are per column, `others`, `count` and `rate` for columns not named.
    """

    columns: tuple[tuple[str, bool], ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    rates: tuple[tuple[str, float], ...] = ()
    others: bool = of_option(ENABLED)
    rate: float = of_option(RATE)
    count: int = of_option(VALUES)

    @classmethod
    def of(cls, options: Options) -> ValueFilters:
        """OptionError for a value that does not parse."""
        columns, values, rates = (tuple(_named(options, known)) for known in (ENABLED, VALUES, RATE))
        return options.read(cls, columns=columns, values=values, rates=rates)

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


def _named(options: Options, known: Option[Any]) -> Iterator[tuple[str, Any]]:
    """(column, value) of the keys that end in a column's name. OptionError for a value that does not parse."""
    for key, text in options.items():
        if key.startswith(f"{known.key}#"):
            try:
                yield key[len(known.key) + 1 :], known.parse(text)
            except ValueError as error:
                raise OptionError(f"option {key}: {text!r} is not understood", option=key, found=text) from error


def _leaves(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[str]:
    """The columns that have filters, as they are called in files: no booleans, and nothing inside of lists and maps."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{prefix}{field.name}.")
        elif not pa.types.is_nested(field.type) and not pa.types.is_boolean(field.type):
            yield f"{prefix}{field.name}"
