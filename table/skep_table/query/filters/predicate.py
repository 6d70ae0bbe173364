"""Conditions: a typed tree over a table's columns, and all that is done with it.

A `Predicate` is made from SQL by `parse_predicate` (text.py), by the writer from filters of Spark. It is a mask over
rows, an Arrow expression for scanners, weakened to what some columns decide, and put to minima and maxima of files.
Nulls follow SQL: a comparison with null is null, and a row is kept where the whole is true. NaN equals NaN and is
greater than every other number, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile.matching import STEP_ROWS
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
    """`function` is Arrow's: equal, not_equal, less, less_equal, greater, greater_equal. A constant is on the right."""

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
class And:
    """All of the parts hold. Without parts it is what always holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of the parts holds."""

    parts: tuple[Condition, ...]


Leaf = Comparison | IsNull | IsIn | Matches
Condition = Leaf | And | Or

TRUE: Final = And(())
_MOST_VALUES: Final = 100  # of a list that are compared with the bounds one by one

# The negation of a comparison, and the comparison with its sides swapped.
NEGATED: Final = {
    "equal": "not_equal",
    "not_equal": "equal",
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
}
SWAPPED: Final = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


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
        values = (value for leaf in leaves for value in _values(leaf))
        return any(pa.types.is_timestamp(v.type) or (isinstance(v, Applied) and v.expression.zoned) for v in values)

    def is_alike(self, *, in_utc: bool) -> bool:
        """Whether Spark finds the same rows by the condition. `in_utc`: its texts without a zone are in UTC."""
        return not self.may_differ and (in_utc or not self.depends_on_zone)

    def is_certain(self, *, in_utc: bool) -> bool:
        """Whether Spark finds the same rows whatever release and Java it has."""
        return self.is_alike(in_utc=in_utc) and all(map(_is_certain, _leaves(self.condition)))

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        """True, false or null for each row."""
        with _reported(self):
            result = _on_arrow(self.condition, _Source(rows.column))
            if isinstance(result, pa.Scalar):
                return pa.array(np.full(rows.num_rows, result.as_py() is True))
            return result

    @property
    def rows_at_once(self) -> int:
        """See RowCondition."""
        return STEP_ROWS

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which the condition is true."""
        mask = self.mask(batch)
        return batch if not mask.null_count and pc.all(mask).as_py() else batch.filter(mask)

    @property
    def expression(self) -> pc.Expression | None:
        """What must hold wherever the whole holds, in what Arrow's scanners know and do right. None where that is
        nothing."""
        weaker = _weakened(self.condition, _is_for_scanners)
        return None if weaker == TRUE else _on_arrow(weaker, _Source(pc.field, pc.scalar))

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
            result = _on_statistics(self.condition, bounds)
        return np.ones(count, bool) if result is None else np.asarray(pc.fill_null(result, True)).astype(bool)

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


@contextmanager
def _reported(predicate: Predicate) -> Iterator[None]:
    """Arrow's errors become the predicate's."""
    try:
        yield
    except pa.ArrowException as error:
        if isinstance(error, MemoryError):
            raise
        raise PredicateError(f"filter {predicate.text!r} failed: {error}", predicate=predicate.text) from error


class _Source(NamedTuple):
    """Where values come from: rows, or fields and constants of an expression for scanners."""

    column: Callable[[str], Any]
    constant: Callable[[pa.Scalar], Any] = lambda value: value


def _value(node: Value, source: _Source) -> Any:
    if isinstance(node, ColumnRef):
        return reduce(pc.struct_field, node.path[1:], source.column(node.path[0]))
    if isinstance(node, Literal):
        return source.constant(node.value)
    if isinstance(node, Cast):
        return _value(node.argument, source).cast(node.type, safe=not _rounds(node))
    if isinstance(node, Applied):
        return node.expression.of(_value(node.argument, source))
    return getattr(pc, node.function)(*(_value(argument, source) for argument in node.arguments))


def _rounds(cast: Cast) -> bool:
    """Large integers are rounded where they are compared with floating-point numbers, as Spark does."""
    return pa.types.is_integer(cast.argument.type) and pa.types.is_floating(cast.type)


def _on_arrow(node: Condition, source: _Source) -> Any:
    if isinstance(node, (And, Or)):
        parts = [_on_arrow(part, source) for part in node.parts]
        return reduce(pc.and_kleene if isinstance(node, And) else pc.or_kleene, parts or [pa.scalar(True)])
    if isinstance(node, Comparison):
        sides = _value(node.left, source), _value(node.right, source)
        if pa.types.is_floating(node.left.type) and pa.types.is_floating(node.right.type):
            return _floats_compare(node.function, *sides)
        return getattr(pc, node.function)(*sides)
    argument = _value(node.argument, source)
    if isinstance(node, IsNull):
        return pc.is_valid(argument) if node.negated else pc.is_null(argument)
    if isinstance(node, IsIn):
        found = pc.is_in(argument, value_set=node.values)
        null = source.constant(pa.scalar(None, pa.bool_()))
        found = pc.if_else(pc.is_null(argument), null, pc.or_kleene(found, null) if node.or_null else found)
    else:
        found = pc.match_substring_regex(argument, pattern=node.regex)
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
    if isinstance(node, Value):
        yield node
    inner: tuple[Condition | Value, ...]
    match node:
        case And(parts) | Or(parts):
            inner = parts
        case Comparison():
            inner = (node.left, node.right)
        case ArrowCall():
            inner = node.arguments
        case ColumnRef() | Literal():
            inner = ()
        case _:
            inner = (node.argument,)
    for each in inner:
        yield from _values(each)


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
    if not isinstance(leaf, Comparison) or not isinstance(leaf.right, Literal):
        return isinstance(leaf, Comparison)
    return leaf.function in ("greater", "greater_equal", "not_equal") or is_nan(leaf.right)


def is_nan(literal: Literal) -> bool:
    """Whether it is a floating-point number that is NaN."""
    return pa.types.is_floating(literal.type) and bool(pc.is_nan(literal.value).as_py())


def _compares(leaf: Leaf, value: Value, *, equal_only: bool) -> bool:
    """Whether a leaf compares the value with constants, and nothing else."""
    if isinstance(leaf, Comparison):
        known = leaf.left == value and isinstance(leaf.right, Literal)
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
    return replace(node, left=column) if isinstance(node, Comparison) else replace(node, argument=column)


def _equal_values(node: Condition, path: Path) -> pa.Array | None:
    if isinstance(node, And):
        found = [values for values in (_equal_values(part, path) for part in node.parts) if values is not None]
        return min(found, key=len) if found else None
    if isinstance(node, Or):
        each = [_equal_values(part, path) for part in node.parts]
        known = [values for values in each if values is not None]
        return pc.unique(pa.concat_arrays(known)) if len(known) == len(each) else None
    value = node.left if isinstance(node, Comparison) else node.argument
    if not isinstance(value, ColumnRef) or value.path != path:
        return None
    if isinstance(node, IsIn) and not node.negated:
        return equal_to(node.values, value.type)
    if not isinstance(node, Comparison) or node.function != "equal" or not isinstance(node.right, Literal):
        return None
    constant = node.right
    return None if is_nan(constant) else equal_to(pa.array([constant.value.as_py()], constant.type), value.type)


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


def _on_statistics(node: Condition, bounds: Mapping[Path, Bounds]) -> Any:
    if isinstance(node, (And, Or)):
        parts = [_on_statistics(part, bounds) for part in node.parts]
        known = [pc.fill_null(part, True) for part in parts if part is not None]
        if not known or (isinstance(node, Or) and len(known) < len(parts)):
            return None
        return reduce(pc.and_ if isinstance(node, And) else pc.or_, known)
    value = node.left if isinstance(node, Comparison) else node.argument
    if not isinstance(value, ColumnRef) or value.path not in bounds:
        return None
    known_bounds = bounds[value.path]
    has_values = pc.less(known_bounds.nulls, known_bounds.rows)  # no comparison is true of null
    if isinstance(node, IsNull):
        return has_values if node.negated else pc.greater(known_bounds.nulls, 0)
    if pa.types.is_floating(value.type) and _may_hold_for_nan(node):
        return has_values  # minima and maxima of floats may leave NaN out
    fits = _fits(node, known_bounds)
    return None if fits is None else pc.and_kleene(fits, has_values)


def _fits(node: Comparison | IsIn | Matches, known: Bounds) -> Any:
    """Whether a value between the bounds can match."""
    if isinstance(node, Comparison):
        return _compares_within(node, known)
    if node.negated:
        return pa.scalar(True)
    if isinstance(node, IsIn):
        if not 0 < len(node.values) <= _MOST_VALUES:
            return _overlaps(known, *pc.min_max(node.values).values()) if len(node.values) else None
        return reduce(pc.or_kleene, (_overlaps(known, value, value) for value in node.values))
    begins_high = pc.utf8_slice_codeunits(known.highest, 0, len(node.prefix))
    begins_low = pc.utf8_slice_codeunits(known.lowest, 0, len(node.prefix))
    return pc.and_kleene(pc.greater_equal(begins_high, node.prefix), pc.less_equal(begins_low, node.prefix))


def _compares_within(node: Comparison, known: Bounds) -> Any:
    if not isinstance(node.right, Literal):
        return None
    value = node.right.value
    if node.function == "equal":
        return _overlaps(known, value, value)
    if node.function == "not_equal":
        return pc.invert(pc.and_(pc.equal(known.lowest, value), pc.equal(known.highest, value)))
    return getattr(pc, node.function)(known.lowest if node.function.startswith("less") else known.highest, value)


def _overlaps(known: Bounds, low: pa.Scalar, high: pa.Scalar) -> Any:
    return pc.and_kleene(pc.less_equal(known.lowest, high), pc.greater_equal(known.highest, low))
