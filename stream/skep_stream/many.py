"""Many tables by one call, as HoodieMultiTableStreamer: common properties, and a file of properties for each table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from skep_format.errors import OptionError
from skep_format.options import Options
from skep_stream.flags import default_of, pairs_of
from skep_stream.options import INGESTED, INGESTED_INTO, OLD_PREFIX, PREFIX
from skep_stream.properties import layered, load_properties

_OF_MANY: Final = (
    *("config_folder", "tables_at_once", "base_path_prefix"),
    *("props", "hoodie_conf", "target_table", "target_base_path"),
)


def flags_of_tables(flags: Mapping[str, Any]) -> dict[str, Callable[[], dict[str, Any]]]:
    """By the table's name what reads the flags of its stream. OptionError where the properties name no table.

    Properties of a table's file count over the common ones. Its folder is that of its properties, else
    `<base-path-prefix>/<database>/<table>`. A call raises OptionError for its own table alone.
    """
    path = flags.get("props")
    common = layered(load_properties(str(path)) if path else {}, pairs_of(flags.get("hoodie_conf") or ()))
    names = Options(common).needed(INGESTED, "many tables need")
    return {name: partial(_of_table, name, flags, common) for name in names}


def at_once(flags: Mapping[str, Any]) -> int:
    """How many of the tables may have a round at the same time. OptionError for a text that is no such number."""
    text = str(flags.get("tables_at_once", default_of("tables_at_once")))
    if not text.isdigit() or int(text) < 1:
        raise OptionError(f"--tables-at-once: {text!r} is no number from 1 on", option="--tables-at-once", found=text)
    return int(text)


def _of_table(name: str, flags: Mapping[str, Any], common: Mapping[str, str]) -> dict[str, Any]:
    database, _, table = name.rpartition(".")
    database = database or "default"
    named = f"ingestion.{database}.{table}.configFile"
    file = common.get(f"{PREFIX}{named}") or common.get(f"{OLD_PREFIX}{named}")
    file = file or f"{str(flags['config_folder']).rstrip('/')}/{database}_{table}_config.properties"
    own = layered(common, load_properties(file))
    target = Options(own).value(INGESTED_INTO)
    prefix = flags.get("base_path_prefix")
    if not target and not prefix:
        raise OptionError(
            f"table {name} has no folder",
            hint=f"--base-path-prefix, or {INGESTED_INTO.key}",
            option="--base-path-prefix",
        )
    return {
        **{flag: value for flag, value in flags.items() if flag not in _OF_MANY},
        "target_base_path": target or f"{str(prefix).rstrip('/')}/{database}/{table}",
        "target_table": f"{database}.{table}",
        "hoodie_conf": {key: value for key, value in own.items() if key not in (INGESTED.key, INGESTED_INTO.key)},
    }
