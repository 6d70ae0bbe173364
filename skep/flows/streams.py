"""Streams into Hudi tables: `Streamer` takes HoodieStreamer's flags, and gives skep_stream its writers and engines."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from skep.flows.stream_target import TableTarget, error_table
from skep.query.over_rows import Queries
from skep.query.spark import SparkHolder
from skep_catalog.addresses import catalog_at
from skep_format.clock import SystemClock
from skep_format.errors import InputError, OptionError, UnsupportedError
from skep_format.names import BaseFormat
from skep_format.options import Options
from skep_format.schema.types import Schema
from skep_format.table_config import TableType
from skep_format.timeline.metadata import WriteOperation
from skep_stream.checkpoints import CheckpointSettings, newest, stated
from skep_stream.flags import Flags, FlagWarning, pairs_of, parse
from skep_stream.lag import LAG_SECONDS, lag_watch
from skep_stream.options import FORCE_SKIP, MULTIWRITER_ID, NO_DATA_ROUNDS, PARTIAL_UPDATES, PROVIDER_PATH
from skep_stream.plugins import imported, provider_of, source_of, transformers_of
from skep_stream.properties import layered, load_properties
from skep_stream.protocols import Batch, Position, Shaping, Source, StreamContext, Successor
from skep_stream.rounds import UNLIMITED, Round, Stream
from skep_stream.running import HasEnded, NoNewData, Retrying, Turn, never, run
from skep_stream.shares import SharedTurns, shares_of
from skep_stream.status import lag, status
from skep_sync.options import DATABASE, ENABLE, GLUE_TOOL, TABLE, TOOLS, URIS, main_address, sync_tools
from skep_table.events import Events, Listener
from skep_table.metrics import METRICS_ON, traced
from skep_table.metrics.options import PROMETHEUS_PORT, REPORTER, ReporterKind
from skep_table.services.compaction.options import COMPACT_ASYNC, COMPACT_INLINE, COMPACT_SCHEDULE_INLINE
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import INDEX_CLASS
from skep_table.write.planning.merge_options import MERGE_MODE, ORDERING, PAYLOAD, STRATEGY
from skep_table.write.planning.options import COMBINE_INSERT, COMMIT_ON_ERRORS, DUPLICATES_DROPPED
from skep_table.write.planning.settings import BASE_FILE_FORMAT, TABLE_NAME, TABLE_TYPE

_OPERATIONS: Final = (
    "UPSERT",
    "INSERT",
    "BULK_INSERT",
    "INSERT_OVERWRITE",
    "INSERT_OVERWRITE_TABLE",
    "DELETE_PARTITION",
)
_TEXTS: Final = {
    TABLE_NAME.key: "target_table",
    PAYLOAD.key: "payload_class",
    MERGE_MODE.key: "merge_mode",
    STRATEGY.key: "merge_strategy_id",
    "hoodie.write.record.merge.custom.implementation.classes": "merge_impl_classes",
    INDEX_CLASS.key: "bootstrap_index_class",
}


@dataclass(frozen=True, slots=True)
class MetastoreColumns:
    """The metastore of Hudi's sync options, else of the settings. Connects for each call: a stream goes on for long,
    and its schemas are read once or twice in a round."""

    options: Options

    def schema(self, database: str, table: str) -> Schema:
        """See `skep_stream.protocols.MetastoreCatalog`. OptionError where no metastore is named."""
        from skep.base.config import load
        from skep_catalog.stated_columns import stated_schema

        address = main_address(self.options) or load().settings.metastore
        if not address:
            raise OptionError(f"columns of a table in the metastore need {URIS.key}", option=URIS.key)
        with catalog_at(address, self.options) as client:
            return stated_schema(client.table(database, table))


class NoSource:
    """Of a stream that makes its target of a folder."""

    def fetch(self, last: Position, limit: int) -> Batch:
        """Never called."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class BootstrapStream(Stream):
    """Its one round is the bootstrap of the target."""

    def _done(self, asked: CheckpointSettings) -> Round:
        assert isinstance(self.target, TableTarget)
        table, checkpoint = self.target.table(), asked.checkpoint
        extra = stated(self.target.checkpoint_keys(), checkpoint, {}, asked, newest(table, asked.writer), {})
        results = self.target.bootstrap(extra)
        return Round(Position(), checkpoint, sum(each.inserted for each in results), results[-1])


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
        metrics: Callable[[int], Listener] | None = None,
        turn: Turn = nullcontext,
        **flags: Any,
    ) -> None:
        """InputError for flags and properties that can't be used; nothing is read of the source, or written.

        `stop`, when it is set, ends `run` after the round at hand. `metrics` has the port that flags or options name,
        while `run` lasts. Each round of `run` is within a `turn`, of which there may be fewer than streams.
        """
        self._flags = Flags.of(flags)
        if metrics is None and self._flags.text("metrics_port") is not None:
            text = "--metrics-port has no effect here: skep.stream_metrics has listeners and servers"
            warnings.warn(text, FlagWarning, stacklevel=2)
        for name in ("config_folder", "tables_at_once"):
            if name in self._flags.given:
                flag = f"--{name.replace('_', '-')}"
                raise OptionError(f"{flag} is of many tables: see flags_of_tables", option=flag)
        self._stop = stop or threading.Event()
        self._turn = turn
        self._clock = SystemClock()
        given = layered(self._properties(), self._flags.pairs())
        options = Options({**given, **_of_flags(self._flags, given)})
        self._turns = self._shared_turns()
        self._metrics, self._port = metrics, _metrics_port(self._flags, options)
        options.check()
        holder = self._holder(spark)
        if _choice(self._flags, "engine", ("threads", "spark")) == "spark":
            holder = SparkHolder(holder.session)
        events = traced(events or Events(), options)
        self.target = TableTarget(str(self._flags.text("target_base_path")), options, holder, events, self._turns)
        context = StreamContext(options, Queries(holder), self.target, None, events, MetastoreColumns(options))
        self.stream = self._made(context)

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
        """Whether it goes on after a round: a bootstrap is one."""
        return self._flags.has("continuous") and not self._flags.has("run_bootstrap")

    def run_once(self) -> Round:
        """One round: what is new in the source, as one commit. Nothing new is no commit."""
        return self.stream.run_once()

    def run(self) -> Iterator[Round]:
        """Its rounds: one, or with `continuous` one after another until it is stopped or has ended."""
        with self._measured():
            yield from self._rounds()

    def _rounds(self) -> Iterator[Round]:
        rounds = partial(run, self.stream, self._clock, stop=self._stop, turn=self._turn, shared=self._turns)
        if not self.is_continuous:
            yield from rounds(interval=0, has_ended=lambda _: True)
            return
        interval = self._flags.number("min_sync_interval_seconds") or 0
        compactions, clusterings = (self._flags.number(f"max_pending_{what}") for what in ("compactions", "clustering"))
        try:
            for done in rounds(interval=interval, has_ended=self._has_ended()):
                yield done
                self.target.wait_for_services(compactions or 0, clusterings or 0)
        finally:
            self.target.wait_for_services(0, 0)

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Metrics of what runs in the block, where they are served."""
        if self._metrics is None or self._port is None:
            yield
            return
        events, options = self.stream.events, self.target.options
        seconds = options.value(LAG_SECONDS)
        apart = replace(self.stream, target=TableTarget(self.target.path, options, SparkHolder(), Events()))
        with ExitStack() as stack:
            stack.callback(events.listen(self._metrics(self._port)))
            if seconds:
                stack.enter_context(lag_watch(partial(lag, apart), events, self.stream.table, seconds))
            yield

    def status(self) -> dict[str, Any]:
        """Its newest checkpoint, and what waits in the source where that can be listed; nothing is read or written."""
        return status(self.stream)

    def stop(self) -> None:
        """Ends `run` after the round at hand."""
        self._stop.set()

    def _properties(self) -> dict[str, str]:
        path = self._flags.text("props")
        return load_properties(path) if path else {}

    def _made(self, context: StreamContext) -> Stream:
        flags, options = self._flags, context.options
        if flags.has("run_bootstrap"):
            asked = CheckpointSettings(flags.text("checkpoint"), None, options.value(MULTIWRITER_ID))
            table, events = str(flags.text("target_table")), context.events
            return BootstrapStream(NoSource(), self.target, asked=asked, table=table, events=events)
        provider = flags.text("schemaprovider_class")
        schemas = provider_of(provider, context) if provider else None
        context = replace(context, schemas=schemas)
        named = flags.given.get("source_class") or flags.text("source_class")
        source: Source = source_of(named, context) if isinstance(named, str) else named  # type: ignore[assignment]
        asked = self._asked(options)
        asked = replace(asked, first=self._left_by_another(source, asked))
        if isinstance(source, Shaping):
            schemas = source.schemas_of_rows(schemas)
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
            asked=asked,
            keeps_checkpoint=not options.value(FORCE_SKIP),
            errors=error_table(options, self.target.path),
            sifts=self.target.check_of if flags.has("commit_on_errors") else None,
            commits_unchanged=flags.has("allow_commit_on_no_checkpoint_change"),
            partial=options.value(PARTIAL_UPDATES),
            table=str(flags.text("target_table")),
            events=context.events,
        )

    def _asked(self, options: Options) -> CheckpointSettings:
        checkpoint = self._flags.text("checkpoint")
        first = self._flags.text("initial_checkpoint_provider")
        if first and checkpoint is None and self.target.table() is None:
            checkpoint = _first_checkpoint(first, options)
        return CheckpointSettings(checkpoint, self._flags.text("ignore_checkpoint"), options.value(MULTIWRITER_ID))

    def _left_by_another(self, source: Source, asked: CheckpointSettings) -> str | None:
        """The checkpoint of another program that wrote the table, where no stream has committed one."""
        if asked.ignore is not None or not isinstance(source, Successor):
            return None
        table = self.target.table()
        return source.first_checkpoint(table) if table is not None and newest(table, asked.writer) is None else None

    def _holder(self, given: SparkHolder | None) -> SparkHolder:
        """Whose session, when it is started, has the master and name of the flags."""
        holder = given or SparkHolder()
        settings = {"spark.master": "spark_master", "spark.app.name": "spark_app_name"}
        asked = {key: text for key, flag in settings.items() if (text := self._flags.text(flag)) is not None}
        if asked and holder.is_started:
            warnings.warn("--spark-master and --spark-app-name: a session is there", FlagWarning, stacklevel=3)
        holder.conf.update(asked)
        return holder

    def _shared_turns(self) -> SharedTurns | None:
        shares = shares_of(self._flags)
        if not shares or self.is_continuous:
            return SharedTurns(shares, self._clock) if shares else None
        text = "scheduling weights and shares have no effect: services take turns with rounds of a continuous stream"
        warnings.warn(text, FlagWarning, stacklevel=3)
        return None

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
    from skep.base.config import load

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


def _metrics_port(flags: Flags, options: Options) -> int | None:
    """Where metrics are served: by the flag, else as Hudi's options have it; None: nowhere."""
    by_options = options.value(METRICS_ON) and options.value(REPORTER) is ReporterKind.PROMETHEUS
    own = flags.number("metrics_port")
    return options.value(PROMETHEUS_PORT) if own is None and by_options else own


def _function(name: str, flag: str) -> Any:
    if ":" not in name:
        raise UnsupportedError(f"{flag} {name} is not built", hint="module:function names one", option=flag, found=name)
    return imported(name, name, flag)


def _first_checkpoint(name: str, options: Options) -> str | None:
    """That of another table, or what a function returns."""
    if name.rpartition(".")[2] != "InitialCheckpointFromAnotherHoodieTimelineProvider":
        found = _function(name, "--initial-checkpoint-provider")(dict(options))
        return None if found is None else str(found)
    path = options.needed(PROVIDER_PATH, "--initial-checkpoint-provider needs")
    recorded = newest(HudiTable.open(path, options))
    if recorded is None:
        raise InputError(f"the table at {path} has no checkpoint", path=path)
    return recorded.checkpoint


def _named_entry(target: str, given: Options) -> dict[str, str]:
    """`db.table` as the name of a target is, in a metastore, a table in a database, where options name no others."""
    parts = target.split(".")
    named = dict(zip((DATABASE, TABLE), parts, strict=True)) if len(parts) == 2 and all(parts) else {}
    return {option.key: name for option, name in named.items() if not given.is_set(option)}


def _of_flags(flags: Flags, given: Mapping[str, str]) -> dict[str, str]:
    """The options of writes that flags stand for. OptionError for flags that exclude each other."""
    if flags.has("filter_dupes") and _choice(flags, "op", _OPERATIONS) == "UPSERT":
        raise OptionError(
            "--filter-dupes needs to be disabled when --op is UPSERT: updates would be missed", option="--filter-dupes"
        )
    if Options(given).value(PARTIAL_UPDATES) and _choice(flags, "op", _OPERATIONS) != "UPSERT":
        raise OptionError(f"{PARTIAL_UPDATES.key}: only UPSERT updates some of the columns", option=PARTIAL_UPDATES.key)
    tools = flags.text("sync_tool_classes") or ""
    try:
        in_glue = GLUE_TOOL in sync_tools(tools)
    except ValueError as error:
        raise UnsupportedError(f"--sync-tool-classes {tools}: only {error}", option="--sync-tool-classes") from None
    kind = TableType[_choice(flags, "table_type", [each.value for each in TableType])]
    found = {TABLE_TYPE.key: kind.value, **{key: flags.text(flag) for key, flag in _TEXTS.items()}}
    if (file_format := flags.text("base_file_format") or "").upper() != BaseFormat.PARQUET.value:  # of a new table
        found[BASE_FILE_FORMAT.key] = file_format
    found |= _named_entry(flags.text("target_table") or "", Options(given))
    found[ORDERING.key] = flags.text("source_ordering_fields") or flags.text("source_ordering_field")
    if flags.has("filter_dupes"):
        found |= {DUPLICATES_DROPPED.key: "true", COMBINE_INSERT.key: "true"}
    if in_glue:
        found[TOOLS.key] = tools
    if flags.has("enable_sync") or flags.has("enable_hive_sync"):
        found[ENABLE.key] = "true"
    if flags.has("commit_on_errors"):
        found[COMMIT_ON_ERRORS.key] = "true"
    if kind is TableType.MERGE_ON_READ and COMPACT_SCHEDULE_INLINE.key not in given:
        # as Hudi: beside the next rounds of a continuous stream, else at the end of the one round
        own, other = COMPACT_INLINE, COMPACT_ASYNC
        if flags.has("continuous"):
            own, other = other, own
        found[own.key] = "false" if flags.has("disable_compaction") else given.get(own.key, "true")
        found[other.key] = given.get(other.key, "false")
    return {key: value for key, value in found.items() if value is not None}
