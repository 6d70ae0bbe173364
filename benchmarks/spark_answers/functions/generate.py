"""`python -m benchmarks.spark_answers.functions.generate [folder]`: writes functions.tsv by what Spark and Sail answer.

A line has: name; arguments, `;` between positions and `|` between the kinds or constants that may be there; kind of
the answer, `same` for that of the first argument; name of the column in Spark's answer with `{}` for those of the
arguments, empty where it is not made of them in their order; `both`, or `lenient` where the answer is Spark's without
ANSI only; `scalar`, `aggregate` or `window`; and `1` where Sail's answer is to be cast to the kind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.spark_answers.functions.ask_sail_functions import Asker, Verdict, Wanted
from benchmarks.spark_answers.functions.contexts import contexts
from benchmarks.spark_answers.functions.signatures import Role, Signature, merged, pattern
from benchmarks.spark_answers.functions.values import DECIMALS, KINDS

HERE: Final = Path(__file__).resolve().parent
TABLE: Final = HERE.parents[2] / "sql" / "skep_sql" / "translation" / "functions.tsv"
AT_ONCE: Final = 1500  # signatures for one process with Spark
MOST_FILES: Final = 20  # of answers that are in memory
RIGHT: Final = (Verdict.EQUAL, Verdict.BY_CAST)


@dataclass(frozen=True, slots=True)
class Compared:
    """A signature, Spark's column, and the verdicts without ANSI and with it."""

    signature: Signature
    kind: str
    shown: str
    verdict: Verdict
    why: str = ""
    is_of_both: bool = False

    @property
    def column(self) -> str:
        """The name of the column, of a window that of its function."""
        return self.shown.partition(" OVER (")[0] if self.signature.role is Role.WINDOW else self.shown


def ask_spark(folder: Path, prefix: str, **given: Any) -> subprocess.Popen[bytes]:
    """A process that writes its answers to the folder."""
    file = folder / f"{prefix}-task.json"
    file.write_text(json.dumps({"folder": str(folder), "prefix": prefix, **given}), encoding="utf-8")
    worker = [sys.executable, "-W", "ignore", str(HERE / "ask_spark_functions.py"), str(file)]
    return subprocess.Popen(worker, cwd=folder)


class Answers:
    """What a process with Spark wrote."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.folder = folder
        self.entries = json.loads((folder / f"{prefix}.json").read_text(encoding="utf-8"))
        self._read: dict[str, pa.Table] = {}

    def wanted(self, each: Signature, places: Mapping[str, Sequence[Any]]) -> dict[int, Wanted | None]:
        """By the number of the context."""
        numbers = contexts(each)
        return {at: self._one(each, *places[str(at)]) if str(at) in places else None for at in numbers}

    def _one(self, each: Signature, file: str, number: int) -> Wanted:
        if file not in self._read:
            if len(self._read) >= MOST_FILES:
                self._read.clear()
            with pa.ipc.open_file(self.folder / file) as reader:
                self._read[file] = reader.read_all()
        rows = self._read[file]
        column = _whole(rows.column(number))
        if each.role is not Role.SCALAR:
            keys = _whole(rows.column("k")) if "k" in rows.column_names else None
            return Wanted(column, np.zeros(len(column), dtype=bool), keys)
        return Wanted(column.field("x"), column.is_null().to_numpy(zero_copy_only=False))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def compare(asker: Asker, folder: Path, prefix: str) -> Iterator[Compared]:
    """What Spark answered in one process beside Sail's answers."""
    answers = Answers(folder, prefix)
    for entry in answers.entries:
        role, name, arguments = entry["signature"]
        each = Signature(Role(role), name, tuple(arguments))
        if each.role is Role.SCALAR and not set(arguments) & set(KINDS):
            continue
        verdict, why = Verdict.TYPE, "not among the kinds"
        if "is_kept" in entry:
            verdict, why = asker.verdict(each, entry["kind"], answers.wanted(each, entry.get("answers", {})))
        yield Compared(each, entry["kind"], entry["shown"], verdict, why)


def lines(found: Iterable[Compared]) -> list[str]:
    """The rows of the file. Decimals are one kind, where both digits were alike."""
    right = [each for each in found if each.verdict in RIGHT]
    of_rest: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    patterns: dict[tuple[Role, str, int], set[str]] = defaultdict(set)
    kinds_of_first: dict[tuple[Role, str, int], set[str]] = defaultdict(set)
    for each in right:
        role, name, arguments = each.signature
        of_rest[role, name, arguments[1:], each.kind].add((arguments or ("",))[0])
        if arguments[:1] == (each.kind,):
            kinds_of_first[role, name, len(arguments)].add(each.kind)
        patterns[role, name, len(arguments)].add(pattern(each.signature, each.column))
    groups: dict[tuple[str, ...], dict[tuple[str, ...], bool]] = defaultdict(dict)
    for each in right:
        role, name, arguments = each.signature
        first = (arguments or ("",))[0]
        is_of_first_only = of_rest[role, name, arguments[1:], each.kind] == {first}
        is_same = first == each.kind and is_of_first_only and len(kinds_of_first[role, name, len(arguments)]) > 1
        kind = "same" if is_same or each.kind in DECIMALS else each.kind
        shown = _pattern(each, patterns[role, name, len(arguments)])
        key = (name, str(len(arguments)), kind, shown, role.value, "1" if each.verdict is Verdict.BY_CAST else "")
        groups[key][arguments] = each.is_of_both
    written = []
    for (name, _, kind, shown, role_name, cast), modes in groups.items():
        for is_of_both in (True, False):
            kept = {
                tuple("decimal" if part in DECIMALS else part for part in arguments)
                for arguments in modes
                if (others := _of_all_decimals(arguments, modes)) and all(modes[each] for each in others) is is_of_both
            }
            for options in merged(kept):
                listed = ";".join("|".join(sorted(part)) for part in options)
                row = [name, listed, kind, shown, "both" if is_of_both else "lenient", role_name, cast]
                written.append("\t".join(row if cast else row[:-1]))
    return sorted(written)


def _pattern(each: Compared, others: Iterable[str]) -> str:
    """Its own, or where a constant is empty, and has no place of its own, one of others that gives the same name."""
    names = [text.strip("'") for text in each.signature.texts]
    fitting = (other for other in sorted(others) if other and other.format(*names) == each.column)
    return pattern(each.signature, each.column) or next(fitting, "")


def _of_all_decimals(arguments: tuple[str, ...], found: Mapping[tuple[str, ...], bool]) -> list[tuple[str, ...]]:
    """The same arguments with each number of digits in one place; none where one of these is not among the found."""
    places = [at for at, part in enumerate(arguments) if part in DECIMALS]
    others = [(*arguments[:at], other, *arguments[at + 1 :]) for at in places for other in DECIMALS]
    return [] if any(each not in found for each in others) else [arguments, *others]


def report(found: Sequence[Compared], groups: Mapping[str, str]) -> str:
    """How many were kept, and what became of functions that have no line."""
    counts = Counter((each.signature.role.value, each.verdict.value) for each in found)
    text = [f"{role}, {verdict}: {count}" for (role, verdict), count in sorted(counts.items())]
    by_name: dict[str, list[Compared]] = defaultdict(list)
    for each in found:
        by_name[each.signature.name].append(each)
    for name in sorted({*groups, *by_name}):
        listed = by_name.get(name, [])
        if any(each.verdict in RIGHT for each in listed):
            continue
        verdicts = Counter(each.verdict.value for each in listed).most_common()
        example = next((each for each in listed if each.verdict.value == verdicts[0][0]), None) if verdicts else None
        shown = f"{', '.join(f'{verdict} {count}' for verdict, count in verdicts)}" or "no signature"
        text.append(f"{name}: {shown}" + (f": {example.signature.sql}: {example.why}" if example else ""))
    return "\n".join(text)


def judged(asker: Asker, folder: Path, listed: Sequence[Signature], mode: str) -> list[Compared]:
    """Answers of Spark beside Sail's.

    Where a process with Spark dies, each half of its signatures gets one; a single one that ends it is left out.
    """
    waiting = [listed[at : at + AT_ONCE] for at in range(0, len(listed), AT_ONCE)]
    found: list[Compared] = []
    for number in count():
        if not waiting:
            break
        part, prefix = waiting.pop(0), f"{mode}{number}"
        if ask_spark(folder, prefix, signatures=part, mode=mode).wait() == 0:
            found += compare(asker, folder, prefix)
        elif len(part) > 1:
            waiting[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
        else:
            print("no answer:", part[0].sql)
    return found


def with_modes(found: Sequence[Compared], of_ansi: Sequence[Compared]) -> list[Compared]:
    """What is equal without ANSI, and whether it is with it, too: as it is, or where both need the same cast."""
    with_ansi = {(each.signature, each.kind): each.verdict for each in of_ansi}
    return [
        replace(each, is_of_both=with_ansi.get((each.signature, each.kind)) in (Verdict.EQUAL, each.verdict))
        if each.verdict in RIGHT
        else each
        for each in found
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(sys.argv[1] if sys.argv[1:] else name)
        if ask_spark(folder, "first").wait():
            raise RuntimeError("no signatures")
        given = json.loads((folder / "signatures.json").read_text(encoding="utf-8"))
        listed = [Signature(Role(role), each, tuple(arguments)) for role, each, arguments in given["signatures"]]
        asker = Asker(folder)
        lenient = judged(asker, folder, listed, "lenient")
        right = [each.signature for each in lenient if each.verdict in RIGHT]
        found = with_modes(lenient, judged(asker, folder, right, "ansi"))
        TABLE.write_text("\n".join(lines(found)) + "\n", encoding="utf-8")
        print(len(listed), "signatures", len(lenient), "in Spark", len(right), "kept", asker.statements, "statements")
        print(report(found, given["groups"]))


if __name__ == "__main__":
    main()
