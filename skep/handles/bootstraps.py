"""Bootstraps as calls: a table that is there or is made, and the folder that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from skep.base.specs import texts
from skep.handles.destination import Destination
from skep.handles.table import Table
from skep.handles.writing import writer_for
from skep_format.basefile import BaseFileOptions
from skep_format.errors import OptionError
from skep_format.options import Options
from skep_format.runner import ReportingRunner, ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.timeline.metadata import WriteOperation
from skep_table.events import NO_EVENTS, Events, Listener
from skep_table.hooks import Committed
from skep_table.services.done import Done, count, planned
from skep_table.slices.options import BOOTSTRAP_BASE_PATH
from skep_table.write.bootstrap.options import REGEX, REGEX_MODE, SELECTOR, BootstrapMode, BootstrapSettings, Selector
from skep_table.write.bootstrap.run import check_format, check_planned, folders_of
from skep_table.write.bootstrap.source import SourceData, open_source, read_source
from skep_table.write.planning.settings import BASE_FILE_FORMAT, settings_among
from skep_table.write.result import WriteResult

Describe = Callable[[Mapping[str, Any]], Destination]
_UNIFORM: Final = {
    BootstrapMode.METADATA_ONLY: Selector.METADATA_ONLY,
    BootstrapMode.FULL_RECORD: Selector.FULL_RECORD,
}


def with_mode(options: Options, source: str, mode: str | None, matching: str | None) -> Options:
    """The options of a bootstrap, with what a call states by its arguments. OptionError where both state it."""
    given: dict[str, object] = {BOOTSTRAP_BASE_PATH.key: source}
    if mode is not None:
        known = {each.value.lower(): each for each in BootstrapMode}
        if mode.lower() not in known:
            raise OptionError(f"mode {mode!r} is not one of {', '.join(known)}", option="mode", found=mode)
        if options.is_set(SELECTOR):
            raise OptionError(f"mode is given twice: {SELECTOR.key} states it, too", option=SELECTOR.key)
        chosen = known[mode.lower()]
        given[SELECTOR.key] = _UNIFORM[chosen].value
        if matching is not None:
            given |= {SELECTOR.key: Selector.REGEX.value, REGEX.key: matching, REGEX_MODE.key: chosen.value}
    elif matching is not None:
        raise OptionError("matching needs mode: that of the folders whose path matches", option="matching")
    return options.with_values(given)


def bootstrap(
    describe: Describe,
    described: Mapping[str, Any],
    options: Options,
    events: Events,
    *,
    plan: bool = False,
    listener: Listener | None = None,
) -> list[Done]:
    """Makes a table of the folder that the options name; see `Lake.bootstrap`.

    `described` is what a new table is made with; partition columns and the names of folders follow from the folder
    where it does not state them. `events` has the steps before there is a table, and `listener` gets the table's.
    """
    options.check()
    there = describe(described)
    found = there.table()
    if found is None:
        keys = texts(described.get("key") or ())
        fields = texts(described.get("partition_by") or ())
    else:
        keys, fields = found.snapshot.config.record_key_fields, found.snapshot.config.partition_fields
    source = found_source(options, (*keys, *fields), events)
    if plan:
        if found is not None:
            check_planned(found.hudi, source)
        else:
            stated = Options(_properties(source, described, options))
            check_format(source, stated.value(BASE_FILE_FORMAT), there.name)
        return planned("bootstrap", folders_of(source, BaseFileOptions.of(options)), "folder")
    if found is None:
        properties = _properties(source, described, options)
        there = describe({**described, **_following(source, described), "properties": properties})
        there.table()
    with there.for_rows(to_arrow(source.columns)) as table:
        if listener is not None:
            table.events.listen(listener)
        return list(map(_done, written(table, source, options)))


def found_source(options: Options, keys: Collection[str], events: Events = NO_EVENTS) -> SourceData:
    """The folder that the options name, with the footers of its files."""
    settings, storage = BootstrapSettings.of(options), open_source(options)
    with events.step("bootstrap.read", path=storage.root):
        runner = ReportingRunner(ThreadRunner(), partial(events.progress, "bootstrap.footers"))
        return read_source(storage, keys, settings, runner)


def format_setting(source: SourceData, options: Options) -> dict[str, str]:
    """The setting of a new table by which its base files have the format of the source's, where options state none."""
    found = source.skeletons
    return {} if found is None or options.is_set(BASE_FILE_FORMAT) else {BASE_FILE_FORMAT.key: found.value}


def written(
    table: Table,
    source: SourceData,
    options: Options,
    extra_metadata: Mapping[str, str] | None = None,
    frame: object = None,
) -> list[WriteResult]:
    """The commits. By the executors of the session of `frame`, or of the one that the caller gave."""
    writer = writer_for(frame, table.snapshot.with_options(options), table.services())
    return writer.bootstrap(source, extra_metadata=extra_metadata)


def _following(source: SourceData, described: Mapping[str, Any]) -> dict[str, Any]:
    """What a new table is made with for the names of the source's folders, where that is not stated."""
    names = tuple(source.folders[0].values)
    found: dict[str, Any] = {}
    if names and not described.get("partition_by"):
        found["partition_by"] = names
    if names and described.get("hive_style") is None:
        found["hive_style"] = True
    encoded = any("%" in folder.partition_path for folder in source.folders)
    if names and encoded and described.get("url_encode") is None:
        found["url_encode"] = True
    return found


def _properties(source: SourceData, described: Mapping[str, Any], options: Options) -> dict[str, str]:
    """Those of a new table, with the format of its base files: as they state it, the options, or the source has it."""
    found: dict[str, str] = dict(described.get("properties") or {})
    if options.is_set(BASE_FILE_FORMAT):
        found = {BASE_FILE_FORMAT.key: options.value(BASE_FILE_FORMAT).value, **found}
    return {**found, **format_setting(source, settings_among(found)[0])}


def _done(result: WriteResult) -> Done:
    metadata, rows = result.metadata, sum(stat.num_inserts for stat in result.metadata.stats)
    is_skeletons = metadata.operation_type is WriteOperation.BOOTSTRAP
    files = count(len(metadata.stats), "skeleton" if is_skeletons else "file")
    table = result.table
    committed = None if table is None else Committed(table, result.instant, metadata, result.schema)
    details = [{"partition": path} for path in result.partitions]
    what = f"{files} of {count(rows, 'row')}"
    return Done("bootstrap", result.instant.requested_time, "completed", what, committed, details=details)
