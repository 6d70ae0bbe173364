"""Functions and operators of Spark that DataFusion answers alike, by the kinds of their arguments.

`functions.tsv` is written by `./dev bench functions`: each line was compared with Spark over all pairs of values at
which engines may part. Its columns: the name or sign in Spark; for each argument the kinds, or constants, that may
be there; the kind of the answer; the expression for DataFusion; the name of the column in Spark's answer, empty
where it has none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

import pyarrow as pa

t = pa.types
KINDS: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<int>": pa.list_(pa.field("element", pa.int32())),
    "array<string>": pa.list_(pa.field("element", pa.string())),
    "array<double>": pa.list_(pa.field("element", pa.float64())),
    "map<string,int>": pa.map_(pa.string(), pa.int32()),
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Argument:
    """The type of an argument; its text where it is a constant."""

    type: pa.DataType
    literal: str | None

    def fits(self, options: frozenset[str]) -> bool:
        """Whether it is among the kinds and constants that were compared."""
        if self.literal is not None:
            text = f"'{self.literal}'" if self.type == pa.string() else self.literal
            if text in options:
                return True
        kind = "decimal" if t.is_decimal(self.type) else _NAMES.get(self.type)
        return kind in options


@dataclass(frozen=True, slots=True)
class KnownFunction:
    """A line of the table. `template` and `name` have a `{}` for each argument."""

    arguments: tuple[frozenset[str], ...]
    type: pa.DataType
    template: str
    name: str | None


def found_function(name: str, arguments: Sequence[Argument]) -> KnownFunction | None:
    """What answers a call alike; None where nothing is known to."""
    for each in _known().get(name, ()):
        if len(each.arguments) == len(arguments) and all(
            argument.fits(options) for argument, options in zip(arguments, each.arguments, strict=True)
        ):
            return each
    return None


@cache
def _known() -> Mapping[str, Sequence[KnownFunction]]:
    found: dict[str, list[KnownFunction]] = {}
    for line in files(__package__).joinpath("functions.tsv").read_text(encoding="utf-8").splitlines():
        name, arguments, kind, template, shown = line.split("\t")
        options = tuple(frozenset(each.split("|")) for each in arguments.split(";"))
        found.setdefault(name, []).append(KnownFunction(options, KINDS[kind], template, shown or None))
    return found
