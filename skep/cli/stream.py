"""`skep stream`: rows of a source into a Hudi table, by the flags of HoodieStreamer."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from skep.cli.output import FAILED, WRONG_USAGE
from skep.cli.progress import listening
from skep.cli.quick import arrow_alone
from skep.cli.scope import until_signalled
from skep_stream.flags import FLAGS, Flag, Kind
from skep_table.errors import SkepError
from skep_table.options import Status

if TYPE_CHECKING:
    from skep.streams import Streamer
    from skep_stream.rounds import Round
    from skep_table.events import Listener


def stream(name: str | None, status: bool, **given: Any) -> None:
    """Read what is new in a source, and commit it to a Hudi table together with the checkpoint.

    NAME is a stream of skep.toml; flags given here count over its own. The flags are those of HoodieStreamer. One line
    of JSON is printed for each round. Exit code 1 for a round that failed: the table is as before it, and the next run
    starts from the same checkpoint.
    """
    arrow_alone()
    from skep.stream_metrics import MetricsServers
    from skep.streams import Streamer, named_flags, with_flags
    from skep_stream.many import flags_of_tables

    flags: dict[str, Any] = {
        argument: _one(argument, value) for argument, value in given.items() if value not in (None, [], False)
    }
    failed = False
    with listening("stream") as listener, MetricsServers(_announce) as metrics:
        try:
            flags = with_flags(named_flags(name), flags) if name else flags
            # a continuous stream brings the round at hand to its end; else main's handler rolls it back
            stop = until_signalled() if flags.get("continuous") and not status else None
            many = flags_of_tables(flags) if flags.get("config_folder") else {None: flags}
        except SkepError as error:
            _fail(error)
        for table, own in many.items():
            try:
                _run(Streamer(stop=stop, metrics=metrics, **own), table, status, listener)
            except SkepError as error:
                if table is None:
                    _fail(error)
                typer.echo(f"error: {table}: {error}", err=True)
                failed = True
    if failed:
        raise typer.Exit(FAILED)


def _fail(error: SkepError) -> NoReturn:
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(FAILED) from error


def _announce(address: str) -> None:
    if logging.getLogger("skep").isEnabledFor(logging.WARNING):  # else --quiet
        typer.echo(f"metrics: {address}", err=True)


def _run(streamer: Streamer, table: str | None, status: bool, listener: Listener) -> None:
    named = {} if table is None else {"table": table}
    if status:
        typer.echo(json.dumps({**streamer.status(), **named}))
        return
    streamer.stream.events.listen(listener)
    for done in streamer.run():
        typer.echo(json.dumps({**named, **_facts(done)}))


def _facts(done: Round) -> dict[str, object]:
    result = done.result
    return {
        "instant": None if result is None else str(result.instant.requested_time),
        "rows": done.rows,
        "from": done.last.checkpoint,
        "checkpoint": done.checkpoint,
        **({} if result is None else {**result.counts, "seconds": round(result.seconds, 3)}),
    }


def _one(argument: str, value: object) -> object:
    """The value of a flag that may be given once."""
    if argument == "hoodie_conf" or not isinstance(value, list):
        return value
    if len(value) > 1:
        typer.echo(f"error: Can only specify option --{argument.replace('_', '-')} once.", err=True)
        raise typer.Exit(WRONG_USAGE)
    return value[0]


def _parameter(flag: Flag) -> inspect.Parameter:
    panels = {Status.PLANNED: "Refused", Status.NO_EFFECT: "Without effect"}
    panel = panels.get(flag.status, "Flags of skep" if flag.is_own else "Flags of HoodieStreamer")
    shown = flag.doc if flag.default is None else f"{flag.doc}  [default: {flag.default}]"
    metavar = {Kind.NUMBER: "N", Kind.LIST: "KEY=VALUE"}.get(flag.kind, "TEXT")
    kind: Any = bool if flag.kind is Kind.SWITCH else list[str] | None
    names = (flag.name,)
    option = (
        typer.Option(*names, help=shown, rich_help_panel=panel)
        if kind is bool
        else typer.Option(*names, help=shown, rich_help_panel=panel, metavar=metavar, show_default=False)
    )
    default = False if kind is bool else None
    return inspect.Parameter(
        flag.argument, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """One option for each flag, as the table of flags has them."""
    name = typer.Argument(metavar="[NAME]", help="A stream of skep.toml.", show_default=False)
    kind = inspect.Parameter.KEYWORD_ONLY
    first = inspect.Parameter("name", kind, default=None, annotation=Annotated[str | None, name])
    shown = typer.Option("--status", help="Print the newest checkpoint and what waits in the source; write nothing.")
    second = inspect.Parameter("status", kind, default=False, annotation=Annotated[bool, shown])
    parameters = [first, second, *map(_parameter, FLAGS)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(_with_flags(stream))
