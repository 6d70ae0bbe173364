"""`skep stream`: rows of a source into a Hudi table, by the flags of HoodieStreamer."""

from __future__ import annotations

import inspect
import json
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final

import typer

from skep.cli.output import FAILED, WRONG_USAGE, facts_of_round, write_no_more
from skep.cli.progress import aside, listening
from skep.cli.quick import arrow_alone
from skep.cli.scope import until_signalled
from skep_format.errors import SkepError
from skep_format.options import Status
from skep_stream.flags import FLAGS, Flag, FlagValue

OwnFlags = Callable[[], dict[str, Any]]
log = logging.getLogger("skep.stream")
_PRINTING: Final = threading.Lock()


class StoppedError(SkepError):
    """One of many streams was stopped before it could begin."""


def _parameter(flag: Flag) -> inspect.Parameter:
    panels = {Status.PLANNED: "Refused", Status.NO_EFFECT: "Without effect"}
    panel = panels.get(flag.status, "Flags of skep" if flag.is_own else "Flags of HoodieStreamer")
    shown = flag.doc if flag.default is None else f"{flag.doc}  [default: {flag.default}]"
    metavar = {FlagValue.NUMBER: "N", FlagValue.LIST: "KEY=VALUE"}.get(flag.kind, "TEXT")
    kind: Any = bool if flag.kind is FlagValue.SWITCH else list[str] | None
    how: dict[str, Any] = {} if kind is bool else {"metavar": metavar, "show_default": False}
    option = typer.Option(flag.name, help=shown, rich_help_panel=panel, **how)
    return _keyword(flag.argument, kind, option, False if kind is bool else None)


def _keyword(name: str, kind: Any, shown: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


def _with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """One option for each flag, as the table of flags has them."""
    name = typer.Argument(metavar="[NAME]", help="A stream of skep.toml.", show_default=False)
    shown = typer.Option("--status", help="Print the newest checkpoint and what waits in the source; write nothing.")
    own = (_keyword("name", str | None, name, None), _keyword("status", bool, shown, False))
    parameters = [*own, *map(_parameter, FLAGS)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


@_with_flags
def stream(name: str | None, status: bool, **given: Any) -> None:
    """Read what is new in a source, and commit it to a Hudi table together with the checkpoint.

    NAME is a stream of skep.toml; flags given here count over its own. The flags are those of HoodieStreamer. One line
    of JSON is printed for each round. Exit code 1 for a round that failed: the table is as before it, and the next run
    starts from the same checkpoint. Of many tables each has a thread of its own, and one that fails stops no other.
    """
    arrow_alone()
    from skep.flows.streams import named_flags, with_flags

    flags: dict[str, Any] = {
        argument: _one(argument, value) for argument, value in given.items() if value not in (None, [], False)
    }
    try:
        flags = with_flags(named_flags(name), flags) if name else flags
        if flags.get("config_folder"):
            _many(flags, status)
        elif status:
            _print_status(None, flags)
        else:
            _single(flags)
    except SkepError as error:
        _report(f"error: {error}")
        raise typer.Exit(FAILED) from error
    except BrokenPipeError:  # nobody reads its lines any more: the stream does not go on
        write_no_more()
        raise typer.Exit(FAILED) from None


def _single(flags: dict[str, Any]) -> None:
    from skep.flows.stream_metrics import metrics_servers
    from skep.flows.streams import Streamer

    # a continuous stream brings the round at hand to its end; else main's handler rolls it back
    stop = until_signalled() if flags.get("continuous") else None
    with listening("stream") as listener, metrics_servers(_announce) as metrics:
        streamer = Streamer(stop=stop, metrics=metrics, **flags)
        streamer.stream.events.listen(listener)
        for done in streamer.run():
            _print(facts_of_round(done))


def _many(flags: dict[str, Any], status: bool) -> None:
    from skep_stream.many import at_once, flags_of_tables

    tables, most = flags_of_tables(flags), at_once(flags)
    failures: list[str] = []

    def failed(table: str, error: Exception) -> None:
        failures.append(table)
        _report(f"error: {table}: {error}")
        if not isinstance(error, SkepError):
            log.error("table %s: its stream has ended", table, exc_info=error)

    if status:
        for table, own in tables.items():
            try:
                _print_status(table, own())
            except SkepError as error:
                failed(table, error)
    else:
        _at_once(tables, most, failed)
    if failures:
        raise typer.Exit(FAILED)


def _at_once(tables: Mapping[str, OwnFlags], most: int, failed: Callable[[str, Exception], None]) -> None:
    """All streams in threads. SIGTERM and SIGINT end them after the rounds at hand."""
    from skep.flows.many_streams import Turns, run_at_once
    from skep.flows.stream_metrics import metrics_servers
    from skep.flows.streams import Streamer
    from skep.query.spark import SparkHolder

    stop, turns, spark = until_signalled(), Turns(most), SparkHolder()
    with listening("stream") as listener, metrics_servers(_announce) as metrics:

        def run(table: str, own: OwnFlags) -> None:
            with turns.turn():  # its table is opened
                streamer = Streamer(stop=stop, metrics=metrics, spark=spark, turn=turns.turn, **own())
            streamer.stream.events.listen(listener)
            had_rounds = streamer.is_continuous
            for done in streamer.run():
                had_rounds = True
                _print({"table": table, **facts_of_round(done)})
            if not had_rounds:
                raise StoppedError("it was stopped before its round", table=table)

        run_at_once({table: partial(run, table, own) for table, own in tables.items()}, failed, stop)


def _print_status(table: str | None, flags: dict[str, Any]) -> None:
    from skep.flows.streams import Streamer

    _print({**Streamer(**flags).status(), **({} if table is None else {"table": table})})


def _print(facts: Mapping[str, object]) -> None:
    """One line, whole, whatever other threads print."""
    with _PRINTING, aside():
        typer.echo(json.dumps(facts))


def _report(text: str) -> None:
    with _PRINTING, aside():
        typer.echo(text, err=True)


def _announce(address: str) -> None:
    if log.isEnabledFor(logging.WARNING):  # else --quiet
        _report(f"metrics: {address}")


def _one(argument: str, value: object) -> object:
    """The value of a flag that may be given once."""
    if argument == "hoodie_conf" or not isinstance(value, list):
        return value
    if len(value) > 1:
        typer.echo(f"error: Can only specify option --{argument.replace('_', '-')} once.", err=True)
        raise typer.Exit(WRONG_USAGE)
    return value[0]
