"""What is compared: functions and operators with the kinds, or constants, of their arguments."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from benchmarks.spark_answers.functions import values
from benchmarks.spark_answers.functions.usual import ALL, EXTRAS, FAMILIES, PERCENTS, UNITS
from benchmarks.spark_answers.functions.values import DECIMALS, KINDS, NUMBERS, SCALARS


class Role(str, Enum):
    """Where a function may be called."""

    SCALAR = "scalar"
    AGGREGATE = "aggregate"
    WINDOW = "window"


class Signature(NamedTuple):
    """`arguments`: kinds, or constants: texts in quotes as they are meant, numbers, or words of the grammar."""

    role: Role
    name: str
    arguments: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """The arguments in SQL."""
        sides = ("a", values.UNIQUE) if self.name in _WITH_ORDER else values.SIDES
        return [
            values.column(side, each) if each in KINDS else self._constant(each)
            for side, each in zip(sides, self.arguments, strict=False)
        ]

    @property
    def source(self) -> str:
        """The rows over which it is computed."""
        is_of_one = self.role is Role.SCALAR and sum(each in KINDS for each in self.arguments) == 1
        return "few" if is_of_one else "v"

    def _constant(self, text: str) -> str:
        return text.strip("'") if self.name in _BARE and text[1:-1].lower() in UNITS else text.replace("\\", "\\\\")

    @property
    def sql(self) -> str:
        """The expression over the columns of the table."""
        name, texts = self.name, self.texts
        if name.startswith(("cast to ", "try_cast to ")):
            how, _, kind = name.partition(" to ")
            return f"{how}({texts[0]} AS {type_name(kind)})"
        if name in _FORMS:
            return _FORMS[name](texts)
        if not name[0].isalpha() or name in ("and", "or", "div"):
            return f"({texts[0]} {name} {texts[1]})"
        return f"{name}({', '.join(texts)})"


def type_name(kind: str) -> str:
    """A kind as a cast names it."""
    return "INTERVAL DAY TO SECOND" if kind == "day_interval" else kind


_FORMS: Final[dict[str, Callable[[Sequence[str]], str]]] = {
    "neg": lambda texts: f"(- {texts[0]})",
    "~": lambda texts: f"(~ {texts[0]})",
    "not": lambda texts: f"(NOT {texts[0]})",
    "is null": lambda texts: f"({texts[0]} IS NULL)",
    "is not null": lambda texts: f"({texts[0]} IS NOT NULL)",
    "is true": lambda texts: f"({texts[0]} IS TRUE)",
    "is false": lambda texts: f"({texts[0]} IS FALSE)",
    **{
        each: lambda texts, each=each: f"({texts[0]} {each.upper()} {texts[1]})"  # type: ignore[misc]
        for each in ("like", "ilike", "rlike")
    },
    "in": lambda texts: f"({texts[0]} IN ({', '.join(texts[1:])}))",
    "[]": lambda texts: f"{texts[0]}[{texts[1]}]",
    "extract": lambda texts: f"extract({texts[0]} FROM {texts[1]})",
    **{
        f"{each} distinct": lambda texts, each=each: f"{each}(DISTINCT {', '.join(texts)})"  # type: ignore[misc]
        for each in ("count", "sum", "avg", "min", "max")
    },
}
_BARE: Final = ("extract", "timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff")
_WITH_ORDER: Final = ("max_by", "min_by")
_OF_GRAMMAR: Final = ("and", "or", "not", "like", "ilike", "rlike", "in", "case", "when", "between", "div", "cast")
OF_SIZES: Final = ("repeat", "lpad", "rpad", "space", "array_repeat", "sequence")  # with a size that may be any number
_SECOND_IS_SIZE: Final = ("array_insert", "format_number")
# Of which these values show too little: texts of more than a line, places in a list of arguments.
TOO_FEW: Final = ("base64", "elt")
OF_CHANCE: Final = (
    *("shuffle", "rand", "randn", "random", "uuid", "aes_encrypt", "now", "current_date", "current_timestamp"),
    *("curdate", "localtimestamp", "current_timezone", "current_user", "user", "version", "current_catalog"),
    *("current_database", "current_schema", "monotonically_increasing_id", "spark_partition_id", "input_file_name"),
    *("reflect", "java_method", "aes_decrypt", "raise_error", "assert_true", "input_file_block_length", "try_reflect"),
    *("input_file_block_start", "window", "session_window", "window_time"),
)
_COMPARISONS: Final = ("=", "==", "<=>", "!=", "<>", "<", "<=", ">", ">=")
_ARITHMETIC: Final = ("+", "-", "*", "/", "%", "div")
_BITWISE: Final = ("|", "&", "^")
_ONE_SIDED: Final = ("neg", "~", "not", "is null", "is not null", "is true", "is false", "+")
AGGREGATES: Final = (
    *("count", "sum", "avg", "mean", "min", "max", "stddev", "std", "stddev_samp", "stddev_pop", "variance"),
    *("var_samp", "var_pop", "skewness", "kurtosis", "bool_and", "bool_or", "every", "some", "any", "bit_and"),
    *("bit_or", "bit_xor", "count_if", "median", "mode", "try_sum", "try_avg", "count distinct", "sum distinct"),
    *("avg distinct", "min distinct", "max distinct"),
)
OF_TWO: Final = (
    *("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_count", "regr_r2", "regr_slope"),
    *("regr_intercept", "regr_sxx", "regr_sxy", "regr_syy"),
)
_RANKS: Final = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")
_CONSTANT: Final = re.compile(r"'[^'|;\\\t\n]*'|-?\d+|true|false")
_LIKE_TYPES: Final = {
    "double": "array<double>", "int": "array<int>", "string": "array<string>", "bigint": "array<bigint>",
    "date": "array<date>",
}  # fmt: skip


def kind_of(spark_type: str) -> str | None:
    """The kind whose values stand for those of a type."""
    if spark_type in KINDS:
        return spark_type
    if spark_type.startswith("decimal"):
        return DECIMALS[0]
    if spark_type.startswith("array<"):
        return _LIKE_TYPES.get(spark_type[6:-1], "array<struct<a:int,b:string>>")
    if spark_type.startswith("map<"):
        return "map<string,int>"
    if spark_type.startswith("struct<"):
        return "struct<a:int,b:string>"
    return {"void": "string", "interval day to second": "day_interval"}.get(spark_type)


def signatures(
    examples: Mapping[str, Sequence[str]], type_of: Callable[[str], str | None], others: Iterable[str]
) -> list[Signature]:
    """All that are worth a comparison, each once. `type_of`: of an expression without columns, in Spark. `others`:
    names of functions that are no scalar ones."""
    left_out = {*others, *OF_CHANCE, *TOO_FEW}
    found = [
        *(Signature(Role.SCALAR, name, arguments) for name, arguments in _operators()),
        *(Signature(Role.SCALAR, name, arguments) for name, arguments in _of_extras()),
        *_of_aggregates(),
        *_of_windows(),
        *(Signature(Role.SCALAR, name, arguments) for name, arguments in _of_examples(examples, type_of)),
    ]
    return [
        each
        for each in dict.fromkeys(found)
        if each.role is not Role.SCALAR
        or (each.name not in left_out and not (each.name in _SECOND_IS_SIZE and each.arguments[1] in KINDS))
    ]


def _operators() -> Iterator[tuple[str, tuple[str, ...]]]:
    pairs = [*itertools.product(SCALARS, SCALARS), *((kind, kind) for kind in ALL)]
    for sign in (*_COMPARISONS, *_ARITHMETIC, *_BITWISE, "||", "and", "or", "in"):
        yield from ((sign, pair) for pair in pairs)
    for sign in _ONE_SIDED[:-1]:
        yield from ((sign, (kind,)) for kind in ALL)
    for how in ("cast", "try_cast"):
        for to in ALL:
            if to not in DECIMALS:
                yield from ((f"{how} to {to}", (kind,)) for kind in ALL)


def _of_extras() -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, options in EXTRAS:
        if name not in (*OF_CHANCE, *TOO_FEW):
            yield from ((name, arguments) for arguments in itertools.product(*options) if set(arguments) & set(KINDS))


def _of_examples(
    examples: Mapping[str, Sequence[str]], type_of: Callable[[str], str | None]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, arguments in calls(examples):
        if (
            name in (*OF_SIZES, *OF_CHANCE, *TOO_FEW, *_OF_GRAMMAR)
            or not name.isidentifier()
            or not 1 <= len(arguments) <= 4
        ):
            continue
        kinds = [type_of(each) for each in arguments]
        base = tuple(kind_of(each) if each else None for each in kinds)
        texts = tuple(text if _CONSTANT.fullmatch(text) else None for text in arguments)
        if any(kind is None and text is None for kind, text in zip(base, texts, strict=True)):
            continue
        columns = tuple(kind or text or "" for kind, text in zip(base, texts, strict=True))
        behind = (columns[0], *(text or kind for text, kind in zip(texts[1:], columns[1:], strict=True)))
        yield name, columns
        for kind in ALL:
            yield name, (kind, *behind[1:])
            if len(columns) == 2 and kind in SCALARS:
                yield name, (kind, kind)
        for at, given in enumerate(columns):
            for kind in next((family for family in FAMILIES if given in family), ()):
                yield name, (*columns[:at], kind, *columns[at + 1 :])
                if texts[0] and at:
                    yield name, (texts[0], *columns[1:at], kind, *columns[at + 1 :])
                if at == 1 and len(columns) > 2:
                    yield name, (columns[0], kind, *behind[2:])


def _of_aggregates() -> Iterator[Signature]:
    for role, kept in ((Role.AGGREGATE, AGGREGATES), (Role.WINDOW, [e for e in AGGREGATES if "distinct" not in e])):
        yield from (Signature(role, name, (kind,)) for name in kept for kind in ALL)
        yield from (Signature(role, "count", (each,)) for each in ("1", "*"))
        yield from (Signature(role, name, (kind, kind)) for name in OF_TWO for kind in NUMBERS)
        yield from (
            Signature(role, name, pair)
            for name in OF_TWO
            for pair in itertools.permutations(("int", "bigint", "double"), 2)
        )
    yield from (
        Signature(Role.AGGREGATE, name, pair) for name in _WITH_ORDER for pair in itertools.product(ALL, SCALARS)
    )
    yield from (Signature(Role.AGGREGATE, "percentile", (kind, each)) for kind in NUMBERS for each in PERCENTS)


def _of_windows() -> Iterator[Signature]:
    yield from (Signature(Role.WINDOW, name, ()) for name in _RANKS)
    yield from (Signature(Role.WINDOW, "ntile", (each,)) for each in ("1", "2", "3", "4", "5", "10", "100"))
    for kind in ALL:
        for name in ("lag", "lead"):
            yield Signature(Role.WINDOW, name, (kind,))
            yield from (Signature(Role.WINDOW, name, (kind, each)) for each in ("0", "1", "2", "3", "7", "12", "-1"))
            yield from (Signature(Role.WINDOW, name, (kind, each, kind)) for each in ("1", "2"))
            yield from (Signature(Role.WINDOW, name, (kind, "1", each)) for each in ("0", "'a'", "-1", "''"))
        yield from (Signature(Role.WINDOW, "nth_value", (kind, each)) for each in ("1", "2", "3"))
        yield from (Signature(Role.WINDOW, name, (kind,)) for name in ("first_value", "last_value", "first", "last"))
        yield from (
            Signature(Role.WINDOW, name, (kind, "true")) for name in ("first_value", "last_value", "first", "last")
        )


def calls(examples: Mapping[str, Sequence[str]]) -> list[tuple[str, tuple[str, ...]]]:
    """Names and arguments in documented examples. `examples`: each with the functions that it is of."""
    found = {
        (name.lower(), tuple(arguments)): None
        for text, names in examples.items()
        for name in names
        for arguments in _arguments(text, name)
    }
    return list(found)


def _arguments(text: str, name: str) -> Iterator[list[str]]:
    for start in re.finditer(rf"(?<![\w`]){re.escape(name)}\s*\(", text, re.IGNORECASE):
        parts, depth, quote = [""], 1, ""
        for sign in text[start.end() :]:
            if quote:
                quote = "" if sign == quote else quote
            elif sign in "'\"`":
                quote = sign
            depth += 0 if quote else (sign in "([") - (sign in ")]")
            if depth == 0:
                break
            if sign == "," and depth == 1 and not quote:
                parts.append("")
            else:
                parts[-1] += sign
        yield [part.strip() for part in parts if part.strip()]


def pattern(signature: Signature, shown: str) -> str:
    """The name of a column with places for those of arguments; empty where it is not made of them in their order."""
    if "{" in shown or "}" in shown:
        return ""
    names = [text.strip("'") for text in signature.texts]
    found, at = "", 0
    for name in names:
        place = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)").search(shown, at) if name else None
        if place is None:
            return ""
        found += f"{shown[at : place.start()]}{{}}"
        at = place.end()
    found += shown[at:]
    columns = [name for name, each in zip(names, signature.arguments, strict=True) if each in KINDS]
    left = found.replace("{}", "")
    return "" if any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", left) for name in columns) else found


def merged(rows: Iterable[tuple[str, ...]]) -> list[tuple[frozenset[str], ...]]:
    """The same rows as products of sets."""
    found = [tuple(frozenset([part]) for part in each) for each in sorted(rows)]
    while found:
        before = len(found)
        for at in range(len(found[0])):
            groups: dict[tuple[frozenset[str], ...], frozenset[str]] = {}
            for row in found:
                rest = row[:at] + row[at + 1 :]
                groups[rest] = groups.get(rest, frozenset()) | row[at]
            found = [(*rest[:at], part, *rest[at:]) for rest, part in groups.items()]
        if len(found) == before:
            break
    return found
