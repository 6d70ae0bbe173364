"""Making a metadata table, or more partitions of one: settings, file groups, a delta commit that fills each of them.

Readers look at a partition once the data table's settings name it, which is the last step of each (format guide 16.2).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from typing import Final

from skep_format.clock import Clock
from skep_format.errors import SchemaError, SkepError
from skep_format.instant_time import InstantTime
from skep_format.metafile import ensure_partition
from skep_format.names import BaseFileName, BaseFormat, LogFileName, join
from skep_format.properties import format_properties
from skep_format.storage import FolderStorage
from skep_format.table_config import (
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    PROPERTIES_PATH,
    TimelineZone,
    update_table_config,
    with_checksum,
)
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_format.timeline.write import complete, create_requested, delete_pending, transition_to_inflight
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.definitions import INDEX_DEFINITIONS_PROPERTY, IndexDefinition, definitions_path
from skep_table.metadata_table.keys import group_id, group_set, group_set_of
from skep_table.metadata_table.partitions import (
    COLUMN_STATS,
    EXPRESSION,
    FILES,
    RECORD_INDEX,
    SECONDARY,
    SINGLE,
    STATISTICS,
    is_named,
)
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.expression_index import ExpressionIndex
from skep_table.metadata_table.records.summaries import Columns
from skep_table.metadata_write.definitions import (
    IS_PARTITIONED,
    SecondaryIndex,
    definition_of_secondary,
    definition_of_statistics,
    definitions_of,
    groups_of_partition,
    is_partitioned,
    is_partitioned_record_index,
    new_expression_index,
    new_secondary_index,
    stats_columns,
    write_definitions,
)
from skep_table.metadata_write.delta_commit import first_block
from skep_table.metadata_write.facts.files import FileFacts, facts_of_files
from skep_table.metadata_write.kinds import KEPT
from skep_table.metadata_write.making.spreading import (
    Build,
    Groups,
    NewPartitions,
    PartitionContents,
    Pieces,
    RecordGroups,
    Sizes,
    spread_updates,
    updates_by_file,
)
from skep_table.metadata_write.options import group_count, is_partitioned_by_options
from skep_table.metadata_write.own import building_partitions, open_own, planned_partitions
from skep_table.metadata_write.records import FIRST_TOKEN, record_schema, write_base
from skep_table.query.cleaned import refuse_lost_files
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.view.slicing import InstantStates


@contextmanager
def contents_of(table: HudiTable, files: Sizes, wanted: NewPartitions) -> Iterator[list[PartitionContents]]:
    """What the wanted partitions hold, in the order in which Hudi makes them, from the committed `files` of a snapshot.

    Files are read once, a few at a time, for all partitions that record something of files; merged slices once for the
    record index.
    Temporary files last as long as the context. MetadataTableError for a key that lies in two file groups, where the
    record index has one place for it.
    """
    with ExitStack() as stack:
        build = Build(table, files, wanted, stack)
        found = _of_facts(build)
        for each in KEPT:
            found |= each.contents(build)
        named = [*(each.partition for each in wanted.secondary), *(each.partition for each in wanted.expressions)]
        yield [PartitionContents(name, found[name]) for name in (*SINGLE, *named) if name in found]


def _of_facts(build: Build) -> dict[str, Groups]:
    """The contents of all partitions that record something of files."""
    table, wanted = build.table, build.wanted.partitions
    kept = [each for each in KEPT if each.kind.name in wanted and (each.of_files or each.of_partitions)]
    if not kept:
        return {}
    wholes = [each.of_partitions(build) for each in kept if each.of_partitions is not None]

    def updates(some: Sequence[FileFacts]) -> Iterator[PartitionUpdate]:
        facts = {(each.partition_path, each.name): each for each in some}
        return (each.of_files(table, facts, build.last_time) for each in kept if each.of_files is not None)

    blooms, runner = any(each.has_filters for each in kept), table.context.runner
    facts = facts_of_files(table, build.statuses(), build.wanted.columns, blooms=blooms, runner=runner)
    puts = updates_by_file(build, "metadata_table.files", facts, updates, wholes)
    return spread_updates(build, [each.kind.name for each in kept], puts)


NO_DEFINITIONS: Final[Mapping[str, IndexDefinition]] = {}

log = logging.getLogger("skep.commit")


def create_metadata_table(
    table: HudiTable,
    clock: Clock,
    partitions: Collection[str] = (FILES,),
    definitions: Mapping[str, IndexDefinition] = NO_DEFINITIONS,
    reserved: frozenset[str] = frozenset(),
) -> HudiTable:
    """The snapshot with a metadata table of all committed files, which has `partitions` beside those that it had.

    The same snapshot where it has to wait for pending actions; statistics wait until the table has columns, a
    partitioned record index until it has files. What an earlier attempt left is deleted; an index that is defined is
    made as it is defined, in the table or else in `definitions`. Secondary indexes need a definition, and have the
    record index made with them. `reserved` partitions are not made, as an executor of indexing may still write to
    them, and its plan stays. MetadataTableError for a key that a record index would have two places for: nothing is
    made then.
    """
    first = waits_for(table)
    if first is not None:
        name = table.config.name
        log.info("table %s: %s %s is pending, no metadata table before", name, first.action.value, first.requested_time)
        return table
    files = committed_files(table)
    exists = FILES in table.config.metadata_partitions and table.storage.exists(f"{FOLDER}/{PROPERTIES_PATH}")
    kept = frozenset(table.config.metadata_partitions) if exists else frozenset()
    building = frozenset(building_partitions(table.config)) if exists else frozenset()
    needed = frozenset((FILES, *partitions, *((RECORD_INDEX,) if SECONDARY.among(partitions) else ())))
    wanted = wanted_of(table, needed - kept - building - reserved, files, kept, definitions)
    if not wanted.partitions:
        return table
    with contents_of(table, files, wanted) as contents:
        if not exists:
            table.storage.delete_folder(FOLDER)
            _create_settings(table)
        _delete_indexing(table, building | reserved)
        made = set(kept)
        for each in contents:
            own = without_leftovers(open_own(table), each.partition)
            fill(own, _time_for(table, own), each, clock)
            made.add(each.partition)
            define(table, each.partition, wanted)
            announce(table, made, building)
    names = ", ".join(each.partition for each in contents)
    log.info("table %s: its metadata table has %s now, of %d partitions", table.config.name, names, len(files))
    table.context.events.emit("metadata_table.created", table=table.config.name, partitions=sorted(wanted.partitions))
    return table.reload()


def waits_for(table: HudiTable) -> Instant | None:
    """The pending action that has to end before a partition of the metadata table can be made, if there is one."""
    return next(iter(table.timeline.pending_changes()), None) if table.format.metadata.first_when_quiet else None


def wanted_of(
    table: HudiTable,
    partitions: frozenset[str],
    files: Sizes,
    kept: frozenset[str] = frozenset(),
    definitions: Mapping[str, IndexDefinition] = NO_DEFINITIONS,
) -> NewPartitions:
    """Those of the partitions that the table can have now, and how: by their definitions, or by the options.

    `kept` are there already.
    """
    columns: Columns = {}
    if not partitions.isdisjoint(STATISTICS):
        try:
            columns = stats_columns(table, definitions.get(COLUMN_STATS))
        except SchemaError:
            log.info("table %s has no columns yet, and no statistics of them", table.config.name)
    if not columns:
        partitions -= STATISTICS
    partitioned = False
    if RECORD_INDEX in partitions:
        defined = {**definitions, **definitions_of(table)}.get(RECORD_INDEX)
        partitioned = is_partitioned_by_options(table) if defined is None else is_partitioned(defined)
        partitioned = partitioned and table.format.metadata.partitions_record_index
        if partitioned and not any(files.values()):
            partitions -= {RECORD_INDEX}
    names = SECONDARY.among(sorted(partitions))
    whole = RECORD_INDEX in partitions and not partitioned
    whole = whole or (RECORD_INDEX in kept and not is_partitioned_record_index(table))
    secondary = _secondary(table, names, definitions) if whole else []
    partitions = partitions.difference(names).union(each.partition for each in secondary)
    if len(secondary) < len(names):
        log.info("table %s can't have all of the indexes %s", table.config.name, ", ".join(names))
    expressions = _expressions(table, partitions, definitions)
    partitions = partitions.difference(EXPRESSION.among(partitions)).union(each.partition for each in expressions)
    return NewPartitions(partitions, columns, partitioned, secondary, expressions=expressions)


def _expressions(
    table: HudiTable, names: Collection[str], definitions: Mapping[str, IndexDefinition]
) -> list[ExpressionIndex]:
    defined, found = {**definitions_of(table), **definitions}, []
    for name in EXPRESSION.among(sorted(names)):
        try:
            if name in defined and EXPRESSION.fits(table.config, table.format.metadata):
                found.append(new_expression_index(table, defined[name]))
        except SkepError as error:
            log.info("table %s can't have the index %s: %s", table.config.name, name, error.message)
    return found


def _secondary(
    table: HudiTable, names: Sequence[str], definitions: Mapping[str, IndexDefinition]
) -> list[SecondaryIndex]:
    defined = {**definitions_of(table), **definitions}
    try:
        found = [new_secondary_index(table, name, defined[name]) for name in names if name in defined]
    except SchemaError:
        return []
    return [each for each in found if each is not None]


def _delete_indexing(table: HudiTable, left: frozenset[str]) -> None:
    """Deletes plans of indexing with none of the partitions that are left to them: they were dropped, or are made
    here."""
    for instant in table.timeline.pending().of(Action.INDEXING):
        if left.isdisjoint(planned_partitions(table, instant)):
            delete_pending(table, instant)


def _time_for(table: HudiTable, own: HudiTable) -> InstantTime:
    last = max((each.requested_time for each in table.timeline.completed()), default=None)
    times = (table.format.metadata.first_instant(last, number) for number in count())
    return next(time for time in times if not own.timeline.contains(time))


def without_leftovers(own: HudiTable, partition: str) -> HudiTable:
    """The metadata table without a partition that its settings do not name, and the commits that were to fill one."""
    own.storage.delete_folder(partition)
    pending = own.timeline.pending().of(Action.DELTA_COMMIT)
    first = [each for each in pending if own.format.metadata.is_first(each.requested_time)]
    for instant in first:
        delete_pending(own, instant)
    return own.reload() if first else own


def define(table: HudiTable, partition: str, wanted: NewPartitions) -> None:
    """Writes the definition of a partition, where its version has one and there is none yet."""
    path, definition = definitions_path(table.config), _definition(table, partition, wanted)
    if definition is not None:
        # An index that has a name is made as the definition that is new, whatever the one before stated.
        defined = definitions_of(table)
        stays = {**defined, partition: definition} if is_named(partition) else defined
        write_definitions(table.storage, {partition: definition, **stays}, path)
        update_table_config(table.storage, {INDEX_DEFINITIONS_PROPERTY: path})


def announce(table: HudiTable, made: Collection[str], building: Collection[str]) -> None:
    """Has the settings name the partitions that the table has, and those that are being built."""
    named = {METADATA_PARTITIONS: ",".join(sorted(made)), METADATA_PARTITIONS_INFLIGHT: ",".join(sorted(building))}
    update_table_config(table.storage, named)


def _definition(table: HudiTable, partition: str, wanted: NewPartitions) -> IndexDefinition | None:
    rules = table.format.metadata
    if partition == COLUMN_STATS and rules.defines_indexes:
        return definition_of_statistics(table, wanted.columns, rules.column_stats_version)
    if partition == RECORD_INDEX and rules.partitions_record_index:
        options = {IS_PARTITIONED: str(wanted.partitioned).lower()}
        return IndexDefinition(partition, partition, "", (), options, "V1")
    named = {each.partition: definition_of_secondary(each) for each in wanted.secondary}
    version = rules.column_stats_version
    named |= {each.partition: replace(each.definition, version=version) for each in wanted.expressions}
    return named.get(partition)


def committed_files(table: HudiTable) -> dict[str, dict[str, int]]:
    """Names and sizes of the files of committed writes, by partition path; replaced ones too, while they are there.

    StorageError for a file that the newest commits name and that is missing: readers would not miss it any more.
    """
    view = table.view(metadata=False)
    partitions = view.partitions()
    refuse_lost_files(table, view, partitions)
    return {
        partition: {
            file.name: file.size_bytes
            for file in view.listing.files(partition)
            if _is_committed(file.name, view.states)
        }
        for partition in partitions
    }


def _is_committed(name: str, states: InstantStates) -> bool:
    """Whether it is a data file of a committed write. A log file named by its slice may belong to a planned one."""
    base, log_file = BaseFileName.parse(name), LogFileName.parse(name)
    if base is not None:
        return states.is_committed(base.instant_time)
    if log_file is None:
        return False
    planned = not states.logs.of_delta_commit and log_file.instant_time in states.pending_compactions.values()
    return planned or states.is_committed(log_file.instant_time)


def _create_settings(table: HudiTable) -> None:
    config = table.config
    zone = {} if config.timezone is TimelineZone.LOCAL else {"hoodie.table.timeline.timezone": config.timezone.value}
    properties = {
        "hoodie.table.name": f"{config.name}_metadata",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.base.file.format": BaseFormat.HFILE.value,
        "hoodie.table.recordkey.fields": "key",
        "hoodie.populate.meta.fields": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        **zone,
        **table.format.metadata.properties,
    }
    storage = FolderStorage(table.storage, FOLDER)
    storage.create_exclusive(PROPERTIES_PATH, format_properties(with_checksum(properties)))
    placeholder = table.layout.placeholder
    if placeholder is not None:
        storage.create_exclusive(placeholder, b"")


def fill(own: HudiTable, time: InstantTime, contents: PartitionContents, clock: Clock) -> None:
    """The delta commit that makes a partition: its file groups, and their base files where they have records.

    One that has completed at this time, with another partition, serves this one, too.
    """
    name, schema = contents.partition, record_schema(own.format.metadata.release)
    if own.timeline.contains(time):
        _write_groups(own, time, contents)
        return
    instant = create_requested(own, Instant(time, Action.DELTA_COMMIT, State.REQUESTED))
    instant = transition_to_inflight(own, instant, CommitMetadata(operation_type=WriteOperation.BULK_INSERT))
    written = _write_groups(own, time, contents)
    done = CommitMetadata(
        partition_to_write_stats={name: tuple(replace(stat, num_inserts=stat.num_writes) for stat in written)},
        operation_type=WriteOperation.BULK_INSERT,
        extra_metadata={"schema": schema.text},
    )
    complete(own, instant, done, clock, alone=True)


def _write_groups(own: HudiTable, time: InstantTime, contents: PartitionContents) -> Sequence[WriteStat]:
    name, schema = contents.partition, record_schema(own.format.metadata.release)
    ensure_partition(own.storage, name, time)
    first = first_block(time, name)
    logs = [join(name, str(LogFileName(file_id, time, 1, FIRST_TOKEN))) for file_id in contents.groups]
    for path in logs:
        own.storage.create_exclusive(path, first, durable=False)

    def write(group: tuple[str, Pieces]) -> WriteStat | None:
        file_id, pieces = group
        return write_base(own, name, file_id, time, pieces(), schema)

    written = [stat for stat in own.context.threads.map(write, contents.groups.items()) if stat is not None]
    own.storage.sync([*logs, *(stat.path for stat in written)])
    return written


def groups_to_begin(table: HudiTable, wanted: NewPartitions, records: Mapping[str, int]) -> dict[str, int]:
    """How many file groups the wanted partitions are to have, as `NewPartitions.groups`, where the partitions of the
    table have about so many records."""
    sizes = RecordGroups.of(table.options, partitioned=wanted.partitioned)
    groups = {group_set_of(name): group_count(name, table.options) for name in wanted.partitions}
    if groups.pop(group_set_of(RECORD_INDEX), None) is not None:
        keys = {group_set_of(RECORD_INDEX): sum(records.values())}
        if wanted.partitioned:
            keys = {groups_of_partition(table, path): number for path, number in records.items()}
        groups |= {each: sizes.count(number) for each, number in keys.items()}
    return groups


def existing_groups(table: HudiTable, partitions: Collection[str]) -> dict[str, int]:
    """How many file groups these partitions have, as `NewPartitions.groups`.

    FileNotFoundError for one that was dropped.
    """
    own, groups = open_own(table), dict[str, int]()
    for name in partitions:
        ids = started_groups(own, name)
        if not ids:
            raise FileNotFoundError(f"{own.storage.root}/{name}")
        groups |= Counter(map(group_set, ids))
    return groups


def begin_partitions(table: HudiTable, wanted: NewPartitions, until: InstantTime, clock: Clock) -> None:
    """Makes the wanted partitions with `wanted.groups` empty file groups each, and defines them, under the lock.

    They are built while writers go on (format guide 16.9). All writers log to them from then on. Their base files are
    written below these logs without the lock, and hold what the table has at any time after that: entries in logs are
    newer than those below.

    What an earlier attempt left of them is deleted. Nobody looks at them until the settings name them.
    """
    for name in (each for each in SINGLE if each in wanted.partitions):
        own = without_leftovers(open_own(table), name)
        mine = group_set_of(name)  # as the sets of a partitioned index begin, too
        sets = {each: count for each, count in wanted.groups.items() if f"{each}-".startswith(f"{mine}-")}
        ids = [group_id(each, number) for each, count in sets.items() for number in range(count)]
        empty = PartitionContents(name, dict.fromkeys(ids, lambda: iter(())))
        fill(own, _time_of_building(table, own, until), empty, clock)
        define(table, name, wanted)


def _time_of_building(table: HudiTable, own: HudiTable, until: InstantTime) -> InstantTime:
    rules = table.format.metadata
    if rules.appends_suffixes:
        return rules.indexing_instant(until)
    times = (rules.indexing_instant(until, number) for number in count())
    return next(time for time in times if not own.timeline.contains(time))


def started_groups(own: HudiTable, partition: str) -> Mapping[str, FileSlice]:
    """The latest slices of the file groups of a partition, by file id."""
    return {slice_.file_id: slice_ for slice_ in own.view(metadata=False).slices(partition)}


def write_below(own: HudiTable, contents: PartitionContents, token: str, ensure_alive: Callable[[], None]) -> None:
    """Writes the base files of file groups that exist, below their logs. `token` is that of this attempt.

    FileNotFoundError where the partition was dropped meanwhile.
    """
    slices = started_groups(own, contents.partition)
    schema = record_schema(own.format.metadata.release)
    paths = []
    for file_id, pieces in contents.groups.items():
        ensure_alive()
        if file_id not in slices:
            raise FileNotFoundError(f"{own.storage.root}/{contents.partition}: file group {file_id}")
        time = slices[file_id].base_instant
        stat = write_base(own, contents.partition, file_id, time, pieces(), schema, token)
        if stat is not None:
            paths.append(stat.path)
    own.storage.sync(paths)


def delete_bases(table: HudiTable, partitions: Sequence[str], but: str | None = None) -> None:
    """Deletes the base files that attempts at building have left; those with the token `but` stay."""
    for partition in partitions:
        files = table.storage.list_prefix(f"{FOLDER}/{partition}")
        named = ((file.path, BaseFileName.parse(file.name)) for file in files)
        table.storage.delete_many([path for path, name in named if name is not None and name.write_token != but])
