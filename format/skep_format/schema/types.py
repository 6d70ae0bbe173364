"""The one neutral form of a schema in skep: frozen types with Hudi's (Avro's) names, comments and nullability.

Pure functions elsewhere turn it into Avro and Arrow (here in `skep_format.schema`), Hive and Spark-JSON text (catalog)
and StructType (writer). A type that one of them can't hold is refused there by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, wraps
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class BooleanType:
    """True or false."""


@dataclass(frozen=True, slots=True)
class IntType:
    """32 bits. `bits` is 8 or 16 where Spark's byte or short is behind it; Avro and Parquet hold INT32 all the same."""

    bits: Literal[8, 16, 32] = 32


@dataclass(frozen=True, slots=True)
class LongType:
    """64-bit signed integer."""


@dataclass(frozen=True, slots=True)
class FloatType:
    """32-bit floating point."""


@dataclass(frozen=True, slots=True)
class DoubleType:
    """64-bit floating point."""


@dataclass(frozen=True, slots=True)
class StringType:
    """UTF-8 text."""


@dataclass(frozen=True, slots=True)
class BinaryType:
    """Bytes of any length."""


@dataclass(frozen=True, slots=True)
class FixedType:
    """`size` bytes. `full_name` is the Avro name; None lets `to_avro` make one from the field's place."""

    size: int
    full_name: str | None = None


@dataclass(frozen=True, slots=True)
class DecimalType:
    """Avro: fixed of `fixed_size` bytes, bytes when `fixed_size` is 0; None is Hudi's smallest size for `precision`."""

    precision: int
    scale: int
    fixed_size: int | None = None
    full_name: str | None = None


@dataclass(frozen=True, slots=True)
class DateType:
    """Days since 1970-01-01."""


@dataclass(frozen=True, slots=True)
class TimeType:
    """Time of day in ms or µs."""

    unit: Literal["ms", "us"] = "us"


@dataclass(frozen=True, slots=True)
class TimestampType:
    """`utc`: an instant (Avro timestamp-*); else a local date-time without zone (Avro local-timestamp-*, Spark ntz)."""

    unit: Literal["ms", "us"] = "us"
    utc: bool = True


@dataclass(frozen=True, slots=True)
class UuidType:
    """A UUID as text (Avro string with logical type uuid)."""


@dataclass(frozen=True, slots=True)
class EnumType:
    """An Avro enum: symbols as strings."""

    symbols: tuple[str, ...]
    full_name: str | None = None


@dataclass(frozen=True, slots=True)
class ListType:
    """`null_last`: see Field."""

    element: DataType
    element_nullable: bool = True
    null_last: bool = dataclasses.field(default=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class MapType:
    """Keys are strings, as Avro has it. `null_last`: see Field."""

    value: DataType
    value_nullable: bool = True
    null_last: bool = dataclasses.field(default=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class StructType:
    """`full_name` is the Avro record name; None lets `to_avro` make Hudi's from the field's place."""

    fields: tuple[Field, ...]
    full_name: str | None = None

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(field.name for field in self.fields)


DataType = (
    BooleanType
    | IntType
    | LongType
    | FloatType
    | DoubleType
    | StringType
    | BinaryType
    | FixedType
    | DecimalType
    | DateType
    | TimeType
    | TimestampType
    | UuidType
    | EnumType
    | ListType
    | MapType
    | StructType
)


_SQL: Final[dict[type, str]] = {
    BooleanType: "boolean",
    IntType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "binary",
    FixedType: "binary",
    DateType: "date",
}


def type_text(kind: DataType) -> str:
    """As Spark's DESCRIBE shows it; bytes and shorts are int, as Hudi stores them."""
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case TimestampType():
            return "timestamp" if kind.utc else "timestamp_ntz"
        case ListType():
            return f"array<{type_text(kind.element)}>"
        case MapType():
            return f"map<string,{type_text(kind.value)}>"
        case StructType():
            return f"struct<{','.join(f'{field.name}:{type_text(field.type)}' for field in kind.fields)}>"
    return _SQL.get(type(kind), "string")


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"

    def __reduce__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True, slots=True)
class Field:
    """A column or a struct's member. `default` is Avro's JSON default; a nullable field without one has null.

    `null_last`: null is the second branch of the Avro union. It decides bytes of log records, nothing else.
    """

    name: str
    type: DataType
    nullable: bool = True
    doc: str | None = None
    default: object = NO_DEFAULT
    null_last: bool = dataclasses.field(default=False, compare=False, kw_only=True)


@dataclass(frozen=True)
class Schema:
    """A table's columns in order, with the Avro record name that all its files share.

    A table keeps the names it was made with (format guide 5.2): `<table>_record` in namespace `hoodie.<table>`.
    Columns are looked up by name for each file: what that takes does not depend on their number.
    """

    fields: tuple[Field, ...]
    name: str = "skep_record"
    namespace: str = "hoodie.skep"

    def __repr__(self) -> str:
        columns = (f"{one.name} {type_text(one.type)}{'' if one.nullable else ' not null'}" for one in self.fields)
        return f"Schema({', '.join(columns)})"

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Schema, (self.fields, self.name, self.namespace)

    def __getitem__(self, name: str) -> Field:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return self._names

    @cached_property
    def _hash(self) -> int:
        return hash((self.fields, self.name, self.namespace))

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {field.name: field for field in reversed(self.fields)}

    def select(self, names: tuple[str, ...]) -> Schema:
        """The named columns, in the order of `names`. KeyError for one that is not there."""
        return replace(self, fields=tuple(self[name] for name in names))

    def with_texts(self, names: Iterable[str]) -> Schema:
        """Those of `names` that it lacks come last, as text that may be null."""
        missing = tuple(Field(name, StringType(), default=None) for name in names if name not in self)
        return replace(self, fields=self.fields + missing) if missing else self

    def without(self, names: Collection[str]) -> Schema:
        """All other columns."""
        return replace(self, fields=tuple(field for field in self.fields if field.name not in names))

    def without_meta(self) -> Schema:
        """The data columns: without Hudi's meta columns, but with a user's own `_hoodie_…` columns."""
        return self.without(META_FIELDS)

    def with_meta(self, *, operation: bool = False) -> Schema:
        """Hudi's meta columns first (nullable strings), then the data columns."""
        return _with_meta(self, ALL_META_FIELDS if operation else META_FIELDS)


COMMIT_TIME: Final = "_hoodie_commit_time"
COMMIT_SEQNO: Final = "_hoodie_commit_seqno"
RECORD_KEY: Final = "_hoodie_record_key"
PARTITION_PATH: Final = "_hoodie_partition_path"
FILE_NAME: Final = "_hoodie_file_name"
OPERATION: Final = "_hoodie_operation"
IS_DELETED: Final = "_hoodie_is_deleted"

META_FIELDS: Final = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
ALL_META_FIELDS: Final = (*META_FIELDS, OPERATION)


def cached_by_schema(function: Callable[Concatenate[Schema, P], R]) -> Callable[Concatenate[Schema, P], R]:
    """Keeps the answers about the schemas asked about last. A commit asks the same for each of its files."""
    cached = lru_cache(maxsize=64)(function)

    @wraps(function)
    def answer(schema: Schema, /, *args: P.args, **named: P.kwargs) -> R:
        try:
            hash(schema)
        except TypeError:  # an Avro default that is a list or a record can't be hashed
            return function(schema, *args, **named)
        return cached(schema, *args, **named)  # type: ignore[arg-type]

    return answer


@cached_by_schema
def _with_meta(schema: Schema, names: tuple[str, ...]) -> Schema:
    meta = tuple(Field(name, StringType(), nullable=True, doc="", default=None) for name in names)
    return replace(schema, fields=meta + schema.without(names).fields)


def record_names(table: str) -> tuple[str, str]:
    """Avro record name and namespace of a new table (format guide 5.2)."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in table)
    return f"{clean}_record", f"hoodie.{clean}"
