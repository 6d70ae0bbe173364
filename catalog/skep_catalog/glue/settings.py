"""How AWS Glue is spoken to: its address, credentials, batches at once; as values and by Hudi's option keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from skep_catalog.settings import ATTEMPTS, CONNECT_TIMEOUT, TIMEOUT
from skep_format.errors import InputError, OptionError
from skep_format.options import Options, Status, at_least, boolean, comma_list, option

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

SKIP_ARCHIVE = option(
    _GLUE + "skip_table_archive", boolean, True, "Glue keeps no copy of an entry before it is altered."
)
FILE_LISTING = option(
    _GLUE + "metadata_file_listing", boolean, False, "Athena lists files by the table's metadata table."
)
READ_SEGMENTS = option(
    _GLUE + "all_partitions_read_parallelism", _segments, 1, "Parts in which all partitions are read at once, 1 to 10."
)
READ_AT_ONCE = option(
    _GLUE + "changed_partitions_read_parallelism",
    at_least(1),
    1,
    "Calls at once that read partitions by name.",
)
CHANGES_AT_ONCE = option(
    _GLUE + "partition_change_parallelism",
    at_least(1),
    1,
    "Calls at once that add, change or drop the partitions of a batch.",
)
CATALOG = option(_GLUE + "catalogId", _optional, None, "The catalog's id; else the caller's own.")
GLUE_DATABASE = option(_GLUE + "database_name", _optional, None, "The database in Glue; else that of other syncs.")
GLUE_TABLE = option(_GLUE + "table_name", _optional, None, "The entry's name in Glue; else that of other syncs.")
TAGS = option(_GLUE + "resource_tags", _tags, _no_tags, "key:value, …: tags of databases that a sync makes.")
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

ACCESS_KEY = option(_AWS + "access.key", _optional, None, "AWS access key; else as boto3 finds it.")
SECRET_KEY = option(_AWS + "secret.key", _optional, None, "Its secret.", secret=True)
SESSION_TOKEN = option(_AWS + "session.token", _optional, None, "Its session's token.", secret=True)
ROLE = option(_AWS + "role.arn", _optional, None, "A role that is assumed, by STS.")
ROLE_SESSION = option(_AWS + "role.session.name", str, "hoodie", "The name of the session in that role.")
ROLE_EXTERNAL_ID = option(_AWS + "role.external.id", _optional, None, "The external id that the role asks for.")
ENDPOINT = option(_AWS + "glue.endpoint", _optional, None, "Where Glue answers; else AWS's own address in the region.")
REGION = option(_AWS + "glue.region", _optional, None, "The region; else as boto3 finds it.", _AWS + "region")

_ADDRESS: Final = re.compile(r"glue:(?://(?P<region>[\w-]*)(?:/(?P<catalog>[^/?#]*))?/?)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GlueSettings:
    """What a client of Glue needs to know. None: as boto3 finds it by AWS's own variables and files."""

    region: str | None = None
    catalog: str | None = None
    endpoint: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    role: str | None = None
    role_session: str = "hoodie"
    role_external_id: str | None = None
    skip_archive: bool = True
    file_listing: bool = False
    indexes: tuple[tuple[str, ...], ...] | None = None  # None: they are left alone
    segments: int = 1
    reads_at_once: int = 1
    changes_at_once: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0
    connect_timeout: float = 10.0
    attempts: int | None = None

    @classmethod
    def of(cls, uri: str, given: Mapping[str, object] | None = None) -> GlueSettings:
        """From an address, `glue:` or `glue://REGION/CATALOG`, and option keys. InputError for another address."""
        match = _ADDRESS.fullmatch(uri.strip())
        if match is None:
            raise InputError(
                f"{uri!r} is not an address of AWS Glue", found=uri, expected="glue:, or glue://REGION/CATALOG"
            )
        options = given if isinstance(given, Options) else Options(given)
        access, secret = options.value(ACCESS_KEY), options.value(SECRET_KEY)
        if (access is None) != (secret is None):
            there, missing = (ACCESS_KEY, SECRET_KEY) if secret is None else (SECRET_KEY, ACCESS_KEY)
            raise OptionError(f"option {there.key} needs {missing.key}", option=missing.key)
        return cls(
            region=match["region"] or options.value(REGION),
            catalog=match["catalog"] or options.value(CATALOG),
            endpoint=options.value(ENDPOINT),
            access_key=access,
            secret_key=secret,
            session_token=options.value(SESSION_TOKEN),
            role=options.value(ROLE),
            role_session=options.value(ROLE_SESSION),
            role_external_id=options.value(ROLE_EXTERNAL_ID),
            file_listing=options.value(FILE_LISTING),
            skip_archive=options.value(SKIP_ARCHIVE),
            indexes=options.value(INDEX_FIELDS) if options.value(INDEXED) else None,
            segments=options.value(READ_SEGMENTS),
            reads_at_once=options.value(READ_AT_ONCE),
            changes_at_once=options.value(CHANGES_AT_ONCE),
            tags=options.value(TAGS),
            timeout=options.value(TIMEOUT),
            connect_timeout=options.value(CONNECT_TIMEOUT),
            attempts=options.value(ATTEMPTS) if options.is_set(ATTEMPTS) else None,
        )
