"""Options: every package registers its keys once, with Hudi's names, type, default and status; reads are typed.

A key that is registered and supported is taken verbatim; one that is known and not built yet is refused by name; one
without effect gets a warning by name, on the whole or for the operation at hand; an unknown one gets one warning, which
names the known key that is near.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from importlib import import_module
from typing import Any, Final, Generic, TypeVar

from skep_format.errors import OptionError, UnsupportedError

INSERTS: Final = ("insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
WRITES_OF_ROWS: Final = ("upsert", *INSERTS)
"""Write operations, for `Option.only`."""

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
C = TypeVar("C")


class Status(Enum):
    """What becomes of an option that a user sets."""

    SUPPORTED = "supported"
    PLANNED = "planned"  # known, not built: refused by name when set, unless it asks for what skep does anyway
    NO_EFFECT = "no effect"  # nothing in skep would change by it: a warning, unless it asks for what skep does


class UnknownOptionWarning(UserWarning):
    """An option key that skep does not know."""


class IneffectiveOptionWarning(UserWarning):
    """An option that changes nothing where it was given."""


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One key. `parse` turns text into the value (ValueError when it can't); `default` is the value when not set.

    `key` is Hudi's name where Hudi has one; `aliases` are older and alternative spellings. `secret` values are masked
    wherever they would be shown. `only` are the write operations that read it, by Hudi's names; all when empty. Without
    effect, or refused, `default` is the value that describes what skep does anyway.
    """

    key: str
    parse: Callable[[str], T]
    default: T
    doc: str = ""
    aliases: tuple[str, ...] = ()
    status: Status = Status.SUPPORTED
    secret: bool = False
    accepts: str = ""  # what an error names as expected
    only: tuple[str, ...] = ()


def boolean(text: str) -> bool:
    """A parser for true, 1, yes and false, 0, no, in any case. ValueError for other texts."""
    value = text.strip().lower()
    if value in ("true", "1", "yes"):
        return True
    if value in ("false", "0", "no"):
        return False
    raise ValueError("true or false")


def comma_list(text: str) -> tuple[str, ...]:
    """A parser for texts separated by commas, without the spaces around them; empty ones are left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def at_least(least: int) -> Callable[[str], int]:
    """A parser for whole numbers from `least` on."""

    def parse(text: str) -> int:
        number = int(text)
        if number < least:
            raise ValueError(f"a number of at least {least}")
        return number

    return parse


def one_of(kind: type[E]) -> Callable[[str], E]:
    """A parser for an enum's values, whatever their case."""

    def parse(text: str) -> E:
        for member in kind:
            if str(member.value).lower() == text.strip().lower():
                return member
        raise ValueError(f"one of {', '.join(str(member.value) for member in kind)}")

    return parse


_PREFIXES: Final = ("hoodie.", "skep.", "_hoodie.")


class Registry:
    """All option keys of the project. Packages add theirs at import."""

    def __init__(self) -> None:
        self._options: dict[str, Option[Any]] = {}
        self._families: set[str] = set()
        self._later: tuple[str, ...] = ()
        self.checks: list[Callable[[Options], None]] = []
        """What `Options.check` calls, too: of options that fit or not by what others are."""

    def add_family(self, prefix: str) -> None:
        """Keys that begin with `prefix` are known: users name what follows, the module that added it reads it."""
        self._families.add(prefix)

    def in_family(self, key: str) -> bool:
        """Whether the key begins with a prefix of `add_family`."""
        return any(key.startswith(prefix) for prefix in self._families)

    def add(self, option: Option[T]) -> Option[T]:
        """Registers the option under its key and aliases, and returns it. ValueError when one of them is taken."""
        for key in (option.key, *option.aliases):
            known = self._options.setdefault(key, option)
            if known is not option:
                raise ValueError(f"option {key} is registered twice")
        return option

    def add_later(self, *modules: str) -> None:
        """Modules with further options, which are imported for the first key that is not known yet."""
        self._later += modules

    def _complete(self) -> None:
        """Of several threads each waits for the imports, and finds what they register."""
        while modules := self._later:
            for name in modules:
                import_module(name)
            self._later = tuple(name for name in self._later if name not in modules)

    def find(self, key: str) -> Option[Any] | None:
        """The option with this key or alias; None when there is none."""
        if key not in self._options and key.startswith(_PREFIXES):
            self._complete()
        return self._options.get(key)

    def canonical(self, key: str) -> str:
        """The key that an alias stands for, as far as options were registered or found; others are as they are."""
        known = self._options.get(key)
        return known.key if known else key

    def nearest(self, key: str) -> str | None:
        """The key that is meant most likely; None when none is near, but for what both begin with."""
        close = difflib.get_close_matches(key, self._options, n=5, cutoff=0.8)
        return next((other for other in close if _is_near(key, other)), None)

    def __iter__(self) -> Iterator[Option[Any]]:
        self._complete()
        return iter({option.key: option for option in self._options.values()}.values())


def _is_near(one: str, other: str) -> bool:
    parts, others = one.split("."), other.split(".")
    while parts and others and parts[0] == others[0]:
        parts, others = parts[1:], others[1:]
    return not parts or not others or difflib.SequenceMatcher(None, ".".join(parts), ".".join(others)).ratio() >= 0.75


REGISTRY = Registry()
_warned: set[str] = set()
"""The warnings that this process has given: writers are opened for every batch of a stream."""


def option(
    key: str,
    parse: Callable[[str], T],
    default: T,
    doc: str = "",
    *aliases: str,
    status: Status = Status.SUPPORTED,
    secret: bool = False,
    accepts: str = "",
    only: tuple[str, ...] = (),
) -> Option[T]:
    """Registers a key; see Option."""
    return REGISTRY.add(Option(key, parse, default, doc, aliases, status, secret, accepts, only))


def setting(
    key: str,
    parse: Callable[[str], T],
    default: T,
    doc: str = "",
    *aliases: str,
    secret: bool = False,
    accepts: str = "",
) -> T:
    """Registers a key as `option` does, as a field of a frozen dataclass: see `of_option`."""
    return of_option(option(key, parse, default, doc, *aliases, secret=secret, accepts=accepts))


def of_option(option: Option[T]) -> T:
    """A field of a frozen dataclass, with the option's default, which `Options.read` fills with its value."""
    return field(default_factory=lambda: option.default, metadata={"option": option}, repr=not option.secret)


def planned(*keys: str) -> None:
    """Registers keys that are known and refused for now."""
    for key in keys:
        option(key, str, "", status=Status.PLANNED)


class Options(Mapping[str, str]):
    """The options of one call or one table, as given: key → text. Frozen; typed reads by Option.

    Keys are resolved through the registry: an alias counts as its canonical key, and the same key given twice with
    different values is an OptionError.
    """

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self._given: dict[str, str] = {}
        for key, value in (given or {}).items():
            text = _text(value)
            known = REGISTRY.find(key)
            canonical = known.key if known else key
            if self._given.get(canonical, text) != text:
                raise OptionError(
                    f"option {canonical} is given twice: {self._given[canonical]!r} and, as {key}, {text!r}",
                    option=canonical,
                )
            self._given[canonical] = text

    def __getitem__(self, key: str) -> str:
        return self._given[REGISTRY.canonical(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __hash__(self) -> int:
        return hash(frozenset(self._given.items()))

    def __repr__(self) -> str:
        return f"Options({self.masked()!r})"

    def value(self, option: Option[T]) -> T:
        """The option's value: as given, parsed, or its default. OptionError when the text does not parse."""
        text = self._given.get(option.key)
        return option.default if text is None else _parsed(option, text)

    def needed(self, option: Option[T], who: str, hint: str | None = None) -> T:
        """As `value`. OptionError where that is empty: `who`, a text such as "JdbcSource needs", and the key."""
        value = self.value(option)
        if not value:
            raise OptionError(f"{who} {option.key}", hint=hint, option=option.key)
        return value

    def read(self, kind: Callable[..., C], **others: object) -> C:
        """A dataclass whose fields are options, but for `others`. OptionError when a text does not parse."""
        known: Any = kind
        options = {each.name: each.metadata.get("option") for each in fields(known)}
        return kind(**{name: self.value(option) for name, option in options.items() if option} | others)

    def is_set(self, option: Option[Any]) -> bool:
        """Whether the option was given, be it with its default."""
        return option.key in self._given

    def with_values(self, more: Mapping[str, object]) -> Options:
        """A copy in which `more` wins."""
        changed: dict[str, object] = dict(self._given)
        changed.update(Options(more)._given)
        return Options(changed)

    def check(self) -> None:
        """Refuses known keys that are not built yet (UnsupportedError), and values that their options do not take
        (OptionError), whatever reads them later.

        Warns, once a process for each, of unknown keys and of those without effect. Dotted keys of other systems, which
        storage, Spark and Kafka read, are theirs.
        """
        for key in self._given:
            known = REGISTRY.find(key)
            if known is None:
                if _is_meant_for_us(key) and not REGISTRY.in_family(key):
                    nearest = REGISTRY.nearest(key)
                    hint = f"; did you mean {nearest}?" if nearest else ""
                    _warn_once(f"unknown option {key}{hint}", UnknownOptionWarning)
            elif known.status is Status.SUPPORTED:
                _parsed(known, self._given[key])
            elif self._given[key].lower() != str(known.default).lower():
                reason = f": {known.doc}" if known.doc else ""
                if known.status is Status.PLANNED:
                    raise UnsupportedError(f"option {key} is known but not supported yet{reason}", option=key)
                warn_ineffective(f"option {key} has no effect{reason}")
        for check in REGISTRY.checks:
            check(self)

    def check_operation(self, operation: str) -> None:
        """Warns, once a process each, of options that only other write operations than `operation` read."""
        operation = operation.removesuffix("_prepped")
        for key in self._given:
            known = REGISTRY.find(key)
            if known and known.only and operation not in known.only and self.value(known) != known.default:
                warn_ineffective(f"option {key} has no effect on {operation}: it is for {', '.join(known.only)}")

    def masked(self) -> dict[str, str]:
        """What may be shown: secrets replaced by `****`."""
        return {key: mask(key, value) for key, value in self._given.items()}


def _parsed(option: Option[T], text: str) -> T:
    try:
        return option.parse(text)
    except ValueError as error:
        expected = option.accepts or _expected(error)
        raise OptionError(
            f"option {option.key}: {text!r} is not {expected}", option=option.key, found=text, expected=expected
        ) from error


_OF_STORES: Final = ("aws_", "google_", "azure_")  # names of obstore's settings


def _is_meant_for_us(key: str) -> bool:
    """Whether nobody else would read a key: it begins as ours do, or nearly, or has no dot."""
    head, dot, _ = key.partition(".")
    if not dot:
        return not key.lower().startswith(_OF_STORES)
    return bool(difflib.get_close_matches(f"{head}.", _PREFIXES, n=1, cutoff=0.8))


def _expected(error: ValueError) -> str:
    """What a parser wanted: its own words, and for those of Python's numbers words of ours."""
    reason = str(error)
    if reason.startswith("invalid literal for int()"):
        return "a whole number"
    if reason.startswith("could not convert string to float"):
        return "a number"
    return reason


def warn_ineffective(message: str) -> None:
    """An IneffectiveOptionWarning, once a process for one message."""
    _warn_once(message, IneffectiveOptionWarning)


def _warn_once(message: str, category: type[Warning]) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, category, stacklevel=5)


def mask(key: str, value: str) -> str:
    """What may be shown of an option's value."""
    known = REGISTRY.find(key)
    secret = bool(known and known.secret) or any(word in key.lower() for word in _SECRET_WORDS)
    return "****" if secret else value


_SECRET_WORDS = (
    "password",
    "secret",
    "token",
    "credential",
    "api.key",
    "access.key",
    "account.key",
    "jaas.config",
    "user.info",
    "encryption.key.list",
    "encryption.new.key.list",
)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
