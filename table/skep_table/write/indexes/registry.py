"""Which index a write uses: Hudi's by their names, or a plug-in; checked against what the table has recorded."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

from skep_format.errors import TableMismatchError, UnsupportedError
from skep_format.hashing_metadata import INDEX_FOLDER
from skep_format.options import Option, Options
from skep_format.table_config import TableConfig
from skep_table.keys.buckets import BUCKET_FIELDS, BUCKETS, GLOBAL_INDEXES
from skep_table.keys.unrecorded_buckets import unrecorded_bucket
from skep_table.plug_ins import needed_plug_in
from skep_table.table import HudiTable
from skep_table.write.indexes.bloom_lookup import BloomIndex
from skep_table.write.indexes.bucket import BucketIndex
from skep_table.write.indexes.consistent import ConsistentIndex
from skep_table.write.indexes.contract import Index
from skep_table.write.indexes.memory import InMemoryIndex
from skep_table.write.planning.options import (
    BLOOM_BY_METADATA,
    BLOOM_MOVES,
    BUCKET_ENGINE,
    INDEX_CLASS,
    INDEX_TYPE,
    SIMPLE_MOVES,
    BucketEngine,
    IndexType,
)

GROUP: Final = "skep.indexes"


class _OtherBuckets(NamedTuple):
    """What a folder of Hudi's means for the buckets of a table, and who writes such a table."""

    text: str
    written_by: tuple[type[Index], ...]
    hint: str


_OTHER_BUCKETS: Final = {
    "consistent_hashing_metadata": _OtherBuckets(
        "by consistent hashing",
        (ConsistentIndex,),
        f"its writers have {INDEX_TYPE.key}=BUCKET and {BUCKET_ENGINE.key}=CONSISTENT_HASHING",
    ),
    "partition_bucket_index_meta": _OtherBuckets(
        "with a number of buckets for each partition", (BucketIndex,), f"its writers have {INDEX_TYPE.key}=BUCKET"
    ),
}
_RECORDED: Final[tuple[Option[Any], ...]] = (INDEX_TYPE, BUCKET_ENGINE, BUCKETS, BUCKET_FIELDS)
_NEEDS_KEYS: Final = {IndexType.RECORD_LEVEL_INDEX, *map(IndexType, GLOBAL_INDEXES)}


class IndexFactory(Protocol):
    """What an entry point of the group `skep.indexes` names: a class of indexes, or a function that returns one."""

    def __call__(self, config: TableConfig, options: Options) -> Index: ...


def index_of(config: TableConfig, options: Options) -> Index:
    """The index that the table has recorded, else the one that the options name.

    Reads nothing. TableMismatchError where table and options contradict each other, UnsupportedError for an index that
    the table can't have or that is not installed, OptionError for its settings.
    """
    options = _with_recorded(config, options)
    kind, plug_in = options.value(INDEX_TYPE), options.value(INDEX_CLASS)
    if not config.populate_meta_fields and (kind in _NEEDS_KEYS or plug_in):
        raise UnsupportedError(
            f"table {config.name} keeps no record keys (hoodie.populate.meta.fields=false):"
            f" {INDEX_TYPE.key}={plug_in or kind.value} needs them",
            hint=", ".join(each.value for each in IndexType if each not in _NEEDS_KEYS) + " compute them",
            option=INDEX_TYPE.key,
        )
    if plug_in and kind is not IndexType.BUCKET:
        made: IndexFactory = needed_plug_in(GROUP, plug_in, "index")
        return made(config, options)
    match kind:
        case IndexType.SIMPLE:
            return BloomIndex()
        case IndexType.BLOOM:
            return BloomIndex(by_metadata=options.value(BLOOM_BY_METADATA))
        case IndexType.GLOBAL_BLOOM:
            return BloomIndex(True, options.value(BLOOM_MOVES), options.value(BLOOM_BY_METADATA))
        case IndexType.GLOBAL_SIMPLE:
            return BloomIndex(is_global=True, moves=options.value(SIMPLE_MOVES))
        case IndexType.BUCKET:
            consistent = options.value(BUCKET_ENGINE) is BucketEngine.CONSISTENT_HASHING
            return (ConsistentIndex if consistent else BucketIndex).of(config, options)
        case IndexType.INMEMORY:
            return InMemoryIndex(options.value(BLOOM_MOVES))
        case IndexType.HBASE:
            from skep_table.write.indexes.hbase import HbaseIndex

            return HbaseIndex.of(options)
        case IndexType.RECORD_INDEX | IndexType.GLOBAL_RECORD_LEVEL_INDEX | IndexType.RECORD_LEVEL_INDEX:
            from skep_table.write.indexes.record_index import RecordIndex

            return RecordIndex.of(kind, config, options)


def refuse_other_buckets(table: HudiTable, index: Index) -> None:
    """TableMismatchError where the file groups of a table are buckets, and the index counts them in another way.

    Such a table records the hash ranges of its file groups, or the buckets of its partitions, or names the groups by
    their buckets: Hudi would not find a row in a group of another one.
    """
    if not index.names.by_key and (file_id := unrecorded_bucket(table)) is not None:
        raise table.error(
            TableMismatchError,
            f"file group {file_id} is a bucket, so its writers have {INDEX_TYPE.key}=BUCKET, and this write has"
            " another index",
            hint=f"give {INDEX_TYPE.key}=BUCKET, and {BUCKETS.key} and {BUCKET_FIELDS.key} as they do",
            path=table.storage.root,
            option=INDEX_TYPE.key,
            found=file_id,
        )
    if not table.may_have_folder(INDEX_FOLDER):
        return
    for folder in table.storage.list_folder(INDEX_FOLDER).folders:
        kind = _OTHER_BUCKETS.get(folder)
        if kind is not None and not isinstance(index, kind.written_by):
            raise TableMismatchError(
                f"table {table.config.name} is written {kind.text}, and this write by another index",
                hint=kind.hint,
                table=table.config.name,
                path=table.storage.root,
            )


def _with_recorded(config: TableConfig, options: Options) -> Options:
    recorded = Options({known.key: config.raw[known.key] for known in _RECORDED if known.key in config.raw})
    for known in _RECORDED:
        if known.key in recorded and options.is_set(known) and options.value(known) != recorded.value(known):
            raise TableMismatchError(
                f"table {config.name} is written with {known.key}={recorded[known.key]}, not {options[known.key]}",
                option=known.key,
                found=recorded[known.key],
                expected=options[known.key],
            )
    return recorded.with_values({key: options[key] for key in options})
