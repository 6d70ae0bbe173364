"""`python -m benchmarks.engine_choice.datafusion.generate`: writes functions.tsv by what Spark and DataFusion answer.

A signature is kept where one proposal for DataFusion gives the type of Spark's answer, by a cast if need be, and each
value. Kinds that differ in one argument only are put into one line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa

from benchmarks.engine_choice.compare import plain
from benchmarks.engine_choice.datafusion import values
from benchmarks.engine_choice.datafusion.functions import KINDS
from benchmarks.engine_choice.datafusion.spark_types import cast
from benchmarks.engine_choice.datafusion.templates import proposals

HERE = Path(__file__).resolve().parent
SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "false"}
DECIMALS = ("decimal(10,2)", "decimal(38,10)")
NAMES = {kind: name for name, kind in KINDS.items()}
Line = tuple[str, str, str, str]  # name, kind of the answer, expression for DataFusion, name of the column in Spark


def texts_of(arguments: Sequence[str]) -> list[str]:
    """The arguments as DataFusion takes them."""
    return [values.column(at, each) if each in values.KINDS else each for at, each in enumerate(arguments)]


def computed(context: datafusion.SessionContext, text: str) -> tuple[pa.DataType, list[Any]] | None:
    """Type and values of an expression. None where DataFusion refuses it, or fails for one of the values."""
    try:
        found = context.sql(f"select {text} as x from v").to_arrow_table().column(0)
        return plain(found.type), [repr(value) for value in found.to_pylist()]
    except Exception:
        return None
    except BaseException as error:  # DataFusion's panics
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return None


def line_of(
    context: datafusion.SessionContext, name: str, arguments: Sequence[str], shown: str, wanted: pa.ChunkedArray
) -> Line | None:
    """What answers a signature as Spark does. None where nothing is found to."""
    kind = NAMES.get(wanted.type)
    if kind is None:
        return None
    try:
        expected = [repr(value) for value in wanted.to_pylist()]
    except (OverflowError, ValueError):  # times that Python has no value for
        return None
    for proposal in proposals(name, len(arguments)):
        for text in (proposal, cast(proposal, wanted.type)):
            found = computed(context, text.format(*texts_of(arguments)))
            if found is not None and found == (plain(wanted.type), expected):
                return name, kind, text, _shown(name, arguments, shown)
    return None


def _shown(name: str, arguments: Sequence[str], shown: str) -> str:
    """The name of the column with places for those of arguments; empty where it is not made of them in their order."""
    names = [each.strip("'") for each in texts_of(arguments)]
    places = ", ".join(["{}"] * len(names))
    patterns = [f"{name}({places})", f"{name.upper()}({places})"] if name[0].isalpha() else [f"({{}} {name} {{}})"]
    return next((each for each in patterns if each.format(*names) == shown), "")


def lines(found: Iterable[tuple[Line, tuple[str, ...]]]) -> list[str]:
    """The rows of the file. Decimals are one kind, where both digits were alike."""
    signatures: dict[Line, set[tuple[str, ...]]] = defaultdict(set)
    for line, arguments in found:
        signatures[line].add(arguments)
    written = []
    for (name, kind, template, shown), each in signatures.items():
        kept = {
            tuple("decimal" if part in DECIMALS else part for part in arguments)
            for arguments in each
            if _of_all_decimals(arguments, each)
        }
        for options in merged(kept):
            listed = ";".join("|".join(sorted(part)) for part in options)
            written.append("\t".join([name, listed, kind, template, shown]))
    return sorted(written)


def _of_all_decimals(arguments: tuple[str, ...], found: set[tuple[str, ...]]) -> bool:
    """Whether other digits than these are as well among what was found."""
    places = [at for at, part in enumerate(arguments) if part in DECIMALS]
    return all((*arguments[:at], other, *arguments[at + 1 :]) in found for at in places for other in DECIMALS)


def merged(signatures: Iterable[tuple[str, ...]]) -> list[tuple[frozenset[str], ...]]:
    """The same signatures as products of sets."""
    rows = [tuple(frozenset([part]) for part in each) for each in sorted(signatures)]
    while rows:
        before = len(rows)
        for at in range(len(rows[0])):
            groups: dict[tuple[frozenset[str], ...], frozenset[str]] = defaultdict(frozenset)
            for row in rows:
                groups[row[:at] + row[at + 1 :]] |= row[at]
            rows = [(*rest[:at], part, *rest[at:]) for rest, part in groups.items()]
        if len(rows) == before:
            break
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps({"folder": name, "settings": SETTINGS}), encoding="utf-8")
        worker = [sys.executable, "-W", "ignore", str(HERE / "ask_functions.py"), str(folder / "task.json")]
        subprocess.run(worker, check=True, cwd=name)
        settings = {"datafusion.execution.time_zone": "UTC", "datafusion.sql_parser.parse_float_as_decimal": "true"}
        context = datafusion.SessionContext(datafusion.SessionConfig(settings))
        context.enable_spark_functions()
        context.register_record_batches("v", [values.table().to_batches()])
        found = []
        for function, arguments, shown, file in json.loads((folder / "answers.json").read_text(encoding="utf-8")):
            with pa.ipc.open_file(folder / file) as reader:
                wanted = reader.read_all().column(0)
            line = line_of(context, function, arguments, shown, wanted)
            if line is not None:
                found.append((line, tuple(arguments)))
    (HERE / "functions.tsv").write_text("\n".join(lines(found)) + "\n", encoding="utf-8")
    print(len(found), "signatures")


if __name__ == "__main__":
    main()
