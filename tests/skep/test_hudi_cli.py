"""docs/hudi-cli.md has every command of Hudi's shell, and names only what is there.

`hudi_cli_commands.txt` has a line for each: the command, and its options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import skep
from skep.cli.main import app
from skep_sql.procedures import PROCEDURES

PAGE = Path(__file__).parents[2] / "docs" / "hudi-cli.md"
KNOWN = [
    line.partition(" --")[0] for line in Path(__file__).with_name("hudi_cli_commands.txt").read_text().splitlines()
]
ROW = re.compile(r"^\| (?P<theirs>`.*?) \| (?P<ours>.*?) ?\| (?P<why>.*?) ?\|$", re.MULTILINE)
ROWS = [
    (re.findall(r"`([^`]+)`", row["theirs"]), row["ours"], row["why"]) for row in ROW.finditer(PAGE.read_text("utf-8"))
]


def spans() -> Iterator[str]:
    text = PAGE.read_text(encoding="utf-8")
    yield from (
        span for span in re.findall(r"`([^`\n]+)`", text) if span.startswith(("skep ", "CALL ", "Table.", "Lake."))
    )
    yield from (line[2:].partition("#")[0].strip() for line in text.splitlines() if line.startswith("$ skep"))


def test_every_command_of_the_shell_is_there_once() -> None:
    named = [command for theirs, _, _ in ROWS for command in theirs]
    assert len(KNOWN) == len(set(KNOWN)) > 90
    assert sorted(named) == sorted(KNOWN)


def test_what_has_no_command_has_a_reason() -> None:
    assert [theirs for theirs, ours, why in ROWS if not ours and not why] == []


@pytest.mark.parametrize("span", sorted(set(spans())))
def test_what_the_page_names_is_there(span: str) -> None:
    kind, _, name = span.partition(".")
    if kind in ("Table", "Lake"):
        assert callable(getattr(getattr(skep, kind), name))
    elif span.startswith("CALL "):
        assert span[5:].partition("(")[0] in PROCEDURES
    else:
        command, words = found_command(span.split()[1:])
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert [word for word in words if word.startswith("--") and word not in known | {"--output"}] == []


def found_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that is called, and the words after its name."""
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "get_command"):
        command = command.get_command(None, words[0])
        assert command is not None, words[0]
        words = words[1:]
    return command, words
