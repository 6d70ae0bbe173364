"""HoodieStreamer's flags: each is honoured, refused by its name, or warned about where it changes nothing here."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from skep_format.errors import OptionError, UnsupportedError
from skep_format.nearest import did_you_mean
from skep_format.options import Status


class FlagWarning(UserWarning):
    """A flag that changes nothing."""


class FlagValue(Enum):
    """What follows a flag."""

    TEXT = "a text"
    NUMBER = "a number"
    SWITCH = "nothing"
    LIST = "key=value, repeatable"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of Hudi's, or of skep's own. `default` is a text, as it would be given."""

    name: str
    kind: FlagValue
    doc: str
    default: str | None = None
    status: Status = Status.SUPPORTED
    is_own: bool = False  # of skep, not of HoodieStreamer

    @property
    def argument(self) -> str:
        """Its name in Python."""
        return self.name.removeprefix("--").replace("-", "_")


def _flags(kind: FlagValue, status: Status, *named: tuple[str, str] | tuple[str, str, str]) -> list[Flag]:
    return [Flag(name, kind, doc, default[0] if default else None, status) for name, doc, *default in named]


_HONOURED, _REFUSED, _IDLE = Status.SUPPORTED, Status.PLANNED, Status.NO_EFFECT
FLAGS: Final[tuple[Flag, ...]] = (
    *_flags(
        FlagValue.TEXT,
        _HONOURED,
        ("--target-base-path", "The folder of the target table."),
        ("--target-table", "Its name."),
        ("--table-type", "COPY_ON_WRITE or MERGE_ON_READ."),
        ("--base-file-format", "That of a new table, PARQUET or ORC.", "PARQUET"),
        ("--props", "A file of properties, which may include others."),
        (
            "--source-class",
            "The source: Hudi's class or its short name, an entry point, or module:function.",
            "JsonDFSSource",
        ),
        ("--source-ordering-field", "The greater value of this column wins; ts where the rows of a new table have it."),
        ("--source-ordering-fields", "The same for several columns, by comma."),
        ("--payload-class", "How rows of one key merge."),
        ("--merge-mode", "The same as a merge mode."),
        ("--merge-strategy-id", "The same as the id of a merger."),
        ("--merge-impl-classes", "Classes of mergers."),
        ("--schemaprovider-class", "The schema provider."),
        ("--transformer-class", "Transformers by comma, each as class or id:class."),
        ("--op", "UPSERT, INSERT, BULK_INSERT, INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE, DELETE_PARTITION.", "UPSERT"),
        ("--sync-tool-classes", "HiveSyncTool, AwsGlueCatalogSyncTool, or both.", "HiveSyncTool"),
        ("--bootstrap-index-class", "Only HFileBootstrapIndex."),
        ("--checkpoint", "Start from this checkpoint; counts once."),
        ("--ignore-checkpoint", "Start from the beginning; each text counts once."),
        ("--initial-checkpoint-provider", "Of a table that is made: a function that returns its first checkpoint."),
        (
            "--post-write-termination-strategy-class",
            "When a continuous stream ends: NoNewDataTerminationStrategy, or a function.",
        ),
        ("--config-folder", "Many tables: the folder of their property files, <database>_<table>_config.properties."),
        ("--spark-master", "The master of a session that is started for the stream."),
        ("--spark-app-name", "The name of its application."),
        ("--base-path-prefix", "Many tables: the folder below which each is, as <database>/<table>."),
    ),
    *_flags(
        FlagValue.NUMBER,
        _HONOURED,
        ("--source-limit", "The most that a round reads: bytes of files, events of a log."),
        ("--min-sync-interval-seconds", "The least time between the starts of two rounds.", "0"),
        ("--max-pending-compactions", "A continuous stream waits where so many are planned.", "5"),
        ("--max-pending-clustering", "The same for clustering.", "5"),
        ("--max-retry-count", "How often a source that failed is read again.", "3"),
        ("--retry-interval-seconds", "The time before that.", "30"),
        ("--delta-sync-scheduling-weight", "Continuous: the part of the time that rounds get.", "1"),
        ("--compact-scheduling-weight", "The same for compactions beside the rounds.", "1"),
        ("--cluster-scheduling-weight", "The same for clusterings.", "1"),
        ("--delta-sync-scheduling-minshare", "1: rounds wait for nothing else.", "0"),
        ("--compact-scheduling-minshare", "1: compactions wait for nothing else.", "0"),
        ("--cluster-scheduling-minshare", "1: clusterings wait for nothing else.", "0"),
    ),
    *_flags(
        FlagValue.SWITCH,
        _HONOURED,
        ("--filter-dupes", "Rows whose key is in the table are left out; not for UPSERT."),
        ("--enable-sync", "Sync the metastore after each commit."),
        ("--enable-hive-sync", "The same, by its older name."),
        ("--continuous", "Go on with the next round until stopped."),
        ("--disable-compaction", "Merge-on-read: compaction is left to others."),
        ("--run-bootstrap", "Make the target of the folder hoodie.bootstrap.base.path instead of reading the source."),
        ("--commit-on-errors", "Rows that can't be written are left out, counted, and kept in the error table."),
        ("--allow-commit-on-no-checkpoint-change", "Commit although the checkpoint is the last one."),
        ("--retry-on-source-failures", "A source that fails is read again."),
    ),
    *_flags(FlagValue.LIST, _HONOURED, ("--hoodie-conf", "key=value, over those of --props; repeatable.")),
    *_flags(
        FlagValue.SWITCH,
        _REFUSED,
        ("--bootstrap-overwrite", "What lies at the target is not deleted; that is for its owner."),
        ("--force-empty-sync", "Sync without a commit: skep sync apply does."),
    ),
    *_flags(
        FlagValue.TEXT,
        _REFUSED,
        ("--config-hot-update-strategy-class", "Settings that change while a stream runs."),
        ("--ingestion-metrics-class", "Metrics of one's own."),
    ),
    *_flags(
        FlagValue.SWITCH,
        _IDLE,
        ("--enable-hive-support", "no session of Hive's is needed"),
        ("--retry-last-pending-inline-clustering", "pending plans are carried out by the services of each commit"),
        ("--retry-last-pending-inline-compaction", "pending plans are carried out by the services of each commit"),
    ),
    Flag("--tables-at-once", FlagValue.NUMBER, "Many tables: so many rounds run at the same time.", "8", is_own=True),
    Flag("--engine", FlagValue.TEXT, "Who writes, threads or spark.", "threads", is_own=True),
    Flag(
        "--metrics-port",
        FlagValue.NUMBER,
        "Serve metrics for Prometheus on this port of 127.0.0.1; 0 takes any.",
        is_own=True,
    ),
)
_BY_ARGUMENT: Final[Mapping[str, Flag]] = {flag.argument: flag for flag in FLAGS}
_BY_NAME: Final[Mapping[str, Flag]] = {flag.name: flag for flag in FLAGS}
Given = Mapping[str, object]


def default_of(argument: str) -> str | None:
    """The value of a flag that is not given."""
    return _BY_ARGUMENT[argument].default


def parse(words: Sequence[str]) -> dict[str, Any]:
    """Flags as they are written on a command line. OptionError for an unknown one, one given twice, a missing value."""
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        flag = _flag(name if equals and name in _BY_NAME else word)
        if flag.kind is FlagValue.SWITCH:
            _add(found, flag, value or "true")
        elif equals and name in _BY_NAME:
            _add(found, flag, value)
        elif rest:
            _add(found, flag, rest.pop(0))
        else:
            raise OptionError(f"{flag.name} needs a value", option=flag.name, expected=flag.kind.value)
    return found


def _flag(name: str) -> Flag:
    if name not in _BY_NAME:
        raise OptionError(f"unknown flag {name}", hint=did_you_mean(name, _BY_NAME), option=name)
    return _BY_NAME[name]


def _add(found: dict[str, Any], flag: Flag, value: str) -> None:
    if flag.kind is FlagValue.LIST:
        found[flag.argument] = [*found.get(flag.argument, []), value]
    elif flag.argument in found:
        raise OptionError(f"{flag.name} can be given only once", option=flag.name)
    else:
        found[flag.argument] = value


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of one stream, checked. Those that were not given have Hudi's defaults."""

    given: Mapping[str, object]

    @classmethod
    def of(cls, given: Given) -> Flags:
        """OptionError for an unknown one, UnsupportedError for a refused one; a warning for one without effect."""
        known = {argument: value for argument, value in given.items() if value is not None and value is not False}
        for argument, value in known.items():
            flag = _BY_ARGUMENT.get(argument) or _flag(f"--{argument.replace('_', '-')}")
            if flag.status is Status.PLANNED:
                raise UnsupportedError(f"{flag.name} is not built: {flag.doc}", option=flag.name)
            if flag.status is Status.NO_EFFECT:
                warnings.warn(f"{flag.name} has no effect: {flag.doc}", FlagWarning, stacklevel=3)
            if flag.kind is FlagValue.NUMBER and not str(value).lstrip("-").isdigit():
                raise OptionError(f"{flag.name}: {value!r} is not a whole number", option=flag.name, found=value)
        for name in ("target_base_path", "target_table", "table_type"):
            if not known.get(name):
                raise OptionError(f"{_BY_ARGUMENT[name].name} is required", option=_BY_ARGUMENT[name].name)
        return cls(known)

    def text(self, argument: str) -> str | None:
        """The text of a flag, or its default."""
        value = self.given.get(argument)
        return default_of(argument) if value is None else str(value)

    def number(self, argument: str) -> int | None:
        """The number of a flag, or its default."""
        text = self.text(argument)
        return None if text is None else int(text)

    def has(self, argument: str) -> bool:
        """Whether a switch was given."""
        value = self.given.get(argument, False)
        return value is True or str(value).lower() == "true"

    def pairs(self) -> dict[str, str]:
        """What `--hoodie-conf` gives. OptionError for one without `=`."""
        return pairs_of(self.given.get("hoodie_conf") or ())


def pairs_of(given: object) -> dict[str, str]:
    """`key=value` texts, one or several, or a mapping, as a mapping. OptionError for a text without `=`."""
    if isinstance(given, Mapping):
        return {str(key): str(value) for key, value in given.items()}
    pairs = {}
    for each in [given] if isinstance(given, str) else given:  # type: ignore[attr-defined]
        key, equals, value = str(each).partition("=")
        if not equals:
            raise OptionError(f"--hoodie-conf takes key=value, not {each!r}", option="--hoodie-conf", found=each)
        pairs[key.strip()] = value.strip()
    return pairs
