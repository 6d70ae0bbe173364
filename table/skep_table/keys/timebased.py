"""The timestamp-based key generator: numbers or date text in, formatted dates out (format guide 9.3).

Joda patterns are taken apart once; what they mean is then done with Arrow kernels over whole columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import KeyFieldError, OptionError
from skep_format.schema.arrow import is_number

_PREFIXES = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
_UNIT_NANOS = {
    "NANOSECONDS": 1,
    "MICROSECONDS": 1_000,
    "MILLISECONDS": 1_000_000,
    "SECONDS": 1_000_000_000,
    "MINUTES": 60_000_000_000,
    "HOURS": 3_600_000_000_000,
    "DAYS": 86_400_000_000_000,
}
# The Gregorian calendar, weekdays included, repeats after 400 years. Arrow's has years up to 32767 only.
_CYCLE_YEARS, _CYCLE_MILLIS = 400, 146_097 * 86_400_000
_YEAR_1, _YEAR_10000 = -62_135_596_800_000, 253_402_300_800_000
_TYPE_OF_UNIT = {
    "NANOSECONDS": "SCALAR with hoodie.keygen.timebased.timestamp.scalar.time.unit=NANOSECONDS",
    "MICROSECONDS": "EPOCHMICROSECONDS",
    "MILLISECONDS": "EPOCHMILLISECONDS",
    "SECONDS": "UNIX_TIMESTAMP",
}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<field>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<literal>[^A-Za-z'])")


class TimestampKind(str, Enum):
    """What the partition column holds."""

    UNIX_TIMESTAMP = "UNIX_TIMESTAMP"
    EPOCHMILLISECONDS = "EPOCHMILLISECONDS"
    EPOCHMICROSECONDS = "EPOCHMICROSECONDS"
    SCALAR = "SCALAR"
    DATE_STRING = "DATE_STRING"
    MIXED = "MIXED"


_KIND_UNIT = {
    TimestampKind.UNIX_TIMESTAMP: "SECONDS",
    TimestampKind.EPOCHMILLISECONDS: "MILLISECONDS",
    TimestampKind.EPOCHMICROSECONDS: "MICROSECONDS",
    TimestampKind.DATE_STRING: "MILLISECONDS",
    TimestampKind.MIXED: "MILLISECONDS",
}


@dataclass(frozen=True, slots=True)
class TimestampFormat:
    """How one table turns its timestamp column into partition text."""

    kind: TimestampKind
    output_pattern: str
    input_patterns: tuple[str, ...] = ()
    unit: str = "SECONDS"
    input_zone: str = "UTC"
    output_zone: str = "UTC"

    @classmethod
    def of(cls, properties: Mapping[str, str], table: str = "") -> TimestampFormat:
        """From table properties or write options, by either prefix. OptionError for what is missing or unknown."""

        def read(name: str, default: str | None = None) -> str | None:
            return next((properties[prefix + name] for prefix in _PREFIXES if properties.get(prefix + name)), default)

        def need(name: str) -> str:
            value = read(name)
            if value is None:
                raise OptionError(
                    f"{f'table {table}: ' if table else ''}the timestamp key generator needs {_PREFIXES[0]}{name},"
                    " which the table does not store",
                    hint="Hudi 0.15 stores only some of these settings: give what the table was made with as an option,"
                    " by SET, or as a property of the table's entry in the metastore",
                    option=_PREFIXES[0] + name,
                )
            return value

        kind_text = need("timestamp.type").upper()
        if kind_text not in TimestampKind.__members__:
            raise OptionError(
                f"{_PREFIXES[0]}timestamp.type: {kind_text!r} is none of {', '.join(TimestampKind.__members__)}",
                option=_PREFIXES[0] + "timestamp.type",
                found=kind_text,
            )
        kind = TimestampKind(kind_text)
        unit = _KIND_UNIT.get(kind) or (read("timestamp.scalar.time.unit") or "SECONDS").upper()
        if unit not in _UNIT_NANOS:
            raise OptionError(
                f"{_PREFIXES[0]}timestamp.scalar.time.unit: {unit!r} is none of {', '.join(_UNIT_NANOS)}",
                option=_PREFIXES[0] + "timestamp.scalar.time.unit",
                found=unit,
            )
        patterns: tuple[str, ...] = ()
        if kind in (TimestampKind.DATE_STRING, TimestampKind.MIXED):
            delimiter = read("input.dateformat.list.delimiter.regex") or ","
            patterns = tuple(part.strip() for part in re.split(delimiter, need("input.dateformat")) if part.strip())
        both = read("timezone") or "UTC"
        zones = [_zone(read("input.timezone") or both), _zone(read("output.timezone") or both)]
        made = cls(kind, need("output.dateformat"), patterns, unit, *zones)
        _tokens(made.output_pattern)
        return made

    def format(self, column: pa.Array, name: str) -> pa.Array:
        """Partition text of a column; nulls are the epoch plus one unit, as in Hudi."""
        moments, years = _within_calendar(self._to_millis(column, name))
        local = moments.cast(pa.timestamp("ms", self.output_zone))
        return pc.binary_join_element_wise(
            *[_print(kind, text, local, years) for kind, text in _tokens(self.output_pattern)], ""
        )

    def _to_millis(self, column: pa.Array, name: str) -> pa.Array:
        kind = column.type
        if pa.types.is_dictionary(kind):
            return self._to_millis(column.dictionary_decode(), name)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self._parse(column.cast(pa.string()), name)
        if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
            number = column.cast(pa.int64())
        elif pa.types.is_date(kind):
            number = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        elif is_number(kind):
            number = _whole(column, self.unit, name)
        elif pa.types.is_null(kind):
            number = pa.nulls(len(column), pa.int64())
        else:
            raise KeyFieldError(f"partition column {name} of type {kind} is no timestamp", column=name, found=str(kind))
        nanos = _UNIT_NANOS[self.unit]
        filled = pc.fill_null(number, 1)
        if nanos >= 1_000_000:
            self._check_range(filled, nanos // 1_000_000, name)
            return pc.multiply(filled, nanos // 1_000_000).cast(pa.timestamp("ms", "UTC"))
        return _floor_divide(filled, 1_000_000 // nanos).cast(pa.timestamp("ms", "UTC"))

    def _check_range(self, numbers: pa.Array, millis: int, name: str) -> None:
        """KeyFieldError where the milliseconds are beyond 64 bits: numbers of that size are of another unit."""
        most = (2**63 - 1) // millis
        beyond = pc.filter(numbers, pc.or_(pc.greater(numbers, most), pc.less(numbers, -most)))
        if len(beyond):
            value = beyond[0].as_py()
            unit = _likely_unit(value)
            raise KeyFieldError(
                f"partition column {name}: {value} {self.unit.lower()} are no time in any year ({len(beyond)} rows)",
                hint=None if unit is None else f"in {unit.lower()} it would be one: {_TYPE_OF_UNIT[unit]} reads these",
                column=name,
                rows=len(beyond),
                found=value,
                expected=self.unit,
            )

    def _parse(self, text: pa.Array, name: str) -> pa.Array:
        if not self.input_patterns:
            raise KeyFieldError(
                f"partition column {name} holds text, {self.kind.value} expects numbers", column=name, found="string"
            )
        parsed = pc.coalesce(*[_parse_pattern(text, pattern, self.input_zone) for pattern in self.input_patterns])
        unread = pc.and_(pc.is_null(parsed), pc.is_valid(text))
        if pc.any(unread).as_py():
            bad = pc.filter(text, unread)
            raise KeyFieldError(
                f"partition column {name}: {bad[0].as_py()!r} does not match {', '.join(self.input_patterns)}"
                f" ({len(bad)} rows)",
                column=name,
                rows=len(bad),
                found=bad[0].as_py(),
                expected=self.input_patterns,
            )
        return pc.fill_null(parsed, pa.scalar(1, pa.int64()).cast(pa.timestamp("ms", "UTC")))


def _whole(column: pa.Array, unit: str, name: str) -> pa.Array:
    """Numbers without what is behind the point. KeyFieldError for NaN, and for those that 64 bits do not hold."""
    if pa.types.is_integer(column.type) and column.type != pa.uint64():
        return column.cast(pa.int64())
    number = column.cast(pa.float64(), safe=False)
    beyond = pc.filter(column, pc.invert(pc.and_(pc.greater_equal(number, -(2.0**63)), pc.less(number, 2.0**63))))
    if len(beyond):
        raise KeyFieldError(
            f"partition column {name}: {beyond[0].as_py()} {unit.lower()} are no time in any year ({len(beyond)} rows)",
            column=name,
            rows=len(beyond),
            found=beyond[0].as_py(),
            expected=unit,
        )
    return column.cast(pa.int64(), safe=False)


def _zone(name: str) -> str:
    text = {"GMT": "UTC", "Z": "UTC"}.get(name, name)
    if match := re.fullmatch(r"(?:GMT|UTC)([+-])(\d{1,2})(?::?(\d{2}))?", text):
        text = f"{match[1]}{int(match[2]):02d}:{match[3] or '00'}"
    try:
        pa.scalar(0, pa.timestamp("ms", text)).cast(pa.string())
        pc.year(pa.array([0], pa.timestamp("ms", text)))
    except pa.ArrowException as error:
        raise OptionError(f"the timestamp key generator does not know the time zone {name!r}", found=name) from error
    return text


def _likely_unit(value: int) -> str | None:
    """The unit in which a number is a time between 1970 and 2200."""
    most = 7_258_118_400 * 1_000_000_000
    return next((unit for unit in reversed(_TYPE_OF_UNIT) if 0 < value * _UNIT_NANOS[unit] < most), None)


def _within_calendar(moments: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Moments in years that Arrow's calendar has, and how many years each was moved by; None where all are as given.

    Those of other years come into a cycle in which time zones are as in them: behind all changes of their rules, or
    before the first one.
    """
    millis = moments.cast(pa.int64())
    late, early = pc.greater_equal(millis, _YEAR_10000), pc.less(millis, _YEAR_1)
    if not pc.any(pc.or_(late, early)).as_py():
        return moments, None
    cycle = _floor_divide(millis, _CYCLE_MILLIS)  # from 1970 on
    moved = pc.if_else(late, pc.subtract(cycle, 1), pc.if_else(early, pc.add(cycle, 2), 0))
    within = pc.subtract(millis, pc.multiply(moved, _CYCLE_MILLIS))
    return within.cast(moments.type), pc.multiply(moved, _CYCLE_YEARS)


def _floor_divide(numbers: pa.Array, divisor: int) -> pa.Array:
    truncated = pc.divide(numbers, divisor)
    below = pc.less(pc.subtract(numbers, pc.multiply(truncated, divisor)), 0)
    return pc.subtract(truncated, below.cast(pa.int64()))


def _tokens(pattern: str) -> list[tuple[str, str]]:
    """(letter, run of it) for fields, ("", text) for literals. OptionError for letters that are not supported."""
    found: list[tuple[str, str]] = []
    position = 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != position:
            break
        if match["letter"] and match["letter"] not in "yYuMdDHhmsSaE":
            break
        position = match.end()
        if match["field"]:
            found.append((match["letter"], match["field"]))
        else:
            found.append(("", match["literal"] or match["quoted"].replace("''", "'") or "'"))
    if position != len(pattern) or not pattern:
        raise OptionError(f"date pattern {pattern!r} can't be understood", found=pattern, expected="a Joda pattern")
    return found


def _padded(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")


def _print(letter: str, text: str, local: pa.Array, years: pa.Array | None) -> pa.Scalar | pa.Array:
    """`years` are added to those of `local`."""
    width = len(text)
    if letter == "":
        return pa.scalar(text)
    if letter in "yYu":
        year = pc.year(local)
        if width == 2:
            return _padded(pc.subtract(year, pc.multiply(pc.divide(year, 100), 100)), 2)
        if years is None:
            return _padded(year, width)
        year = pc.add(year, years)
        sign = pc.if_else(pc.less(year, 0), "-", "")
        return pc.binary_join_element_wise(sign, _padded(pc.abs(year), width), "")
    if letter == "M" and width >= 3:
        return pc.strftime(local, "%b" if width == 3 else "%B", locale="C")
    if letter == "E":
        return pc.strftime(local, "%a" if width <= 3 else "%A", locale="C")
    if letter == "a":
        return pc.if_else(pc.less(pc.hour(local), 12), "AM", "PM")
    if letter == "h":
        half = pc.subtract(pc.hour(local), pc.multiply(pc.divide(pc.hour(local), 12), 12))
        return _padded(pc.if_else(pc.equal(half, 0), 12, half), width)
    if letter == "S":
        digits = pc.utf8_rpad(_padded(pc.millisecond(local), 3), max(width, 3), "0")
        return pc.utf8_slice_codeunits(digits, 0, width)
    field = {"M": pc.month, "d": pc.day, "D": pc.day_of_year, "H": pc.hour, "m": pc.minute, "s": pc.second}[letter]
    return _padded(field(local), width)


def _parse_pattern(text: pa.Array, pattern: str, zone: str) -> pa.Array:
    """Moments (ms, UTC), null where the text does not match the pattern or is no date."""
    zoned = re.search(r"(?:Z{1,2}|z)$", pattern)
    names: list[str] = []
    expression = ""
    for letter, part in _tokens(pattern[: zoned.start()] if zoned else pattern):
        if letter == "":
            expression += re.escape(part)
            continue
        key = {"y": "y", "Y": "y", "u": "y"}.get(letter, letter)
        if key in names or key in "EDa":
            raise OptionError(f"date pattern {pattern!r} can't be used to read dates", found=pattern)
        names.append(key)
        expression += f"(?P<{key}>{_digits(letter, len(part))})"
    if zoned:
        expression += r"(?P<zone>Z|[+-]\d{2}:?\d{2})"
    parts = pc.extract_regex(text, f"^{expression}$")

    def part_of(name: str, width: int, default: str) -> pa.Array:
        return pc.utf8_lpad(pc.struct_field(parts, name), width, "0") if name in names else pa.scalar(default)

    month = part_of("M", 2, "01")
    if "M" in names and "MMM" in pattern:
        index = pc.index_in(pc.utf8_slice_codeunits(pc.struct_field(parts, "M"), 0, 3), pa.array(_MONTHS))
        month = _padded(pc.add(index, 1), 2)
    year = part_of("y", 4, "1970")
    if "y" in names and re.search(r"(?<!y)yy(?!y)", pattern):
        year = pc.binary_join_element_wise("20", pc.struct_field(parts, "y"), "")
    fraction = (
        pc.utf8_slice_codeunits(pc.utf8_rpad(pc.struct_field(parts, "S"), 3, "0"), 0, 3) if "S" in names else "000"
    )
    iso = pc.binary_join_element_wise(
        year, "-", month, "-", part_of("d", 2, "01"), "T",
        part_of("H", 2, "00") if "h" not in names else part_of("h", 2, "00"), ":",
        part_of("m", 2, "00"), ":", part_of("s", 2, "00"), ".", fraction, "",
    )  # fmt: skip
    if isinstance(iso, pa.Scalar):
        iso = pa.repeat(iso, len(text))
    matched = pc.if_else(pc.is_valid(parts), iso, pa.scalar(None, pa.string()))
    local = pc.strptime(pc.utf8_slice_codeunits(matched, 0, 19), "%Y-%m-%dT%H:%M:%S", "ms", error_is_null=True)
    millis = pc.cast(pc.utf8_slice_codeunits(matched, 20), pa.int64())
    local = pc.add(local, millis.cast(pa.duration("ms")))
    if not zoned:
        return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest").cast(
            pa.timestamp("ms", "UTC")
        )
    offset = pc.replace_substring(pc.struct_field(parts, "zone"), ":", "")
    signed = pc.if_else(pc.equal(offset, "Z"), "+0000", offset)
    hours = pc.utf8_slice_codeunits(signed, 1, 3).cast(pa.int64())
    minutes = pc.add(pc.multiply(hours, 60), pc.utf8_slice_codeunits(signed, 3, 5).cast(pa.int64()))
    minutes = pc.if_else(pc.starts_with(signed, "-"), pc.negate(minutes), minutes)
    return pc.subtract(local, pc.multiply(minutes, 60_000).cast(pa.duration("ms"))).cast(pa.timestamp("ms", "UTC"))


def _digits(letter: str, width: int) -> str:
    if letter == "M" and width >= 3:
        return r"[A-Za-z]+"
    if letter == "S":
        return r"\d{1,9}"
    if letter in "yYu":
        return r"\d{2}" if width == 2 else r"\d{4}"
    return r"\d{1,2}"
