"""Dates and timestamps that Spark wrote in the legacy calendar (Julian until 1582-10-04): made proleptic Gregorian.

Spark 2.4 writes so, and later ones where `spark.sql.parquet.datetimeRebaseModeInWrite` or `int96RebaseModeInWrite` is
LEGACY. The footer records which; files whose footer does not name Spark are proleptic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skep_format.basefile import keys
from skep_format.errors import UnsupportedError

_FIRST_GREGORIAN_DAY: Final = -141_427  # 1582-10-15
_YEAR_ONE: Final = -719_164  # 0001-01-01 of the Julian calendar
_EPOCH_JULIAN_DAY: Final = 2_440_588
# From here on no time zone's rules differ between the two of Java: 1900-01-01, and a day for the zone.
_FIRST_COMMON_MICROS: Final = -2_208_988_800_000_000 + 86_400_000_000
_DAY_MICROS: Final = 86_400_000_000
_UTC: Final = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


@dataclass(frozen=True)
class LegacyCalendar:
    """Which values of a file are in the legacy calendar: dates and INT64 times, INT96 times, or both.

    `stored_as_int96`: top-level columns. `zone` is the one that the times were written in.
    """

    path: str
    dates: bool
    int96: bool
    stored_as_int96: frozenset[str]
    zone: str

    @classmethod
    def of(cls, metadata: pq.FileMetaData, path: str) -> LegacyCalendar | None:
        """None for a file whose values are all proleptic, which nearly all are."""
        dates, int96 = cls.stated(metadata)
        if not dates and not int96:
            return None
        # Not by the chunks of a row group, at which Arrow ends the process where a footer is damaged. The schema keeps
        # the footer in memory (see `footer.read_footer`), that of few files.
        columns = map(metadata.schema.column, range(metadata.num_columns))
        stored = frozenset(column.path.partition(".")[0] for column in columns if column.physical_type == "INT96")
        if not dates and not stored:
            return None
        zone = (metadata.metadata or {}).get(keys.SPARK_ZONE.encode(), b"").decode("utf-8", "replace")
        return cls(path, dates, int96, stored, zone)

    @staticmethod
    def stated(metadata: pq.FileMetaData) -> tuple[bool, bool]:
        """Whether dates and INT64 times, and whether INT96 times, are legacy where a file has some."""
        entries: Mapping[bytes, bytes] = metadata.metadata or {}
        version = entries.get(keys.SPARK_VERSION.encode())
        if version is None:
            return False, False
        # versions are compared as text, as Spark does
        dates = version < b"3.0.0" or keys.LEGACY_DATETIME.encode() in entries
        int96 = version < b"3.1.0" or keys.LEGACY_INT96.encode() in entries
        return dates, int96

    def proleptic(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its dates and timestamps in the proleptic Gregorian calendar.

        UnsupportedError for ancient timestamps of a zone other than UTC, and for ancient values inside of others.
        """
        for at, field in enumerate(batch.schema):
            column = self._column(batch.column(at), field)
            if column is not batch.column(at):
                batch = batch.set_column(at, field, column)
        return batch

    def _column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if pa.types.is_date32(field.type) and self.dates:
            return _by_days(column, pa.int32(), self._days)
        if pa.types.is_timestamp(field.type) and self._is_legacy(field.name):
            return _by_days(column, pa.int64(), lambda values: self._times(values, field))
        if pa.types.is_nested(field.type) and self._has_ancient(column, field.name):
            raise self._error(field.name, "inside of lists, maps or structs")
        return column

    def _is_legacy(self, name: str) -> bool:
        return self.int96 if name in self.stored_as_int96 else self.dates

    def _days(self, days: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if days.size and int(days.min()) < _YEAR_ONE:
            raise self._error("", "before the year 1")
        return np.where(days < _FIRST_GREGORIAN_DAY, _gregorian_days(days), days)

    def _times(self, times: npt.NDArray[Any], field: pa.Field) -> npt.NDArray[Any]:
        per_day = _DAY_MICROS if field.type.unit == "us" else _DAY_MICROS // 1000
        ancient = times < _FIRST_COMMON_MICROS * per_day // _DAY_MICROS
        if not ancient.any():
            return times
        if self.zone not in _UTC:
            raise self._error(field.name, f"in the time zone {self.zone or 'of its writer, which it does not name'}")
        days = times // per_day
        return np.where(ancient, times + (self._days(days) - days) * per_day, times)

    def _has_ancient(self, column: pa.Array, name: str) -> bool:
        kind = column.type
        if pa.types.is_date32(kind):
            return self.dates and _least(column, pa.int32()) < _FIRST_GREGORIAN_DAY
        if pa.types.is_timestamp(kind):
            scale = 1 if kind.unit == "us" else 1000
            return self._is_legacy(name) and _least(column, pa.int64()) * scale < _FIRST_COMMON_MICROS
        if pa.types.is_struct(kind):
            return any(self._has_ancient(part, name) for part in column.flatten())
        if pa.types.is_map(kind):
            return self._has_ancient(column.keys, name) or self._has_ancient(column.items, name)
        if pa.types.is_list(kind):
            return self._has_ancient(column.flatten(), name)
        return False

    def _error(self, column: str, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.path}{f', column {column}' if column else ''}: ancient dates or times of the legacy calendar {what}"
            " are not converted",
            hint="read the file with Spark, or write it again there with the rebase modes CORRECTED",
            path=self.path,
            column=column or None,
        )


def _by_days(column: pa.Array, plain: pa.DataType, rebase: Any) -> pa.Array:
    missing = column.is_null().to_numpy(zero_copy_only=False)
    values = column.cast(plain).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(rebase(values), plain, mask=missing).cast(column.type)


def _least(column: pa.Array, plain: pa.DataType) -> int:
    least = pc.min(column.cast(plain)).as_py()
    return 0 if least is None else int(least)


def _gregorian_days(days: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The proleptic day with the same year, month and day as a Julian one; one that is not there is the next one."""
    c = days.astype(np.int64) + _EPOCH_JULIAN_DAY + 32_082
    d = (4 * c + 3) // 1461
    e = c - 1461 * d // 4
    m = (5 * e + 2) // 153
    day, month, year = e - (153 * m + 2) // 5 + 1, m + 3 - 12 * (m // 10), d - 4800 + m // 10
    shifted = year - (month <= 2)
    since_march = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    counted = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + since_march - 719_468
    return np.asarray(counted.astype(days.dtype))
