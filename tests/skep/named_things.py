"""What a page names: commands with their options, procedures, methods; each is looked up where it is defined."""

from __future__ import annotations

import re
from typing import Any

_PREFIXES = ("skep ", "CALL ", "Table.", "Lake.")


def spans(text: str) -> set[str]:
    """Those of a page, as it spells them between backticks, and the commands of its examples."""
    found = {span for span in re.findall(r"`([^`\n]+)`", text) if span.startswith(_PREFIXES)}
    return found | {line[2:].partition("#")[0].strip() for line in text.splitlines() if line.startswith("$ skep")}


def check(span: str) -> None:
    """AssertionError where there is none of this name, or the command has no such option."""
    import skep  # here: every run of the tests loads this module
    from skep_sql.procedures import PROCEDURES

    kind, _, name = span.partition(".")
    if kind in ("Table", "Lake"):
        assert callable(getattr(getattr(skep, kind), name))
    elif span.startswith("CALL "):
        assert span[5:].partition("(")[0] in PROCEDURES
    else:
        command, words = _found_command(span.split()[1:])
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert [word for word in words if word.startswith("--") and word not in known | {"--output"}] == []


def _found_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that is called, and the words after its name."""
    import typer

    from skep.cli.main import app

    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "get_command"):
        command = command.get_command(None, words[0])
        assert command is not None, words[0]
        words = words[1:]
    return command, words
