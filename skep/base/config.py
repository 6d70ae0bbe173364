"""Settings: flag > SKEP__… environment > skep.toml of the project > of the user > default, with profiles.

A project's file is the nearest `skep.toml`, or `[tool.skep]` in `pyproject.toml`, from the working folder upwards; the
user's is `~/.config/skep/skep.toml`. In files `${NAME}` and `${NAME:-otherwise}` stand for environment variables, and
`[profiles.<name>]` holds values that replace the others when that profile is chosen. Options of a single table lie
between these and the defaults: they are the table's own properties, and read where the table is.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from skep_format.errors import OptionError
from skep_format.nearest import did_you_mean
from skep_format.options import Options, mask

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "SKEP__"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a connection and a command start from."""

    metastore: str | None = None
    """Address of the metastore (`thrift://host:port`, several separated by commas), else the one `options` name for
    Hudi's sync; none: the embedded one."""
    warehouse: str = "skep-warehouse"
    """Folder of the tables, below which each database has one."""
    database: str = "default"
    """The database of table names that name none."""
    output: str = "table"
    """How commands print rows: table, json, jsonl, csv."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of reads, writes and syncs, by Hudi's names."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark sessions that skep starts."""
    stream: Mapping[str, str] = field(default_factory=dict)
    """Flags of streams, each by the stream's name, a dot and its own: `orders.target_table`."""
    pipeline: Mapping[str, str] = field(default_factory=dict)
    """What pipelines are described by, each by its name, a dot and a field: `cleaned.source`."""


NAMES = tuple(setting.name for setting in fields(Settings))
TABLES = frozenset({"options", "spark", "stream", "pipeline"})
"""Settings that hold names and values; the others are texts."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Values of one origin."""

    origin: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and the layers they came from, strongest first."""

    settings: Settings
    profile: str | None
    layers: tuple[Layer, ...]

    def origins(self) -> list[dict[str, str]]:
        """Every value with its key and origin, secrets masked."""
        shown = []
        for key, value in flat(asdict(self.settings)):
            origin = next((layer.origin for layer in self.layers if key in dict(flat(layer.values))), "default")
            if value != {}:
                shown.append({"key": key, "value": mask(key, "" if value is None else str(value)), "origin": origin})
        return shown


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    profile: str | None = None,
    folder: Path | None = None,
    home: Path | None = None,
) -> Loaded:
    """The settings for a call made in `folder`. OptionError names the file and the key that can't be used."""
    folder, home = folder or Path.cwd(), home or Path.home()
    profile = profile or os.environ.get(f"{PREFIX}PROFILE") or None
    files = [read for read in (_project_file(folder), _user_file(home)) if read is not None]
    chosen = profile or next((values["profile"] for _, values in files if "profile" in values), None)
    layers = [Layer("flag", {key: value for key, value in (flags or {}).items() if value is not None})]
    layers.append(Layer("environment", _environment()))
    for name, values in files:
        layers += _file_layers(name, values, chosen)
    if chosen and not any(f"[profiles.{chosen}]" in layer.origin for layer in layers):
        known = sorted({name for _, values in files for name in values.get("profiles", {})})
        raise OptionError(
            f"no file has a profile {chosen}" + (f"; there are: {', '.join(known)}" if known else ""),
            option="profile",
            found=chosen,
        )
    for layer in layers:
        _check(layer)
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        for key, value in layer.values.items():
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, Mapping) else value
    if "metastore" not in merged and (address := metastore_of_syncs(merged.get("options", {}))):
        merged["metastore"] = address
        layers.append(Layer("options", {"metastore": address}))
    return Loaded(Settings(**merged), chosen, tuple(layers))


def metastore_of_syncs(options: Mapping[str, str]) -> str | None:
    """The metastore's address by Hudi's sync options."""
    if not options:
        return None
    from skep_sync.options import main_address

    return main_address(Options(options)) or None


def flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """`options.hoodie.x = …` for tables within; an empty table counts as a value."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield key, value


def _environment() -> dict[str, Any]:
    """`SKEP__WAREHOUSE=…`, `SKEP__OPTIONS='{"hoodie.…": "…"}'`."""
    given = {name[len(PREFIX) :].lower(): value for name, value in os.environ.items() if name.startswith(PREFIX)}
    given.pop("profile", None)
    return {key: _of_json(key, value) if key in TABLES else value for key, value in given.items()}


def _of_json(key: str, text: str) -> dict[str, str]:
    try:
        return {name: _text(value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        name = f"{PREFIX}{key.upper()}"
        raise OptionError(f"{name} is no JSON object of names and values: {text}", option=name, found=text) from error


def _project_file(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    for parent in (folder, *folder.parents):
        own = parent / "skep.toml"
        if own.is_file():
            return own, _parse(own)
        shared = parent / "pyproject.toml"
        if shared.is_file() and "skep" in (tool := _parse(shared).get("tool", {})):
            return shared, tool["skep"]
    return None


def _user_file(home: Path) -> tuple[Path, dict[str, Any]] | None:
    path = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "skep" / "skep.toml"
    return (path, _parse(path)) if path.is_file() else None


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{path} can't be read: {error}", path=str(path)) from error


def _file_layers(path: Path, values: Mapping[str, Any], profile: str | None) -> Iterator[Layer]:
    """The chosen profile's values, then the file's own."""
    common = {key: value for key, value in values.items() if key not in ("profile", "profiles")}
    profiles = values.get("profiles", {})
    if profile is not None and profile in profiles:
        yield Layer(f"{path} [profiles.{profile}]", _usable(path, profiles[profile]))
    yield Layer(str(path), _usable(path, common))


def _usable(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Variables filled in, values as text, nested option names joined; a relative warehouse counts from the file."""
    usable: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            usable[key] = {name: _filled(path, f"{key}.{name}", _text(inner)) for name, inner in _dotted(value)}
        else:
            usable[key] = _filled(path, key, value) if isinstance(value, str) else value
    warehouse = usable.get("warehouse")
    if isinstance(warehouse, str) and ":/" not in warehouse:
        usable["warehouse"] = str(path.parent / Path(warehouse).expanduser())
    return usable


def _dotted(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """TOML reads `hoodie.x = 1` as a table in a table; option names are whole."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", inner) for name, inner in _dotted(value))
        else:
            yield key, value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(:-(?P<otherwise>[^}]*))?\}")


def _filled(path: Path, key: str, text: str) -> str:
    def value(found: re.Match[str]) -> str:
        known = os.environ.get(found["name"], found["otherwise"])
        if known is None:
            raise OptionError(
                f"{path}: {key} needs the environment variable {found['name']}, which is not set",
                hint=f"set it, or write ${{{found['name']}:-otherwise}}",
                option=key,
            )
        return known

    return _VARIABLE.sub(value, text)


def _check(layer: Layer) -> None:
    """A name that means nothing is an error, and so is a value of another kind than its setting's."""
    for key, value in layer.values.items():
        if key not in NAMES:
            raise OptionError(f"{layer.origin}: unknown setting {key}", hint=did_you_mean(key, NAMES), option=key)
        wanted = "names and values" if key in TABLES else "a text"
        if not isinstance(value, Mapping if key in TABLES else str):
            raise OptionError(f"{layer.origin}: {key} is {wanted}, not {value!r}", option=key, found=value)
