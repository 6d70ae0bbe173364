"""Which index a write uses: Hudi's by their names, or a plug-in; settled with what the table has recorded."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from skep_table.errors import OptionError, TableMismatchError, UnsupportedError
from skep_table.keys.buckets import BUCKET_FIELDS, BUCKETS
from skep_table.merge import MergeRule
from skep_table.options import Option, Options
from skep_table.schema.types import Schema
from skep_table.table import HudiTable
from skep_table.table_config import TableConfig
from skep_table.write.indexes.base import Files, GlobalIndex, Index
from skep_table.write.indexes.bucket import BucketIndex
from skep_table.write.indexes.footers import FooterIndex, GlobalFooterIndex
from skep_table.write.indexes.memory import InMemoryIndex
from skep_table.write.indexes.moves import GlobalTagger
from skep_table.write.options import (
    BLOOM_MOVES,
    BUCKET_ENGINE,
    INDEX_CLASS,
    INDEX_TYPE,
    SIMPLE_MOVES,
    IndexType,
)

GROUP: Final = "skep.indexes"
_GLOBAL: Final = {IndexType.GLOBAL_BLOOM, IndexType.GLOBAL_SIMPLE, IndexType.INMEMORY, IndexType.HBASE}
_RECORDED: Final[tuple[Option[Any], ...]] = (INDEX_TYPE, BUCKETS, BUCKET_FIELDS)


class IndexFactory(Protocol):
    """What an entry point of the group `skep.indexes` is: a class, or a function with the attribute.

    `files` are those of the partitions that are written to; of a global index, those of all partitions. A global index
    answers `find`, the others `tag`. One with a true attribute `knows_logs` finds keys that are in log files alone: new
    rows of merge-on-read tables then go there.
    """

    is_global: bool

    def __call__(
        self, table: HudiTable, files: Files, options: Options, *, rule: MergeRule, combine: bool
    ) -> Index | GlobalIndex: ...


@dataclass(frozen=True, slots=True)
class IndexSetting:
    """The index of a table's writes. `plug_in` is the name of one's own."""

    type: IndexType
    plug_in: str = ""
    buckets: int = 0
    hash_fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: TableConfig, options: Options) -> IndexSetting:
        """What the options say, else what the table has recorded. TableMismatchError where the two contradict."""
        given = Options({known.key: config.raw[known.key] for known in _RECORDED if known.key in config.raw})
        for known in _RECORDED:
            if known.key in given and options.is_set(known) and options.value(known) != given.value(known):
                raise TableMismatchError(
                    f"table {config.name} is written with {known.key}={given[known.key]}, not {options[known.key]}",
                    option=known.key,
                    found=given[known.key],
                    expected=options[known.key],
                )
        told = given.with_values({key: options[key] for key in options})
        kind = told.value(INDEX_TYPE)
        if not config.populate_meta_fields and (kind in _GLOBAL or told.value(INDEX_CLASS)):
            raise UnsupportedError(
                f"table {config.name} keeps no record keys (hoodie.populate.meta.fields=false):"
                f" {INDEX_TYPE.key}={told.value(INDEX_CLASS) or kind.value} needs them",
                hint=", ".join(each.value for each in IndexType if each not in _GLOBAL) + " compute them",
                option=INDEX_TYPE.key,
            )
        if kind is not IndexType.BUCKET:
            return cls(kind, told.value(INDEX_CLASS))
        told.value(BUCKET_ENGINE)
        keys = config.record_key_fields
        fields = told.value(BUCKET_FIELDS) or keys
        if not keys or not set(fields) <= set(keys):
            raise OptionError(
                f"table {config.name}: {BUCKET_FIELDS.key} names {', '.join(fields) or 'nothing'},"
                f" the record key is {', '.join(keys) or 'made by the writer'}",
                option=BUCKET_FIELDS.key,
                found=fields,
                expected=keys,
            )
        return cls(kind, "", told.value(BUCKETS), fields)

    @property
    def is_bucket(self) -> bool:
        return self.type is IndexType.BUCKET and not self.plug_in

    @property
    def is_global(self) -> bool:
        return bool(find_index(self.plug_in).is_global) if self.plug_in else self.type in _GLOBAL

    @property
    def knows_logs(self) -> bool:
        """Whether it finds keys that are in log files alone, so that new rows may go there."""
        if self.plug_in:
            return bool(getattr(find_index(self.plug_in), "knows_logs", False))
        return self.type is IndexType.INMEMORY

    @property
    def keeps_keys(self) -> bool:
        """Whether it keeps keys outside of the table, and has to be told of new ones."""
        return self.type is IndexType.HBASE and not self.plug_in

    @property
    def recorded(self) -> dict[str, str]:
        """What the table has to remember, so that all writers find its keys."""
        if not self.is_bucket:
            return {}
        return {
            INDEX_TYPE.key: self.type.value,
            BUCKETS.key: str(self.buckets),
            BUCKET_FIELDS.key: ",".join(self.hash_fields),
        }


def make_index(
    setting: IndexSetting,
    table: HudiTable,
    files: Files,
    options: Options,
    *,
    rule: MergeRule,
    schema: Schema,
    combine: bool,
    deletes: bool,
) -> Index | GlobalTagger:
    """The index of one write, over the newest files as `table` sees them."""
    made: Index | GlobalIndex
    match setting.type:
        case _ if setting.plug_in:
            made = find_index(setting.plug_in)(table, files, options, rule=rule, combine=combine)
        case IndexType.BLOOM | IndexType.SIMPLE:
            made = FooterIndex(table, files)
        case IndexType.GLOBAL_BLOOM | IndexType.GLOBAL_SIMPLE:
            moves = options.value(BLOOM_MOVES if setting.type is IndexType.GLOBAL_BLOOM else SIMPLE_MOVES)
            made = GlobalFooterIndex(table, files, rule, combine, moves)
        case IndexType.BUCKET:
            made = BucketIndex(files, setting.buckets, setting.hash_fields)
        case IndexType.INMEMORY:
            made = InMemoryIndex.of(table, files, rule, combine, options.value(BLOOM_MOVES))
        case IndexType.HBASE:
            from skep_table.write.indexes.hbase import HbaseIndex

            made = HbaseIndex.of(table, files, options, rule, combine)
    if isinstance(made, GlobalIndex):
        return GlobalTagger(made, table, schema, files, deletes)
    return made


def find_index(name: str) -> IndexFactory:
    """The plug-in of a name. UnsupportedError when there is none."""
    for entry in entry_points(group=GROUP, name=name):
        factory: IndexFactory = entry.load()
        return factory
    raise UnsupportedError(
        f"there is no index {name}", hint=f"register it as an entry point of group {GROUP!r}", found=name
    )
