"""What a write would leave as plain text beside encrypted base files: refused, unless an option allows it by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from skep_format.basefile.encryption import FACTORY, FILES, INDEXES, LOGS, PLAINTEXT, UNIFORM_KEY, keys_of
from skep_format.errors import EncryptedFileError, UnsupportedError
from skep_format.names import BaseFormat
from skep_format.schema.types import RECORD_KEY
from skep_format.table_config.keys import TableType
from skep_table.commit.parts.metadata_table import built_or_building, keeps_metadata_table
from skep_table.metadata_table.partitions import kind_of
from skep_table.metadata_write.definitions import secondary_of_options
from skep_table.metadata_write.drop import dropped_indexes
from skep_table.metadata_write.options import partitions_of_options
from skep_table.table import METADATA_ENABLE, HudiTable

MARK: Final = "skep.encrypted"
"""In the extra metadata of a commit: base files of the table are encrypted since a commit of skep."""


def check_plaintext(table: HudiTable, *, logs: bool = True, indexes: Collection[str] = ()) -> None:
    """Errors that name the option where plain text would be left: EncryptedFileError for base files of an encrypted
    table, UnsupportedError for logs and indexes that hold what is to be encrypted, or for keys of records beside
    their encrypted columns. `logs`: the action may write them. `indexes`: it makes these.
    """
    keys, allowed = keys_of(table.storage), table.options.value(PLAINTEXT)
    if keys is None or not keys.encrypt:
        if FILES not in allowed and is_marked(table):
            raise EncryptedFileError(
                f"table {table.config.name} at {table.storage.root}: its base files are encrypted, and new ones would"
                " not be",
                hint=f"set {FACTORY.key} and {UNIFORM_KEY.key}, or the other keys of Parquet's encryption;"
                f" {PLAINTEXT.key}={FILES} writes plain text on purpose",
                table=table.config.name,
                option=FACTORY.key,
            )
        return
    if INDEXES not in allowed:
        named = {*built_or_building(table), *dropped_indexes(table.config), *indexes}
        if table.options.value(METADATA_ENABLE):
            named.update(partitions_of_options(table), secondary_of_options(table))
        held = sorted(each for each in named if (kind := kind_of(each)) and (kind.of_columns or kind.of_keys))
        if held and (keeps_metadata_table(table.options) or indexes):
            raise _refused(table, f"the index {held[0]} holds values of columns as plain text", INDEXES)
    if logs and LOGS not in allowed:
        if table.config.type is TableType.MERGE_ON_READ:
            raise _refused(table, "the log files of a merge-on-read table are plain text", LOGS)
        if table.config.captured is not None:
            raise _refused(table, "the logs of its change data are plain text", LOGS)
    if FILES not in allowed and table.config.base_format is BaseFormat.ORC:
        raise _refused(table, "base files in ORC are plain text", FILES)
    if FILES not in allowed and table.config.populate_meta_fields and not keys.hides(RECORD_KEY):
        held = [name for name in table.config.record_key_fields if keys.hides(name.partition(".")[0])]
        if held:
            raise _refused(table, f"{RECORD_KEY} would hold the encrypted column {held[0]} as plain text", FILES)


def marks_of(table: HudiTable) -> Mapping[str, str]:
    """What the extra metadata of a commit states of encryption."""
    keys = keys_of(table.storage)
    encrypts = keys is not None and keys.encrypt
    return {MARK: "true"} if encrypts or (FILES not in table.options.value(PLAINTEXT) and is_marked(table)) else {}


def is_marked(table: HudiTable) -> bool:
    """Whether the newest commit states that base files are encrypted."""
    completed = table.timeline.data().completed().instants
    return bool(completed) and MARK in table.commit_extra(completed[-1])


def _refused(table: HudiTable, what: str, allowed: str) -> UnsupportedError:
    return UnsupportedError(
        f"table {table.config.name} at {table.storage.root}: its base files are to be encrypted, and {what}",
        hint=f"{PLAINTEXT.key}={allowed} allows that",
        table=table.config.name,
        option=PLAINTEXT.key,
    )
