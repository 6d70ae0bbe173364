"""Pipelines: what changed in one Hudi table goes through a query or functions into another, a round by one commit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final, NoReturn

import pyarrow as pa

from skep.base.names import is_path
from skep.base.specs import Text, Version
from skep.flows.stream_target import DescribedTarget
from skep.handles.by_path import open_table
from skep.handles.destination import Destination
from skep.handles.lake_tables import LakeTables
from skep.handles.table import Table
from skep.query.over_rows import Queries
from skep.query.rows import Rows
from skep.query.spark import SparkHolder
from skep_format.errors import InputError, OptionError
from skep_format.options import Options, comma_list
from skep_format.schema.types import META_FIELDS
from skep_format.timeline.metadata import WriteOperation
from skep_stream.checkpoints import CheckpointSettings
from skep_stream.options import CleanedAway
from skep_stream.plugins import imported
from skep_stream.properties import read_text
from skep_stream.protocols import Transformer
from skep_stream.rounds import Round, Stream
from skep_stream.sources.hudi import HudiSource
from skep_stream.status import status
from skep_stream.transform import own_function
from skep_table.query.request import ReadRequest
from skep_table.write.planning.settings import TABLE_VERSION

Function = Callable[[pa.Table], pa.Table]
CHANGES: Final = "<SRC>"
ALL: Final = "<ALL>"
_CHANGES_NAME, _ALL_NAME = "HOODIE_SRC_TMP_TABLE", "SKEP_SOURCE_TABLE"
_FROM_THE_START: Final = "0"
_LISTS: Final = ("key", "ordering", "partition_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A pipeline as it is described.

    `transform` is a query that names the changed rows `<SRC>`, and all rows of the source `<ALL>`; a function of Arrow
    tables, or several. Without one, rows are copied. The target is made by the first commit where it is not there:
    `key` to `table_version` are what `Lake.create_table` takes. A round reads `max_commits` commits of the source, or
    all. `start` is the instant behind which the first round begins; 0 is the whole table. `cleaned`: fail, full or
    earliest, see `CleanedAway`. The target's commits have the position under `id`, the source's name when not given.
    """

    source: str
    target: str
    transform: str | Function | Sequence[Function] | None = None
    key: Text = ()
    ordering: Text | None = None
    partition_by: Text = ()
    type: str | None = None
    table_version: Version | None = None
    max_commits: int | None = None
    start: str = _FROM_THE_START
    cleaned: str = CleanedAway.FAIL.value
    id: str | None = None

    def __post_init__(self) -> None:
        if self.max_commits is not None and self.max_commits < 1:
            raise OptionError(
                f"max_commits must be 1 at least, not {self.max_commits}", option="max_commits", found=self.max_commits
            )
        known = [each.value for each in CleanedAway]
        if self.cleaned not in known:
            raise OptionError(
                f"cleaned: {self.cleaned!r} is none of {', '.join(known)}", option="cleaned", found=self.cleaned
            )
        if isinstance(self.transform, str) and CHANGES not in self.transform:
            raise OptionError(
                f"the query of a pipeline names the changed rows {CHANGES}", option="transform", found=self.transform
            )

    @classmethod
    def of_settings(cls, name: str, given: Mapping[str, str]) -> PipelineSpec:
        """From `[pipeline.<name>]`: fields by their names, and the transform as `sql`, `sql_file` or `functions`."""
        known = {each.name for each in fields(cls)} - {"transform"}
        values: dict[str, Any] = {key.replace("-", "_"): value for key, value in given.items()}
        transforms = [key for key in ("sql", "sql_file", "functions") if key in values]
        strange = next((key for key in values if key not in {*known, *transforms}), None)
        if strange is not None or len(transforms) > 1:
            raise OptionError(
                f"[pipeline.{name}]: {strange or ' and '.join(transforms)} can't be used",
                hint=f"there are {', '.join(sorted(known))} and one of sql, sql_file, functions",
                option=f"pipeline.{name}.{strange or transforms[1]}",
            )
        missing = next((key for key in ("source", "target") if not values.get(key)), None)
        if missing is not None:
            raise OptionError(f"[pipeline.{name}] needs {missing}", option=f"pipeline.{name}.{missing}")
        if transforms:
            values["transform"] = _transform(transforms[0], values.pop(transforms[0]))
        values.update({each: comma_list(values[each]) for each in _LISTS if each in values})
        if "max_commits" in values:
            values["max_commits"] = _number(name, "max_commits", values["max_commits"])
        return cls(**values)

    @property
    def described(self) -> dict[str, Any]:
        """What a new target is made with."""
        return {name: getattr(self, name) for name in ("key", "ordering", "partition_by", "type", "table_version")}


class Pipeline:
    """One pipeline. `Lake.pipeline` makes these, and `skep.pipeline` for paths."""

    def __init__(self, spec: PipelineSpec, lake: LakeTables | None = None, options: Options | None = None) -> None:
        """OptionError for what can't be used; no table is opened."""
        self.spec = spec
        self._lake = lake
        self._options = options or (lake.options if lake is not None else Options())
        self._spark = lake.spark_holder if lake is not None else SparkHolder()

    def run_once(self) -> Round:
        """One round: the next commits of the source as one commit of the target. Nothing new is no commit.

        Rows and the position in the source are complete together, or neither is; of several runs at the same time one
        commits. SkepError where a table can't be read, the transform or the write fails: the target is as before.
        """
        return self._stream().run_once()

    def run(self) -> Iterator[Round]:
        """Rounds until there is nothing new in the source."""
        stream = self._stream()
        while True:
            done = stream.run_once()
            if done.result is None:
                return
            yield done

    def status(self) -> dict[str, Any]:
        """The position that the target's newest commit has, and how many commits of the source wait behind it."""
        return {"source": self.spec.source, **status(self._stream())}

    def _stream(self) -> Stream:
        spec, source = self.spec, self._opened(self.spec.source)
        own = spec.id or (source.path if is_path(spec.source) else source.name)
        most = spec.max_commits or sys.maxsize
        return Stream(
            source=HudiSource(source.path, self._options, most, None, CleanedAway(spec.cleaned)),
            target=DescribedTarget(self._destination, self._version),
            operation=WriteOperation.UPSERT,
            transformers=self._transformers(source),
            asked=CheckpointSettings(writer=own, first=spec.start),
            name=f"pipeline {own}",
            table=spec.target,
        )

    def _transformers(self, source: Table) -> list[Transformer]:
        transform = self.spec.transform
        if isinstance(transform, str):
            return [OverSource(Queries(self._spark), transform, source, self._spark)]
        functions = [transform] if callable(transform) else list(transform or ())
        return [partial(own_function, getattr(each, "__name__", repr(each)), each) for each in functions]

    def _opened(self, name: str) -> Table:
        if is_path(name):
            return open_table(name, **self._options)
        return self._named_lake(name).table(name)

    @property
    def _destination(self) -> Destination:
        name, described = self.spec.target, self.spec.described
        if is_path(name):
            there = Destination.at_path(name, self._options, described)
        else:
            there = self._named_lake(name).destination(name, **described)
        return there if described["key"] else replace(there, make=self._no_key)

    def _no_key(self, _schema: object) -> NoReturn:
        name = self.spec.target
        raise InputError(f"there is no table {name}", hint="key makes it", option="key", table=name)

    @property
    def _version(self) -> int:
        stated = self.spec.table_version
        return (self._options if stated is None else Options({TABLE_VERSION.key: stated})).value(TABLE_VERSION)

    def _named_lake(self, name: str) -> LakeTables:
        if self._lake is None:
            raise InputError(f"{name} is a name, and no lake is known", hint="lake.pipeline(…)", table=name)
        return self._lake


@dataclass(frozen=True, slots=True)
class OverSource:
    """A query over the changed rows, and where it names them, over all rows of the source.

    All rows are those of a snapshot at least as new as the changes: what came since comes as changes of a later round.
    """

    engine: Queries
    text: str
    source: Table
    spark: SparkHolder

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The rows of the query."""
        relations: dict[str, Any] = {_CHANGES_NAME: rows}
        if ALL in self.text:
            table = self.source.hudi
            columns = tuple(name for name in table.schema().names() if name not in META_FIELDS)
            relations[_ALL_NAME] = Rows(table, ReadRequest(columns=columns), self.spark)
        return self.engine.query(self.text.replace(CHANGES, _CHANGES_NAME).replace(ALL, _ALL_NAME), relations)


def pipeline(source: str, target: str, transform: object = None, **described: Any) -> Pipeline:
    """A pipeline between tables at paths, without a metastore; `described` are the fields of `PipelineSpec`."""
    return Pipeline(PipelineSpec(source=source, target=target, transform=transform, **described))  # type: ignore[arg-type]


def specs_of(settings: Mapping[str, str], names: Sequence[str] = ()) -> dict[str, PipelineSpec]:
    """Those of `[pipeline.<name>]`, each behind the ones that write its source; all, or those named.

    OptionError for a name that no settings have, and for pipelines that feed each other in a circle.
    """
    by_name: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        name, _, own = key.partition(".")
        by_name.setdefault(name, {})[own] = value
    unknown = next((name for name in names if name not in by_name), None)
    if unknown is not None or not by_name:
        known = ", ".join(sorted(by_name)) or "none"
        raise OptionError(f"no settings have a pipeline {unknown or ''}; there are: {known}", option="pipeline")
    specs = {name: PipelineSpec.of_settings(name, given) for name, given in by_name.items()}
    _check_positions(specs)
    return {name: specs[name] for name in _in_order(specs) if not names or name in names}


def _check_positions(specs: Mapping[str, PipelineSpec]) -> None:
    """OptionError for pipelines that would have one position, of which each commit belongs to one of them."""
    known: dict[tuple[str, str], str] = {}
    for name, spec in specs.items():
        other = known.setdefault((spec.target, spec.id or spec.source), name)
        if other != name:
            raise OptionError(
                f"pipelines {other} and {name} have the same source and target",
                hint="give one of them an id of its own",
                option=f"pipeline.{name}.id",
            )


def _in_order(specs: Mapping[str, PipelineSpec]) -> Iterable[str]:
    from graphlib import CycleError, TopologicalSorter

    before = {
        name: [other for other, each in specs.items() if each.target == spec.source] for name, spec in specs.items()
    }
    try:
        return tuple(TopologicalSorter(before).static_order())
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise OptionError(f"pipelines feed each other in a circle: {circle}", option="pipeline") from error


def _transform(kind: str, text: str) -> str | list[Function]:
    if kind == "sql":
        return text
    if kind == "sql_file":
        return read_text(text, Options()).strip().rstrip(";")
    return [imported(each, each, "functions") for each in comma_list(text)]


def _number(name: str, key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        option = f"pipeline.{name}.{key}"
        raise OptionError(f"{option} is no number: {text!r}", option=option, found=text) from error
