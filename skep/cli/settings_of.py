"""`KEY=VALUE` arguments of commands."""

from __future__ import annotations

from skep_table.errors import InputError


def settings_of(pairs: list[str] | None, flag: str = "--option") -> dict[str, str]:
    """`KEY=VALUE` arguments of a flag as a mapping. InputError for one without `=`."""
    settings = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise InputError(f"{flag} takes KEY=VALUE, not {pair!r}", option=flag, found=pair)
        settings[key.strip()] = value
    return settings
