"""What a person at a terminal sees of work that takes long, and that a program's stderr has none of it."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.csv
import pytest
import typer

from skep.cli import progress
from skep.cli.main import app
from skep.cli.progress import listening
from skep_table.events import Event


class Terminal(io.StringIO):
    """Takes down what is drawn."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, what: str, *events: Event) -> str:
    """The last state of the bar of a command, as text."""
    terminal = Terminal()
    with monkeypatch.context() as here:
        here.setenv("TERM", "xterm")
        here.setenv("COLUMNS", "200")
        here.setattr(sys, "stderr", terminal)
        with listening(what) as report:
            for event in events:
                report(event)
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue().split("\r")[-2])


@pytest.mark.parametrize(("done", "full"), [(1, 10), (3, 30), (4, 40)])
def test_a_bar_names_the_step_and_how_much_of_it_is_done(monkeypatch: pytest.MonkeyPatch, done: int, full: int) -> None:
    start, progress = Event("sync.partitions.start"), Event("sync.partitions", done=done, total=4)
    drawn = shown(monkeypatch, "sync of demo.orders", start, progress)
    assert "sync of demo.orders: sync.partitions" in drawn
    (bar,) = re.findall("[━╺]+", drawn)
    assert len(bar.partition("╺")[0]) == full


def test_a_step_that_only_counts_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = shown(monkeypatch, "demo.orders", Event("metadata_table.files", done=1, total=4))
    assert "demo.orders: metadata_table.files" in drawn
    (bar,) = re.findall("[━╺]+", drawn)
    assert len(bar.partition("╺")[0]) == 10


def test_nothing_is_drawn_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with listening("sync of demo.orders") as report:
        report(Event("sync.partitions", done=1, total=4))
    assert capsys.readouterr().err == ""


# -- every command


def commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All commands by what is typed."""
    group = group or typer.main.get_command(app)
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


COMMANDS = dict(commands())


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In place of stderr, for a command that draws at once. No fixture: pytest sets stderr again before a test."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0)
    return terminal


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(progress.WITHOUT)))
def test_every_command_has_a_bar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    drawn: list[str] = []

    def work(*_: object, **__: object) -> None:
        drawn.append(terminal.getvalue())

    command = COMMANDS[name]
    monkeypatch.setattr(command.callback, "run", work)
    command.callback(**{each.name: None for each in command.params})
    assert f"skep {name}" in drawn[0]
    assert progress._current is None


def test_commands_without_a_bar_are_named_with_the_reason() -> None:
    assert set(progress.WITHOUT) <= set(COMMANDS)
    assert all(progress.WITHOUT.values())


def test_there_is_no_bar_with_quiet_or_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    (tmp_path / "a.csv").write_text("id\n1\n")
    for flag in ("--quiet", "-v"):
        with pytest.raises(SystemExit) as end:
            app([flag, "write", str(tmp_path / flag), str(tmp_path / "a.csv"), "--key", "id", "-o", "json"])
        assert end.value.code == 0
        assert "\x1b" not in terminal.getvalue()


@pytest.mark.parametrize(
    ("command", "steps"),
    [
        (["index", "build", "--kind", "secondary_index", "--column", "day"], ["keys", "secondary_indexes"]),
        (["index", "build", "--kind", "column_stats"], ["files"]),
        (["metadata", "rebuild", "--option", "hoodie.metadata.index.column.stats.enable=true"], ["files"]),
    ],
    ids=["secondary", "statistics", "rebuild"],
)
def test_making_an_index_shows_how_many_files_are_read(
    command: list[str], steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    (tmp_path / "a.csv").write_text("id,day\n1,x\n2,y\n")
    with pytest.raises(SystemExit):
        app(["write", path, str(tmp_path / "a.csv"), "--key", "id", "--table-version", "9"])
    terminal, listen = at_terminal(monkeypatch), progress.Display.listen

    def drawn(display: progress.Display, event: Event) -> None:
        listen(display, event)
        display.bars.refresh()

    monkeypatch.setattr(progress.Display, "listen", drawn)
    with pytest.raises(SystemExit) as end:
        app([*command[:2], path, *command[2:]])
    assert end.value.code == 0
    assert [step for step in steps if f"metadata_table.{step}" not in terminal.getvalue()] == []


def test_a_write_on_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    """As a process with a terminal of its own, which takes longer than the delay."""
    rows = 1_500_000
    table = pa.table({"id": range(rows), "day": pa.array([f"d{at % 8}" for at in range(rows)])})
    pyarrow.csv.write_csv(table, tmp_path / "a.csv")
    skep = [sys.executable, "-c", "from skep.cli.main import main; main()"]
    command = [*skep, "write", "./t", "a.csv", "--key", "id", "--partition-by", "day"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 65536):
                drawn += part
    os.close(ours)
    assert process.returncode == 0
    text = drawn.decode()
    assert "write ./t" in text
    assert "write.files" in text
    assert "\x1b" in text
