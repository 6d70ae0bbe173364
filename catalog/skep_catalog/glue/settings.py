"""How AWS Glue is spoken to: its address, credentials, batches at once; as values and by Hudi's option keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from skep_catalog.settings import ATTEMPTS, CONNECT_TIMEOUT, TIMEOUT
from skep_format.errors import InputError, OptionError
from skep_format.options import Options, Status, at_least, boolean, comma_list, of_option, option, setting

_GLUE: Final = "hoodie.datasource.meta.sync.glue."
_AWS: Final = "hoodie.aws."
_MOST_INDEXES: Final = 3  # of a table, by Glue


def _segments(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 10:
        raise ValueError("a number from 1 to 10")
    return number


def _tags(text: str) -> Mapping[str, str]:
    found = {}
    for pair in comma_list(text):
        key, colon, value = pair.partition(":")
        if not colon or not key.strip():
            raise ValueError("key:value, several separated by commas")
        found[key.strip()] = value.strip()
    return found


def _indexes(text: str) -> tuple[tuple[str, ...], ...]:
    found = tuple(tuple(name.strip().lower() for name in index.split(";")) for index in comma_list(text))
    if len(found) > _MOST_INDEXES or not all(name for index in found for name in index):
        raise ValueError("up to three lists of columns: a;b;c,b;c")
    return found


_no_indexes: tuple[tuple[str, ...], ...] = ()
_optional: Callable[[str], str | None] = str
_no_tags: Mapping[str, str] = {}

CATALOG = option(_GLUE + "catalogId", _optional, None, "The catalog's id; else the caller's own.")
GLUE_DATABASE = option(_GLUE + "database_name", _optional, None, "The database in Glue; else that of other syncs.")
GLUE_TABLE = option(_GLUE + "table_name", _optional, None, "The entry's name in Glue; else that of other syncs.")
option(
    _GLUE + "recreate_table_on_error",
    str,
    "false",
    "tables are altered in place, never dropped",
    status=Status.NO_EFFECT,
)
INDEXED = option(
    _GLUE + "partition_index_fields.enable", boolean, False, "Make partition indexes; without it they stay as they are."
)
INDEX_FIELDS = option(
    _GLUE + "partition_index_fields",
    _indexes,
    _no_indexes,
    "Columns of up to three: a;b,b is one of both and one of b; else one of all partition keys.",
)
REGION = option(_AWS + "glue.region", _optional, None, "The region; else as boto3 finds it.", _AWS + "region")

_ADDRESS: Final = re.compile(r"glue:(?://(?P<region>[\w-]*)(?:/(?P<catalog>[^/?#]*))?/?)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueSettings:
    """What a client of Glue needs to know. None: as boto3 finds it by AWS's own variables and files."""

    region: str | None
    catalog: str | None
    indexes: tuple[tuple[str, ...], ...] | None  # None: they are left alone
    attempts: int | None
    endpoint: str | None = setting(
        _AWS + "glue.endpoint", str, None, "Where Glue answers; else AWS's own address in the region."
    )
    access_key: str | None = setting(_AWS + "access.key", str, None, "AWS access key; else as boto3 finds it.")
    secret_key: str | None = setting(_AWS + "secret.key", str, None, "Its secret.", secret=True)
    session_token: str | None = setting(_AWS + "session.token", str, None, "Its session's token.", secret=True)
    role: str | None = setting(_AWS + "role.arn", str, None, "A role that is assumed, by STS.")
    role_session: str = setting(_AWS + "role.session.name", str, "hoodie", "The name of the session in that role.")
    role_external_id: str | None = setting(
        _AWS + "role.external.id", str, None, "The external id that the role asks for."
    )
    skip_archive: bool = setting(
        _GLUE + "skip_table_archive", boolean, True, "Glue keeps no copy of an entry before it is altered."
    )
    file_listing: bool = setting(
        _GLUE + "metadata_file_listing", boolean, False, "Athena lists files by the table's metadata table."
    )
    segments: int = setting(
        _GLUE + "all_partitions_read_parallelism",
        _segments,
        1,
        "Parts in which all partitions are read at once, 1 to 10.",
    )
    reads_at_once: int = setting(
        _GLUE + "changed_partitions_read_parallelism", at_least(1), 1, "Calls at once that read partitions by name."
    )
    changes_at_once: int = setting(
        _GLUE + "partition_change_parallelism",
        at_least(1),
        1,
        "Calls at once that add, change or drop the partitions of a batch.",
    )
    tags: Mapping[str, str] = setting(
        _GLUE + "resource_tags", _tags, _no_tags, "key:value, …: tags of databases that a sync makes."
    )
    timeout: float = of_option(TIMEOUT)
    connect_timeout: float = of_option(CONNECT_TIMEOUT)

    @classmethod
    def of(cls, uri: str, given: Mapping[str, object] | None = None) -> GlueSettings:
        """From an address, `glue:` or `glue://REGION/CATALOG`, and option keys. InputError for another address."""
        match = _ADDRESS.fullmatch(uri.strip())
        if match is None:
            raise InputError(
                f"{uri!r} is not an address of AWS Glue", found=uri, expected="glue:, or glue://REGION/CATALOG"
            )
        options = given if isinstance(given, Options) else Options(given)
        found = options.read(
            cls,
            region=match["region"] or options.value(REGION),
            catalog=match["catalog"] or options.value(CATALOG),
            indexes=options.value(INDEX_FIELDS) if options.value(INDEXED) else None,
            attempts=options.value(ATTEMPTS) if options.is_set(ATTEMPTS) else None,
        )
        if (found.access_key is None) != (found.secret_key is None):
            there, missing = ("access", "secret") if found.secret_key is None else ("secret", "access")
            raise OptionError(f"option {_AWS}{there}.key needs {_AWS}{missing}.key", option=f"{_AWS}{missing}.key")
        return found
