"""BUCKET with consistent hashing: the ring of a partition maps hashes to file groups (format guide 17.3).

The rings are read once per attempt, and made where a partition has none yet. All rows go to logs, those of new groups
too, as Hudi writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.errors import TableMismatchError, UnsupportedError
from skep_format.hashing_metadata import FIRST, INDEX_FOLDER, HashingMetadata
from skep_format.options import Options
from skep_format.table_config import TableConfig
from skep_table.commit.options import CONCURRENCY_MODE, Concurrency
from skep_table.keys.buckets import (
    BUCKET_FIELDS,
    BUCKET_NAMES,
    BUCKETS,
    GroupNames,
    hash_fields,
    hash_fields_of_key,
    ring_hashes,
)
from skep_table.keys.hash_rings import ring_for_writing, ring_of
from skep_table.table import HudiTable
from skep_table.write.indexes.contract import Index, KeyLookUp, LookedUp, by_partition
from skep_table.write.planning.candidates import CandidateFile, CandidateFiles
from skep_table.write.planning.options import BUCKET_ENGINE, INDEX_TYPE, BucketEngine, IndexType
from skep_table.write.tags import tag_of_new_group


@dataclass(frozen=True)
class ConsistentIndex(Index):
    """`hash_fields`: the record key fields whose values are hashed; `buckets`: the nodes of a new ring.

    `renews`: the write replaces the groups of the rings, and its rows go to those that the rings get with it.
    """

    buckets: int
    hash_fields: tuple[str, ...]
    renews: bool = False
    finds_log_keys = True
    places_new_keys = True
    finds_keys = False
    opens_base_files = False

    @classmethod
    def of(cls, config: TableConfig, options: Options) -> ConsistentIndex:
        """OptionError for hash fields that are not in the record key; UnsupportedError for a table, or a way of
        writing, that Hudi does not have it for."""
        reason = None
        if not config.is_mor:
            reason = "a copy-on-write table can't have it"
        elif Concurrency.of(options).is_non_blocking:
            reason = f"{CONCURRENCY_MODE.key}={options[CONCURRENCY_MODE.key]} needs simple buckets"
        if reason is not None:
            problem = f"{BUCKET_ENGINE.key}={BucketEngine.CONSISTENT_HASHING.value}: {reason}"
            raise UnsupportedError.of_table(config.name, problem, option=BUCKET_ENGINE.key)
        return cls(options.value(BUCKETS), hash_fields(config, options))

    def replacing(self) -> ConsistentIndex:
        return replace(self, renews=True)

    @property
    def names(self) -> GroupNames:
        return BUCKET_NAMES

    @property
    def recorded(self) -> Mapping[str, str]:
        return {
            INDEX_TYPE.key: IndexType.BUCKET.value,
            BUCKET_ENGINE.key: BucketEngine.CONSISTENT_HASHING.value,
            BUCKETS.key: str(self.buckets),
            BUCKET_FIELDS.key: ",".join(self.hash_fields),
        }

    def look_up(self, table: HudiTable, files: CandidateFiles) -> RingLookUp:
        if BUCKET_ENGINE.key not in table.config.raw:
            self._refuse_table_of_another_index(table)
        paths = list(files)
        threads = table.context.threads
        rings = {
            path: Ring.of(made, files[path], files.first_number(path))
            for path, made in zip(paths, threads.map(partial(self._ring, table, files), paths), strict=True)
        }
        return RingLookUp(hash_fields_of_key(table.config, table.options), rings)

    def _ring(self, table: HudiTable, files: CandidateFiles, path: str) -> HashingMetadata:
        before = ring_of(table, path) if self.renews and table.may_have_folder(INDEX_FOLDER) else None
        if before is not None:
            return before.renewed(FIRST)
        ring = ring_for_writing(table, path, self.buckets, has_groups=bool(files[path]))
        if ring is None:
            raise _foreign(path, files[path][0].file_id)
        return ring

    def _refuse_table_of_another_index(self, table: HudiTable) -> None:
        """TableMismatchError where the last write made groups that no ring has, in whatever partitions."""
        for instant in reversed(table.timeline.data().completed().instants):
            for stat in table.commit_metadata(instant).stats:
                ring = ring_of(table, stat.partition_path)
                if ring is None or ring.node_of(stat.file_id) is None:
                    raise _foreign(stat.partition_path, stat.file_id)
                return


@dataclass(frozen=True)
class Ring:
    """The ends of the ranges of a partition, and the tags of the rows in each; `ids` are those of groups to be made."""

    ends: npt.NDArray[np.int64]
    tags: npt.NDArray[np.int64]
    ids: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: HashingMetadata, files: Sequence[CandidateFile], first_number: int) -> Ring:
        """TableMismatchError for a live group that is not in the ring."""
        places = {node.file_id: number for number, node in enumerate(metadata.nodes)}
        tags = tag_of_new_group(np.arange(len(places)))
        ids = dict(enumerate(places))
        for position, file in enumerate(files):
            if file.file_id not in places:
                raise _foreign(metadata.partition_path, file.file_id)
            tags[places[file.file_id]] = first_number + position
            del ids[places[file.file_id]]
        return cls(np.array([node.value for node in metadata.nodes], np.int64), tags, ids)

    def tags_of(self, hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """By hash the tag of the first node at or above it; above the last one begins the range of the first."""
        places = np.searchsorted(self.ends, hashes)
        places[places == len(self.ends)] = 0
        return self.tags[places]


@dataclass(frozen=True)
class RingLookUp(KeyLookUp):
    """Hashes keys, and finds the ranges that the hashes lie in. `hash_fields` are in the order of the key."""

    hash_fields: tuple[str, ...]
    rings: Mapping[str, Ring]

    def candidates(self, keyed: pa.Table) -> LookedUp:
        return by_partition(keyed, self._of_partition)

    def new_group(self, path: str, number: int) -> str:
        return self.rings[path].ids[number]

    def _of_partition(self, path: str, keys: pa.Array, _rows: npt.NDArray[np.int64]) -> LookedUp:
        return LookedUp(self.rings[path].tags_of(ring_hashes(keys, self.hash_fields)))


def _foreign(path: str, file_id: str) -> TableMismatchError:
    return TableMismatchError(
        f"partition {path or 'of the table'}: group {file_id} is in no hash ring",
        hint="all writers of a table have to use one index, with one engine of buckets",
        path=path,
        found=file_id,
        expected="a group of the partition's hashing metadata",
    )
