"""The page of what was found: `FOUND.md`, whose parts are written one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.engine_choice.compare import Judged, Verdict
from benchmarks.engine_choice.rounds import HOSTILE, Listed, Round, count, right
from benchmarks.report import Report, machine

PAGE = Path(__file__).with_name("FOUND.md")
PARTS = ("answers", "times")
HEAD = """# Engines without a JVM, compared with Spark

Written by `./dev bench engines-without-jvm` (`--only answers` or `--only times` for one part), see `bench.py`.
"""
VERDICTS = (
    Verdict.EQUAL,
    Verdict.DIGITS,
    Verdict.NAMES,
    Verdict.WRONG,
    Verdict.REFUSED,
    Verdict.BOTH_REFUSE,
    Verdict.CHANCE,
)
REASONS = ("rows", "types", "Spark")


def write(part: str, text: str) -> None:
    """Puts a part into the page, and leaves the others as they are."""
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = {name: _part(before, name) for name in PARTS} | {part: text.strip() + "\n"}
    parts = [f"{_mark(name)}\n\n{found[name]}" for name in PARTS if found[name]]
    PAGE.write_text("\n".join([HEAD, *parts]), encoding="utf-8")


def answers(rounds: Sequence[Round]) -> str:
    """Counts, what allow-lists let through, and every wrong answer but those of random expressions."""
    lines = ["## Answers", *_counts(rounds), "", "## Allow-lists", *_lists(rounds)]
    for each in rounds:
        for contender in each.judgements:
            lines += ["", f"## Wrong: {contender}, {each.mode.name}", "", *_wrong(each, contender)]
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    listed = [head, ["---"] * len(head), *rows]
    return ["", *(f"| {' | '.join(str(cell) for cell in row)} |" for row in listed)]


def _counts(rounds: Sequence[Round]) -> list[str]:
    head = ["Spark", "engine", "questions", *(each.value for each in VERDICTS), "wrong in rows, types, no error"]
    rows = []
    for each in rounds:
        for contender, groups in each.judgements.items():
            for group, judgements in groups.items():
                wrong = [judged for judged in judgements if judged.verdict is Verdict.WRONG]
                reasons = [sum(judged.why.startswith(reason) for judged in wrong) for reason in REASONS]
                counted = [count(judgements, verdict) for verdict in VERDICTS]
                name = f"{len(judgements)} {group}"
                rows.append([each.mode.name, contender, name, *counted, ", ".join(map(str, reasons))])
    return _table(head, rows)


def _lists(rounds: Sequence[Round]) -> list[str]:
    names = list(next(iter(rounds[0].judgements.values())))
    head = ["Spark", "engine", "by", "allowed", "blocked as wrong", *names, "wrong", "unseen: right, wrong"]
    rows = []
    for each in rounds:
        for contender, groups in each.judgements.items():
            for by_types in (False, True):
                listed = each.lists(contender, by_types=by_types)
                through = [f"{right(listed.through[name])} of {len(groups[name])}" for name in names]
                wrong = sum(count(found, Verdict.WRONG) for found in listed.through.values())
                sizes = [len(listed.allowed.allowed), len(listed.allowed.wrong)]
                by = "name and arguments" if by_types else "name"
                rows.append([each.mode.name, contender, by, *sizes, *through, wrong, _unseen(listed)])
    return _table(head, rows)


def _unseen(listed: Listed) -> str:
    return f"{right(listed.unseen)}, {count(listed.unseen, Verdict.WRONG)}"


def _wrong(each: Round, contender: str) -> list[str]:
    groups = each.judgements[contender]
    names = sorted(each.lists(contender, by_types=False).allowed.wrong)
    lines = [f"Blocked by name: {', '.join(f'`{name}`' for name in names) or 'none'}."]
    shown = [judged for group in groups if group != HOSTILE for judged in groups[group]]
    wrong = [judged for judged in shown if judged.verdict in (Verdict.WRONG, Verdict.NAMES)]
    lines += ["", *(_item(judged, each) for judged in wrong)]
    random = [judged for judged in groups[HOSTILE] if judged.verdict is Verdict.WRONG]
    return [
        *lines,
        "",
        f"And {len(random)} of the random expressions, of which:",
        "",
        *(_item(r, each) for r in random),
    ]


def _item(judged: Judged, each: Round) -> str:
    owner = f" ({each.owners[judged.query][0]})" if judged.query in each.owners else ""
    return f"* {_code(judged.query)}{owner}: {_code(judged.why)}"


def _code(text: str) -> str:
    line = " ".join(text.split())
    ticks = "`" * (max((len(found) for found in re.findall(r"`+", line)), default=0) + 1)
    return f"{ticks} {line} {ticks}" if len(ticks) > 1 else f"`{line}`"


def times(report: Report, load: float, sizes: Mapping[str, int], wheels: Mapping[str, str]) -> str:
    """Times and memory of processes, sizes on the disk, and platforms."""
    found = machine()
    lines = [
        "## Times",
        "",
        f"Medians of {report.runs} runs on {found['cores']} cores; load before: {load:.1f}. Peak memory is of"
        " the process and all below it.",
    ]
    for task in dict.fromkeys(each.task for each in report.measured):
        cells = (
            [each.contender, _seconds(each.median), f"{each.peak_bytes / 2**20:.0f}", each.failed or ""]
            for each in report.measured
            if each.task == task
        )
        lines += ["", f"### {task}", *_table(["", "seconds", "peak MiB", ""], cells)]
    lines += ["", "## Sizes once installed", *_table(["package", "MiB"], _mib(sizes))]
    lines += ["", "## Wheels of pysail", *_table(["platform", "wheel"], wheels.items())]
    return "\n".join(lines)


def _seconds(median: float | None) -> str:
    return "" if median is None else f"{median:.2f}"


def _mib(sizes: Mapping[str, int]) -> Iterable[Sequence[object]]:
    return ([name, f"{size / 2**20:.0f}"] for name, size in sizes.items())


def _mark(part: str) -> str:
    return f"<!-- {part} -->"


def _part(text: str, name: str) -> str:
    found = text.partition(_mark(name))[2]
    for other in PARTS:
        found = found.partition(_mark(other))[0]
    return found.strip() + "\n" if found.strip() else ""
