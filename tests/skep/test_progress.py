"""What a person at a terminal sees of work that takes long, and that a program's stderr has none of it."""

from __future__ import annotations

import io
import re
import sys

import pytest

from skep.cli.events import told
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
        with told(what) as tell:
            for event in events:
                tell(event)
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue().split("\r")[-2])


@pytest.mark.parametrize(("done", "full"), [(1, 10), (3, 30), (4, 40)])
def test_a_bar_names_the_step_and_how_much_of_it_is_done(monkeypatch: pytest.MonkeyPatch, done: int, full: int) -> None:
    start, progress = Event("sync.partitions.start"), Event("sync.partitions", done=done, total=4)
    drawn = shown(monkeypatch, "sync of demo.orders", start, progress)
    assert "sync of demo.orders: sync.partitions" in drawn
    (bar,) = re.findall("[━╺]+", drawn)
    assert len(bar.partition("╺")[0]) == full


def test_nothing_is_drawn_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with told("sync of demo.orders") as tell:
        tell(Event("sync.partitions", done=1, total=4))
    assert capsys.readouterr().err == ""
