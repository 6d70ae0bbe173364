"""What a metastore holds of a table, flattened to `path → value`, and how two such entries differ.

Paths are the fields of the metastore's own objects, as it gave them: `table.sd.inputFormat`,
`table.parameters.EXTERNAL`, `columns[2].type`, `partitions[day=1].values`; and of Spark's schema, combined
again: `spark[2].metadata`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from skep_catalog.client import Metastore
from skep_catalog.entries import SCHEMA_PARTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DIFFERENCES = Path(__file__).with_name("hive_sync_differences.toml")
ABSENT = "(absent)"
SERVERS_OWN = ("createTime", "lastAccessTime", "transient_lastDdlTime", "dbName")
Flat = dict[str, str]


def entries(metastore: Metastore, database: str) -> dict[str, Flat]:
    """All tables of a database with their partitions."""
    return {name: _entry(metastore, database, name) for name in metastore.tables(database)}


def _entry(metastore: Metastore, database: str, name: str) -> Flat:
    table = metastore.table(database, name)
    raw = table.origin
    flat = dict(_flat("table", raw))
    for what, columns in (("columns", raw.sd.cols), ("keys", raw.partitionKeys)):
        flat |= {path: value for i, column in enumerate(columns) for path, value in _flat(f"{what}[{i}]", column)}
    flat |= _spark(table.parameters)
    for partition in metastore.partitions(database, name) if table.partition_keys else ():
        where = (partition.storage.location or "").removeprefix((table.storage.location or "") + "/")
        at = f"partitions[{where}]"
        flat |= dict(_flat(at, partition.origin))
        mine = [(c.name, c.type, c.comment) for c in partition.storage.columns]
        same = mine == [(c.name, c.type, c.comment) for c in table.storage.columns]
        flat[f"{at}.columns"] = "the table's" if same else str(mine)
    return flat


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Lists of columns are left out: they have paths of their own. So is what is unset or the server's own."""
    name = path.rpartition(".")[2]
    if value is None or name in SERVERS_OWN or name in ("cols", "partitionKeys") or SCHEMA_PARTS in path:
        return
    if hasattr(value, "thrift_spec"):
        for field in value.thrift_spec:
            if field is not None:
                yield from _flat(f"{path}.{field[2]}", getattr(value, field[2]))
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _flat(f"{path}.{key}", value[key])
    else:
        yield path, str(value)


def _spark(parameters: Mapping[str, str]) -> Flat:
    own = {key.removeprefix(SCHEMA_PARTS): value for key, value in parameters.items() if key.startswith(SCHEMA_PARTS)}
    flat = {f"spark.{key}": value for key, value in own.items() if not key.startswith("part.") and key != "numParts"}
    pieces = sorted((key for key in own if key.startswith("part.")), key=lambda key: int(key[5:]))
    if not pieces:
        return flat
    assert own["numParts"] == str(len(pieces))
    for i, field in enumerate(json.loads("".join(own[key] for key in pieces))["fields"]):
        flat |= {f"spark[{i}].{key}": json.dumps(value, sort_keys=True) for key, value in field.items()}
    if len(pieces) > 1:  # how long the text is depends on the types, how it is cut does not
        flat["spark.length of a piece"] = ", ".join(sorted({str(len(own[key])) for key in pieces[:-1]}))
    return flat


@dataclass(frozen=True)
class Difference:
    """A field in which skep's entry is meant to be another than HiveSyncTool's. Texts are patterns (`*`).

    `seen` names a case in which it shows; `cases` those in which it may.
    """

    what: str
    where: str
    why: str
    seen: str
    cases: str = "*"
    theirs: str = "*"
    ours: str = "*"

    def covers(self, case: str, found: Found) -> bool:
        return _fits(self.cases, case) and all(
            _fits(pattern, text)
            for pattern, text in ((self.where, found.where), (self.theirs, found.theirs), (self.ours, found.ours))
        )


def _fits(pattern: str, text: str) -> bool:
    return any(fnmatchcase(text, one.strip().replace("[", "[[]")) for one in pattern.split("|"))


def deliberate() -> list[Difference]:
    return [Difference(**listed) for listed in tomllib.loads(DIFFERENCES.read_text())["difference"]]


@dataclass(frozen=True)
class Found:
    """One field of one entry on which the two disagree."""

    entry: str
    where: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.where}: HiveSyncTool {self.theirs!r}, skep {self.ours!r}"


def compare(theirs: Mapping[str, Flat], ours: Mapping[str, Flat]) -> list[Found]:
    found = []
    for entry in sorted({*theirs, *ours}):
        if entry not in theirs or entry not in ours:
            found.append(Found(entry, "entry", str(entry in theirs), str(entry in ours)))
            continue
        one, other = theirs[entry], ours[entry]
        found += [
            Found(entry, where, one.get(where, ABSENT), other.get(where, ABSENT))
            for where in sorted({*one, *other})
            if one.get(where) != other.get(where)
        ]
    return found
