"""Property files of streamers: `include=` of others, and which value of a key counts.

The lines are Hudi's: `key=value` without escapes, `#` begins a comment. Later lines count over earlier ones, an
included file at the place of its line, and `--hoodie-conf` over all files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from skep_format.errors import OptionError
from skep_format.options import REGISTRY
from skep_format.storage import open_storage

Read = Callable[[str], str]


def read_bytes(path: str, options: Mapping[str, str] | None = None) -> bytes:
    """A file at a path or URI. OptionError when it is not there."""
    folder, _, name = path.removeprefix("file://").rpartition("/")
    try:
        return open_storage(folder or ("/" if path.startswith("/") else "."), options).read(name)
    except (FileNotFoundError, IsADirectoryError):
        raise OptionError(f"{path} is not there", path=path) from None


def read_text(path: str, options: Mapping[str, str] | None = None) -> str:
    """A text file at a path or URI. OptionError when it is not there, or is no text."""
    try:
        return read_bytes(path, options).decode("utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not in UTF-8: {error}", path=path) from error


def load_properties(path: str, read: Read = read_text) -> dict[str, str]:
    """The properties of a file and those that it includes, by their canonical keys."""
    return canonical(_lines(path, read, ()))


def canonical(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of each key the last value; an older spelling counts only where the canonical one is not among the pairs."""
    plain: dict[str, str] = {}
    older: dict[str, str] = {}
    for key, value in pairs:
        known = REGISTRY.find(key)
        if known is None or known.key == key:
            plain[key] = value
        else:
            older[known.key] = value
    return {**older, **plain}


def layered(*layers: Mapping[str, str]) -> dict[str, str]:
    """Properties of several origins, the strongest last."""
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update(canonical(layer.items()))
    return merged


def _lines(path: str, read: Read, within: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    if path in within:
        raise OptionError(f"{within[-1]} includes {path}, which includes it", path=path)
    for line in read(path).splitlines():
        if line.startswith("#") or "=" not in line:
            continue
        key, _, value = (part.strip() for part in line.partition("="))
        if key == "include":
            yield from _lines(_beside(path, value), read, (*within, path))
        else:
            yield key, value


def _beside(path: str, included: str) -> str:
    """An included file: relative paths begin at the folder of the file that includes it."""
    if included.startswith("/") or ":/" in included:
        return included
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}{included}"
