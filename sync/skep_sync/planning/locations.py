"""Locations of tables and partitions as engines write them: which of them mean the same folder.

Not by a URL parser: Hadoop takes `%`, `?` and `#` in paths as they are.
"""

from __future__ import annotations

import re
from typing import Final

_SAME_SCHEME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}
_URI: Final = re.compile(r"([A-Za-z][\w+.-]*):(?://([^/]*))?(/.*|)", re.DOTALL)

Location = tuple[str, str, str]
"""Scheme, authority, path; equal when the folder is the same."""


def location(text: str) -> Location:
    """`file:` or none, `s3` or `s3a`, a slash at the end don't count."""
    match = _URI.fullmatch(text)
    scheme, authority, path = (match[1].lower(), match[2] or "", match[3]) if match else ("file", "", text)
    return _SAME_SCHEME.get(scheme, scheme), authority, path.rstrip("/")


def same_location(one: str | None, other: str | None) -> bool:
    """Whether two locations are one."""
    if one is None or other is None:
        return one is other
    return location(one) == location(other)


def registered_there(registered: str | None, wanted: str | None) -> bool:
    """Whether an entry's location is this folder. A metastore spells out what was left to its settings, the name node
    of a path without one, and its port. Not for permissions: there another name node is another place."""
    if same_location(registered, wanted):
        return True
    if registered is None or wanted is None:
        return False
    (scheme, node, path), (other_scheme, other_node, other_path) = location(registered), location(wanted)
    if not scheme == other_scheme == "hdfs" or path != other_path:
        return False
    (host, _, port), (other_host, _, other_port) = node.partition(":"), other_node.partition(":")
    return not (node and other_node) or (host == other_host and not (port and other_port))


def path_below(text: str | None, base_path: str) -> str | None:
    """The path from a folder to a location below it; None where it is not below."""
    if text is None:
        return None
    one, base = location(text), location(base_path)
    below = one[:2] == base[:2] and one[2].startswith(base[2] + "/")
    return one[2][len(base[2]) + 1 :] if below else None


def lies_below(text: str | None, base_path: str) -> bool:
    """Whether a location is a folder below another."""
    return path_below(text, base_path) is not None
