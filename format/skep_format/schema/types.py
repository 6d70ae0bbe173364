"""The one neutral form of a schema in skep: frozen types with Hudi's (Avro's) names, comments and nullability.

Pure functions elsewhere turn it into Avro and Arrow (here in `skep_format.schema`), Hive and Spark-JSON text (catalog)
and StructType (writer). A type that one of them can't hold is refused there by name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, wraps
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

from skep_format.errors import InputError, SchemaError

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


def members_of(kind: DataType) -> tuple[Field, ...]:
    """What a nested type holds, under the names that paths have for it; nothing where it is not nested."""
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return (Field("element", kind.element, kind.element_nullable, null_last=kind.null_last),)
        case MapType():
            return (Field("value", kind.value, kind.value_nullable, null_last=kind.null_last),)
    return ()


def holding(kind: DataType, members: tuple[Field, ...]) -> DataType:
    """A nested type with other members, by the order of `members_of`."""
    match kind:
        case StructType():
            return replace(kind, fields=members)
        case ListType():
            return replace(kind, element=members[0].type, element_nullable=members[0].nullable)
        case MapType():
            return replace(kind, value=members[0].type, value_nullable=members[0].nullable)
    raise AssertionError(kind)


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


def type_text(
    kind: DataType,
    other: Callable[[DataType], str | None] = lambda _: None,
    named: Callable[[str], str] = lambda name: name,
) -> str:
    """As Spark's DESCRIBE shows it; bytes and shorts are int, as Hudi stores them.

    `other` has the texts of types that are written in another way there, `named` spells the members of structs.
    """
    found = other(kind)
    if found is not None:
        return found
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case TimestampType():
            return "timestamp" if kind.utc else "timestamp_ntz"
        case ListType():
            return f"array<{type_text(kind.element, other, named)}>"
        case MapType():
            return f"map<string,{type_text(kind.value, other, named)}>"
        case StructType():
            members = (f"{named(field.name)}:{type_text(field.type, other, named)}" for field in kind.fields)
            return f"struct<{','.join(members)}>"
    return _SQL.get(type(kind), "string")


def spark_name(kind: DataType) -> str:
    """A type that is not nested, as Spark's own schemas name it."""
    if isinstance(kind, IntType):
        return {8: "byte", 16: "short", 32: "integer"}[kind.bits]
    return "long" if isinstance(kind, LongType) else type_text(kind)


_PLAIN: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    **dict.fromkeys(("tinyint", "byte"), IntType(8)),
    **dict.fromkeys(("smallint", "short"), IntType(16)),
    **dict.fromkeys(("int", "integer"), IntType()),
    **dict.fromkeys(("bigint", "long"), LongType()),
    **dict.fromkeys(("float", "real"), FloatType()),
    **dict.fromkeys(("double", "double precision"), DoubleType()),
    **dict.fromkeys(("decimal", "dec", "numeric"), DecimalType(10, 0)),
    **dict.fromkeys(("string", "varchar"), StringType()),
    "binary": BinaryType(),
    "date": DateType(),
    **dict.fromkeys(("timestamp", "timestamp_ltz", "timestamp with local time zone"), TimestampType()),
    "timestamp_ntz": TimestampType(utc=False),
}
_SIZED: Final = re.compile(r"(\w+) ?\( ?(\d+) ?(?:, ?(\d+) ?)?\)", re.ASCII)
_MEMBER: Final = re.compile(
    r"""(`(?:[^`]|``)+`|[^\s:`]+)(?:\s*:|\s)\s*(.+?)(\s+not\s+null)?(\s+comment\s+(?:'.*'|".*"))?""",
    re.DOTALL | re.IGNORECASE,
)
_QUOTES: Final = "`'\""
_MEMBER_OF_HIVE: Final = re.compile(r"([^:]*):(.+)", re.DOTALL)


def parse_type(text: str, path: str, *, of_hive: bool = False) -> DataType:
    """The type that Spark's SQL, or a name in Spark's schemas, writes so. SchemaError names the part below `path`.

    `of_hive`: as metastores have it, where `char` is a text and a member's name is all that comes before the colon.
    """
    name, bracket, within = (part.strip() for part in text.partition("<"))
    kind = " ".join(name.lower().split())
    parts = divided(within[:-1], "" if of_hive else _QUOTES) if within.endswith(">") else []
    if not bracket and (found := _PLAIN.get(kind) or _sized(kind, of_hive)) is not None:
        return found
    if kind == "array" and len(parts) == 1:
        return ListType(parse_type(parts[0], f"{path}.element", of_hive=of_hive))
    if kind == "map" and len(parts) == 2 and parse_type(parts[0], path, of_hive=of_hive) == StringType():
        return MapType(parse_type(parts[1], f"{path}.value", of_hive=of_hive))
    members = [(_MEMBER_OF_HIVE if of_hive else _MEMBER).fullmatch(part) for part in parts]
    if kind == "struct" and members and all(members):
        named = [(each[1].strip() if of_hive else unquoted(each[1]), each[2]) for each in members if each]
        return StructType(
            tuple(Field(name, parse_type(inner, f"{path}.{name}", of_hive=of_hive)) for name, inner in named)
        )
    raise SchemaError(f"column {path}: Hudi has no type for {text.strip()}", column=path, found=text.strip())


def parse_columns(text: str) -> tuple[Field, ...]:
    """Columns as Spark's SQL writes them: `id bigint, tags array<string>, price decimal(10,2)`.

    Raises InputError for what does not parse, for a type that is not known, and for a column that occurs twice.
    """
    fields: dict[str, Field] = {}
    for part in divided(text, _QUOTES):
        found = _MEMBER.fullmatch(part)
        name = part if found is None else unquoted(found[1])
        try:
            if found is None or found[3] or found[4] or name in fields:
                raise SchemaError(f"{part} occurs twice" if name in fields else f"{part or 'nothing'} is no column")
            fields[name] = Field(name, parse_type(found[2], name))
        except SchemaError as error:
            raise InputError(
                f"columns {text!r} do not parse: {error.message}",
                hint="write each as name and type: id bigint, name string, price decimal(10,2), at timestamp",
                found=part,
            ) from error
    return tuple(fields.values())


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(name: str) -> str:
    """A name of SQL without its backticks."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def divided(text: str, quotes: str) -> list[str]:
    """What commas divide that are within no brackets and no quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if sign in quotes and quote in ("", sign):
            quote = "" if quote else sign
        elif not quote:
            depth += (sign in "<(") - (sign in ">)")
        if sign == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _sized(text: str, of_hive: bool) -> DataType | None:
    found = _SIZED.fullmatch(text)
    if found is None:
        return None
    if not isinstance(_PLAIN.get(found[1]), DecimalType):
        return StringType() if found[1] == "varchar" or (of_hive and found[1] == "char") else None
    precision, scale = int(found[2]), int(found[3] or 0)
    return DecimalType(precision, scale) if 0 < precision <= 38 and scale <= precision else None


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

    def fields_to(self, name: str) -> tuple[Field, ...]:
        """The fields from the top down to a column, dotted for a member of structs; none where it is not there."""
        if name in self:
            return (self[name],)
        head, *members = name.split(".")
        found = [self[head]] if head in self else []
        for member in members if found else ():
            kind = found[-1].type
            if not isinstance(kind, StructType) or member not in kind.names():
                return ()
            found.append(kind[member])
        return tuple(found)

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
