"""The table's settings in the keys of the version before or after: one function for each step (format guide 14.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from skep_format.options import Options
from skep_format.table_config import (
    KEY_GENERATOR_CLASS,
    STRATEGY_OF_MODE,
    USER_PROVIDED,
    MergeMode,
    TableConfig,
    mode_of_payload,
    with_checksum,
)
from skep_format.table_config.keys import (
    BOOTSTRAP_INDEX_CLASS,
    BOOTSTRAP_INDEX_TYPE,
    DELETE_FIELD,
    DELETE_MARKER,
    INITIAL_VERSION,
    KEY_GENERATOR_TYPE,
    LEGACY_PAYLOAD_CLASS,
    MERGE_PROPERTY_PREFIX,
    PARTITION_FIELDS,
    PAYLOAD_OF_MODE,
    PROPERTIES_PATH,
)
from skep_format.table_config.merging import mode_in_1_0, replacement_of
from skep_format.table_config.reading import plain_fields
from skep_table.keys.generator import PARTITION_TYPES

Properties = dict[str, str]

_OF_DELETES: Final = (DELETE_FIELD, DELETE_MARKER)
_INDEX_PACKAGE: Final = "org.apache.hudi.common.bootstrap.index."
_BOOTSTRAP_INDEXES: Final = {
    "HFILE": f"{_INDEX_PACKAGE}hfile.HFileBootstrapIndex",
    "NO_OP": f"{_INDEX_PACKAGE}NoOpBootstrapIndex",
}


def settings_after(config: TableConfig, versions: tuple[int, ...], options: Options) -> TableConfig:
    """The settings of the table in the last of these versions, which follow one another from the table's own."""
    for version in versions:
        properties = _STEPS[config.version, version](config, options)
        config = TableConfig.parse(with_checksum(properties), PROPERTIES_PATH)
    return config


def changes_between(before: TableConfig, after: TableConfig) -> dict[str, str | None]:
    """The properties that differ: new values, and None for those that are dropped."""
    dropped: dict[str, str | None] = dict.fromkeys(before.raw.keys() - after.raw.keys())
    return {**dropped, **{key: text for key, text in after.raw.items() if before.raw.get(key) != text}}


def _six_to_eight(config: TableConfig, options: Options) -> Properties:
    """Merge mode, strategy and class follow from the payload class: rows merge as before."""
    mode = mode_in_1_0(config.payload_class) if config.payload_class else config.merge_mode
    found = replace(config, version=8, merge_mode=mode, merge_strategy_id=STRATEGY_OF_MODE[mode]).to_properties()
    found[INITIAL_VERSION] = config.raw.get(INITIAL_VERSION) or str(config.version)
    if config.key_generator == USER_PROVIDED:
        found[KEY_GENERATOR_TYPE] = USER_PROVIDED
    typed = {**config.raw, **options}.get(PARTITION_TYPES, "")
    if ":" in typed and plain_fields(typed) == config.partition_fields:
        found[PARTITION_FIELDS] = typed
    index = config.raw.get(BOOTSTRAP_INDEX_CLASS, "").rpartition(".")[2]
    for kind, name in _BOOTSTRAP_INDEXES.items():
        if index and name.endswith("." + index):
            found[BOOTSTRAP_INDEX_TYPE] = kind
    return found


def _eight_to_six(config: TableConfig, options: Options) -> Properties:  # noqa: ARG001
    """The payload class is stated for every table: without one version 6 infers another rule."""
    payload = config.payload_class
    if config.merge_mode is not MergeMode.CUSTOM and (not payload or mode_of_payload(payload) is not config.merge_mode):
        payload = PAYLOAD_OF_MODE[config.merge_mode]
    found = replace(config, version=6, payload_class=payload).to_properties()
    found[PARTITION_FIELDS] = ",".join(config.partition_fields)
    typed = config.raw.get(PARTITION_FIELDS, "")
    if ":" in typed:
        found[PARTITION_TYPES] = typed  # version 6 has no other place for them
    kind = found.pop(BOOTSTRAP_INDEX_TYPE, "")
    if kind in _BOOTSTRAP_INDEXES:
        found[BOOTSTRAP_INDEX_CLASS] = _BOOTSTRAP_INDEXES[kind]
    return _with_history(config, found)


def _eight_to_nine(config: TableConfig, options: Options) -> Properties:
    stated = replacement_of(config.payload_class)
    if stated is None:
        found = replace(config, version=9).to_properties()
    else:
        found = replace(
            config,
            version=9,
            payload_class=None,
            merge_mode=stated.mode,
            merge_strategy_id=STRATEGY_OF_MODE[stated.mode],
            partial_update_mode=stated.partial_update_mode,
            ordering_fields=stated.ordering_fields or config.ordering_fields,
        ).to_properties()
        found[LEGACY_PAYLOAD_CLASS] = config.payload_class or ""
        given = {key: text for key in _OF_DELETES if (text := {**config.raw, **options}.get(key))}
        own = given if len(given) == len(_OF_DELETES) else {}
        found.update({MERGE_PROPERTY_PREFIX + key: text for key, text in {**own, **stated.properties}.items()})
    return _with_history(config, found)


def _nine_to_eight(config: TableConfig, options: Options) -> Properties:  # noqa: ARG001
    legacy = config.raw.get(LEGACY_PAYLOAD_CLASS)
    stated = replacement_of(legacy)
    before = replace(config, version=8, partial_update_mode=None)
    if legacy and stated is not None:
        mode = mode_in_1_0(legacy)
        before = replace(
            before,
            payload_class=legacy,
            merge_mode=mode,
            merge_strategy_id=STRATEGY_OF_MODE[mode],
            ordering_fields=stated.older_ordering or config.ordering_fields,
        )
    found = before.to_properties()
    found.pop(LEGACY_PAYLOAD_CLASS, None)
    implied = stated.properties if stated is not None else {}
    for key in [key for key in found if key.startswith(MERGE_PROPERTY_PREFIX)]:
        plain, text = key.removeprefix(MERGE_PROPERTY_PREFIX), found.pop(key)
        if plain not in implied:
            found.setdefault(plain, text)  # version 8 has no prefix
    return _with_history(config, found)


def _with_history(config: TableConfig, found: Properties) -> Properties:
    """The version in which the table was made does not change, nor the class of an own key generator."""
    for key in (INITIAL_VERSION, *((KEY_GENERATOR_CLASS,) if config.key_generator == USER_PROVIDED else ())):
        if key in config.raw:
            found[key] = config.raw[key]
    return found


_STEPS: Final[Mapping[tuple[int, int], Callable[[TableConfig, Options], Properties]]] = {
    (6, 8): _six_to_eight,
    (8, 9): _eight_to_nine,
    (9, 8): _nine_to_eight,
    (8, 6): _eight_to_six,
}
