"""How plans, reports and outcomes of `skep sync` are printed: results on stdout, warnings and errors on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import typer

from skep.cli import progress
from skep.cli.output import Output
from skep_format.errors import InputError, SkepError

if TYPE_CHECKING:
    from skep_sync.targets import Outcome


class Printable(Protocol):
    """A plan or a report, which prints as text and as JSON."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""


def check_output(output: Output) -> None:
    """InputError for formats of rows, before anything is done: a plan is no row."""
    if output not in (Output.TABLE, Output.JSON, Output.JSONL):
        raise InputError(f"--output {output.value} is not for this command", expected="table, json or jsonl")


def print_result(result: Printable, output: Output, warnings: Iterable[str] = (), **more: str) -> None:
    """Prints one result as text or JSON on stdout, in which it has `more`; its warnings on stderr."""
    if output is Output.TABLE:
        progress.make_way()
        typer.echo(str(result))
    else:
        _print_json({**more, **result.to_json()}, output)
    _print_warnings(warnings)


def print_results(results: Iterable[Printable], output: Output) -> None:
    """Prints any number of results: in JSON one list."""
    if output is Output.JSON:
        _print_json([result.to_json() for result in results], output)
        return
    for result in results:
        print_result(result, output)


def print_outcomes(
    outcomes: Iterable[tuple[str, Outcome]], output: Output, *, only_changed: bool, single: bool = False
) -> bool:
    """Prints the outcome of each table and target; returns whether one failed. In JSON one list, unless `single`."""
    failed = False
    in_sync = 0
    listed = []
    for table, outcome in outcomes:
        result = outcome.result
        if isinstance(result, SkepError):
            failed = True
            where = "" if outcome.target == "main" else f" (target {outcome.target})"
            typer.echo(f"error: {table}{where}: {result}", err=True)
            continue
        if only_changed and not result.changed:
            in_sync += 1
            continue
        if output is Output.JSON and not single:
            listed.append({"target": outcome.target, **result.to_json()})
            _print_warnings(result.plan.warnings)
        else:
            print_result(result, output, result.plan.warnings, target=outcome.target)
    if output is Output.JSON and not single:
        _print_json(listed, output)
    if in_sync and output is Output.TABLE:
        typer.echo(f"in sync already: {in_sync}", err=True)
    return failed


def _print_json(value: Mapping[str, Any] | list[dict[str, Any]], output: Output) -> None:
    progress.make_way()
    typer.echo(json.dumps(value, indent=2 if output is Output.JSON else None, ensure_ascii=False))


def _print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
