"""Options for how rows with one key merge: what they request of a new table, and what a write may add to a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from skep_format.errors import OptionError
from skep_format.options import REGISTRY, Option, Options, comma_list, one_of, option
from skep_format.table_config import MERGE_PROPERTY_PREFIX, MergeMode, PartialUpdateMode, TableConfig
from skep_format.table_config.keys import PARTIAL_UPDATE_MODE, PAYLOAD_OF_MODE, simple_name
from skep_format.table_config.merging import MODE_OPTION, ORDERING_OPTION, PAYLOAD_OPTION, STRATEGY_OPTION, MergeRequest
from skep_format.versions import MergeSource, TableFormat, format_of, format_of_version
from skep_table.commit.create import TableSpec
from skep_table.merge.custom import IMPLEMENTATIONS, own_mergers, strategy_of
from skep_table.merge.rule import DELETE_FIELD, DELETE_MARKER

_no_names: tuple[str, ...] = ()

ORDERING = option(
    ORDERING_OPTION,
    comma_list,
    _no_names,
    "Of two rows with one key, that with the greater value wins; several columns in tables of version 9",
    "hoodie.table.precombine.field",
    "hoodie.table.ordering.fields",
)
PAYLOAD = option(
    PAYLOAD_OPTION,
    str,
    "",
    "Hudi's payload class; EmptyHoodieRecordPayload makes an upsert delete the rows of its keys",
    "hoodie.compaction.payload.class",
)
MERGE_MODE = option(
    MODE_OPTION,
    one_of(MergeMode),
    MergeMode.COMMIT_TIME_ORDERING,
    "EVENT_TIME_ORDERING: the greater ordering value wins; COMMIT_TIME_ORDERING: the last write; CUSTOM: the payload's"
    " or a merger's choice",
    "hoodie.record.merge.mode",
)
STRATEGY = option(
    STRATEGY_OPTION,
    str,
    "",
    "The merge mode by its id, or in tables of version 8 and 9 the id of a merger of one's own",
    "hoodie.record.merge.strategy.id",
)
PARTIAL_UPDATES = option(
    PARTIAL_UPDATE_MODE,
    one_of(PartialUpdateMode),
    PartialUpdateMode.IGNORE_DEFAULTS,
    "Version 9: IGNORE_DEFAULTS keeps stored values where a row has the column's default, FILL_UNAVAILABLE where it has"
    " the text of hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value",
)
REGISTRY.add_family(MERGE_PROPERTY_PREFIX)
_DELETES = (DELETE_FIELD.key, DELETE_MARKER.key)
_ALL = (ORDERING, PAYLOAD, MERGE_MODE, STRATEGY, IMPLEMENTATIONS, PARTIAL_UPDATES, DELETE_FIELD, DELETE_MARKER)


def deletes_rows(options: Options) -> bool:
    """Whether the options state that rows have no content, and so delete the rows of their keys."""
    return simple_name(options.value(PAYLOAD)) == "EmptyHoodieRecordPayload"


def with_merging(spec: TableSpec, options: Options) -> TableSpec:
    """A new table that also merges as the options request; they are no properties of it any more."""
    given = options.value(ORDERING)
    if spec.ordering_fields and given and given != spec.ordering_fields:
        raise OptionError.of_table(
            spec.name,
            f"ordering={','.join(spec.ordering_fields)} and {ORDERING.key}={','.join(given)} contradict each other",
            option=ORDERING.key,
        )
    ordering = spec.ordering_fields or given
    asked = merge_request(options, ordering, format_of_version(spec.version))
    return replace(
        spec,
        ordering=ordering,
        payload_class=asked.payload_class,
        merge_mode=asked.mode,
        merge_strategy_id=asked.strategy_id,
        partial_update_mode=asked.partial_update_mode,
        merge_properties=asked.properties,
        properties={key: text for key, text in spec.properties.items() if not _is_of_merging(key)},
    )


def _is_of_merging(key: str) -> bool:
    return key.startswith(MERGE_PROPERTY_PREFIX) or REGISTRY.find(key) in _ALL


def merge_request(options: Options, ordering_fields: tuple[str, ...], table_format: TableFormat) -> MergeRequest:
    """What the options request of a new table's merging. A merger that they name brings its strategy id.

    OptionError for mergers where the version can't hold them, or where their strategy is not known.
    """
    classes = options.value(IMPLEMENTATIONS)
    names = own_mergers(classes)
    if names and table_format.merge_source is MergeSource.PAYLOAD_CLASS:
        raise OptionError(
            f"{IMPLEMENTATIONS.key}: a table of version {table_format.version} can't hold merger classes",
            hint=f"name a merger by {PAYLOAD.key}, and register it as an entry point of group skep.mergers",
            option=IMPLEMENTATIONS.key,
        )
    asked = _stated(options, ordering_fields)
    if not names or asked.strategy_id is not None:
        return asked
    stated = {strategy for strategy in map(strategy_of, names) if strategy}
    if len(stated) != 1:
        raise OptionError(
            f"{IMPLEMENTATIONS.key}={','.join(names)} needs {STRATEGY.key}: these mergers state"
            f" {', '.join(sorted(stated)) or 'no strategy id'}",
            option=STRATEGY.key,
        )
    return replace(asked, strategy_id=stated.pop())


def _stated(options: Options, ordering_fields: tuple[str, ...]) -> MergeRequest:
    return MergeRequest(
        ordering_fields=ordering_fields,
        mode=options.value(MERGE_MODE) if options.is_set(MERGE_MODE) else None,
        payload_class=None if deletes_rows(options) else options.value(PAYLOAD) or None,
        strategy_id=options.value(STRATEGY) or None,
        partial_update_mode=options.value(PARTIAL_UPDATES) if options.is_set(PARTIAL_UPDATES) else None,
        properties={
            key: text for key, text in options.items() if key.startswith(MERGE_PROPERTY_PREFIX) or key in _DELETES
        },
    )


def merged_by(config: TableConfig, options: Options) -> TableConfig:
    """The table's settings, with the options' payload class where the table could name one and doesn't."""
    table_format = format_of(config)
    if config.payload_class is not None or table_format.merge_source is not MergeSource.PAYLOAD_CLASS:
        return config
    asked = merge_request(options, config.ordering_fields, table_format)
    if not _merges(asked):
        return config
    settings = table_format.merge_settings(asked)
    return replace(config, payload_class=settings.payload_class, merge_mode=settings.mode)


def merge_differences(config: TableConfig, options: Options) -> Iterator[tuple[Option[Any], object, object]]:
    """(option, the table's value, the option's value), for the options about merging that are given."""
    ordering = options.value(ORDERING) if options.is_set(ORDERING) else config.ordering_fields
    table_format = format_of(config)
    if table_format.merge_source is MergeSource.PAYLOAD_CLASS:
        yield ORDERING, config.ordering_fields, ordering
        asked = merge_request(options, config.ordering_fields, table_format)
        # A copy-on-write table that Hudi made names no payload class: then the option's holds.
        if _merges(asked) and config.payload_class is not None:
            payload = table_format.merge_settings(asked).payload_class or ""
            known = PAYLOAD if options.is_set(PAYLOAD) else MERGE_MODE
            yield known, simple_name(config.payload_class), simple_name(payload)
        return
    asked = _stated(options, ordering)
    if asked.payload_class is not None:
        own = config.legacy_payload_class or config.payload_class or PAYLOAD_OF_MODE[config.merge_mode]
        yield PAYLOAD, simple_name(own), simple_name(asked.payload_class)
        # What a payload class stands for, and by which columns it orders, depends on the version.
        settings = table_format.merge_settings(replace(asked, partial_update_mode=None))
        ordering = settings.ordering_fields
        asked = replace(asked, mode=settings.mode, strategy_id=asked.strategy_id and settings.strategy_id)
    yield ORDERING, config.ordering_fields, ordering
    for known in (DELETE_FIELD, DELETE_MARKER):
        stored = config.raw.get(MERGE_PROPERTY_PREFIX + known.key)
        if stored and options.is_set(known):
            yield known, stored, options.value(known)
    if asked.strategy_id is not None:
        yield STRATEGY, config.merge_strategy_id, asked.strategy_id
    if asked.mode is not None:
        yield MERGE_MODE, config.merge_mode, asked.mode
    if options.is_set(PARTIAL_UPDATES):
        yield PARTIAL_UPDATES, config.partial_update_mode, options.value(PARTIAL_UPDATES)


def _merges(asked: MergeRequest) -> bool:
    return (asked.mode, asked.payload_class, asked.strategy_id) != (None, None, None)
