"""The metastores that a table is synced to: the main one and any number of others, each independently.

    skep.sync.targets                           names, separated by commas
    skep.sync.target.<name>.uris                where that metastore is
    skep.sync.target.<name>.database, .table    under which names; else the same as everywhere
    skep.sync.target.<name>.kind                hudi, or manifest for engines that don't know Hudi
    skep.sync.target.<name>.<key>               any other option of a sync, for this target only

Each has its own entries, markers and retries: one that is down holds up none of the others.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skep_catalog.addresses import GLUE, catalog_at, is_glue
from skep_catalog.catalogs import EntryCatalog
from skep_catalog.glue.settings import GLUE_DATABASE, GLUE_TABLE
from skep_format.errors import OptionError, SkepError
from skep_format.options import REGISTRY, Options, comma_list, option
from skep_sync.options import DATABASE, GLUE_TOOL, KIND, TABLE, TOOLS, URIS, main_address
from skep_table.events import NO_EVENTS, Events
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_sync.planning.ahead import Ahead
    from skep_sync.sync import SyncReport

MAIN: Final = "main"
_GLUE: Final = "glue"
_PREFIX: Final = "skep.sync.target."
_SHORT: Final = {"uris": URIS.key, "database": DATABASE.key, "table": TABLE.key, "kind": KIND.key}
_NAME: Final = re.compile(r"[A-Za-z0-9][\w-]*")

_no_names: tuple[str, ...] = ()
TARGETS = option("skep.sync.targets", comma_list, _no_names, "Names of further metastores that tables are synced to.")
REGISTRY.add_family(_PREFIX)


@dataclass(frozen=True, slots=True)
class Target:
    """One metastore, and how tables are registered there. `uri` is None for the main one: who asks has a client."""

    name: str
    uri: str | None
    options: Options

    def names(self, entry: str | None) -> tuple[str | None, str | None]:
        """Database and table for a table known as `entry` (`database.table`); None where its own name holds."""
        database, _, table = (entry or "").rpartition(".")
        own_database, own_table = self.options.value(DATABASE), self.options.value(TABLE)
        if self.name == MAIN:  # where `entry` is from
            return database or own_database, table or own_table
        return own_database or database or None, own_table or table or None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a table at one target."""

    target: str
    result: SyncReport | SkepError

    @property
    def error(self) -> SkepError | None:
        """The error, when the sync failed."""
        return self.result if isinstance(self.result, SkepError) else None


def targets_of(
    options: Mapping[str, object] | None, uri: str | None = None, *, in_glue: bool | None = None
) -> tuple[Target, ...]:
    """The main target and those that the options name. OptionError where one lacks a setting.

    `in_glue`: whether the main one is AWS Glue; else by its address. Hudi's sync tool for Glue adds Glue where it is
    not among them."""
    given = options if isinstance(options, Options) else Options(options)
    own: dict[str, dict[str, str]] = {}
    common: dict[str, str] = {}
    for key, value in given.items():
        if not key.startswith(_PREFIX):
            common[key] = value
            continue
        name, _, rest = key[len(_PREFIX) :].partition(".")
        own.setdefault(name, {})[_SHORT.get(rest, rest)] = value
    named = given.value(TARGETS)
    for name in own:
        if name not in named:
            raise OptionError(
                f"options of a target {name} are set, but {TARGETS.key} does not name it: {', '.join(named) or 'none'}",
                option=f"{_PREFIX}{name}",
            )
    main = Options(common)
    if in_glue is None:
        in_glue = is_glue(uri or main_address(given))
    targets = [
        Target(MAIN, uri, in_names_of_glue(main) if in_glue else main),
        *(_target(name, common, own.get(name, {})) for name in named),
    ]
    if GLUE_TOOL in given.value(TOOLS) and not in_glue and not any(is_glue(target.uri) for target in targets):
        targets.append(_target(_GLUE, common, {URIS.key: GLUE}))
    return tuple(targets)


def in_names_of_glue(options: Options) -> Options:
    """The options with the names that they have for entries in AWS Glue."""
    names = {DATABASE: options.value(GLUE_DATABASE), TABLE: options.value(GLUE_TABLE)}
    return options.with_values({option.key: name for option, name in names.items() if name})


def _target(name: str, common: Mapping[str, str], own: Mapping[str, str]) -> Target:
    if name == MAIN or not _NAME.fullmatch(name):
        raise OptionError(f"{TARGETS.key}: {name!r} can't be a target's name", option=TARGETS.key, found=name)
    uri = own.get(URIS.key)
    if not uri:
        raise OptionError(f"target {name} has no {_PREFIX}{name}.uris", option=f"{_PREFIX}{name}.uris")
    # Names, kind and address of the main target's entries are not another's.
    shared = {key: value for key, value in common.items() if key not in (*_SHORT.values(), TARGETS.key)}
    options = Options(shared).with_values(own)
    try:
        options.check()
        options.value(KIND)
    except SkepError as error:
        raise OptionError(f"target {name}: {error.message}", **error.fields) from error  # type: ignore[arg-type]
    return Target(name, uri, in_names_of_glue(options) if is_glue(uri) else options)


class Clients:
    """One client a target, made when it is first asked for. Threads may share it."""

    def __init__(self, main: EntryCatalog | None = None) -> None:
        self._known: dict[str, EntryCatalog] = {} if main is None else {MAIN: main}
        self._made: list[EntryCatalog] = []
        self._guard = threading.Lock()

    def of(self, target: Target) -> EntryCatalog:
        """The client of a target's metastore, opened at the first use."""
        with self._guard:
            if target.name not in self._known:
                if not target.uri:
                    raise OptionError(f"a sync needs {URIS.key}", option=URIS.key)
                self._known[target.name] = catalog_at(target.uri, target.options)
                self._made.append(self._known[target.name])
            return self._known[target.name]

    def close(self) -> None:
        """Closes the clients that were made here."""
        for client in self._made:
            client.close()

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sync_target(
    target: Target,
    clients: Clients,
    table: HudiTable | str,
    entry: str | None = None,
    *,
    full: bool = False,
    events: Events = NO_EVENTS,
    ahead: Ahead | None = None,
) -> SyncReport:
    """Syncs a table, or what lies at a path now, to one target. `ahead`: see `look_ahead`."""
    if isinstance(table, str):
        table = HudiTable.open(table, target.options)
    database, name = target.names(entry)
    from skep_sync.sync import sync_table  # reads of a lake know its targets, and sync nothing

    options = target.options
    return sync_table(table, clients.of(target), database, name, options, full=full, events=events, ahead=ahead)


def look_ahead(
    target: Target,
    clients: Clients,
    table: HudiTable,
    entry: str | None,
    paths: Collection[str],
    confirm: Callable[[], None],
) -> Ahead:
    """What a target has of a table and some of its partitions, for the sync after a commit that is under way."""
    from skep_sync.manifest import planning

    database, name = target.names(entry)
    with planning(table, clients.of(target), database, name, target.options) as planner:
        return planner.look_ahead(paths, confirm)


def each_target(targets: Sequence[Target], sync: Callable[[Target], SyncReport]) -> list[Outcome]:
    """Syncs to all targets at once, so that none waits for another; errors are outcomes too."""

    def outcome(target: Target) -> Outcome:
        try:
            return Outcome(target.name, sync(target))
        except SkepError as error:
            return Outcome(target.name, error)

    if len(targets) == 1:
        return [outcome(targets[0])]
    with ThreadPoolExecutor(len(targets), "skep-target") as pool:
        return list(pool.map(outcome, targets))
