"""The record index: the file group of each record key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.names import FileGroupId
from skep_format.timeline.timeline import milliseconds_of
from skep_table.metadata_table.keys import group_set_of
from skep_table.metadata_table.partitions import RECORD_INDEX, SINGLE
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.record_index import record_index_update
from skep_table.metadata_write.definitions import groups_of_partition
from skep_table.metadata_write.facts.keys import PLACES, KeyChanges, repeated_key, slice_keys, still_there, two_places
from skep_table.metadata_write.kinds.contract import CommittedWrite, KeptKind, Prepared
from skep_table.metadata_write.making.spreading import Build, Groups, Pieces, Spread
from skep_table.preview import Preview
from skep_table.table import HudiTable
from skep_table.view import FileSlice


def _distinct_keys(table: HudiTable, slice_: FileSlice) -> pa.Array:
    return pc.unique(slice_keys(table, slice_))


def _contents(build: Build) -> Mapping[str, Groups]:
    """The keys of all merged slices. MetadataTableError for a key that lies in two file groups, where the index has one
    place for it."""
    table, partitioned = build.table, build.wanted.partitioned
    if RECORD_INDEX not in build.wanted.partitions:
        return {}
    whole, slices, zone = group_set_of(RECORD_INDEX), build.slices(), table.config.timezone
    sets = [groups_of_partition(table, each.partition_path) if partitioned else whole for each in slices]
    spread = Spread(build, slices, partitioned=partitioned, existing=build.wanted.groups)
    for place, keys in build.read("metadata_table.keys", partial(_distinct_keys, table), slices):
        spread.add(sets[place], keys, place)
    paths = pa.array([each.partition_path for each in slices], pa.string())
    ids = pa.array([each.file_id for each in slices], pa.string())
    times = pa.array([milliseconds_of(each.base_instant, zone) for each in slices], pa.int64())

    def update(keys: pa.Array, place: pa.Array) -> PartitionUpdate:
        release = table.format.metadata.release
        return record_index_update(keys, paths.take(place), ids.take(place), times.take(place), release)

    groups: dict[str, Pieces] = {}
    for group_set in dict.fromkeys(sets) if partitioned else [whole]:
        groups |= spread.groups(group_set, update)
    return {RECORD_INDEX: groups}


def _of_commit(write: CommittedWrite) -> Iterator[PartitionUpdate]:
    table, instant, prepared = write.table, write.instant, write.prepared
    changes = KeyChanges.of(prepared.changes.values())
    if not len(changes.added) and not len(changes.removed):
        return
    time, release = milliseconds_of(instant.requested_time, table.config.timezone), table.format.metadata.release
    for group_set, part in _by_group_set(table, changes, prepared):
        _check_once(table, part.added)
        kept = _still_elsewhere(write, part)
        removed = part.removed.filter(pc.invert(pc.is_in(part.removed["record_key"], value_set=kept)))
        keys, paths, file_ids = (part.added[name].combine_chunks() for name in PLACES.names)
        deletes = removed["record_key"].combine_chunks()
        update = record_index_update(keys, paths, file_ids, time, release, deletes=deletes)
        yield update.in_groups(group_set)


def _by_group_set(table: HudiTable, changes: KeyChanges, prepared: Prepared) -> Iterator[tuple[str | None, KeyChanges]]:
    """The changes that go into each set of file groups of the index: one, or one for each data partition."""
    if not prepared.partitioned:
        yield None, changes
        return
    paths = pa.concat_arrays(
        [side["partition_path"].combine_chunks() for side in (changes.added, changes.removed)]
    ).unique()
    for path in paths.to_pylist():
        sides = (side.filter(pc.equal(side["partition_path"], path)) for side in (changes.added, changes.removed))
        yield groups_of_partition(table, path), KeyChanges(*sides)


def _check_once(table: HudiTable, added: pa.Table) -> None:
    """MetadataTableError where a commit brings a key into two file groups."""
    key = repeated_key(added["record_key"])
    if key is not None:
        places = added.filter(pc.equal(added["record_key"], key)).to_pylist()
        raise two_places(table, key.as_py(), *(_group_of(place) for place in places[:2]))


def _still_elsewhere(write: CommittedWrite, part: KeyChanges) -> pa.Array:
    """The removed keys whose entry stays: it states another place than the one that they were removed from.

    MetadataTableError where the index has an added key in a file group that keeps it.
    """
    index = write.table.metadata_table()
    keys = pa.concat_arrays([side["record_key"].combine_chunks() for side in (part.added, part.removed)])
    found = index.record_index(keys) if index is not None else None
    if found is None or not len(found):
        return pa.array([], pa.string())
    found = found.select(PLACES.names)
    if write.prepared.partitioned:
        paths = pa.concat_tables([part.added, part.removed])["partition_path"].unique()
        found = found.filter(pc.is_in(found["partition_path"], value_set=paths))
    elsewhere = found.join(part.removed, PLACES.names, join_type="left anti")
    added = elsewhere.join(part.added, PLACES.names, join_type="left anti")
    added = added.join(part.added.select(PLACES.names[:1]), PLACES.names[:1], join_type="left semi")
    if len(added):  # entries of groups that are replaced, or lost the key without an update of the index, are outdated
        after = Preview(write.table, write.instant, write.metadata)
        for group, keys in still_there(after, after.view(), added):
            if len(keys):
                (new, *_) = part.added.filter(pc.equal(part.added["record_key"], keys[0])).to_pylist()
                raise two_places(write.table, keys[0].as_py(), group, _group_of(new))
    return elsewhere["record_key"].combine_chunks()


def _group_of(place: Mapping[str, str]) -> FileGroupId:
    return FileGroupId(place["partition_path"], place["file_id"])


KEPT = KeptKind(SINGLE[RECORD_INDEX], of_commit=_of_commit, contents=_contents)
