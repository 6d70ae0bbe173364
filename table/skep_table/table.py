"""An opened table: a snapshot of its settings and timeline, and from there of its schema and files."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from skep_format.errors import (
    FormatError,
    NotATableError,
    SchemaError,
    SkepError,
    TableVersionError,
    UnsupportedError,
)
from skep_format.instant_time import InstantTime
from skep_format.names import META_FOLDER, BaseFormat, ExternalFileName
from skep_format.options import Options, boolean, option
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import Schema
from skep_format.storage import FileStatus, Storage, open_storage
from skep_format.table_config import TableConfig, load_table_config
from skep_format.timeline.half_moved import refuse_half_moved
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.layout import TimelineLayout
from skep_format.timeline.metadata import BaseFilesWritten, CommitMetadata, WriteStat
from skep_format.timeline.timeline import Timeline, load_timeline
from skep_format.versions import TableFormat, format_of
from skep_table.context import ContextChanges, TableContext
from skep_table.view import FileView, Listing, StorageListing, StorageListings

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

    from skep_format.timeline.plans import Plan, SavepointMetadata
    from skep_table.metadata_table import MetadataTable
    from skep_table.metadata_table.entries import OpenedFiles
    from skep_table.view.slicing import InstantStates


@dataclass(frozen=True, slots=True)
class Unwritten:
    """What reads of a snapshot see beside its files, see `query/unwritten.py`.

    `changes` that no file has, and instead of the files `held`, all rows of these.
    """

    changes: pa.Table | None = None
    held: pa.Table | None = None


@dataclass(slots=True, eq=False)
class _MetadataRead:
    """What snapshots have read of the metadata table, see `metadata_table.table.ReadBefore`."""

    own: Any = None
    groups: MutableMapping[str, Mapping[str, OpenedFiles]] = field(default_factory=dict)


P = TypeVar("P")
T = TypeVar("T")
E = TypeVar("E", bound=SkepError)
Written = tuple[InstantTime, WriteStat]
"""A file that a write states, with the requested time of the write."""
METADATA_ENABLE = option(
    "hoodie.metadata.enable",
    boolean,
    False,
    "Writes make a metadata table and keep it; without this they keep one that is there, and with false they drop it."
    " Reads list files by it unless this is false",
)
_CACHED_COMMITS: Final = 256
# Of all cached commits together: a stream may write thousands of files in every commit.
_CACHED_STATS: Final = 100_000
_STAT_BYTES: Final = 700  # about what one takes
_WHOLE_COMMIT_BYTES: Final = 32 << 10
_NEWEST_COMMITS: Final = 8
_NEWEST_BYTES: Final = 512 << 10  # decoded in some 10 ms
_NOT_OPENED: Final = object()
_HOUR_MS: Final = 3_600_000
_KEPT_STATES: Final = 8


class HudiTable:
    """A snapshot of a table: its settings and timeline as they were when it was opened or reloaded.

    Immutable. Listings, instant states and commit metadata are read when they are needed and kept, for all threads.
    It pickles without them; see TableContext for what else stays behind.
    """

    def __init__(self, context: TableContext, config: TableConfig, timeline: Timeline) -> None:
        self.context = context.of_table(config.name)
        self.config = config
        self.timeline = timeline
        self._commits: _Cache[CommitMetadata] = _Cache(_CACHED_COMMITS)
        self._extras: _Cache[Mapping[str, str]] = _Cache(_CACHED_COMMITS)
        self._base_files: _Cache[BaseFilesWritten] = _Cache(_CACHED_COMMITS)
        self._plans: _Cache[Plan] = _Cache(_CACHED_COMMITS)
        self._lock, self._states_lock = threading.Lock(), threading.Lock()
        self._metadata_table: Any = _NOT_OPENED
        self._metadata_before: MetadataTable | None = None  # that of an earlier snapshot
        self._metadata_read = _MetadataRead()  # shared with earlier and later snapshots
        self._listings = StorageListings(context.storage, context.threads)
        self._states: OrderedDict[InstantTime | None, InstantStates] = OrderedDict()
        self._properties: FileStatus | None = None  # the file that `config` was read from, when a change would show
        self._folders: frozenset[str] | None = None  # in `.hoodie`, once they were listed
        self._taken = context.clock.monotonic()
        self.unwritten: Unwritten | None = None
        """What reads of this snapshot see, and no file holds."""

    def __repr__(self) -> str:
        return f"HudiTable({self.config.name!r} at {self.storage.root}, {self.timeline!r})"

    def __reduce__(self) -> tuple[object, ...]:
        if self.unwritten is not None:
            raise TypeError("a snapshot with changes that are not written can't be read in another process")
        return HudiTable, (self.context, self.config, self.timeline)

    @classmethod
    def open(
        cls,
        path_or_storage: str | os.PathLike[str] | Storage,
        options: Mapping[str, object] | None = None,
    ) -> HudiTable:
        """Reads the settings and lists the timeline, nothing else.

        `options` apply to all reads and writes of the table, credentials among them. Its context has no lock and no
        listeners; see `with_context`. Raises NotATableError, TableVersionError, FormatError, StorageError.
        """
        given = Options(options)
        storage = (
            open_storage(path_or_storage, given) if isinstance(path_or_storage, (str, os.PathLike)) else path_or_storage
        )
        return HudiTable.in_context(TableContext(storage, given))

    @classmethod
    def in_context(cls, context: TableContext) -> HudiTable:
        """The table in the storage of a context; raises as `open` does."""
        config = load_table_config(context.storage)
        opened = cls(context, config, _timeline(context.storage, config))
        if opened.timeline.files.moved or not opened.timeline.instants:
            # A change of version deletes the timeline of the old one: the settings were read before it.
            now = load_table_config(context.storage)
            if format_of(now) is not format_of(config):
                return cls.in_context(context)
        try:
            refuse_half_moved(context.storage, opened.timeline, config.name)
        except TableVersionError:
            if format_of(load_table_config(context.storage)) is format_of(config):
                raise
            return cls.in_context(context)  # the version was changed after the settings were read
        properties = opened.timeline.files.properties
        # The listing came after the reading. A file that has not been written for an hour was not written in between.
        if properties is not None and context.clock.now().timestamp() * 1000 - properties.modified_ms > _HOUR_MS:
            opened._properties = properties
        return opened

    @classmethod
    def with_settings(cls, context: TableContext, config: TableConfig) -> HudiTable:
        """The table as it is by these settings, whatever the file with its settings holds."""
        return cls(context, config, _timeline(context.storage, config))

    def reload(self) -> HudiTable:
        """A new snapshot of the same table in the same context. What completed instants hold stays cached.

        The settings are read again unless the listing of the timeline shows that their file is the same.
        """
        return self.listed_again()._with_contents_of(self)

    def listed_again(self) -> HudiTable:
        """As `reload`, without what completed instants hold: where one may be undone and carried out again at its time,
        as in a metadata table.
        """
        timeline = _timeline(self.storage, self.config, self.timeline)
        files = timeline.files
        if files.properties is not None and files.properties == self._properties:
            refuse_half_moved(self.storage, timeline, self.config.name)
            fresh = HudiTable(self.context, self.config, timeline)
            fresh._properties = self._properties
            return fresh
        config = load_table_config(self.storage)
        if format_of(config) is not format_of(self.config):
            return HudiTable.in_context(self.context)
        refuse_half_moved(self.storage, timeline, config.name)
        fresh = HudiTable(self.context, config, timeline)
        fresh._properties = files.properties if files.properties_are_settled else None
        return fresh

    def newest(self) -> HudiTable:
        """This snapshot, with all that was read of it, where a new listing shows the same timeline; else a new one."""
        fresh, now = self.reload(), self.timeline.instants
        if fresh.timeline.files.rewritten or fresh.timeline.instants != now or fresh.config != self.config:
            return fresh
        self._properties, self._taken = fresh._properties, fresh._taken
        return self

    def completing(self, instant: Instant, metadata: CommitMetadata | None = None) -> HudiTable:
        """The snapshot after `instant` of this timeline completed; nothing is listed. `metadata` is that of a write."""
        after = HudiTable(self.context, self.config, self.timeline.completing(instant))._with_contents_of(self)
        after._properties = self._properties
        if metadata is not None:
            after._commits.put(instant, metadata, len(metadata.stats))
        return after

    def may_have_folder(self, path: str) -> bool:
        """Whether a folder in `.hoodie` may have existed when the timeline was listed; `path` is relative to the table.

        That listing included `.hoodie` itself in timeline layout 1; in others one listing of it serves all calls.
        """
        known = self.timeline.files.folders
        if known is None:
            if self._folders is None:
                self._folders = frozenset(self.storage.list_folder(META_FOLDER).folders)
            known = self._folders
        return path.rpartition("/")[2] in known

    @property
    def age_seconds(self) -> float:
        """How long ago this snapshot was taken."""
        return self.context.clock.monotonic() - self._taken

    def timeline_now(self) -> Timeline:
        """The active timeline by a fresh listing."""
        return load_timeline(self.storage, self.layout, self.config.timezone, known=self.timeline)

    def with_context(self, **changes: Unpack[ContextChanges]) -> HudiTable:
        """The same snapshot in a context in which these fields are replaced."""
        return self._in(self.context.with_changes(**changes))

    def with_options(self, more: Mapping[str, object]) -> HudiTable:
        """The same snapshot with further options."""
        return self._in(self.context.with_options(more)) if more else self

    def in_context_of(self, other: HudiTable) -> HudiTable:
        """The same snapshot in the context of another one of this table."""
        return self._in(other.context)

    def with_config(self, config: TableConfig) -> HudiTable:
        """The same snapshot with other settings, which no reload keeps."""
        return self._in(self.context, config)

    def with_unwritten(self, found: Unwritten | None) -> HudiTable:
        """The same snapshot, whose reads see what no file holds; None for its files alone."""
        same = self._in(self.context)
        same.unwritten = found
        return same

    def _in(self, context: TableContext, config: TableConfig | None = None) -> HudiTable:
        same = HudiTable(context, config or self.config, self.timeline)._with_contents_of(self)
        same._listings, same._states, same._folders = self._listings, self._states, self._folders
        same._properties, same._taken, same.unwritten = self._properties, self._taken, self.unwritten
        return same

    def _with_contents_of(self, other: HudiTable) -> HudiTable:
        """Shares what `other` has read from completed instants, if none is another one by now."""
        if self.timeline.files.rewritten:
            return self
        self._commits, self._extras, self._base_files = other._commits, other._extras, other._base_files
        self._plans = other._plans
        found = other._metadata_table
        self._metadata_before = other._metadata_before if found is _NOT_OPENED else found
        self._metadata_read = other._metadata_read
        return self

    def error(self, kind: type[E], problem: str, *, hint: str | None = None, **fields: object) -> E:
        """An error of this table, which its message and its fields name."""
        return kind.of_table(self.config.name, problem, hint=hint, **fields)

    @property
    def storage(self) -> Storage:
        """The files of the table; its root is the table's base path."""
        return self.context.storage

    @property
    def options(self) -> Options:
        """The options of all reads and writes of the table."""
        return self.context.options

    @property
    def format(self) -> TableFormat:
        """What differs by table version."""
        return format_of(self.config)

    @property
    def layout(self) -> TimelineLayout:
        """Names and encodings of the timeline's files."""
        return self.timeline.layout

    def schema(self, at: InstantTime | None = None) -> Schema:
        """The data columns as of the latest commit, or as of the instant time `at`. SchemaError when there are none.

        Columns that lie in the partition paths only are strings, after all others.
        """
        return self.with_dropped(self.stored_schema(at))

    def stored_schema(self, at: InstantTime | None = None) -> Schema:
        """The data columns that files hold: without partition columns where the table drops these.

        From the latest completed commit that states a schema, else from the table's settings, else from a base file.
        SchemaError when the table has none yet.
        """
        schema = self._committed_schema(at) or self._created_schema() or self._base_file_schema(at)
        if schema is None:
            problem = f"no commit{f' until {at}' if at else ''} and no setting states a schema"
            raise SchemaError.of_table(self.config.name, problem)
        return self.without_dropped(schema.without_meta())

    def without_dropped(self, schema: Schema) -> Schema:
        """A schema of rows as that of files."""
        return schema.without(self.config.dropped_columns)

    def with_dropped(self, schema: Schema) -> Schema:
        """A schema of files as that of rows."""
        return schema.with_texts(self.config.dropped_columns)

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        """The commit metadata of a completed or inflight write, archived ones included. FormatError when unreadable."""
        cached = self._commits.get(instant)
        if cached is not None:
            return cached
        path = self.layout.path(instant)
        try:
            metadata = self.layout.decode_commit(self.storage.read(path), path)
        except FileNotFoundError:
            metadata = self._archived_commit(instant, path)
        if instant.is_completed:
            self._commits.put(instant, metadata, len(metadata.stats))
        return metadata

    def first_commits(self, instants: Sequence[Instant], most_bytes: int) -> Sequence[Instant]:
        """The first of these completed writes whose metadata is at hand, or is now: it is read at the same time, as far
        as it has no more bytes than those."""
        files, left, wanted, found = self.timeline.files.completed, most_bytes, [], 0
        for instant in instants:
            if self._commits.get(instant) is None:
                file = files.get(instant.requested_time)
                left -= most_bytes if file is None else file.size_bytes
                if left < 0:
                    break
                wanted.append(instant)
            found += 1
        self.context.threads.map(self.commit_metadata, wanted)
        return instants[:found]

    def written_in(self, partition_path: str) -> list[Written]:
        """What completed writes state to have written in a partition: of the newest writes, and of all at hand."""
        found = self._written_at_hand.get(partition_path, ())
        return [(time, stat) for time, stats in found for stat in stats if stat.path]

    def written_partitions(self) -> list[str]:
        """The partitions of all that `written_in` returns, sorted."""
        return sorted(self._written_at_hand)

    @cached_property
    def _written_at_hand(self) -> Mapping[str, Sequence[tuple[InstantTime, Sequence[WriteStat]]]]:
        """By partition path: of the commits whose metadata was read, newest first.

        The newest `_NEWEST_COMMITS` are read at the same time, as far as they have no more than `_NEWEST_BYTES`.
        """
        completed = list(self._completed_commits(None))
        self.first_commits(completed[:_NEWEST_COMMITS], _NEWEST_BYTES)
        found: dict[str, list[tuple[InstantTime, Sequence[WriteStat]]]] = defaultdict(list)
        for instant in completed:
            metadata = self._commits.get(instant)
            for path, stats in (metadata.partition_to_write_stats if metadata is not None else {}).items():
                found[path].append((instant.requested_time, stats))
        return found

    def commit_partitions(self, instant: Instant) -> tuple[str, ...]:
        """The partition paths that a completed write wrote to or replaced in, sorted. FormatError when unreadable."""
        return self._part_of(instant, self.layout.decode_partitions, lambda commit: commit.partitions)

    def commit_schema_text(self, instant: Instant) -> str | None:
        """The Avro schema that a completed write states; None where it states none. FormatError when unreadable.

        Stats, of which a commit may have very many, are neither decoded nor kept for it.
        """
        return self.commit_extra(instant).get("schema") or None

    def commit_extra(self, instant: Instant) -> Mapping[str, str]:
        """The extra metadata of a completed write, without decoding its stats. FormatError when unreadable."""
        extra = self._extras.get(instant)
        if extra is None:
            extra = self._part_of(instant, self.layout.decode_extra, lambda commit: commit.extra_metadata)
            self._extras.put(instant, extra)
        return extra

    def commit_base_files(self, instant: Instant) -> BaseFilesWritten:
        """The base files that a completed write wrote, together. FormatError when unreadable."""
        found = self._base_files.get(instant)
        if found is None:
            found = self._part_of(instant, self.layout.decode_base_files, lambda commit: commit.base_files)
            self._base_files.put(instant, found)
        return found

    def _part_of(self, instant: Instant, decode: Callable[[bytes, str], T], part: Callable[[CommitMetadata], T]) -> T:
        """The part of commit metadata that `decode` reads from a commit's file; `part` takes it from the whole."""
        whole = self._commits.get(instant)
        if whole is not None:
            return part(whole)
        path = self.layout.path(instant)
        try:
            data = self.storage.read(path)
        except FileNotFoundError:
            return part(self.commit_metadata(instant))
        if len(data) > _WHOLE_COMMIT_BYTES or not instant.is_completed:
            return decode(data, path)
        # small enough to be kept as a whole: another part of it may be wanted next, by another request to storage
        metadata = self.layout.decode_commit(data, path)
        self._commits.put(instant, metadata, len(metadata.stats))
        return part(metadata)

    def plan(self, instant: Instant) -> Plan | None:
        """The plan or metadata in an instant's file; None for an empty file and for commit metadata."""
        from skep_format.timeline.plans import PLAN_OF, decode_plan

        kind = PLAN_OF.get((instant.action, instant.state))
        if kind is None:
            return None
        plan = self._plans.get(instant)
        if plan is None:
            path = self.layout.path(instant)
            data = self.storage.read(path)
            if not data:
                return None
            plan = decode_plan(kind, data, path)
            if instant.is_completed:
                self._plans.put(instant, plan, len(data) // _STAT_BYTES)
        return plan

    def requested_plan(self, kind: type[P], instant: Instant) -> P | None:
        """The plan in an instant's requested file; None when that is empty or missing."""
        from skep_format.timeline.plans import decode_plan

        path = self.layout.path(Instant(instant.requested_time, instant.action, State.REQUESTED))
        try:
            data = self.storage.read(path)
        except FileNotFoundError:
            return None
        return decode_plan(kind, data, path) if data else None

    def savepoints(self) -> dict[InstantTime, SavepointMetadata]:
        """The metadata of each savepoint, by the instant time that it keeps."""
        from skep_format.timeline.plans import SavepointMetadata

        found = {}
        for instant in self.timeline.completed().of(Action.SAVEPOINT):
            plan = self.plan(instant)
            if isinstance(plan, SavepointMetadata):
                found[instant.requested_time] = plan
        return found

    def view(self, *, as_of: InstantTime | None = None, metadata: bool = True) -> FileView:
        """The files of the table, or those it had when nothing after the instant time `as_of` had been requested.

        All views of a snapshot share their listings and the states of instants: each is read once.

        `metadata`: list by the metadata table where there is one and it is current, unless the option
        hoodie.metadata.enable is false.
        """
        return FileView(self._listing(metadata), lambda: self._instant_states(as_of))

    def _instant_states(self, as_of: InstantTime | None) -> InstantStates:
        from skep_table.view.instant_states import load_instant_states

        with self._states_lock:
            found = self._states.get(as_of)
            if found is None:
                found = self._states[as_of] = load_instant_states(self, as_of, self.context.threads)
                while len(self._states) > _KEPT_STATES:
                    self._states.popitem(last=False)
            return found

    def metadata_table(self) -> MetadataTable | None:
        """The table's metadata table; None where it has none, or one that is deleted or misses a commit."""
        with self._lock:
            if self._metadata_table is _NOT_OPENED:
                self._metadata_table = self._open_metadata_table()
                self._metadata_before = None
        return self._metadata_table

    def _open_metadata_table(self) -> MetadataTable | None:
        if not self.config.metadata_partitions or not self.format.is_written:
            return None  # without what reading it needs: that takes longer to import than many a command works
        from skep_table.metadata_table import MetadataTable

        try:
            opened = MetadataTable.open(self, self._metadata_before, self._metadata_read)
        except NotATableError:
            return None  # its folder was deleted, and the settings still name it
        return opened if opened is not None and opened.is_current() else None

    def metadata_to_read(self) -> MetadataTable | None:
        """The metadata table that reads use: none where the option hoodie.metadata.enable is false."""
        wanted = self.options.value(METADATA_ENABLE) or not self.options.is_set(METADATA_ENABLE)
        return self.metadata_table() if wanted else None

    def _listing(self, metadata: bool) -> Listing:
        listed = self.metadata_to_read() if metadata else None
        if listed is None and self.has_external_files:
            raise UnsupportedError(
                f"table {self.config.name} at {self.storage.root} was made of files of another table format (by Apache"
                " XTable, for example), which only its metadata table names: folders can't be listed instead",
                hint=f"leave {METADATA_ENABLE.key} at its default; where the metadata table is missing or behind, sync"
                " the table again by what made it",
                table=self.config.name,
                path=self.storage.root,
            )
        return StorageListing(self._listings) if listed is None else listed

    @cached_property
    def has_external_files(self) -> bool:
        """Whether the newest write states files that another table format wrote. Such tables have no meta columns."""
        if self.config.populate_meta_fields or self.config.base_format is BaseFormat.HFILE:
            return False
        for instant in self._completed_commits(None):
            paths = [stat.path for stat in self.commit_metadata(instant).stats if stat.path]
            if paths:
                return ExternalFileName.parse(paths[-1].rpartition("/")[2]) is not None
        return False

    def _completed_commits(self, at: InstantTime | None) -> Iterator[Instant]:
        """Completed writes, newest first."""
        commits = self.timeline.data().completed()
        return reversed((commits.until(at) if at else commits).instants)

    def _committed_schema(self, at: InstantTime | None) -> Schema | None:
        for instant in self._completed_commits(at):
            text = self.commit_schema_text(instant)
            if text:
                return _parse_schema(text, self.layout.path(instant))
        return None

    def _created_schema(self) -> Schema | None:
        text = self.config.create_schema
        return _parse_schema(text, f"{self.storage.root}/.hoodie/hoodie.properties") if text else None

    def _base_file_schema(self, at: InstantTime | None) -> Schema | None:
        from skep_format.basefile import read_footer

        for instant in self._completed_commits(at):
            for stat in self.commit_metadata(instant).stats:
                if stat.path and not stat.is_log:
                    with suppress(FileNotFoundError):  # cleaned since
                        return read_footer(self.storage, stat.path).schema
        return None

    def _archived_commit(self, instant: Instant, path: str) -> CommitMetadata:
        archive = self.timeline.archive
        found = archive.completed_content(instant) if archive and instant.is_completed else None
        if not isinstance(found, CommitMetadata):
            now = load_table_config(self.storage)
            if format_of(now) is not self.format:
                raise TableVersionError(
                    f"table {self.config.name} was version {self.config.version} when this snapshot was taken, and"
                    f" is version {now.version} now",
                    hint="repeat the read or write on the table as it is: table.reload()",
                    path=path,
                    found=now.version,
                    expected=self.config.version,
                )
            problem = f"{path} is missing, and the archived timeline has no such commit"
            raise FormatError.of_table(self.config.name, problem, path=path, instant=instant.requested_time)
        return found


class _Cache(Generic[T]):
    """What the commits used last hold: at most `size` of them, and of several no more stats than `_CACHED_STATS`.

    Threads share it.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, Action], tuple[T, int]] = OrderedDict()
        self._stats = 0

    def get(self, instant: Instant) -> T | None:
        if not instant.is_completed:
            return None
        key = instant.requested_time, instant.action
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, instant: Instant, content: T, stats: int = 0) -> None:
        key = instant.requested_time, instant.action
        with self._lock:
            self._stats += stats - self._kept.pop(key, (content, 0))[1]
            self._kept[key] = content, stats
            while len(self._kept) > self._size or (self._stats > _CACHED_STATS and len(self._kept) > 1):
                self._stats -= self._kept.popitem(last=False)[1][1]


def _timeline(storage: Storage, config: TableConfig, known: Timeline | None = None) -> Timeline:
    table_format = format_of(config)
    archive = None if known is None else known.archive
    archive = archive.reopened() if archive is not None else table_format.open_archive(storage, config)
    return load_timeline(storage, table_format.timeline_layout(config), config.timezone, archive, known)


_parsed = lru_cache(maxsize=32)(parse_avro)  # a write asks for the schema of a commit at each of its steps


def _parse_schema(text: str, path: str) -> Schema:
    try:
        return _parsed(text)
    except SchemaError as error:
        raise SchemaError.of_file(path, error.message, column=error.fields.get("column")) from error
