"""What merge mode, payload class and strategy id mean together, and how each table version states them (guide 14.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from skep_format.errors import OptionError
from skep_format.table_config import keys
from skep_format.table_config.keys import MergeMode, PartialUpdateMode, mode_of_payload, simple_name

MODE_OPTION: Final = "hoodie.write.record.merge.mode"
STRATEGY_OPTION: Final = "hoodie.write.record.merge.strategy.id"
PAYLOAD_OPTION: Final = "hoodie.datasource.write.payload.class"
ORDERING_OPTION: Final = "hoodie.datasource.write.precombine.field"
DEBEZIUM_UNAVAILABLE: Final = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """What a caller asks for; None where nothing is asked for. `properties` are what the merge needs beside."""

    ordering_fields: tuple[str, ...] = ()
    mode: MergeMode | None = None
    payload_class: str | None = None
    strategy_id: str | None = None
    partial_update_mode: PartialUpdateMode | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """How rows with one key merge, as the properties of a table state it.

    `payload_class` is the class that merges, `legacy_payload_class` the one that the other settings replaced.
    `properties` are what the merge needs beside: a delete field and its marker, the text in place of an absent value.
    """

    mode: MergeMode
    ordering_fields: tuple[str, ...]
    strategy_id: str
    payload_class: str | None = None
    legacy_payload_class: str | None = None
    partial_update_mode: PartialUpdateMode | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def by_payload_class(asked: MergeRequest) -> MergeSettings:
    """Version 6: a payload class, whose mode and strategy readers derive."""
    _refuse_newer(asked, 6)
    mode = _mode(asked)
    if asked.strategy_id and asked.strategy_id not in keys.MODE_OF_STRATEGY:
        known = ", ".join(keys.MODE_OF_STRATEGY)
        raise OptionError(
            f"{STRATEGY_OPTION}={asked.strategy_id} is none of {known}: tables of version 6 merge by payload classes",
            hint=f"name a merger by {PAYLOAD_OPTION}, and register it as an entry point of group skep.mergers",
            option=STRATEGY_OPTION,
            found=asked.strategy_id,
        )
    if mode is MergeMode.COMMIT_TIME_ORDERING and (asked.mode or asked.strategy_id) and asked.ordering_fields:
        raise OptionError(
            f"{MODE_OPTION}={mode.value} and {ORDERING_OPTION}={','.join(asked.ordering_fields)}: readers of version 6"
            " tables disagree about what these mean together",
            hint=f"leave {ORDERING_OPTION} away",
            option=MODE_OPTION,
        )
    payload = asked.payload_class or keys.PAYLOAD_OF_MODE[mode]
    return MergeSettings(
        mode=mode_of_payload(payload),
        ordering_fields=asked.ordering_fields,
        strategy_id=keys.STRATEGY_OF_MODE[mode_of_payload(payload)],
        payload_class=payload,
    )


def by_mode_and_payload(asked: MergeRequest) -> MergeSettings:
    """Version 8: a mode, with the payload class and the strategy id that belong to it."""
    _refuse_newer(asked, 8)
    mode = _mode(asked, mode_in_1_0)
    # Hudi 1.0 states a payload class in any case, and for a merger its default.
    payload = asked.payload_class or keys.PAYLOAD_OF_MODE[mode] or keys.DEFAULT_PAYLOAD
    return MergeSettings(
        mode=mode,
        ordering_fields=asked.ordering_fields,
        strategy_id=asked.strategy_id or keys.STRATEGY_OF_MODE[mode],
        payload_class=payload,
    )


def by_mode(asked: MergeRequest) -> MergeSettings:
    """Version 9: a mode, and what else Hudi's own payload classes do as settings beside it."""
    mode, payload = _mode(asked), asked.payload_class
    strategy = asked.strategy_id or keys.STRATEGY_OF_MODE[mode]
    replaced = None if payload is None or strategy not in keys.MODE_OF_STRATEGY else _REPLACED.get(simple_name(payload))
    if replaced is not None:
        return replaced.settings(asked)
    merges = mode is MergeMode.CUSTOM and strategy == keys.PAYLOAD_STRATEGY
    settings = MergeSettings(
        mode=mode,
        ordering_fields=asked.ordering_fields,
        strategy_id=strategy,
        payload_class=payload if merges else None,
        partial_update_mode=asked.partial_update_mode,
        properties=_prefixed(asked.properties),
    )
    _check_partial_update(settings)
    return settings


def _prefixed(properties: Mapping[str, str]) -> dict[str, str]:
    """As tables of version 9 keep them, for readers who have no options."""
    return {
        keys.MERGE_PROPERTY_PREFIX + key.removeprefix(keys.MERGE_PROPERTY_PREFIX): text
        for key, text in properties.items()
    }


@dataclass(frozen=True, slots=True)
class ReplacedPayload:
    """The settings of version 9 that replace a payload class.

    `ordering_fields` are those that it compares whatever the caller names; `older_ordering` is another name for them.
    """

    mode: MergeMode
    partial_update_mode: PartialUpdateMode | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    ordering_fields: tuple[str, ...] = ()
    older_ordering: tuple[str, ...] = ()

    def settings(self, asked: MergeRequest) -> MergeSettings:
        partial = asked.partial_update_mode or self.partial_update_mode
        if self.partial_update_mode not in (None, partial):
            raise OptionError(
                f"{keys.PARTIAL_UPDATE_MODE}={partial.value if partial else ''} and"
                f" {PAYLOAD_OPTION}={asked.payload_class} contradict each other",
                option=keys.PARTIAL_UPDATE_MODE,
            )
        if self.ordering_fields and asked.ordering_fields not in ((), self.ordering_fields, self.older_ordering):
            raise OptionError(
                f"{ORDERING_OPTION}={','.join(asked.ordering_fields)} and {PAYLOAD_OPTION}={asked.payload_class}, which"
                f" orders rows by {', '.join(self.ordering_fields)}, contradict each other",
                option=ORDERING_OPTION,
                found=asked.ordering_fields,
                expected=self.ordering_fields,
            )
        settings = MergeSettings(
            mode=self.mode,
            ordering_fields=self.ordering_fields or asked.ordering_fields,
            strategy_id=keys.STRATEGY_OF_MODE[self.mode],
            legacy_payload_class=asked.payload_class,
            partial_update_mode=partial,
            properties=_prefixed({**asked.properties, **self.properties}),
        )
        _check_partial_update(settings)
        return settings


_EVENT_TIME, _COMMIT_TIME = MergeMode.EVENT_TIME_ORDERING, MergeMode.COMMIT_TIME_ORDERING
_CHANGES: Final = {keys.DELETE_FIELD: "_change_operation_type", keys.DELETE_MARKER: "d"}
_REPLACED: Final = {
    "DefaultHoodieRecordPayload": ReplacedPayload(_EVENT_TIME),
    "EventTimeAvroPayload": ReplacedPayload(_EVENT_TIME),
    "OverwriteWithLatestAvroPayload": ReplacedPayload(_COMMIT_TIME),
    "PartialUpdateAvroPayload": ReplacedPayload(_EVENT_TIME, PartialUpdateMode.IGNORE_DEFAULTS),
    "OverwriteNonDefaultsWithLatestAvroPayload": ReplacedPayload(_COMMIT_TIME, PartialUpdateMode.IGNORE_DEFAULTS),
    "AWSDmsAvroPayload": ReplacedPayload(_COMMIT_TIME, None, {keys.DELETE_FIELD: "Op", keys.DELETE_MARKER: "D"}),
    "PostgresDebeziumAvroPayload": ReplacedPayload(
        _EVENT_TIME,
        PartialUpdateMode.FILL_UNAVAILABLE,
        {keys.UNAVAILABLE_VALUE: DEBEZIUM_UNAVAILABLE, **_CHANGES},
        ("_event_lsn",),
    ),
    "MySqlDebeziumAvroPayload": ReplacedPayload(
        _EVENT_TIME, None, _CHANGES, ("_event_bin_file", "_event_pos"), ("_event_seq",)
    ),
}


def replacement_of(payload_class: str | None) -> ReplacedPayload | None:
    """The settings of version 9 in the place of a payload class; None for a class that Hudi does not ship, or none."""
    return _REPLACED.get(simple_name(payload_class or ""))


def mode_in_1_0(payload_class: str) -> MergeMode:
    """Hudi 1.0 refuses a table whose mode is not its own, and to it this class is one like those of users."""
    return MergeMode.CUSTOM if simple_name(payload_class) == "EventTimeAvroPayload" else mode_of_payload(payload_class)


def _mode(asked: MergeRequest, of_payload: Callable[[str], MergeMode] = mode_of_payload) -> MergeMode:
    """The mode that is asked for, by itself or by payload class or strategy id. OptionError where these disagree."""
    payload, strategy = asked.payload_class, asked.strategy_id
    by_strategy = keys.MODE_OF_STRATEGY.get(strategy, MergeMode.CUSTOM) if strategy else None
    by_payload = of_payload(payload) if payload else None
    given = (
        (MODE_OPTION, asked.mode.value if asked.mode else None, asked.mode),
        (STRATEGY_OPTION, strategy, by_strategy),
        # A merger of one's own goes before the payload class, which other readers may use.
        (PAYLOAD_OPTION, payload, None if by_strategy is MergeMode.CUSTOM else by_payload),
    )
    stated = [(key, text, mode) for key, text, mode in given if mode is not None]
    for (key, text, mode), (other, other_text, found) in pairwise(stated):
        if mode is not found:
            raise OptionError(f"{key}={text} and {other}={other_text} contradict each other", option=other)
    if not stated:
        return _EVENT_TIME if asked.ordering_fields else _COMMIT_TIME
    mode = stated[0][2]
    if mode is _EVENT_TIME and not asked.ordering_fields and payload is None:
        raise OptionError(f"{stated[0][0]}={stated[0][1]} needs {ORDERING_OPTION}", option=ORDERING_OPTION)
    if mode is MergeMode.CUSTOM and payload is None and strategy in (None, keys.PAYLOAD_STRATEGY):
        raise OptionError(
            f"{stated[0][0]}={stated[0][1]} needs {PAYLOAD_OPTION} or, of a merger, {STRATEGY_OPTION}",
            option=PAYLOAD_OPTION,
        )
    return mode


def _check_partial_update(settings: MergeSettings) -> None:
    """OptionError for a partial update mode that nothing would come of."""
    partial = settings.partial_update_mode
    if partial is None:
        return
    if settings.mode is MergeMode.CUSTOM:
        raise OptionError(
            f"{keys.PARTIAL_UPDATE_MODE}={partial.value}: rows of merge mode CUSTOM merge by a merger or payload class",
            option=keys.PARTIAL_UPDATE_MODE,
        )
    unavailable = keys.MERGE_PROPERTY_PREFIX + keys.UNAVAILABLE_VALUE
    if partial is PartialUpdateMode.FILL_UNAVAILABLE and not settings.properties.get(unavailable):
        raise OptionError(f"{keys.PARTIAL_UPDATE_MODE}={partial.value} needs {unavailable}", option=unavailable)


def _refuse_newer(asked: MergeRequest, version: int) -> None:
    """OptionError for what only version 9 states."""
    if len(asked.ordering_fields) > 1:
        raise OptionError(
            f"{ORDERING_OPTION}={','.join(asked.ordering_fields)}: tables of version {version} hold one column",
            hint="tables of version 9 hold several",
            option=ORDERING_OPTION,
            found=asked.ordering_fields,
        )
    if asked.partial_update_mode is not None:
        raise OptionError(
            f"{keys.PARTIAL_UPDATE_MODE}={asked.partial_update_mode.value}: tables of version {version} hold none",
            hint="tables of version 9 do; in others payload classes update some columns",
            option=keys.PARTIAL_UPDATE_MODE,
        )
