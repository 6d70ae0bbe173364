"""Rows to write: made from a seed, so that a case is the same in every run and every column can be checked by hand."""

from __future__ import annotations

import base64
import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Maker = Callable[[random.Random], Any]

WORDS = ("red", "blue", "grün", "冷蔵", "tab\there", 'quote "q"', "", "back\\slash", "Ωmega", "plain")


class Always:
    """A maker whose values are never replaced by null."""

    def __init__(self, make: Maker) -> None:
        self._make = make

    def __call__(self, r: random.Random) -> Any:
        return self._make(r)


def word(r: random.Random) -> str:
    return r.choice(WORDS)


def decimal(precision: int, scale: int) -> Maker:
    def make(r: random.Random) -> str:
        digits = tuple(int(digit) for digit in str(r.randint(0, 10**precision - 1)))
        return format(Decimal((r.randint(0, 1), digits, -scale)), "f")  # arithmetic would round to 28 digits

    return make


def timestamp(r: random.Random) -> str:
    moment = dt.datetime(1955, 1, 1) + dt.timedelta(microseconds=r.randint(0, 100 * 365 * 86_400_000_000))
    return moment.isoformat(timespec="microseconds") + "Z"


def ntz(r: random.Random) -> str:
    return timestamp(r)[:-1]


def date(r: random.Random) -> str:
    return (dt.date(1940, 1, 1) + dt.timedelta(days=r.randint(0, 45_000))).isoformat()


def binary(r: random.Random) -> str:
    return base64.b64encode(r.randbytes(r.randint(0, 12))).decode()


def single(r: random.Random) -> float:
    """A double that a 32-bit float holds exactly."""
    return r.randint(-(2**20), 2**20) / 64


def double(r: random.Random) -> Any:
    return r.choice((r.uniform(-1e9, 1e9), r.uniform(-1, 1), 0.0, -0.0, "NaN", "Infinity", "-Infinity", 1e300, 5e-324))


def integer(bits: int) -> Maker:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return lambda r: r.choice((r.randint(low, high), r.randint(-9, 9), low, high, 0))


def struct(**fields: Maker) -> Maker:
    return lambda r: {name: maybe(make)(r) for name, make in fields.items()}


def array(make: Maker, most: int = 3) -> Maker:
    # No nulls inside: Hudi's own Avro writer fails to rewrite a file that has one.
    return lambda r: [make(r) for _ in range(r.randint(0, most))]


def mapping(make: Maker, most: int = 3) -> Maker:
    return lambda r: {name: maybe(make)(r) for name in sorted(r.sample(("a", "b", "ключ", "d d"), r.randint(0, most)))}


def maybe(make: Maker, nulls: float = 0.15) -> Maker:
    return make if isinstance(make, Always) else lambda r: None if r.random() < nulls else make(r)


@dataclass(frozen=True)
class Columns:
    """The columns of a table beside key, ordering and partition: name → (Spark DDL type, how a value is made)."""

    of: dict[str, tuple[str, Maker]]

    def ddl(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, (kind, _) in self.of.items())

    def with_(self, **more: tuple[str, Maker]) -> Columns:
        return Columns({**self.of, **more})


# With a nested column, as tables in the field have: without any, Hudi 0.15.0 scans base files in another way, and its
# incremental queries then merge in base rows from before the range.
FEW = Columns(
    {
        "n": ("int", integer(32)),
        "amount": ("decimal(10,2)", decimal(10, 2)),
        "note": ("string", word),
        "tags": ("array<string>", array(word)),
    }
)

EVERY_TYPE = Columns(
    {
        "flag": ("boolean", lambda r: r.random() < 0.5),
        "tiny": ("tinyint", integer(8)),
        "small": ("smallint", integer(16)),
        "n": ("int", integer(32)),
        "big": ("bigint", integer(64)),
        "f": ("float", single),
        "d": ("double", double),
        "cents": ("decimal(5,2)", decimal(5, 2)),
        "whole": ("decimal(18,0)", decimal(18, 0)),
        "huge": ("decimal(38,10)", decimal(38, 10)),
        "text": ("string", word),
        "raw": ("binary", binary),
        "day": ("date", date),
        "moment": ("timestamp", timestamp),
        "deep": (
            "struct<name:string,pos:struct<lat:double,lon:double,at:timestamp>,cost:decimal(12,3),tags:array<string>>",
            struct(
                name=word,
                pos=struct(lat=single, lon=single, at=timestamp),
                cost=decimal(12, 3),
                tags=array(word),
            ),
        ),
        "lists": ("array<array<int>>", array(array(integer(32)))),
        "parts": (
            "array<struct<sku:string,price:decimal(10,2),on:date>>",
            array(struct(sku=word, price=decimal(10, 2), on=date)),
        ),
        "by_name": ("map<string,struct<x:int,y:bigint>>", mapping(struct(x=integer(32), y=integer(64)))),
        "counts": ("map<string,bigint>", mapping(integer(64))),
        "grid": ("map<string,array<double>>", mapping(array(single))),
        "dates": ("array<date>", array(date)),
    }
)


@dataclass
class Source:
    """Makes the rows of one table's writes: new keys, keys used before, and when they were touched.

    Every row has `id` (text key), `k` (a number that makes composite keys), `ts` and `seq` (ordering) and `part`. A key
    stays in the partition it was born in unless `move` is set.
    """

    seed: str
    columns: Columns
    partitions: tuple[Any, ...] = ("north", "south", "east")
    part_type: str = "string"
    key_type: str = "string"
    clock: int = 1_700_000_000_000
    born: dict[Any, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def ddl(self, columns: Columns | None = None) -> str:
        kinds = f"id {self.key_type}, k int, ts bigint, seq int, part {self.part_type}"
        return f"{kinds}, {(columns or self.columns).ddl()}"

    def new(self, count: int, columns: Columns | None = None) -> list[Row]:
        return [self._row(self._key(), None, columns) for _ in range(count)]

    def again(self, count: int, columns: Columns | None = None, *, late: bool = False, move: bool = False) -> list[Row]:
        """Rows for keys written before; `late` ones have an ordering value from before all others."""
        keys = self._random.sample(sorted(self.born, key=str), min(count, len(self.born)))
        rows = [self._row(key, self.born[key], columns, move=move) for key in keys]
        return [{**row, "ts": row["ts"] - 10_000_000_000} for row in rows] if late else rows

    def neighbours(self, first: int, count: int) -> list[Row]:
        """Rows for keys that were born one after the other."""
        return [self._row(key, self.born[key], None) for key in list(self.born)[first : first + count]]

    def mixed(self, old: int, new: int, columns: Columns | None = None) -> list[Row]:
        return [*self.again(old, columns), *self.new(new, columns)]

    def forget(self, rows: list[Row]) -> list[Row]:
        """Rows for a delete: their keys are not used again."""
        for row in rows:
            self.born.pop(row["id"], None)
        return rows

    def _key(self) -> Any:
        number = len(self.born) + self._random.randint(1, 9) * 10_000
        while (key := self._spelt_key(number)) in self.born:
            number += 1
        return key

    def _spelt_key(self, number: int) -> Any:
        match self.key_type:
            case "date":
                return (dt.date(1990, 1, 1) + dt.timedelta(days=number % 20_000)).isoformat()
            case "timestamp":
                return f"20{number % 90 + 10}-03-04T05:{number % 60:02d}:{number % 59:02d}.{number % 1000:03d}000Z"
            case "int" | "bigint":
                return number
            case kind if kind.startswith("decimal"):
                return f"{number}.50"
        return f"id-{number}"

    def _row(self, key: Any, before: Row | None, columns: Columns | None, *, move: bool = False) -> Row:
        r = self._random
        self.clock += r.randint(1, 5000)
        born = before or {"k": r.randint(0, 5), "part": r.choice(self.partitions)}
        part = r.choice(self.partitions) if move else born["part"]
        row = {"id": key, "k": born["k"], "ts": self.clock, "seq": r.randint(0, 3), "part": part}
        row.update({name: maybe(make)(r) for name, (_, make) in (columns or self.columns).of.items()})
        self.born[key] = row
        return row
