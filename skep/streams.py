"""Streams into Hudi tables: `Streamer` takes HoodieStreamer's flags, and gives skep_stream its writers and engines."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from skep.hoodie import removed_when_refused, table_services
from skep.spark import SparkHolder
from skep.writing import writer_for
from skep_stream.checkpoints import Asked, newest
from skep_stream.flags import Flags, pairs_of, parse
from skep_stream.options import FORCE_SKIP, MULTIWRITER_ID, NO_DATA_ROUNDS
from skep_stream.plugins import provider_of, source_of, transformers_of
from skep_stream.properties import layered, load_properties
from skep_stream.protocols import Source, StreamContext
from skep_stream.rounds import UNLIMITED, Round, Stream, schema_of_rows
from skep_stream.running import HasEnded, NoNewData, Retrying, never, run
from skep_sync.options import ENABLE
from skep_table.clock import SystemClock
from skep_table.commit.create import create_table
from skep_table.errors import InputError, NotATableError, OptionError, UnsupportedError
from skep_table.events import Events
from skep_table.format import MergeSource, StreamerKeys, format_of, format_of_version
from skep_table.options import Options
from skep_table.schema.types import Schema
from skep_table.services.compact_options import COMPACT_INLINE, COMPACT_SCHEDULE_INLINE
from skep_table.storage import open_storage
from skep_table.table import HudiTable
from skep_table.table_config import TableType
from skep_table.timeline.metadata import WriteOperation
from skep_table.write.merge_options import MERGE_MODE, ORDERING, PAYLOAD, STRATEGY
from skep_table.write.options import COMBINE_INSERT, COMMIT_ON_ERRORS, DUPLICATES_DROPPED
from skep_table.write.result import WriteResult
from skep_table.write.settings import TABLE_NAME, TABLE_TYPE, TABLE_VERSION, check_settings, spec_of

_OPERATIONS: Final = (
    "UPSERT",
    "INSERT",
    "BULK_INSERT",
    "INSERT_OVERWRITE",
    "INSERT_OVERWRITE_TABLE",
    "DELETE_PARTITION",
)
_ORDERING_OF_0_15: Final = "ts"
_PAYLOAD_OF_0_15: Final = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
_MERGERS: Final = "hoodie.write.record.merge.custom.implementation.classes"


class OtherNameWarning(UserWarning):
    """The target table has another name than the one given."""


class Streamer:
    """A stream by HoodieStreamer's flags, `--source-class` as `source_class` and so on.

    `hoodie_conf` may be a mapping; `source_class` also an object with `fetch`, `transformer_class` also functions.
    """

    def __init__(
        self,
        *,
        events: Events | None = None,
        spark: SparkHolder | None = None,
        stop: threading.Event | None = None,
        **flags: Any,
    ) -> None:
        """InputError for flags and properties that can't be used; nothing is read of the source, or written.

        `stop`, when it is set, ends `run` after the round at hand.
        """
        self._flags = Flags.of(flags)
        self._stop = stop or threading.Event()
        self._clock = SystemClock()
        given = layered(self._properties(), self._flags.pairs())
        options = Options({**given, **_of_flags(self._flags, given)})
        options.check()
        holder = spark or SparkHolder()
        if _choice(self._flags, "engine", ("threads", "spark")) == "spark":
            holder = SparkHolder(holder.session)
        events = events or Events()
        self.target = TableTarget(str(self._flags.text("target_base_path")), options, holder, events)
        self.stream = self._made(StreamContext(options, LakeQueries(holder), self.target, None, events))

    @classmethod
    def of(cls, words: Sequence[str], **more: Any) -> Streamer:
        """From the words of a command line. OptionError for a flag given twice."""
        return cls(**{**parse(words), **more})

    @classmethod
    def named(cls, name: str, **more: Any) -> Streamer:
        """The stream `[stream.<name>]` of skep.toml; `more` are flags over those there. OptionError for no such one."""
        return cls(**with_flags(named_flags(name), more))

    @property
    def is_continuous(self) -> bool:
        """Whether it goes on after a round."""
        return self._flags.has("continuous")

    def run_once(self) -> Round:
        """One round: what is new in the source, as one commit. Nothing new is no commit."""
        return self.stream.run_once()

    def run(self) -> Iterator[Round]:
        """Its rounds: one, or with `continuous` one after another until it is stopped or has ended."""
        if not self.is_continuous:
            yield self.run_once()
            return
        interval = self._flags.number("min_sync_interval_seconds") or 0
        yield from run(self.stream, self._clock, interval=interval, has_ended=self._has_ended(), stop=self._stop)

    def stop(self) -> None:
        """Ends `run` after the round at hand."""
        self._stop.set()

    def _properties(self) -> dict[str, str]:
        path = self._flags.text("props")
        return load_properties(path) if path else {}

    def _made(self, context: StreamContext) -> Stream:
        flags, options = self._flags, context.options
        provider = flags.text("schemaprovider_class")
        schemas = provider_of(provider, context) if provider else None
        context = replace(context, schemas=schemas)
        named = flags.given.get("source_class") or flags.text("source_class")
        source: Source = source_of(named, context) if isinstance(named, str) else named  # type: ignore[assignment]
        if flags.has("retry_on_source_failures"):
            times, seconds = flags.number("max_retry_count") or 0, flags.number("retry_interval_seconds") or 0
            source = Retrying(source, times, seconds, self._stop)
        transform = flags.given.get("transformer_class") or ""
        transformers = transformers_of(transform, context) if isinstance(transform, str) else list(transform)  # type: ignore[call-overload]
        limit = flags.number("source_limit")
        return Stream(
            source=source,
            target=self.target,
            operation=WriteOperation[_choice(flags, "op", _OPERATIONS)],
            schemas=schemas,
            transformers=transformers,
            limit=UNLIMITED if limit is None or limit <= 0 else limit,
            asked=self._asked(options),
            keeps_checkpoint=not options.value(FORCE_SKIP),
            commits_unchanged=flags.has("allow_commit_on_no_checkpoint_change"),
            events=context.events,
        )

    def _asked(self, options: Options) -> Asked:
        checkpoint = self._flags.text("checkpoint")
        first = self._flags.text("initial_checkpoint_provider")
        if first and checkpoint is None and self.target.table() is None:
            checkpoint = _first_checkpoint(first, options)
        return Asked(checkpoint, self._flags.text("ignore_checkpoint"), options.value(MULTIWRITER_ID))

    def _has_ended(self) -> HasEnded:
        name = self._flags.text("post_write_termination_strategy_class")
        if not name:
            return never
        if name.rpartition(".")[2] == "NoNewDataTerminationStrategy":
            return NoNewData(self.target.options.value(NO_DATA_ROUNDS))
        found: HasEnded = _function(name, "--post-write-termination-strategy-class")
        return found


def named_flags(name: str) -> dict[str, Any]:
    """The flags of `[stream.<name>]` in the settings: names with `_` or `-`, and `hoodie_conf` as a table."""
    from skep.config import load

    settings = load().settings.stream
    own = {key.removeprefix(f"{name}."): value for key, value in settings.items() if key.startswith(f"{name}.")}
    if not own:
        known = ", ".join(sorted({key.partition(".")[0] for key in settings})) or "none"
        raise OptionError(f"no settings have a stream {name}; there are: {known}", option=f"stream.{name}", found=name)
    conf, flags = {}, {}
    for key, value in own.items():
        part, dot, rest = key.partition(".")
        if dot and part in ("hoodie_conf", "hoodie-conf"):
            conf[rest] = value
        else:
            flags[key.replace("-", "_")] = value
    return {**flags, **({"hoodie_conf": conf} if conf else {})}


def with_flags(flags: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of which `over` counts; of `hoodie_conf` each key by itself."""
    merged = {**flags, **over}
    if "hoodie_conf" in flags and "hoodie_conf" in over:
        merged["hoodie_conf"] = layered(pairs_of(flags["hoodie_conf"]), pairs_of(over["hoodie_conf"]))
    return merged


def _choice(flags: Flags, argument: str, known: Sequence[str]) -> str:
    text = flags.text(argument) or ""
    found = {each.lower(): each for each in known}.get(text.lower())
    if found is None:
        name = f"--{argument.replace('_', '-')}"
        raise OptionError(f"{name}: {text!r} is none of {', '.join(known)}", option=name, found=text)
    return found


def _function(name: str, flag: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise UnsupportedError(f"{flag} {name} is not built", hint="module:function names one", option=flag, found=name)
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"{flag}: {name} can't be imported: {error}", option=flag, found=name) from error


def _first_checkpoint(name: str, options: Options) -> str | None:
    """That of another table, or what a function returns."""
    if name.rpartition(".")[2] != "InitialCheckpointFromAnotherHoodieTimelineProvider":
        found = _function(name, "--initial-checkpoint-provider")(dict(options))
        return None if found is None else str(found)
    key = "hoodie.streamer.checkpoint.provider.path"
    path = options.get(key) or options.get(key.replace("streamer", "deltastreamer"))
    if not path:
        raise OptionError(f"--initial-checkpoint-provider needs {key}", option=key)
    recorded = newest(HudiTable.open(path, options))
    if recorded is None:
        raise InputError(f"the table at {path} has no checkpoint", path=path)
    return recorded.checkpoint


def _of_flags(flags: Flags, given: Mapping[str, str]) -> dict[str, str]:
    """The options of writes that flags stand for. OptionError for flags that exclude each other."""
    if flags.has("filter_dupes") and _choice(flags, "op", _OPERATIONS) == "UPSERT":
        raise OptionError(
            "--filter-dupes needs to be disabled when --op is UPSERT: updates would be missed", option="--filter-dupes"
        )
    if (flags.text("base_file_format") or "").upper() != "PARQUET":
        raise UnsupportedError("--base-file-format: only PARQUET is written", option="--base-file-format")
    tools = flags.text("sync_tool_classes") or ""
    if any(name.strip().rpartition(".")[2] != "HiveSyncTool" for name in tools.split(",")):
        raise UnsupportedError(f"--sync-tool-classes {tools}: only HiveSyncTool", option="--sync-tool-classes")
    kind = TableType[_choice(flags, "table_type", [each.value for each in TableType])]
    found = {TABLE_NAME.key: flags.text("target_table"), TABLE_TYPE.key: kind.value}
    found[ORDERING.key] = flags.text("source_ordering_fields") or flags.text("source_ordering_field")
    found[PAYLOAD.key] = flags.text("payload_class")
    found[MERGE_MODE.key] = flags.text("merge_mode")
    found[STRATEGY.key] = flags.text("merge_strategy_id")
    found[_MERGERS] = flags.text("merge_impl_classes")
    if flags.has("filter_dupes"):
        found |= {DUPLICATES_DROPPED.key: "true", COMBINE_INSERT.key: "true"}
    if flags.has("enable_sync") or flags.has("enable_hive_sync"):
        found[ENABLE.key] = "true"
    if flags.has("commit_on_errors"):
        found[COMMIT_ON_ERRORS.key] = "true"
    planned = COMPACT_SCHEDULE_INLINE.key in given
    if kind is TableType.MERGE_ON_READ and not planned:
        found[COMPACT_INLINE.key] = (
            "false" if flags.has("disable_compaction") else given.get(COMPACT_INLINE.key, "true")
        )
    return {key: value for key, value in found.items() if value is not None}


class LakeQueries:
    """Queries of transformers: DuckDB in this process where they mean the same to it, else Spark."""

    def __init__(self, spark: SparkHolder) -> None:
        self._spark = spark

    def query(self, text: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """See `skep_stream.protocols.Engine`."""
        from sqlglot import errors, exp, parse_one

        from skep.engines import LakeEngine

        try:
            query = parse_one(text, dialect="spark")
        except errors.SqlglotError as error:
            raise InputError(f"the query can't be parsed: {error}", found=text) from error
        if not isinstance(query, exp.Query):
            raise InputError("a transformer takes a query", found=text, expected="SELECT …")
        named = {table.name.lower() for table in query.find_all(exp.Table)}
        used = {name: rows for name, rows in relations.items() if name.lower() in named}
        return LakeEngine(self._spark).rows(query, used)


class TableTarget:
    """The target table at a path: made by the first commit, then written with the settings that it has."""

    def __init__(self, path: str, options: Options, spark: SparkHolder, events: Events) -> None:
        self.path = path
        self.options = options
        self._spark = spark
        self._events = events
        self._known: HudiTable | None = None

    def table(self) -> HudiTable | None:
        """See `StreamTarget`."""
        if self._known is not None:
            self._known = self._known.reload()
            return self._known
        try:
            self._known = HudiTable.open(self.path, self.options).with_context(events=self._events)
        except NotATableError:
            return None
        return self._known

    def checkpoint_keys(self) -> StreamerKeys:
        """See `StreamTarget`."""
        if self._known is not None:
            return self._known.format.streamer_keys
        return format_of_version(self.options.value(TABLE_VERSION)).streamer_keys

    def write(
        self, operation: WriteOperation, frame: pa.Table, schema: Schema | None, extra: Mapping[str, str]
    ) -> WriteResult:
        """See `StreamTarget`. TableMismatchError where the table there has other settings."""
        table = self.table()
        if table is not None:
            options = self._options_for(table)
            check_settings(table.config, table.storage.root, options)
            return self._written(table.with_options(options), operation, frame, extra)
        options = self._options_of_new(frame)
        name = options.value(TABLE_NAME)
        spec = spec_of(options, name, schema or schema_of_rows(frame, name))
        table = create_table(open_storage(self.path, options), spec, options).with_context(events=self._events)
        with removed_when_refused(table):
            return self._written(table, operation, frame, extra)

    def _written(
        self, table: HudiTable, operation: WriteOperation, frame: pa.Table, extra: Mapping[str, str]
    ) -> WriteResult:
        writer = writer_for(frame, table, replace(table_services(table), spark=self._spark))
        if operation is WriteOperation.DELETE_PARTITION:
            result = writer.delete_partitions(writer.partitions_of(frame), extra_metadata=extra)
        else:
            result = writer.write(operation, frame, extra_metadata=extra)
        self._known = (result.table or table).in_context_of(table)
        return result

    def _options_for(self, table: HudiTable) -> Options:
        """As given; the name is the table's, and its payload class, where it could name one and does not, Hudi's."""
        config, given = table.config, self.options
        more: dict[str, object] = {}
        if given.value(TABLE_NAME) != config.name:
            warnings.warn(
                f"the table at {self.path} is {config.name}, not {given.value(TABLE_NAME)}",
                OtherNameWarning,
                stacklevel=4,
            )
            more[TABLE_NAME.key] = config.name
        by_class = format_of(config).merge_source is MergeSource.PAYLOAD_CLASS
        if by_class and config.payload_class is None and not _merges(given):
            more[PAYLOAD.key] = _PAYLOAD_OF_0_15
        return given.with_values(more)

    def _options_of_new(self, frame: pa.Table) -> Options:
        given = self.options
        more: dict[str, object] = {}
        if not given.is_set(ORDERING) and _ORDERING_OF_0_15 in frame.schema.names:
            more[ORDERING.key] = _ORDERING_OF_0_15
        by_class = format_of_version(given.value(TABLE_VERSION)).merge_source is MergeSource.PAYLOAD_CLASS
        if by_class and not _merges(given):
            more[PAYLOAD.key] = _PAYLOAD_OF_0_15
        return given.with_values(more)


def _merges(options: Options) -> bool:
    """Whether the options state how rows merge."""
    return options.is_set(PAYLOAD) or options.is_set(MERGE_MODE) or options.is_set(STRATEGY)
