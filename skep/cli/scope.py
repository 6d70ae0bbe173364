"""What several commands share: a metastore's address, settings, dataclasses that group options; signals."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from skep.base.config import load
from skep.cli.output import reported
from skep_format.errors import InputError

if TYPE_CHECKING:
    from skep.base.config import Settings
    from skep_catalog.catalogs import EntryCatalog
    from skep_catalog.embedded import EmbeddedWhenNeeded

Function = TypeVar("Function", bound=Callable[..., Any])

WarehouseOption = Annotated[
    str | None,
    typer.Option("--warehouse", "-w", help="Its folder; else as configured.", show_default=False),
]
MetastoreOption = Annotated[
    str | None,
    typer.Option("--metastore", "-m", help="Address; else as configured, or the warehouse's.", show_default=False),
]


class App(typer.Typer):
    """Commands, whose errors are reported.

    A parameter whose type is a dataclass becomes one option for each of its fields, in their order: commands that take
    the same dataclass have the same options with the same help. `Annotated[Group, {"field": "…"}]` has another help.
    """

    def command(self, *given: Any, **named: Any) -> Callable[[Function], Function]:
        """As `typer.Typer.command`."""
        register = super().command(*given, **named)

        def registered(function: Function) -> Function:
            register(reported()(_expanded(function)))
            return function

        return registered

    def add(self, home: ModuleType, *names: str) -> None:
        """The commands and groups of a module by their names."""
        for name, found in members(home, names):
            if isinstance(found, App):
                self.add_typer(found, name=name)
            else:
                self.command(name)(found)


def members(home: ModuleType, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """What a module has for names of commands, in which a dash is an underscore of Python's."""
    return ((name, getattr(home, name.replace("-", "_"))) for name in names)


def _expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group, *helps = get_args(parameter.annotation) or (parameter.annotation,)
        if not (isinstance(group, type) and dataclasses.is_dataclass(group)):
            parameters.append(parameter)
            continue
        groups[parameter.name] = group
        types: dict[str, Any] = get_type_hints(group, include_extras=True)
        for name, text in (helps[0] if helps else {}).items():
            kind, option = get_args(types[name])
            option = copy(option)
            option.help = text
            types[name] = Annotated[kind, option]
        parameters += [
            inspect.Parameter(field.name, parameter.kind, default=field.default, annotation=types[field.name])
            for field in dataclasses.fields(group)
        ]

    @functools.wraps(command)
    def expanded(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        return command(**given)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def settings_of(pairs: list[str] | None, flag: str = "--option") -> dict[str, str]:
    """`KEY=VALUE` arguments of a flag as a mapping. InputError for one without `=`."""
    settings = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise InputError(f"{flag} takes KEY=VALUE, not {pair!r}", option=flag, found=pair)
        settings[key.strip()] = value
    return settings


def configured(metastore: str | None, warehouse: str | None) -> Settings:
    """The settings, with these flags before all others."""
    return load({"metastore": metastore, "warehouse": warehouse}).settings


@contextmanager
def connected(
    metastore: str | None, warehouse: str | None, *, only_reads: bool = False
) -> Iterator[tuple[EntryCatalog, Settings]]:
    """A client of the metastore that flags and settings name, else of the warehouse's own; and these settings.
    `only_reads`: see `own_metastore`."""
    settings = configured(metastore, warehouse)
    with own_metastore(settings, begin=True, only_reads=only_reads) as embedded:
        from skep_catalog.addresses import catalog_at
        from skep_catalog.client import Metastore

        client: EntryCatalog
        if embedded is None:
            client = catalog_at(settings.metastore or "", settings.options)
        else:  # settings for TLS and Kerberos are those of other metastores
            client = Metastore.connect(None, revived=embedded.address, kept=embedded.kept)
        with client:
            yield client, settings


@contextmanager
def own_metastore(settings: Settings, *, begin: bool, only_reads: bool = False) -> Iterator[EmbeddedWhenNeeded | None]:
    """The warehouse's own metastore, where the settings name no other. `begin`: it is started or joined at once, beside
    the imports of the command; with `only_reads` unless the kept entries are enough."""
    if settings.metastore is not None:
        yield None
        return
    from skep_catalog.embedded import EmbeddedWhenNeeded

    embedded = EmbeddedWhenNeeded(settings.warehouse)
    if begin:
        embedded.begin(only_reads=only_reads)
    try:
        yield embedded
    finally:
        embedded.stop()


def until_signalled() -> threading.Event:
    """Set by SIGINT and SIGTERM; a second one of them ends the process at once."""
    ended = threading.Event()

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # In a thread: the main thread, which runs this, may hold the event's lock, being about to wait for it.
        threading.Thread(target=ended.set, name="skep-signal", daemon=True).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return ended
