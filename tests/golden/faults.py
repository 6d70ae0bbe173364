"""The entries of exceptions.toml, and how the right answer follows where Hudi's own is wrong."""

from __future__ import annotations

import datetime as dt
import fnmatch
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import golden_archives as archives
import numpy as np

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Row = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """`version`, `case` and `query` say where (shell patterns), `reason` why, `right` how the right answer is made."""

    version: str
    case: str
    query: str
    reason: str
    right: str

    def covers(self, case: archives.Case, query: archives.Query) -> bool:
        return (
            self.version == case.version
            and fnmatch.fnmatchcase(case.name, self.case)
            and fnmatch.fnmatchcase(query.id, self.query)
        )

    @property
    def is_exact(self) -> bool:
        """Whether it names one query, and not a family of which some members may show no difference."""
        return "*" not in self.case + self.query

    @property
    def id(self) -> str:
        return f"{self.version}-{self.case}-{self.query}"


FAULTS = [Fault(**entry) for entry in tomllib.loads((archives.FOLDER / "exceptions.toml").read_text())["exception"]]


def fault_of(case: archives.Case, query: archives.Query) -> Fault | None:
    return next((fault for fault in FAULTS if fault.covers(case, query)), None)


def moment_of(case: archives.Case, query: archives.Query) -> str | None:
    """The instant at which a snapshot between operations was taken; None for the other queries."""
    commits = [added["instant"] for added in case.instants if added["action"] in ("commit", "deltacommit")]
    if query.kind == "snapshot_after_bootstrap":
        return commits[0]
    if query.kind == "snapshot_before_last_commit":
        return commits[-2]
    if query.kind in ("snapshot_before_restore", "snapshot_after_restore"):
        restore = next(added["instant"] for added in case.instants if added["action"] == "restore")
        return max(instant for instant in commits if instant < restore)
    return None


def begin_of(query: archives.Query) -> str:
    return query.options["hoodie.datasource.read.begin.instanttime"]


def right_answer(fault: Fault, case: archives.Case, query: archives.Query) -> list[Row]:
    return list(comparable(fault, _RIGHT[fault.right](case, query)))


def comparable(fault: Fault, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows in the form in which found and right are compared."""
    return map(_parsed, rows) if fault.right == "images" else iter(rows)


def _without_begin(case: archives.Case, query: archives.Query) -> list[Row]:
    """The range is open at its begin: the commit that completed then is out."""
    begin = next((added["instant"] for added in case.instants if added["completion"] == begin_of(query)), None)
    rows = case.expected(query.file or "")
    return [row for row in rows if row["_hoodie_commit_time"] != begin]


def _with_hidden_commit(case: archives.Case, query: archives.Query) -> list[Row]:
    """The rows of the hidden commit, which the incremental query over it shows, laid over Hudi's answer by key."""
    hidden = moment_of(case, query) or query.options["as.of.instant"]
    name = f"incremental_{case.instants[0]['instant']}_{hidden}.jsonl"
    newer = {row["order_id"]: row for row in case.expected(name) if row["_hoodie_commit_time"] == hidden}
    older = [row for row in case.expected(query.file or "") if row["order_id"] not in newer]
    return older + list(newer.values())


def _after_restore(case: archives.Case, _query: archives.Query) -> list[Row]:
    return case.expected("snapshot_after_restore.jsonl")


def _images(case: archives.Case, query: archives.Query) -> list[Row]:
    """Images that Hudi took from data files, with the values that its row queries show for the same row.

    Images out of CDC logs stay as they are.
    """
    fields = {field["name"]: field["type"] for field in case.expected_schema["fields"]}
    known = {(row["order_id"], row["_hoodie_commit_time"]): row for row in case.all_expected_rows()}

    def mended(image: str | None) -> str | None:
        if not _is_inferred(image):
            return image
        broken = json.loads(image or "")
        row = known[broken["order_id"], broken["_hoodie_commit_time"]] | {
            name: value for name, value in broken.items() if name.startswith("_hoodie_")
        }
        return json.dumps({name: _image(value, fields[name]) for name, value in row.items() if value is not None})

    rows = case.expected(query.file or "")
    return [row | {"before": mended(row["before"]), "after": mended(row["after"])} for row in rows]


def _is_inferred(image: str | None) -> bool:
    return image is not None and '"_hoodie_record_key":' in image


def _parsed(row: Row) -> Row:
    images = {name: json.loads(row[name]) if _is_inferred(row[name]) else row[name] for name in ("before", "after")}
    return row | images


def _image(value: Any, kind: Any) -> Any:
    """A value of a golden row as an image spells it: nulls left out, dates and timestamps as numbers."""
    if isinstance(kind, dict) and value is not None:
        if kind["type"] == "struct":
            types = {field["name"]: field["type"] for field in kind["fields"]}
            return {name: _image(inner, types[name]) for name, inner in value.items() if inner is not None}
        if kind["type"] == "array":
            return [_image(inner, kind["elementType"]) for inner in value]
        return {name: _image(inner, kind["valueType"]) for name, inner in value.items() if inner is not None}
    if value is None:
        return None
    if kind == "date":
        return (dt.date.fromisoformat(value) - dt.date(1970, 1, 1)).days
    if kind == "timestamp":
        moment = dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
        return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(microseconds=1)
    if kind == "float":
        return float(str(np.float32(value)))
    return value


_RIGHT: dict[str, Callable[[archives.Case, archives.Query], list[Row]]] = {
    "without begin": _without_begin,
    "with the hidden commit": _with_hidden_commit,
    "after the restore": _after_restore,
    "images": _images,
}
