"""`skep`: the commands put together, with the options that all of them share, and errors as people read them.

Data goes to stdout, everything else to stderr. Exit codes: 0 well; 1 it failed, or the metastore drifted; 2 wrong
usage; 3 changes are pending (where --exit-code asks for it).
"""

from __future__ import annotations

import gc
import os
from typing import Annotated, Any, TextIO

import typer

from skep.cli import (
    callbacks,
    demo,
    doctor,
    fsck,
    inspect,
    lake,
    lock,
    metastore,
    read,
    serve,
    services,
    settings,
    sync,
    write,
)
from skep.cli.output import Output, reported

app = typer.Typer(
    name="skep",
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Apache Hudi tables in a Hive Metastore: write, sync, lock, read. No Hudi jar, no Spark where none is needed.",
    epilog="Exit codes: 0 well, 1 failed or drift, 2 wrong usage, 3 changes pending (with --exit-code).",
    pretty_exceptions_enable=False,
)
COMMANDS = {
    "Tables": (lake, read, write, inspect, fsck),
    "Table services": (services,),
    "Metastore": (sync, serve, callbacks, metastore, lock),
    "Around": (demo, doctor, settings),
}
for panel, modules in COMMANDS.items():
    commands, groups = len(app.registered_commands), len(app.registered_groups)
    for module in modules:
        module.register(app)
    for command in app.registered_commands[commands:]:
        command.rich_help_panel = panel
    for group in app.registered_groups[groups:]:
        group.rich_help_panel = panel


def _print_versions(asked: bool) -> None:
    if asked:
        from skep.doctor import versions

        for name, version in versions().items():
            typer.echo(f"{name} {version}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    profile: Annotated[str | None, typer.Option(help="A profile of skep.toml.", metavar="NAME")] = None,
    output: Annotated[
        Output | None, typer.Option("--output", help="How rows are printed, for any command.", case_sensitive=False)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")] = False,
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Tell more; -vv tells all.")] = 0,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text, as NO_COLOR does.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print versions.", callback=_print_versions, is_eager=True)
    ] = False,
) -> None:
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if profile is not None:
        os.environ["SKEP__PROFILE"] = profile
    if output is not None:
        context.default_map = _everywhere(context.command, {"output": output.value})
    _log(quiet, verbose)


def _everywhere(group: Any, defaults: dict[str, Any]) -> dict[str, Any]:
    """Defaults for the options of all commands, those of nested groups too."""
    return {
        name: _everywhere(command, defaults) if hasattr(command, "commands") else defaults
        for name, command in group.commands.items()
    }


def _log(quiet: bool, verbose: int) -> None:
    import logging
    import warnings

    level = logging.ERROR if quiet else {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("skep").setLevel(level)
    if quiet:
        warnings.simplefilter("ignore")
    else:
        warnings.showwarning = _show_warning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """One line, without the place in skep's source that Python would show."""
    if category.__module__.startswith("skep"):
        typer.echo(f"warning: {message}", err=True)


def main() -> None:
    """The console script: an error of skep that no command has reported becomes one clear block on stderr."""
    gc.set_threshold(50_000)  # else importing what a command needs spends a tenth of its time looking for garbage
    try:
        with reported():
            app()
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None
