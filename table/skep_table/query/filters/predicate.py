"""Filters: a tree of conditions over a table's columns, and the ways to use it.

A `Predicate` is made from SQL by `parse_predicate` (sql.py) and then used four ways: as a mask over rows, as an Arrow
expression for scanners, weakened to a few columns (to choose partitions), and over minima and maxima (to leave out
files and row groups). Nulls follow SQL: a comparison with null is null, and a row is kept where the whole is true.
NaN equals NaN and is greater than every other number, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import PredicateError
from skep_format.expressions import IDENTITY, Expression
from skep_format.schema.arrow import arrow_type

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column, or with more than one name a member of a struct column. `type` is what it is compared as."""

    path: Path
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant, as a typed Arrow scalar."""

    value: pa.Scalar

    @property
    def type(self) -> pa.DataType:
        """The type of the scalar."""
        return self.value.type


@dataclass(frozen=True, slots=True)
class Cast:
    """A value converted to `type`, as `CAST` does."""

    argument: Value
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class ArrowCall:
    """An Arrow function over values."""

    function: str
    arguments: tuple[Value, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Applied:
    """An expression of Spark over a value."""

    expression: Expression
    argument: Value

    @property
    def type(self) -> pa.DataType:
        """The type of its values."""
        return arrow_type(self.expression.result)


Value = ColumnRef | Literal | Cast | ArrowCall | Applied


@dataclass(frozen=True, slots=True)
class Comparison:
    """`function` is Arrow's: equal, not_equal, less, less_equal, greater, greater_equal."""

    function: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    """`IS NULL`, or `IS NOT NULL` when negated."""

    argument: Value
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsIn:
    """`values` holds no null; `or_null`: the list had one, so that no match means null."""

    argument: Value
    values: pa.Array
    or_null: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Matches:
    """LIKE as a regular expression over the whole text. `prefix` is the text that every match begins with."""

    argument: Value
    regex: str
    prefix: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean value used as a condition; null counts as null."""

    argument: Value
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """All of the parts hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of the parts holds."""

    parts: tuple[Condition, ...]


Leaf = Comparison | IsNull | IsIn | Matches | Truth
Condition = Leaf | And | Or

TRUE: Final = Truth(Literal(pa.scalar(True)))

# The negation of a comparison, and the comparison with its sides swapped.
NEGATED: Final = {
    "equal": "not_equal",
    "not_equal": "equal",
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
}
SWAPPED: Final = {
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Statistics of one column over many files or row groups, one element each; null where unknown.

    `nulls` counts nulls, `rows` all rows.
    """

    lowest: pa.Array
    highest: pa.Array
    nulls: pa.Array
    rows: pa.Array


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition over rows. `text` is what the user wrote, for messages.

    `may_differ`: for some values Spark finds other rows, so that an engine is to be asked where there is one.
    `is_implied`: the rows are checked once more where they are used, so that a reader may keep more.
    """

    condition: Condition
    text: str
    may_differ: bool = False
    is_implied: bool = False

    def __str__(self) -> str:
        return self.text

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the top-level columns that the condition looks at."""
        return tuple(dict.fromkeys(path[0] for path in self.paths))

    @property
    def compared_columns(self) -> tuple[ColumnRef, ...]:
        """The columns and members that the condition looks at, with the types it compares them as."""
        return tuple({column.path: column for column in _columns(self.condition)}.values())

    @property
    def paths(self) -> tuple[Path, ...]:
        """The columns and struct members that the condition uses, each once."""
        return tuple(column.path for column in self.compared_columns)

    @property
    def depends_on_zone(self) -> bool:
        """Whether the condition looks at times, or the days of them: texts without a zone mean others in each zone."""
        leaves = (leaf for leaf in _leaves(self.condition) if not isinstance(leaf, IsNull))
        return any(_depends_on_zone(value) for leaf in leaves for value in _values(leaf))

    def is_alike(self, *, in_utc: bool) -> bool:
        """Whether Spark finds the same rows by the condition. `in_utc`: its texts without a zone are in UTC."""
        return not self.may_differ and (in_utc or not self.depends_on_zone)

    def is_certain(self, *, in_utc: bool) -> bool:
        """Whether Spark finds the same rows whatever release and Java it has."""
        return self.is_alike(in_utc=in_utc) and all(map(_is_certain, _leaves(self.condition)))

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        """True, false or null for each row."""
        with _reported(self):
            result = _condition(self.condition, _Rows(rows))
            if isinstance(result, pa.Scalar):
                return pa.array(np.full(rows.num_rows, result.as_py() is True))
            return result

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which the condition is true."""
        mask = self.mask(batch)
        return batch if not mask.null_count and pc.all(mask).as_py() else batch.filter(mask)

    @property
    def expression(self) -> pc.Expression | None:
        """What must hold wherever the whole holds, in what Arrow's scanners know and do right. None where that is
        nothing."""
        weaker = _weakened(self.condition, _is_for_scanners)
        return None if weaker == TRUE else _condition(weaker, _Fields())

    def weakened(self, columns: frozenset[str]) -> Predicate | None:
        """What must hold of `columns` alone wherever the whole holds; None when that is nothing."""

        def looks_at_these(leaf: Leaf) -> bool:
            names = {each.path[0] for each in _columns(leaf)}
            return bool(names) and names <= columns

        weaker = _weakened(self.condition, looks_at_these)
        return None if weaker == TRUE else Predicate(weaker, self.text)

    def of_expression(self, expression: Expression, column: ColumnRef, name: str) -> Predicate | None:
        """What must hold of the expression over `column`, as a column of its own by that name; None when that is
        nothing.

        Where the order of values is not sure, only what equals the expression is compared.
        """

        def stands_alone(leaf: Leaf) -> bool:
            return _compares(leaf, applied, equal_only=not expression.keeps_order)

        applied: Value = column if expression.function == IDENTITY else Applied(expression, column)
        weaker = _weakened(self.condition, stands_alone)
        if weaker == TRUE:
            return None
        return Predicate(_replaced(weaker, applied, ColumnRef((name,), applied.type)), self.text)

    def may_match(self, bounds: Mapping[Path, Bounds], count: int) -> np.ndarray:
        """For each of `count` files or row groups: False where its statistics exclude every row."""
        with _reported(self):
            result = _may_match(self.condition, bounds)
        if result is None:
            return np.ones(count, bool)
        return np.asarray(pc.fill_null(result, True)).astype(bool)

    def equal_values(self, path: Path) -> pa.Array | None:
        """The values that `path` can only have where the condition holds (from = and IN); None when not so bound."""
        return _equal_values(self.condition, path)

    def also(self, other: Predicate | None) -> Predicate:
        """Both conditions; None is no condition."""
        if other is None:
            return self
        return Predicate(
            And((self.condition, other.condition)),
            f"({self.text}) AND ({other.text})",
            self.may_differ or other.may_differ,
            self.is_implied and other.is_implied,
        )


class _reported:
    """Arrow's errors become the predicate's."""

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, pa.ArrowException) and not isinstance(error, MemoryError):
            raise PredicateError(
                f"filter {self.predicate.text!r} failed: {error}", predicate=self.predicate.text
            ) from error


# Where values come from: rows, or fields of an expression.


class _Rows:
    def __init__(self, rows: pa.RecordBatch | pa.Table) -> None:
        self._rows = rows

    def column(self, path: Path) -> Any:
        array = self._rows.column(path[0])
        for name in path[1:]:
            array = pc.struct_field(array, name)
        return array

    def literal(self, value: pa.Scalar) -> Any:
        return value


class _Fields:
    def column(self, path: Path) -> Any:
        field = pc.field(path[0])
        for name in path[1:]:
            field = pc.struct_field(field, name)
        return field

    def literal(self, value: pa.Scalar) -> Any:
        return pc.scalar(value)


_Source = _Rows | _Fields


def _value(node: Value, source: _Source) -> Any:
    if isinstance(node, ColumnRef):
        return source.column(node.path)
    if isinstance(node, Literal):
        return source.literal(node.value)
    if isinstance(node, Cast):
        return _value(node.argument, source).cast(node.type, safe=not _rounds(node))
    if isinstance(node, Applied):
        return node.expression.of(_value(node.argument, source))
    return getattr(pc, node.function)(*(_value(argument, source) for argument in node.arguments))


def _rounds(cast: Cast) -> bool:
    """Large integers are rounded where they are compared with floating-point numbers, as Spark does."""
    return pa.types.is_integer(cast.argument.type) and pa.types.is_floating(cast.type)


def _condition(node: Condition, source: _Source) -> Any:
    if isinstance(node, And):
        return reduce(pc.and_kleene, (_condition(part, source) for part in node.parts))
    if isinstance(node, Or):
        return reduce(pc.or_kleene, (_condition(part, source) for part in node.parts))
    if isinstance(node, Comparison):
        sides = _value(node.left, source), _value(node.right, source)
        if pa.types.is_floating(node.left.type) and pa.types.is_floating(node.right.type):
            return _floats_compare(node.function, *sides)
        return getattr(pc, node.function)(*sides)
    argument = _value(node.argument, source)
    if isinstance(node, IsNull):
        return pc.is_valid(argument) if node.negated else pc.is_null(argument)
    if isinstance(node, IsIn):
        found = _is_in(argument, node, source)
    elif isinstance(node, Matches):
        found = pc.match_substring_regex(argument, pattern=node.regex)
    else:
        found = argument
    return pc.invert(found) if node.negated else found


def _floats_compare(function: str, left: Any, right: Any) -> Any:
    """NaN is a number: the greatest one."""
    if function in ("greater", "greater_equal"):
        function, left, right = SWAPPED[function], right, left
    if function in ("not_equal", "less_equal"):  # what is less or equal is not greater
        sides = (left, right) if function == "not_equal" else (right, left)
        return pc.invert(_floats_compare(NEGATED[function] if function == "not_equal" else "less", *sides))
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if function == "equal":
        return pc.or_kleene(pc.equal(left, right), pc.and_kleene(left_nan, right_nan))
    return pc.or_kleene(pc.less(left, right), pc.and_kleene(pc.invert(left_nan), right_nan))


def _is_in(argument: Any, node: IsIn, source: _Source) -> Any:
    found = pc.is_in(argument, value_set=node.values)
    null = source.literal(pa.scalar(None, pa.bool_()))
    if node.or_null:
        found = pc.or_kleene(found, null)
    return pc.if_else(pc.is_null(argument), null, found)


# Weaker conditions


def _weakened(node: Condition, keeps: Callable[[Leaf], bool]) -> Condition:
    if isinstance(node, And):
        parts = tuple(part for part in (_weakened(part, keeps) for part in node.parts) if part != TRUE)
        return And(parts) if parts else TRUE
    if isinstance(node, Or):
        parts = tuple(_weakened(part, keeps) for part in node.parts)
        return TRUE if TRUE in parts else Or(parts)
    return node if keeps(node) else TRUE


def _leaves(node: Condition) -> Iterator[Leaf]:
    if isinstance(node, (And, Or)):
        for part in node.parts:
            yield from _leaves(part)
    else:
        yield node


def _columns(node: Condition | Value) -> Iterator[ColumnRef]:
    return (each for each in _values(node) if isinstance(each, ColumnRef))


def _values(node: Condition | Value) -> Iterator[Value]:
    """All values in a condition, those within others too."""
    if isinstance(node, (And, Or)):
        for part in node.parts:
            yield from _values(part)
    elif isinstance(node, Comparison):
        yield from _values(node.left)
        yield from _values(node.right)
    elif isinstance(node, (ColumnRef, Literal)):
        yield node
    elif isinstance(node, ArrowCall):
        yield node
        for argument in node.arguments:
            yield from _values(argument)
    else:
        if isinstance(node, (Cast, Applied)):
            yield node
        yield from _values(node.argument)


def _is_for_scanners(leaf: Leaf) -> bool:
    """By the statistics of a row group, one number and NaN are the number alone: scanners leave the group out where NaN
    meets a condition and the number does not. They fail to round a bound that is beyond 2^53. (pyarrow 26)"""
    values = list(_values(leaf))
    if any(isinstance(each, Applied) or (isinstance(each, Cast) and _rounds(each)) for each in values):
        return False
    return not (any(pa.types.is_floating(each.type) for each in values) and _may_hold_for_nan(leaf))


def _may_hold_for_nan(leaf: Leaf) -> bool:
    if isinstance(leaf, IsIn):
        return leaf.negated or bool(pc.any(pc.is_nan(leaf.values.cast(pa.float64()))).as_py())
    if not isinstance(leaf, Comparison):
        return False
    if isinstance(leaf.right, Literal) and not isinstance(leaf.left, Literal):
        return leaf.function in ("greater", "greater_equal", "not_equal") or is_nan(leaf.right)
    if isinstance(leaf.left, Literal) and not isinstance(leaf.right, Literal):
        return leaf.function in ("less", "less_equal", "not_equal") or is_nan(leaf.left)
    return True


def is_nan(literal: Literal) -> bool:
    """Whether it is a floating-point number that is NaN."""
    return pa.types.is_floating(literal.type) and bool(pc.is_nan(literal.value).as_py())


def _depends_on_zone(value: Value) -> bool:
    return pa.types.is_timestamp(value.type) or (isinstance(value, Applied) and value.expression.zoned)


def _compares(leaf: Leaf, value: Value, *, equal_only: bool) -> bool:
    """Whether a leaf compares the value with constants, and nothing else."""
    if isinstance(leaf, Comparison):
        pairs = ((leaf.left, leaf.right), (leaf.right, leaf.left))
        known = any(side == value and isinstance(other, Literal) for side, other in pairs)
        return known and (leaf.function == "equal" or not equal_only)
    known = leaf.argument == value and isinstance(leaf, (IsIn, IsNull, Matches))
    return known and (not equal_only or (isinstance(leaf, (IsIn, IsNull)) and not leaf.negated))


def _is_certain(leaf: Leaf) -> bool:
    """Capital and small letters beyond ASCII are not the same in all releases: only texts of others are compared."""
    unsure = [each for each in _values(leaf) if isinstance(each, Applied) and not each.expression.keeps_order]
    constants = leaf.values.to_pylist() if isinstance(leaf, IsIn) else [*_values(leaf)]
    texts = (each.value.as_py() if isinstance(each, Literal) else each for each in constants)
    return all(_compares(leaf, each, equal_only=True) for each in unsure) and not (
        unsure and any(isinstance(text, str) and not text.isascii() for text in texts)
    )


def _replaced(node: Condition, value: Value, column: ColumnRef) -> Condition:
    """With a column in the place of the value, in leaves that compare it with constants."""
    if isinstance(node, (And, Or)):
        return type(node)(tuple(_replaced(part, value, column) for part in node.parts))
    if isinstance(node, Comparison):
        left, right = (column if side == value else side for side in (node.left, node.right))
        return replace(node, left=left, right=right)
    return replace(node, argument=column)


def _equal_values(node: Condition, path: Path) -> pa.Array | None:
    if isinstance(node, And):
        found = [values for values in (_equal_values(part, path) for part in node.parts) if values is not None]
        return min(found, key=len) if found else None
    if isinstance(node, Or):
        each = [_equal_values(part, path) for part in node.parts]
        known = [values for values in each if values is not None]
        return pc.unique(pa.concat_arrays(known)) if len(known) == len(each) else None
    if isinstance(node, Comparison) and node.function == "equal":
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(side, ColumnRef) and side.path == path and isinstance(other, Literal) and not is_nan(other):
                return equal_to(pa.array([other.value.as_py()], other.type), side.type)
    if (
        isinstance(node, IsIn)
        and not node.negated
        and isinstance(node.argument, ColumnRef)
        and node.argument.path == path
    ):
        return equal_to(node.values, node.argument.type)
    return None


def equal_to(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """What values of `kind` can be that equal one of `values`, so that looking for the same finds what `=` does.

    Nothing equals null, no number one that its type can't hold, none NaN, and zero equals zero of either sign.
    """
    values = values.drop_null()
    if pa.types.is_floating(kind):
        numbers = values.cast(pa.float64())
        held = numbers.cast(kind, safe=False)
        held = held.filter(pc.equal(held.cast(pa.float64()), numbers))
        if pc.any(pc.equal(held, 0.0)).as_py():
            held = pc.unique(pa.concat_arrays([held, pa.array([0.0, -0.0], pa.float64()).cast(kind)]))
        return held
    if pa.types.is_integer(kind) and pa.types.is_integer(values.type):
        held = values.cast(kind, safe=False)
        return held.filter(pc.equal(held.cast(values.type, safe=False), values))
    return values.cast(kind)


# Over statistics: a boolean array, false where no row can match; None where nothing is known.


def _may_match(node: Condition, bounds: Mapping[Path, Bounds]) -> Any:
    if isinstance(node, And):
        known = [part for part in (_may_match(part, bounds) for part in node.parts) if part is not None]
        return reduce(pc.and_, (pc.fill_null(part, True) for part in known)) if known else None
    if isinstance(node, Or):
        each = [_may_match(part, bounds) for part in node.parts]
        if any(part is None for part in each):
            return None
        return reduce(pc.or_, (pc.fill_null(part, True) for part in each))
    if isinstance(node, Comparison):
        return _comparison_may_match(node, bounds)
    if not isinstance(node.argument, ColumnRef) or node.argument.path not in bounds:
        return None
    known_bounds = bounds[node.argument.path]
    if isinstance(node, IsNull):
        return pc.less(known_bounds.nulls, known_bounds.rows) if node.negated else pc.greater(known_bounds.nulls, 0)
    if node.negated:
        return _has_values(known_bounds)
    if isinstance(node, IsIn):
        return _in_may_match(node, known_bounds)
    if isinstance(node, Matches):
        return _prefix_may_match(node.prefix, known_bounds)
    return None


def _comparison_may_match(node: Comparison, bounds: Mapping[Path, Bounds]) -> Any:
    function, column, literal = node.function, node.left, node.right
    if isinstance(column, Literal):
        function, column, literal = SWAPPED[function], literal, column
    if not isinstance(column, ColumnRef) or not isinstance(literal, Literal) or column.path not in bounds:
        return None
    known, value = bounds[column.path], literal.value
    if pa.types.is_floating(column.type) and _may_hold_for_nan(Comparison(function, column, literal)):
        return _has_values(known)  # minima and maxima of floats may leave NaN out
    if function == "equal":
        fits = pc.and_kleene(pc.less_equal(known.lowest, value), pc.greater_equal(known.highest, value))
    elif function == "not_equal":
        fits = pc.invert(pc.and_(pc.equal(known.lowest, value), pc.equal(known.highest, value)))
    elif function in ("less", "less_equal"):
        fits = getattr(pc, function)(known.lowest, value)
    else:
        fits = getattr(pc, function)(known.highest, value)
    return pc.and_kleene(fits, _has_values(known))


def _in_may_match(node: IsIn, known: Bounds) -> Any:
    if not len(node.values):
        return None
    if pa.types.is_floating(node.values.type) and _may_hold_for_nan(node):
        return _has_values(known)
    low, high = pc.min_max(node.values).values()
    fits = pc.and_kleene(pc.less_equal(known.lowest, high), pc.greater_equal(known.highest, low))
    if len(node.values) <= 100:
        each = (
            pc.and_kleene(pc.less_equal(known.lowest, value), pc.greater_equal(known.highest, value))
            for value in node.values
        )
        fits = reduce(pc.or_kleene, each)
    return pc.and_kleene(fits, _has_values(known))


def _prefix_may_match(prefix: str, known: Bounds) -> Any:
    if not prefix:
        return _has_values(known)
    begins_high = pc.utf8_slice_codeunits(known.highest, 0, len(prefix))
    begins_low = pc.utf8_slice_codeunits(known.lowest, 0, len(prefix))
    return pc.and_kleene(pc.greater_equal(begins_high, prefix), pc.less_equal(begins_low, prefix))


def _has_values(known: Bounds) -> Any:
    """False where all values are null: no comparison is true there."""
    return pc.less(known.nulls, known.rows)
