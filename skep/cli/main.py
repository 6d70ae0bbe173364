"""`skep`: all commands, the options that they share, and errors as people read them.

Data goes to stdout, everything else to stderr. Exit codes: 0 success; 1 failure, or the metastore drifted; 2 wrong
usage; 3 changes are pending (with --exit-code); 130 and 143 interrupted by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import chain
from typing import Annotated, Any, TextIO, cast

import typer
from typer.core import TyperGroup

from skep.cli.output import Output, reported
from skep.cli.progress import with_bar
from skep.cli.scope import App, members
from skep_table.runtime.signals import exit_on_sigterm

COMMANDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Tables": {
        "lake": ("ls", "show", "drop"),
        "sql.sql": ("sql",),
        "table.read": ("read",),
        "table.changes": ("changes",),
        "table.write": ("write", "delete"),
        "table.bootstrap": ("bootstrap",),
        "stream.stream": ("stream",),
        "stream.pipeline": ("pipeline",),
        "stream.pull": ("pull",),
        "table.alter": ("alter",),
        "table.inspect": ("schema", "timeline", "files", "properties"),
        "table.commits": ("commits", "stats"),
        "table.fsck": ("fsck",),
    },
    "Table services": {
        "table.services": (
            *("compact", "cluster", "expire", "maintain", "clean", "archive"),
            *("rollback", "savepoint", "restore", "upgrade", "downgrade"),
        ),
        "table.repair": ("compaction", "repair"),
        "table.metadata": ("metadata", "index"),
    },
    "Metastore": {
        "sync.commands": ("sync",),
        "serve": ("serve",),
        "sql_server": ("sql-server", "sql-user"),
        "table.callbacks": ("callbacks",),
        "metastore": ("metastore",),
        "lock": ("lock",),
    },
    "Around": {"around": ("demo", "doctor", "config")},
}
"""All commands: section of the help, module that has them, names."""


class Commands(TyperGroup):
    """Imports a command when it is used: importing all would take longer than many a command does."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
        """The names of all commands, in the order of the help."""
        return [name for modules in COMMANDS.values() for name in chain.from_iterable(modules.values())]

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        """A command by name, imported at its first use."""
        if cmd_name not in self.commands:
            mistyped = cmd_name not in self.list_commands(ctx)  # then similar names are suggested
            for modules in COMMANDS.values():
                for module, names in modules.items():
                    if mistyped or cmd_name in names:
                        self.commands.update(_registered(module, names))
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: object, formatter: Any) -> None:  # noqa: ARG002
        """The commands by what they work on, each with the first sentence of its help."""
        for section, modules in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([each for module in modules.items() for each in _described(*module)])


def _described(module: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The commands of a module by name, with a sentence each. To make them, with all of their options, takes longer."""
    for name, found in members(import_module(f"skep.cli.{module}"), names):
        text = found.info.help if isinstance(found, App) else found.__doc__
        yield name, " ".join(str(text).split()).partition(". ")[0].removesuffix(".") + "."


def _registered(module: str, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The commands of a module by name."""
    own = App()
    own.add(import_module(f"skep.cli.{module}"), *names)
    commands: Mapping[str, Any] = typer.main.get_group(own).commands
    for name, command in commands.items():
        for path, one in _each(name, command):
            one.callback = with_bar(one.callback, path)
        yield name, command


def _each(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, or all within a group, with the words that call it."""
    within = getattr(command, "commands", None)
    if within is None:
        yield path, command
        return
    for name, one in within.items():
        yield from _each(f"{path} {name}", one)


app = typer.Typer(
    name="skep",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Apache Hudi tables in a Hive Metastore: write, sync, lock, read. No Hudi jar, no Spark where none is needed.",
    epilog="Exit codes: 0 success, 1 failure or drift, 2 wrong usage, 3 changes pending (with --exit-code), 130 or 143"
    " interrupted (Ctrl-C, SIGTERM).",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing what draws its boxes takes as long as all else of the help of all commands
)


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
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="More log lines; -vv for all.")] = 0,
    debug: Annotated[
        bool, typer.Option("--debug", help="As -vv: traces of errors, too, those of Spark's Java.")
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text, as NO_COLOR does.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print versions.", callback=_print_versions, is_eager=True)
    ] = False,
) -> None:
    """The options of every command."""
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if profile is not None:
        os.environ["SKEP__PROFILE"] = profile
    if output is not None:
        name = context.invoked_subcommand or ""
        asked = cast("Commands", context.command).get_command(context, name)
        context.default_map = {name: _everywhere(asked, {"output": output.value})}
    _log(quiet, 2 if debug else verbose)


def _everywhere(command: Any, defaults: dict[str, Any]) -> dict[str, Any]:
    """Defaults for the options of a command, or of all in a group."""
    within = getattr(command, "commands", {})
    return {name: _everywhere(one, defaults) for name, one in within.items()} or defaults


def _log(quiet: bool, verbose: int) -> None:
    import logging
    import warnings

    level = logging.ERROR if quiet else {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("skep").setLevel(level)
    logging.getLogger().addFilter(_is_wanted)
    if quiet:
        warnings.simplefilter("ignore")
    else:
        warnings.showwarning = _show_warning


def _is_wanted(record: Any) -> bool:
    """Not Py4J's trace of a Spark that has ended, which it logs at the root: the command's own error names that."""
    import logging

    return "py4j" not in record.pathname or logging.getLogger("skep").isEnabledFor(logging.DEBUG)


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
    gc.set_threshold(50_000)  # otherwise garbage collection takes a tenth of the time of imports
    exit_on_sigterm()
    try:
        with reported():
            app()
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    finally:
        gc.freeze()  # otherwise Python looks through all objects several times before the process ends
