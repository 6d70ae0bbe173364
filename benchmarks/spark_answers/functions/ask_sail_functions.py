"""Sail's answers to signatures, and whether they are Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.spark_answers.compare import short
from benchmarks.spark_answers.functions import values
from benchmarks.spark_answers.functions.alike import alike, typed
from benchmarks.spark_answers.functions.contexts import GROUPS, windows
from benchmarks.spark_answers.functions.signatures import AGGREGATES, OF_TWO, Role, Signature, type_name
from benchmarks.spark_answers.functions.values import KINDS
from skep.query.sail_server import run

MOST_STATEMENTS: Final = 10  # to find the rows that are no errors
MOST_SUSPECTS: Final = 5
FEWEST: Final = 3


class Verdict(str, Enum):
    """What Sail's answers are beside Spark's."""

    EQUAL = "equal"
    BY_CAST = "equal once cast"
    REFUSED = "refused"
    DIFFERS = "differs"
    TYPE = "of another type"
    TOO_FEW = "too few values to compare"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Spark's answer in one context: values, for which rows it is none but an error, and keys of groups."""

    column: pa.Array
    is_error: np.ndarray[Any, Any]
    keys: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Sail's answer to some rows, by their numbers."""

    rows: np.ndarray[Any, Any]
    column: pa.Array
    keys: pa.Array | None = None


@dataclass
class Asker:
    """A server of Sail with the values, and what it answered."""

    folder: Path
    statements: int = 0
    parts: int = 0
    answers: dict[tuple[str, int], Found | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = values.table()
        self.places = {"v": values.places(), "few": {side: list(range(values.ROWS[0])) for side in values.SIDES}}
        self.tables = {"v": rows, "few": values.few(), "empty": values.empty_of_values(rows)}
        for name, table in self.tables.items():
            self._written(name, table)

    def verdict(self, each: Signature, kind: str, wanted: Mapping[int, Wanted | None]) -> tuple[Verdict, str]:
        """Of one signature. `wanted`: for each context; None where Spark's answer is an error as a whole."""
        given = next((one for one in wanted.values() if one is not None), None)
        if given is None:
            return Verdict.TOO_FEW, "Spark: errors only"
        verdict, why = Verdict.TYPE, ""
        for cast, text in ((False, each.sql), (True, "")):
            text = text or self._cast(each, kind)
            found = {at: self._found(each, text, at, one) for at, one in wanted.items()}
            answers = {at: one for at, one in found.items() if isinstance(one, Found)}
            if not answers:
                if not cast:
                    return Verdict.REFUSED, short(next(iter(found.values())))
                return verdict, why
            kinds = {str(typed(one.column.type)) for one in answers.values()}
            if kinds != {str(typed(given.column.type))}:
                why = f"{sorted(kinds)}, Spark {given.column.type}"
                continue
            why = self._differs(each, answers, wanted)
            if why:
                return Verdict.DIFFERS, why
            if self._too_few(each, answers, wanted):
                return Verdict.TOO_FEW, ""
            return (Verdict.BY_CAST if cast else Verdict.EQUAL), ""
        return verdict, why

    @staticmethod
    def _cast(each: Signature, kind: str) -> str:
        over = " OVER ({})" if each.role is Role.WINDOW else ""
        return f"CAST({each.sql}{over} AS {type_name(kind)})"

    def _found(self, each: Signature, text: str, context: int, wanted: Wanted | None) -> Found | str:
        key = (f"{each.role.value} {text}", context)
        if key not in self.answers:
            if each.role is Role.SCALAR:
                assert wanted is not None
                self.answers[key] = self._scalars(each, text, wanted)
            else:
                self.answers[key] = self._at_once(each, text, context)
        return self.answers[key]

    def _at_once(self, each: Signature, text: str, context: int) -> Found | str:
        if each.role is Role.WINDOW:
            over = windows(each)[context]
            whole = text.format(over) if "{}" in text else f"{text} OVER ({over})"
            return self._asked(f"SELECT n, {whole} AS x FROM v")
        source, key = GROUPS[context]
        group = f" GROUP BY {key} ORDER BY {key}" if key else ""
        rows = self._rows(f"SELECT {f'{key} AS k, ' if key else ''}{text} AS x FROM {source}{group}")
        if isinstance(rows, str):
            return rows
        keys = _whole(rows.column(0)) if key else None
        return Found(np.arange(rows.num_rows), _whole(rows.column(rows.num_columns - 1)), keys)

    def _scalars(self, each: Signature, text: str, wanted: Wanted) -> Found | str:
        query = f"SELECT n, {text} AS x FROM "
        found = self._asked(f"{query}{each.source}")
        if isinstance(found, Found):
            return found
        if isinstance(self._over(query, each, []), str):
            return found
        error = found
        first = self._first_of_each(each)
        is_null = wanted.column.is_null().to_numpy(zero_copy_only=False) | wanted.is_error
        parts = list(self._bisected(query, each, [n for n in first if not is_null[n]]))
        suspects = [n for n in first if is_null[n]]
        whole = self._over(query, each, suspects) if suspects else ""
        if isinstance(whole, Found):
            parts.append(whole)
        elif suspects:
            step = max(1, len(suspects) // MOST_SUSPECTS)
            asked = (self._over(query, each, [n]) for n in suspects[:: step | 1][:MOST_SUSPECTS])
            parts += [one for one in asked if isinstance(one, Found)]
        if not parts:
            return error
        column = pa.chunked_array([one.column for one in parts])
        return Found(np.concatenate([one.rows for one in parts]), _whole(column))

    def _bisected(self, query: str, each: Signature, rows: Sequence[int]) -> Iterator[Found]:
        waiting = [rows] if rows else []
        for _ in range(MOST_STATEMENTS):
            if not waiting:
                break
            part = waiting.pop(0)
            found = self._over(query, each, part)
            if isinstance(found, Found):
                yield found
            elif len(part) > 1:
                waiting += [part[: len(part) // 2], part[len(part) // 2 :]]

    def _over(self, query: str, each: Signature, rows: Sequence[int]) -> Found | str:
        """Over some rows as a table of their own: what is computed beside a condition may be computed before it."""
        names = ["n", *(values.column(side, kind) for side, kind in self._arguments(each))]
        table = self.tables[each.source].select(names).take(pa.array(rows, pa.int32()))
        self.parts += 1
        path = self._written(f"part-{self.parts}", table)
        found = self._asked(f"{query}part")
        path.unlink()
        return found

    def _written(self, name: str, table: pa.Table) -> Path:
        path = self.folder / f"sail-{name}.arrow"
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
        view = name.partition("-")[0]
        run(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING arrow OPTIONS (path '{path}')")
        return path

    def _asked(self, query: str) -> Found | str:
        rows = self._rows(query)
        if isinstance(rows, str):
            return rows
        rows = rows.sort_by("n")
        return Found(rows.column(0).to_numpy(), _whole(rows.column(1)))

    def _rows(self, query: str) -> pa.Table | str:
        self.statements += 1
        try:
            return run(query)
        except Exception as error:
            text = str(error).removeprefix("Flight returned internal error, with message: ")
            return text.partition(". gRPC client debug")[0]

    def _arguments(self, each: Signature) -> list[tuple[str, str]]:
        return [(side, kind) for side, kind in zip(values.SIDES, each.arguments, strict=False) if kind in KINDS]

    def _tuples(self, each: Signature) -> list[tuple[int, ...]]:
        places = self.places[each.source]
        columns = [[at % len(KINDS[kind][1]) for at in places[side]] for side, kind in self._arguments(each)]
        return list(zip(*columns, strict=True))

    def _first_of_each(self, each: Signature) -> list[int]:
        return sorted({one: n for n, one in reversed(list(enumerate(self._tuples(each))))}.values())

    def _differs(self, each: Signature, found: Mapping[int, Found], wanted: Mapping[int, Wanted | None]) -> str:
        is_of_sums = each.role is Role.AGGREGATE or each.name in (*AGGREGATES, *OF_TWO)
        for at, one in found.items():
            other = wanted[at]
            if other is None:
                return f"context {at}: Spark: an error; found {short(one.column.slice(0, 1))}"
            if each.role is Role.SCALAR and other.is_error[one.rows].any():
                n = one.rows[np.flatnonzero(other.is_error[one.rows])[0]]
                return f"row {n}: Spark: an error; found {_shown(one.column, list(one.rows).index(n))}"
            if one.keys is not None:
                if len(one.keys) != len(other.column) or not alike(one.keys, other.keys, exact=True).all():
                    return f"context {at}: groups"
            elif len(one.rows) and one.rows.max() >= len(other.column):
                return f"context {at}: rows"
            expected = other.column.take(pa.array(one.rows))
            same = alike(one.column, expected, exact=not is_of_sums)
            if not same.all():
                n = int(np.flatnonzero(~same)[0])
                return f"context {at}, row {one.rows[n]}: {_shown(one.column, n)}, Spark {_shown(expected, n)}"
        return ""

    def _too_few(self, each: Signature, found: Mapping[int, Found], wanted: Mapping[int, Wanted | None]) -> bool:
        if each.role is not Role.SCALAR:
            valid = sum(len(one.column) - one.column.null_count for one in found.values())
            return valid < FEWEST
        tuples, given = self._tuples(each), wanted[0]
        assert given is not None
        compared = {tuples[n] for n in found[0].rows if given.column[int(n)].is_valid}
        is_of_two = all(kind == "boolean" for _, kind in self._arguments(each))
        return len(compared) < (2 if is_of_two else FEWEST)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _shown(column: pa.Array, at: int) -> str:
    try:
        return short(repr(column[at].as_py()))
    except (ValueError, OverflowError):
        return short(column.slice(at, 1))
