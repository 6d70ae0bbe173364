"""`skep sql`: statements from the command line, a file or a pipe; on a terminal, a shell."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from skep.cli import progress
from skep.cli.lake import lake
from skep.cli.output import Output, OutputOption
from skep.cli.scope import MetastoreOption, WarehouseOption
from skep.cli.sql.statements import announce, located, run_statement, statements
from skep_format.errors import InputError

_TABLES: Final = re.compile(r"\b(from|join|into|update|table|tables)\b", re.IGNORECASE)
"""Hardly a statement without these needs the metastore; where one does, it is started then."""
_READS: Final = re.compile(r"[\s(]*(select|with|values|from|show|describe|desc|explain)\b", re.IGNORECASE)
"""How statements begin that hardly ever write."""


def sql(
    query: Annotated[
        str | None,
        typer.Argument(help="SQL statements, a semicolon between them; - reads them from stdin.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="PATH", help="Run the statements of a file.")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="auto|sail|spark", help="Who answers queries: Spark where it is needed, or always.")
    ] = "auto",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print who answers each query, and why Spark has to.")
    ] = False,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run SQL statements and print their rows; what a write changed goes to stderr.

    Without statements on a terminal this is a shell; otherwise they are read from stdin. Of several statements those
    before the first error take effect.
    """
    if query is not None and file is not None:
        raise InputError("statements are given both as an argument and by --file", option="--file")
    if query is None and file is None and sys.stdin.isatty():
        from skep.cli.sql.shell import Shell

        with lake(metastore, warehouse) as found:
            Shell(found, engine, output).run()
        return
    name = str(file) if file is not None else ""
    text = _text(query, file)
    verbose = verbose or progress.is_verbose()
    only_reads = all(_READS.match(each) for each in text.split(";") if each.strip())
    with lake(metastore, warehouse, begin=_TABLES.search(text) is not None, only_reads=only_reads) as found:
        cursors = statements(text, name)
        if not cursors:
            raise InputError("one statement is expected, found 0", found=text)
        if verbose or progress.is_for_people():
            announce(found)
        for cursor in cursors:
            with located(cursor, name, is_one=len(cursors) == 1 and not name):
                ran = run_statement(found, cursor, engine, output)
            if verbose:
                print(ran, file=sys.stderr)


def _text(query: str | None, file: Path | None) -> str:
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is no text in UTF-8: {error}", found=str(file)) from error
    return sys.stdin.read() if query in (None, "-") else str(query)
