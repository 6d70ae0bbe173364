"""The functions of Spark that indexes are made over: which there are, on which types, and their values as Arrow's.

Where Spark takes its session's time zone, it is UTC here. A value that may differ in some release of Java or Spark is
not sure: bounds of it are not written down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import InputError, UnsupportedError
from skep_format.expressions.patterns import DEFAULT, LARGEST_OFFSET, Pattern, in_range
from skep_format.expressions.regexes import Regex
from skep_format.expressions.text_days import are_plain_days, days_of_texts
from skep_format.schema.types import BinaryType, DataType, DateType, IntType, LongType, StringType, TimestampType

IDENTITY: Final = "identity"

_FORMAT, _TRIMMED, _POSITION, _LENGTH, _DAYS = "format", "trimString", "pos", "len", "days"
_PATTERN, _GROUP, _REPLACEMENT = "pattern", "idx", "replacement"
_UNSTATED: Final = "\0"  # no pattern has it
_DAY: Final = 86_400
_A_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INT: Final = re.compile(r"[+-]?[0-9]+")
_MOST_DAYS: Final = 1 << 24  # far beyond the year 9999
# Letters with the same capital or small letter in all releases of Java, each of them one; a test compares all of them
# with Spark.
_PLAIN_LETTERS: Final = r"^[\x{0}-\x{de}\x{e0}-\x{12f}\x{132}-\x{148}\x{14a}-\x{17f}\x{400}-\x{45f}]*$"

Values = Any  # arrays and chunked arrays


@dataclass(frozen=True, slots=True)
class Expression:
    """A function with its options over values of one type. Equal ones have the same values.

    `options` are spelled out: those that were not given are there with their defaults. `zoned`: Spark's values depend
    on the time zone of its session.
    """

    function: str
    options: tuple[tuple[str, str], ...]
    source: DataType
    result: DataType
    zoned: bool = False

    def of(self, values: Values) -> Values:
        """The value for each, null for null."""
        return _FUNCTIONS[self.function].values(self, values)

    def is_sure(self, values: Values) -> bool:
        """Whether all values that the expression has for these are those of every Spark."""
        sure = _FUNCTIONS[self.function].sure
        return sure is None or pc.all(sure(self, values)).as_py() is not False

    @property
    def keeps_order(self) -> bool:
        """Whether comparisons by size hold of values that are not sure, too."""
        return self.function not in _LETTERS

    def widened(self, low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array] | None:
        """Bounds that hold here, out of bounds that a session with any time zone has found; None where none do."""
        if not self.zoned:
            return low, high
        if self.pattern is not None:
            return self.pattern.widened(low, high) if self.pattern.is_ordered else None
        if self.function in ("to_date", "year"):
            kind, one = low.type, pa.scalar(1, pa.int32())
            low, high = (each.cast(pa.int32()) for each in (low, high))
            return pc.subtract(low, one).cast(kind), pc.add(high, one).cast(kind)
        if self.function == "unix_timestamp":
            most = pa.scalar(LARGEST_OFFSET, pa.int64())
            return pc.subtract(low, most), pc.add(high, most)
        return None

    def option(self, name: str) -> str | None:
        """One of the options, by the name that Hudi has for it."""
        return dict(self.options).get(name)

    @property
    def pattern(self) -> Pattern | None:
        """That of texts of times; None of an expression that makes none."""
        return Pattern.parse(self.option(_FORMAT) or "")

    @property
    def regex(self) -> Regex:
        """Of an expression that has one."""
        found = Regex.parse(self.option(_PATTERN) or "")
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class _Function:
    """`types` decides which type the values have, and whether by a time zone; None for a source without values.

    `options`: their names, and what stands for one that is not given; None for one that must be. `ignores_options`:
    they change no value of the types that are known here.
    """

    types: Callable[[DataType, Mapping[str, str]], tuple[DataType, bool] | None]
    values: Callable[[Expression, Values], Values]
    options: Mapping[str, str | None]
    sure: Callable[[Expression, Values], Values] | None = None
    ignores_options: bool = False


def expression_of(function: str, options: Mapping[str, str], source: DataType) -> Expression:
    """The expression of a function over a column of that type. `options` are by Hudi's names.

    InputError for options that the function does not have, or lacks; UnsupportedError for functions, types and values
    of options of which the values of Spark are not known here.
    """
    found = _FUNCTIONS.get(function)
    if found is None:
        raise UnsupportedError(
            f"expressions over {function} are not supported", found=function, expected=", ".join(known_functions())
        )
    strange = sorted(set(options) - set(found.options))
    if strange:
        raise InputError(
            f"{function} has no option {strange[0]}", found=strange[0], expected=", ".join(found.options) or "none"
        )
    stated = {name: options.get(name, default) for name, default in found.options.items()}
    missing = [name for name, value in stated.items() if value is None]
    if missing:
        raise InputError(f"{function} needs the option {missing[0]}", found="none", expected=missing[0])
    given = {name: str(value) for name, value in stated.items()}
    types = found.types(source, given)
    if types is None:
        kind = type(source).__name__.removesuffix("Type").lower()
        shown = "".join(f", {name}={value}" for name, value in options.items())
        raise UnsupportedError(
            f"expressions over {function} of a {kind}{shown} are not supported", found=function, expected="another"
        )
    normal = {} if found.ignores_options else _normal(given)
    if function == "date_sub":
        function, normal = "date_add", {_DAYS: str(-int(normal[_DAYS]))}
    return Expression(function, tuple(sorted(normal.items())), source, *types)


def known_functions() -> tuple[str, ...]:
    """The names of all functions."""
    return tuple(_FUNCTIONS)


def _normal(options: Mapping[str, str]) -> dict[str, str]:
    """Options that mean the same are spelled alike."""
    numbers = {name: str(int(options[name])) for name in (_POSITION, _LENGTH, _DAYS, _GROUP) if name in options}
    if numbers.get(_POSITION) == "0":
        numbers[_POSITION] = "1"
    if _LENGTH in numbers:
        numbers[_LENGTH] = str(max(0, int(numbers[_LENGTH])))
    return {**options, **numbers}


def _identity(source: DataType, _options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    return (source, False) if isinstance(source, (StringType, IntType, LongType, DateType)) else None


def _text(source: DataType, _options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    """Spark takes whole numbers as their texts."""
    return (StringType(), False) if isinstance(source, (StringType, IntType, LongType)) else None


def _text_length(source: DataType, options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    return (IntType(), False) if isinstance(source, BinaryType) or _text(source, options) else None


def _part_of_text(source: DataType, options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    return _text(source, options) if all(_is_int(options[name]) for name in (_POSITION, _LENGTH)) else None


def _match(source: DataType, options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    regex = Regex.parse(options[_PATTERN])
    known = regex is not None and _is_int(options[_GROUP]) and 0 <= int(options[_GROUP]) <= len(regex.groups)
    return _text(source, options) if known else None


def _without_matches(source: DataType, options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    """Places without characters are not found alike, and references to groups are spelled in another way."""
    regex = Regex.parse(options[_PATTERN])
    known = regex is not None and regex.takes_some and not {"\\", "$"} & set(options[_REPLACEMENT])
    return _text(source, options) if known else None


def _is_int(text: str) -> bool:
    """Whether Java takes a text for an int."""
    return _INT.fullmatch(text) is not None and -(2**31) <= int(text) < 2**31


def _unix_time(source: DataType, options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    known = isinstance(source, (IntType, LongType)) and Pattern.parse(options[_FORMAT]) is not None
    return (StringType(), True) if known else None


def _formatted(source: DataType, options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    pattern = Pattern.parse(options[_FORMAT])
    if pattern is None or (isinstance(source, DateType) and pattern.has_times):  # midnight is not in every zone
        return None
    return None if _day_of(source) is None else (StringType(), _day_of(source) is True)


def _whole_day(source: DataType, options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    """By a format only texts are read."""
    if isinstance(source, StringType):
        return (DateType(), False) if options[_FORMAT] == _UNSTATED else None
    zoned = _day_of(source)
    return None if zoned is None else (DateType(), zoned)


def _date_part(source: DataType, _options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    if isinstance(source, StringType):
        return IntType(), False
    zoned = _day_of(source)
    return None if zoned is None else (IntType(), zoned)


def _whole_seconds(source: DataType, _options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    """A day begins at a time that depends on the zone."""
    zoned = _day_of(source)
    return None if zoned is None else (LongType(), not zoned)


def _time_part(source: DataType, _options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    return (IntType(), True) if _day_of(source) else None


def _moved_day(source: DataType, options: Mapping[str, str]) -> tuple[DataType, bool] | None:
    known = isinstance(source, (StringType, DateType)) and _is_int(options[_DAYS])
    known = known and abs(int(options[_DAYS])) < _MOST_DAYS
    return (DateType(), False) if known else None


def _day_of(source: DataType) -> bool | None:
    """Whether the day of a value depends on a time zone; None where it has none."""
    if isinstance(source, DateType):
        return False
    return True if isinstance(source, TimestampType) and source.utc else None


def _letters(
    kernel: Callable[[Values], Values], method: Callable[[str], str]
) -> Callable[[Expression, Values], Values]:
    def values(_expression: Expression, texts: Values) -> Values:
        texts = texts.cast(pa.string())
        if pc.all(pc.match_substring_regex(texts, _PLAIN_LETTERS)).as_py() is not False:
            return kernel(texts)
        # Some letters have several capitals (ß), or depend on those beside them (σ): not by kernels of Arrow.
        coded = texts.dictionary_encode()
        chunks = coded.chunks if isinstance(coded, pa.ChunkedArray) else [coded]
        return pa.chunked_array(
            [pa.array(map(method, each.dictionary.to_pylist()), pa.string()).take(each.indices) for each in chunks],
            pa.string(),
        ).combine_chunks()

    return values


def _has_plain_letters(_expression: Expression, texts: Values) -> Values:
    return pc.match_substring_regex(texts.cast(pa.string()), _PLAIN_LETTERS)


def _trimmed(kernel: Callable[..., Values]) -> Callable[[Expression, Values], Values]:
    return lambda expression, texts: kernel(texts.cast(pa.string()), characters=expression.option(_TRIMMED))


def _length(_expression: Expression, values: Values) -> Values:
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pc.binary_length(values).cast(pa.int32())
    return pc.utf8_length(values.cast(pa.string())).cast(pa.int32())


def _substring(expression: Expression, texts: Values) -> Values:
    """A position below zero is counted from the end, and may be before the first character."""
    position, length = int(expression.option(_POSITION) or 1), int(expression.option(_LENGTH) or 0)
    start = position - 1 if position > 0 else position
    stop = start + length if start >= 0 or start + length < 0 else None
    return pc.utf8_slice_codeunits(texts.cast(pa.string()), start, stop)


def _extracted(expression: Expression, texts: Values) -> Values:
    return expression.regex.extracted(texts.cast(pa.string()), int(expression.option(_GROUP) or 0))


def _replaced(expression: Expression, texts: Values) -> Values:
    return expression.regex.replaced(texts.cast(pa.string()), expression.option(_REPLACEMENT) or "")


def _formatted_texts(expression: Expression, times: Values) -> Values:
    """Of dates, of timestamps, or of numbers of seconds."""
    seconds = times.cast(pa.int64()) if pa.types.is_integer(times.type) else _seconds(times)
    assert expression.pattern is not None
    return expression.pattern.texts(seconds.cast(pa.timestamp("s")))


def _seconds(times: Values) -> Values:
    """The seconds at or before dates or timestamps, as numbers."""
    if pa.types.is_date(times.type):
        return pc.multiply(times.cast(pa.int32()).cast(pa.int64()), _DAY)
    return pc.floor_temporal(times, unit="second").cast(pa.timestamp("s", times.type.tz)).cast(pa.int64())


def _unix_time_of(times: Values) -> Values:
    """The seconds of dates or timestamps, without fractions: those before 1970 are of the second after."""
    if pa.types.is_date(times.type):
        return _seconds(times)
    return pc.divide(times.cast(pa.int64()), _A_SECOND[times.type.unit])


def _has_plain_year(_expression: Expression, values: Values) -> Values:
    if _is_of_texts(values):
        return are_plain_days(values.cast(pa.string()))
    return in_range(values.cast(pa.int64()) if pa.types.is_integer(values.type) else _seconds(values))


def _is_plain_day(_expression: Expression, values: Values) -> Values:
    return are_plain_days(values.cast(pa.string())) if _is_of_texts(values) else pa.array([], pa.bool_())


def _days(_expression: Expression, values: Values) -> Values:
    if pa.types.is_timestamp(values.type):
        return pc.floor_temporal(values, unit="day").cast(pa.date32())
    return _dates(values)


def _dates(values: Values) -> Values:
    return days_of_texts(values.cast(pa.string())) if _is_of_texts(values) else values


def _is_of_texts(values: Values) -> bool:
    return pa.types.is_string(values.type) or pa.types.is_large_string(values.type)


def _part(kernel: Callable[[Values], Values]) -> Callable[[Expression, Values], Values]:
    return lambda _expression, values: kernel(_dates(values)).cast(pa.int32())


def _moved(expression: Expression, days: Values) -> Values:
    more = pa.scalar(int(expression.option(_DAYS) or 0), pa.int32())
    return pc.add(_dates(days).cast(pa.int32()), more).cast(pa.date32())


_LETTERS: Final = ("upper", "lower")
_FUNCTIONS: Final[dict[str, _Function]] = {
    IDENTITY: _Function(_identity, lambda _expression, values: values, {}),
    "upper": _Function(_text, _letters(pc.utf8_upper, str.upper), {}, _has_plain_letters),
    "lower": _Function(_text, _letters(pc.utf8_lower, str.lower), {}, _has_plain_letters),
    "trim": _Function(_text, _trimmed(pc.utf8_trim), {_TRIMMED: " "}),
    "ltrim": _Function(_text, _trimmed(pc.utf8_ltrim), {_TRIMMED: " "}),
    "rtrim": _Function(_text, _trimmed(pc.utf8_rtrim), {_TRIMMED: " "}),
    "length": _Function(_text_length, _length, {}),
    "substring": _Function(_part_of_text, _substring, {_POSITION: None, _LENGTH: None}),
    "regexp_extract": _Function(_match, _extracted, {_PATTERN: None, _GROUP: None}),
    "regexp_replace": _Function(_without_matches, _replaced, {_PATTERN: None, _REPLACEMENT: None}),
    "from_unixtime": _Function(_unix_time, _formatted_texts, {_FORMAT: DEFAULT}, _has_plain_year),
    "date_format": _Function(_formatted, _formatted_texts, {_FORMAT: None}, _has_plain_year),
    "to_date": _Function(_whole_day, _days, {_FORMAT: _UNSTATED}, _is_plain_day, ignores_options=True),
    "unix_timestamp": _Function(
        _whole_seconds, lambda _expression, times: _unix_time_of(times), {_FORMAT: DEFAULT}, ignores_options=True
    ),
    "year": _Function(_date_part, _part(pc.year), {}, _has_plain_year),
    "month": _Function(_date_part, _part(pc.month), {}, _has_plain_year),
    "day": _Function(_date_part, _part(pc.day), {}, _has_plain_year),
    "hour": _Function(_time_part, _part(pc.hour), {}, _has_plain_year),
    "date_add": _Function(_moved_day, _moved, {_DAYS: None}, _is_plain_day),
    "date_sub": _Function(_moved_day, _moved, {_DAYS: None}, _is_plain_day),
}
