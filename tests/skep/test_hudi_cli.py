"""docs/hudi-cli.md has every command of Hudi's shell, and names only what is there.

`hudi_cli_commands.txt` has a line for each: the command, and its options.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from named_things import check, spans

PAGE = Path(__file__).parents[2] / "docs" / "hudi-cli.md"
KNOWN = [
    line.partition(" --")[0] for line in Path(__file__).with_name("hudi_cli_commands.txt").read_text().splitlines()
]
ROW = re.compile(r"^\| (?P<theirs>`.*?) \| (?P<ours>.*?) ?\| (?P<why>.*?) ?\|$", re.MULTILINE)
ROWS = [
    (re.findall(r"`([^`]+)`", row["theirs"]), row["ours"], row["why"]) for row in ROW.finditer(PAGE.read_text("utf-8"))
]


def test_every_command_of_the_shell_is_there_once() -> None:
    named = [command for theirs, _, _ in ROWS for command in theirs]
    assert len(KNOWN) == len(set(KNOWN)) > 90
    assert sorted(named) == sorted(KNOWN)


def test_what_has_no_command_has_a_reason() -> None:
    assert [theirs for theirs, ours, why in ROWS if not ours and not why] == []


@pytest.mark.parametrize("span", sorted(spans(PAGE.read_text(encoding="utf-8"))))
def test_what_the_page_names_is_there(span: str) -> None:
    check(span)
