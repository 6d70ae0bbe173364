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
    """One fault of Hudi's answers: where (`version`, `case`, `query`: shell patterns), why, how it is corrected."""

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
    """In the form of `comparable`."""
    rows = _RIGHT[fault.right](case, query)
    return rows if fault.right == "as 1.1.1" else list(comparable(fault, case, rows))


def comparable(fault: Fault, case: archives.Case, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows in the form in which found and right are compared."""
    if fault.right == "images":
        return map(_parsed, rows)
    if fault.right == "as 1.1.1":
        return (_by_operation(case, row) for row in rows)
    return iter(rows)


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


def _as_in_next_release(case: archives.Case, query: archives.Query) -> list[Row]:
    """What 1.1.1 answered after the same operations, rows identified by operation instead of instant."""
    sound = archives.Case("1.1.1", case.name, case.folder.parents[1] / "1.1.1" / case.name)
    at = [q.id for q in case.queries].index(query.id)
    same = list(sound.queries)[at]
    return [_by_operation(sound, row) for row in sound.expected(same.file or "")]


def _by_operation(case: archives.Case, row: Row) -> Row:
    """The row without what differs from run to run: its commit becomes the number of the operation."""
    commits = [added["instant"] for added in case.instants]
    passing = ("_hoodie_commit_seqno", "_hoodie_file_name")
    kept = {name: value for name, value in row.items() if name not in passing}
    return kept | {"_hoodie_commit_time": commits.index(row["_hoodie_commit_time"])}


def _newest_in_range(case: archives.Case, query: archives.Query) -> list[Row]:
    """The rows of the table as of the end of the range that commits of the range wrote."""
    completion = {added["instant"]: added["completion"] for added in case.instants}
    end = query.options.get("hoodie.datasource.read.end.instanttime", "9")
    last = max(instant for instant, completed in completion.items() if completed <= end)
    whole = "snapshot.jsonl" if last == max(completion) else f"timetravel_{last}.jsonl"
    return [row for row in case.expected(whole) if completion[row["_hoodie_commit_time"]] > begin_of(query)]


def _after_restore(case: archives.Case, _query: archives.Query) -> list[Row]:
    return case.expected("snapshot_after_restore.jsonl")


def _all_rows(case: archives.Case, _query: archives.Query) -> list[Row]:
    """Every row of the table was written within the range."""
    return case.expected("snapshot.jsonl")


def _images(case: archives.Case, query: archives.Query) -> list[Row]:
    """Images that Hudi took from data files, with the values that its row queries show for the same row.

    Images out of CDC logs stay as they are. For the rows of replaced groups 0.15.0 and 1.0.2 print the
    last one again and again: 1.1.1, which was given the same rows, shows which ones they are.
    """
    fields = {field["name"]: field["type"] for field in case.expected_schema["fields"]}
    known = {(row["order_id"], row["_hoodie_commit_time"]): row for row in case.all_expected_rows()}
    replaced = iter(_replaced_keys(case))

    def mended(image: str | None, op: str, instant: str) -> str | None:
        if not _is_inferred(image):
            return image
        hudis = json.loads(image or "")
        if op == "d":
            key = next(replaced)
            row = known[key, max(time for name, time in known if name == key and time < instant)]
            hudis = {"_hoodie_file_name": hudis["_hoodie_file_name"]}
        else:
            row = known[hudis["order_id"], hudis["_hoodie_commit_time"]]
        row = row | {name: value for name, value in hudis.items() if name.startswith("_hoodie_")}
        return json.dumps({name: _image(value, fields[name]) for name, value in row.items() if value is not None})

    def right(row: Row) -> Row:
        return row | {name: mended(row[name], row["op"], row["ts_ms"]) for name in ("before", "after")}

    return [right(row) for row in case.expected(query.file or "")]


def _replaced_keys(case: archives.Case) -> list[str]:
    """The keys of the rows that the case's replace commit deletes, by the release that prints each of them."""
    sound = archives.Case("1.1.1", case.name, case.folder.parents[1] / "1.1.1" / case.name)
    rows = (row for row in sound.expected("cdc_000.jsonl") if row["op"] == "d" and _is_inferred(row["before"]))
    return [json.loads(row["before"])["order_id"] for row in rows]


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
    "all rows": _all_rows,
    "images": _images,
    "as 1.1.1": _as_in_next_release,
    "newest in range": _newest_in_range,
}
