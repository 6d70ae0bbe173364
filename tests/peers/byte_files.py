"""What two tables with one history differ in, member by member: settings, folders, instants, log blocks, the archive.

What names a run is replaced: file ids, write tokens, and times by their order. All else is compared as it is.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from skep_format.logfile import read_blocks
from skep_format.properties import parse_properties

TIMELINE = ".hoodie/timeline"
HISTORY = f"{TIMELINE}/history"
NOTHING = "nothing"
FILE_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-\d+")
COMPARED_ELSEWHERE = re.compile(r"\.?[\w-]+_.*\d{17}|\d{17}|_version_|manifest_\d+|hoodie\.properties")
TOKEN = re.compile(r"_\d+-\d+-\d+")
Times = dict[str, str]


class Difference(NamedTuple):
    """One member: where it is (`instant <action and state>: <member>`, …), and both values as JSON, or NOTHING."""

    place: str
    ours: str
    theirs: str


Found = Iterator[Difference]


def compared(ours: Path, theirs: Path) -> Found:
    """Each difference of two tables."""
    mine, others = Files(ours), Files(theirs)
    yield from differing("hoodie.properties", mine.properties(), others.properties())
    yield from differing("folder", mine.folders(), others.folders())
    yield from matched("timeline", mine.active(), others.active())
    yield from matched("log", mine.logs(), others.logs())
    yield from differing("history", mine.history_files(), others.history_files())
    yield from matched("history", mine.history(), others.history())
    # Of an instant that only one of the two has archived: what both still have.
    both = set(mine.contents) & set(others.contents)
    yield from matched("instant", *({key: each.contents[key] for key in both} for each in (mine, others)))


Keyed = dict[tuple[str, str], Any]
"""By (which one, what kind): the kind is in the place of a difference."""


def matched(place: str, ours: Keyed, theirs: Keyed) -> Found:
    """The differences of those that both have, and of those that one has."""
    for key in sorted({*ours, *theirs}):
        yield from differing(f"{place} {key[1]}", ours.get(key, NOTHING), theirs.get(key, NOTHING))


def differing(place: str, ours: Any, theirs: Any) -> Found:
    """Down to single values, also where only one of the two has a structure: no difference stands for a whole one."""
    both = ours, theirs
    if any(isinstance(one, dict) and one for one in both):
        mine, others = (one if isinstance(one, dict) else {} for one in both)
        for key in dict.fromkeys((*mine, *others)):
            yield from differing(_within(place, key), mine.get(key, NOTHING), others.get(key, NOTHING))
    elif any(isinstance(one, list) and one for one in both):
        for mine, other in _pairs(*(one if isinstance(one, list) else [] for one in both)):
            yield from differing(place, mine, other)
    elif ours != theirs or type(ours) is not type(theirs):
        yield Difference(place, *(one if one == NOTHING else json.dumps(one) for one in both))


def _within(place: str, key: str) -> str:
    return f"{place}.{key}" if ":" in place else f"{place}: {key}"


def _pairs(ours: list[Any], theirs: list[Any]) -> Iterator[tuple[Any, Any]]:
    """In order; of lists of different lengths those that only one has, with NOTHING."""
    if len(ours) == len(theirs):
        yield from zip(ours, theirs, strict=True)
        return
    mine, others = (Counter(json.dumps(item, sort_keys=True) for item in items) for items in (ours, theirs))
    yield from ((json.loads(item), NOTHING) for item in (mine - others).elements())
    yield from ((NOTHING, json.loads(item)) for item in (others - mine).elements())


class Files:
    """The files of one table, in a form that two tables of one history have alike."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._rows = {file.name: _rows(file) for file in _files(table / HISTORY, "*.parquet")}
        self._names = [file.name for file in _files(table / TIMELINE, "2*")]
        self._times = self._order()
        self.contents = {**self._archived(), **self._instants()}
        """Of instant files, on the timeline or in the archive: by (number of the time, action and state)."""

    def _order(self) -> Times:
        """Times of requests and completions, of instants rolled back or archived, too → their number in order."""
        found = {time for name in self._names for time in re.findall(r"\d{17}", name)}
        contents = [(self._table / TIMELINE / name).read_bytes() for name in self._names]
        for row in (row for rows in self._rows.values() for row in rows):
            found |= {row["instantTime"], row["completionTime"]}
            contents += [row["metadata"], row["plan"] or b""]
        found |= {time.decode() for content in contents for time in re.findall(rb"20\d{15}", content)}
        return {time: f"<{number:02}>" for number, time in enumerate(sorted(found))}

    def properties(self) -> dict[str, str]:
        """The table's settings."""
        return parse_properties((self._table / ".hoodie/hoodie.properties").read_bytes(), "")

    def folders(self) -> dict[str, str]:
        """Empty folders, what partitions state, and files that are neither data nor compared on their own."""
        found = {}
        for path in sorted(self._table.rglob("*")):
            name = str(path.relative_to(self._table))
            if path.is_dir() and not any(path.iterdir()):
                found[f"{name}/"] = "empty"
            elif path.name == ".hoodie_partition_metadata":
                content = parse_properties(path.read_bytes(), "")
                found[name] = json.dumps({key: self._text(text) for key, text in sorted(content.items())})
            elif path.is_file() and path.suffix != ".crc" and not COMPARED_ELSEWHERE.match(path.name):
                found[name] = "a file"
        return found

    def active(self) -> Keyed:
        """The names of the files on the timeline."""
        return {(self._text(name), name.partition(".")[2]): "a file" for name in self._names}

    def _instants(self) -> Keyed:
        folder = self._table / TIMELINE
        return {
            (self._times[name[:17]], name.partition(".")[2]): self._content((folder / name).read_bytes())
            for name in self._names
        }

    def _archived(self) -> Keyed:
        found: Keyed = {}
        for row in (row for rows in self._rows.values() for row in rows):
            time = self._times[row["instantTime"]]
            found[time, row["action"]] = self._content(row["metadata"])
            if row["plan"] is not None:
                content = self._content(row["plan"])
                found[time, _planned(row["action"], content["record"])] = content
        return found

    def history_files(self) -> dict[str, Any]:
        """The names of the archive's files, and the content of those that list the others."""
        found: dict[str, Any] = {}
        for file in _files(self._table / HISTORY, "[!.]*"):
            content = "" if file.name in self._rows else json.loads(file.read_text())
            if isinstance(content, dict):
                content = [self._listed(entry) for entry in content.pop("files")] + [content]
            found[self._text(file.name)] = content
        return found

    def _listed(self, entry: dict[str, Any]) -> dict[str, Any]:
        """An entry of a manifest, with `its size` for a length that is the file's own."""
        file = self._table / HISTORY / entry["fileName"]
        size = "its size" if file.exists() and file.stat().st_size == entry["fileLen"] else entry["fileLen"]
        return {**entry, "fileName": self._text(entry["fileName"]), "fileLen": size}

    def history(self) -> Keyed:
        """The schema, the footer and the rows of the archive's files, without the contents of instants."""
        found: Keyed = {}
        for name, rows in self._rows.items():
            with pq.ParquetFile(self._table / HISTORY / name) as file:
                schema = [str(file.schema.column(at)) for at in range(len(file.schema))]
                footer = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
                codec = file.metadata.row_group(0).column(0).compression
            known = self._text(name)
            avro = json.dumps(meaning(json.loads(footer.pop("parquet.avro.schema"))), sort_keys=True)
            found[known, "file"] = {"schema": schema, "codec": codec, "avro": avro, "footer": footer}
            for row in rows:
                found[f"{known} {self._text(row['instantTime'])}", f"row of {row['action']}"] = self._row(row)
            assert rows == sorted(rows, key=lambda row: row["instantTime"])
        return found

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Of contents the names of their records."""
        contents = {
            part: None if row[part] is None else fastavro.reader(io.BytesIO(row[part])).writer_schema["name"]
            for part in ("metadata", "plan")
        }
        return {key: self._text(value) if isinstance(value, str) else value for key, value in row.items()} | contents

    def logs(self) -> Keyed:
        """The blocks of each log file: kind, headers, number of rows."""
        found: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
        for path in _files(self._table, "*/.*.log.*"):
            with pa.OSFile(str(path)) as file:
                for number, block in enumerate(read_blocks(file, str(path), path.stat().st_size)):
                    headers = {key.name: self._plain(value) for key, value in block.headers.items()}
                    rows = (block.records() if block.type.has_records else block.deletes()).num_rows
                    which = f"{path.parent.name}/{self._text(path.name)} {number}"
                    found[which, block.type.name].append({"headers": headers, "rows": rows})
        return {key: sorted(blocks, key=_sorting) for key, blocks in found.items()}

    def _content(self, data: bytes) -> Any:
        if not data:
            return "empty"
        reader = fastavro.reader(io.BytesIO(data))
        schema = json.loads(reader.metadata["avro.schema"])
        (record,) = reader
        return {
            "schema": json.dumps(meaning(schema), sort_keys=True),
            "codec": reader.codec,
            "record": self._plain(record),
        }

    def _plain(self, value: Any) -> Any:
        """Without what names a run. Lists in an order of their own: that of tasks is by chance."""
        match value:
            case dict():
                return {self._text(str(key)): self._plain(item) for key, item in value.items()}
            case list() | tuple():
                return sorted((self._plain(item) for item in value), key=_sorting)
            case str():
                return self._text(value)
            case bytes():
                return value.hex()
        return value

    def _text(self, text: str) -> str:
        if text.startswith("{") and "fields" in text:
            return json.dumps(json.loads(text), sort_keys=True)
        text = TOKEN.sub("_<token>", FILE_ID.sub("<file>", text))
        text = re.sub(r"(file:)?/\S*?/(ours|theirs)/t", "<table>", text)
        return re.sub(r"\d{17}", lambda found: self._times[found[0]], text)


PLANNED = {"clean": "clean", "commit": "compaction", "deltacommit": "logcompaction", "replacecommit": "clustering"}


def _planned(action: str, record: Any) -> str:
    """The file that a plan in the archive was: of a replace commit without one the inflight file, if that was kept."""
    if action == "replacecommit" and not record.get("clusteringPlan"):
        return "replacecommit.inflight" if "partitionToWriteStats" in record else "replacecommit.requested"
    return f"{PLANNED[action]}.requested"


def meaning(schema: Any) -> Any:
    """An Avro schema without what readers of files do not use: texts, and where a name's namespace is stated."""
    match schema:
        case list():
            return [meaning(branch) for branch in schema]
        case {"fields": fields}:
            members = [{**member, "type": meaning(member["type"]), "doc": None} for member in fields]
            return {"name": schema["name"], "fields": members}
        case dict():
            return {key: meaning(value) for key, value in schema.items() if key not in ("doc", "default", "namespace")}
    return schema.removeprefix("org.apache.hudi.avro.model.") if isinstance(schema, str) else schema


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.glob(pattern) if path.is_file() and path.suffix != ".crc")


def _rows(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def _sorting(item: Any) -> str:
    return json.dumps(item, sort_keys=True)
