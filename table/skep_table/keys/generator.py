"""Key generators: which columns form the record key and the partition path, and how their text is composed.

Format guide chapter 9. A KeyGenerator is made once from the table's configuration and then applied to Arrow batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import zip_longest
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import KeyFieldError, OptionError, UnsupportedError
from skep_format.options import boolean
from skep_format.table_config import KEY_GENERATOR_CLASS, USER_PROVIDED, TableConfig
from skep_format.table_config.keys import simple_name
from skep_format.versions import format_of
from skep_table.keys.partition_path import check_inside, join_values
from skep_table.keys.text import column_of, value_text
from skep_table.keys.timebased import TimestampFormat
from skep_table.plug_ins import plug_in

GROUP: Final = "skep.key_generators"


class OwnKeyGenerator(Protocol):
    """Makes keys and paths from whole columns. Rows have the table's columns, in its types."""

    def record_keys(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Text; null or empty where a row has no key."""

    def partition_paths(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Text, not null: the folder of each row, `""` for the table's own."""


Factory = Callable[[Mapping[str, str]], OwnKeyGenerator]
"""What an entry point of the group `skep.key_generators` is: from the table's settings and the write's options."""


def has_own(name: str) -> bool:
    """Whether a generator is registered as `name`: a class name, or the last part of one."""
    return _find(name) is not None


def make_own(name: str, properties: tuple[tuple[str, str], ...]) -> OwnKeyGenerator:
    """UnsupportedError when there is none of the name."""
    factory = _find(name)
    if factory is None:
        raise UnsupportedError(
            f"there is no key generator {name}",
            hint=f"Hudi's own are built in; register others as entry points of group {GROUP!r}",
            found=name,
        )
    return factory(dict(properties))


@lru_cache(maxsize=64)
def _find(name: str) -> Factory | None:
    found: Factory | None = plug_in(GROUP, name, simple_name(name))
    return found


NULL_TEXT = "__null__"
EMPTY_TEXT = "__empty__"
_LOGICAL_TIMESTAMPS = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
PARTITION_TYPES = "hoodie.datasource.write.partitionpath.field"


class KeyGeneratorType(str, Enum):
    """Hudi's key generators by type name."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"

    @property
    def class_name(self) -> str:
        """Hudi's Java class of the generator."""
        return f"org.apache.hudi.keygen.{_CLASSES[self]}"


_CLASSES = {
    KeyGeneratorType.SIMPLE: "SimpleKeyGenerator",
    KeyGeneratorType.COMPLEX: "ComplexKeyGenerator",
    KeyGeneratorType.NON_PARTITION: "NonpartitionedKeyGenerator",
    KeyGeneratorType.TIMESTAMP: "TimestampBasedKeyGenerator",
    KeyGeneratorType.CUSTOM: "CustomKeyGenerator",
}


def infer_key_generator(record_fields: tuple[str, ...], partition_fields: tuple[str, ...]) -> KeyGeneratorType:
    """Hudi's choice when none is named."""
    if not partition_fields:
        return KeyGeneratorType.NON_PARTITION
    if any(":" in field for field in partition_fields):
        return KeyGeneratorType.CUSTOM
    if len(partition_fields) == 1 and len(record_fields) <= 1:
        return KeyGeneratorType.SIMPLE
    return KeyGeneratorType.COMPLEX


def parse_key_generator(name: str) -> KeyGeneratorType:
    """From a type name or a class name, the Avro twins included. UnsupportedError for one that skep has not."""
    short = name.rpartition(".")[2].replace("Avro", "").removesuffix("_AVRO")
    for kind in KeyGeneratorType:
        if short.upper() == kind.value or short == _CLASSES[kind]:
            return kind
    raise UnsupportedError(
        f"key generator {name} is not supported; supported are {', '.join(KeyGeneratorType.__members__)}", found=name
    )


def generator_name(name: str) -> str:
    """The name that a table records: the type name of one of Hudi's generators, or the name of a user's own unchanged.

    UnsupportedError for one that is neither.
    """
    return name if has_own(name) else parse_key_generator(name).value


def generator_of(config: TableConfig) -> str | None:
    """The table's generator by the same name; None where its settings name none."""
    if config.key_generator != USER_PROVIDED:
        return config.key_generator
    return config.raw.get(KEY_GENERATOR_CLASS)


@dataclass(frozen=True, slots=True)
class KeyGenerator:
    """How one table keys its rows.

    `prefixed` writes record keys as `field:value` pairs. `timestamps` names the partition fields that go through
    `time_format`. No record fields: keys are made by the writer (`<instant>_<task>_<row>`). `own` is the name of a
    plug-in that makes keys and paths, from `own_settings`. `lacks` is what is not known for making paths, which only
    those who make them need.
    """

    type: KeyGeneratorType
    record_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    prefixed: bool
    hive_style: bool
    url_encode: bool
    timestamps: frozenset[str] = frozenset()
    time_format: TimestampFormat | None = None
    logical_timestamps: bool = False
    own: str = ""
    own_settings: tuple[tuple[str, str], ...] = ()
    lacks: OptionError | None = None

    @classmethod
    def of(cls, config: TableConfig, options: Mapping[str, str] | None = None) -> KeyGenerator:
        """The table's generator.

        `options` may add what tables of Hudi don't store: the types of CUSTOM fields, the kind of a timestamp.
        """
        properties = {**config.raw, **(options or {})}
        named = generator_of(config)
        own = named if named and has_own(named) else ""
        if own:
            kind = KeyGeneratorType.CUSTOM
        elif named:
            kind = parse_key_generator(named)
        else:
            kind = infer_key_generator(config.record_key_fields, config.partition_fields)
        timestamps, time_format, lacks = frozenset[str](), None, None
        try:
            timestamps = frozenset() if own else _timestamp_fields(kind, config, properties)
            time_format = TimestampFormat.of(properties, config.name) if timestamps else None
        except OptionError as error:
            lacks = error
        several = len(config.record_key_fields) > 1
        prefixes_one = kind is KeyGeneratorType.COMPLEX and format_of(config).prefixes_single_keys
        return cls(
            type=kind,
            record_fields=config.record_key_fields,
            partition_fields=() if kind is KeyGeneratorType.NON_PARTITION else config.partition_fields,
            prefixed=not own and (several or prefixes_one),
            hive_style=config.hive_style,
            url_encode=config.url_encode,
            timestamps=timestamps,
            time_format=time_format,
            logical_timestamps=not own and boolean(properties.get(_LOGICAL_TIMESTAMPS, "false")),
            own=own,
            own_settings=tuple(sorted(properties.items())) if own else (),
            lacks=lacks,
        )

    def as_in(self, stored_key: str) -> KeyGenerator:
        """Single-field complex keys are prefixed by some Hudi releases and not by others: do as the table's rows do."""
        if self.type is not KeyGeneratorType.COMPLEX or len(self.record_fields) != 1:
            return self
        return replace(self, prefixed=stored_key.startswith(f"{self.record_fields[0]}:"))

    def check(self, schema: pa.Schema) -> None:
        """KeyFieldError when a key or partition column is not in the frame; OptionError when paths can't be made."""
        self._check_paths()
        empty = schema.empty_table()
        for name in (*self.record_fields, *self.partition_fields):
            column_of(empty, name)

    def column_of_key(self, schema: pa.Schema) -> str | None:
        """The column that keys are the text of, and whose values are equal where the keys are; None for none."""
        if self.own or self.prefixed or len(self.record_fields) != 1:
            return None
        (name,) = self.record_fields
        at = schema.get_field_index(name)
        is_exact = at >= 0 and (pa.types.is_string(schema.field(at).type) or pa.types.is_integer(schema.field(at).type))
        return name if is_exact else None

    def record_keys(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """The record key of each row. KeyFieldError, with the count, for rows that have none."""
        if self.own:
            own = make_own(self.own, self.own_settings).record_keys(batch)
            self._refuse(pc.equal(pc.coalesce(own, pa.scalar("")), ""))
            return own
        texts = [self._text(batch, field) for field in self.record_fields]
        if self.prefixed:
            return self._prefixed_keys(texts)
        (keys,) = texts
        self._refuse(pc.equal(pc.coalesce(keys, pa.scalar("")), ""))
        return keys

    def partition_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """The partition path of each row. KeyFieldError for values that can't be folders; OptionError as in `check`."""
        self._check_paths()
        if self.own:
            paths = make_own(self.own, self.own_settings).partition_paths(batch)
            check_inside(paths, self.partition_fields)
            return paths
        values = []
        for field in self.partition_fields:
            if field in self.timestamps and self.time_format is not None:
                values.append(self.time_format.format(column_of(batch, field), field))
            else:
                values.append(self._text(batch, field))
        return join_values(
            values, self.partition_fields, hive_style=self.hive_style, url_encode=self.url_encode, rows=batch.num_rows
        )

    def _check_paths(self) -> None:
        if self.lacks is not None:
            raise self.lacks

    def _text(self, batch: pa.RecordBatch | pa.Table, field: str) -> pa.Array:
        return value_text(column_of(batch, field), field, logical_timestamps=self.logical_timestamps)

    def _prefixed_keys(self, texts: list[pa.Array]) -> pa.Array:
        missing = [pc.equal(pc.coalesce(text, pa.scalar("")), "") for text in texts]
        nothing = missing[0]
        for mask in missing[1:]:
            nothing = pc.and_(nothing, mask)
        self._refuse(nothing)
        pairs = [
            pc.binary_join_element_wise(
                f"{field}:", pc.if_else(pc.is_null(text), NULL_TEXT, pc.if_else(mask, EMPTY_TEXT, text)), ""
            )
            for field, text, mask in zip(self.record_fields, texts, missing, strict=True)
        ]
        return pairs[0] if len(pairs) == 1 else pc.binary_join_element_wise(*pairs, ",")

    def _refuse(self, nothing: pa.Array) -> None:
        rows = pc.sum(nothing).as_py() or 0
        if rows:
            raise null_key_error(self.record_fields, rows)


def null_key_error(fields: tuple[str, ...], rows: int) -> KeyFieldError:
    """Rows without a record key."""
    named = ", ".join(fields)
    return KeyFieldError(
        f"record key column {named} is null or empty in {rows} row{'s' if rows != 1 else ''}", column=named, rows=rows
    )


def _timestamp_fields(kind: KeyGeneratorType, config: TableConfig, properties: Mapping[str, str]) -> frozenset[str]:
    if kind is KeyGeneratorType.TIMESTAMP:
        return frozenset(config.partition_fields)
    if kind is not KeyGeneratorType.CUSTOM:
        return frozenset()
    typed = next(
        (
            text
            for text in (properties.get(PARTITION_TYPES, ""), ",".join(config.typed_partition_fields))
            if ":" in text
        ),
        None,
    )
    if typed is None:
        raise OptionError.of_table(
            config.name,
            f"version {config.version} tables don't store which partition fields of a CUSTOM key generator are"
            " timestamps",
            hint=f"give {PARTITION_TYPES}, for example "
            + ",".join(f"{name}:simple" for name in config.partition_fields),
            option=PARTITION_TYPES,
        )
    types = dict(part.strip().partition(":")[::2] for part in typed.split(","))
    unknown = {field: kind for field, kind in types.items() if kind.lower() not in ("", "simple", "timestamp")}
    if unknown:
        raise OptionError(f"partition field types {unknown} are neither simple nor timestamp", option=PARTITION_TYPES)
    return frozenset(field for field, kind in types.items() if kind.lower() == "timestamp")


ALLOW_AMBIGUOUS = "skep.write.ambiguous.keys"


def check_unambiguous(generator: KeyGenerator, rows: pa.Table) -> None:
    """KeyFieldError, naming the column, for values that may make the same key or path as other values.

    A composite key is `a:<value>,b:<value>`: the values (`x,b:y`, `z`) and (`x`, `y,b:z`) make one key, and so do null
    and `__null__`, empty text and `__empty__`. Without URL encoding the partition values (`a/b`, `c`) and (`a`, `b/c`)
    make one folder. It is enough to refuse one of each two: then every key and path belongs to one row of values only.
    """
    if generator.own:
        return
    if len(generator.record_fields) > 1:
        for field, texts, following in _texts(generator.record_fields, rows):
            _refuse(field, texts, pc.is_in(texts, pa.array([NULL_TEXT, EMPTY_TEXT], texts.type)), "record key")
            if following:
                _refuse(field, texts, pc.match_substring(texts, f",{following}:"), "record key")
    if not generator.url_encode:
        for field, texts, following in _texts(generator.partition_fields, rows):
            if following and field not in generator.timestamps:
                separator = f"/{following}=" if generator.hive_style else "/"
                _refuse(field, texts, pc.match_substring(texts, separator), "partition path")


def _texts(fields: tuple[str, ...], rows: pa.Table) -> Iterator[tuple[str, pa.Array, str | None]]:
    """The fields that hold text, each with its values and the name of the next field: no number has a separator."""
    for field, following in zip_longest(fields, fields[1:]):
        values = column_of(rows, field)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            yield field, values, following


def _refuse(field: str, texts: pa.Array, ambiguous: pa.Array, what: str) -> None:
    if not pc.any(ambiguous).as_py():
        return
    found = pc.filter(texts, pc.fill_null(ambiguous, False))
    encode = "hoodie.datasource.write.partitionpath.urlencode=true keeps paths apart; " if what[0] == "p" else ""
    raise KeyFieldError(
        f"column {field}: {found[0].as_py()!r} and other values can make the same {what}, so that rows would be lost",
        hint=f"{encode}{ALLOW_AMBIGUOUS}=allow writes it as Hudi does",
        column=field,
        found=found[0].as_py(),
        rows=len(found),
    )
