"""Tables of versions before 6 become such of version 6: what Hudi's upgrades from 0 to 6 do, in one step.

Data files and timeline stay as they are, since version 6 reads them. What changes is

* the settings: each release of Hudi added some that its writers knew and did not store before (keys and partition
  columns, 2; how paths are made, 3; the checksum, 4). They are taken from the table, from the options, or from what
  Hudi's writers did without them, and are compared with rows that are there;
* the metadata table: older ones are kept by other rules, so it is dropped and rebuilt (3 and 6);
* failed writes: they are rolled back by listing, since older markers do not name log files (1);
* the folder `default` of rows without partition value, which has another name from version 5 on: the upgrade is refused
  while a table has it, unless hoodie.skip.default.partition.validation is true;
* archives of Hudi 0.9, which lie beside the timeline, and are copied to the archive's folder;
* the second copy of compaction plans in `.hoodie/.aux`, which is deleted (6).

The settings are replaced in one step. Before it the table is of the old version, for its readers and writers; what was
copied or is left to delete after it has no meaning, and the same upgrade again deletes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import KeyFieldError, UnsupportedError, VersionChangeError
from skep_format.names import DEFAULT_PARTITION, META_FOLDER, LogFileName
from skep_format.options import boolean, option
from skep_format.schema.types import PARTITION_PATH, RECORD_KEY
from skep_format.table_config import KEY_GENERATOR_CLASS, TableConfig, update_table_config, with_checksum
from skep_format.table_config.keys import (
    ARCHIVE_FOLDER,
    BASE_FORMAT,
    CLASS_OF_KEY_GENERATOR,
    DATABASE,
    HIVE_STYLE,
    LAYOUT_VERSION,
    PARTITION_FIELDS,
    PAYLOAD_CLASS,
    PRECOMBINE_FIELD,
    PROPERTIES_PATH,
    RECORD_KEY_FIELDS,
    URL_ENCODE,
    VERSION,
)
from skep_format.timeline.archive import archive_files
from skep_format.versions import DEFAULT, format_of
from skep_table.commit.parts.metadata_table import create_again, drop_older
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.writable import check_version, taken_over
from skep_table.keys.generator import generator_name, infer_key_generator
from skep_table.keys.stored import generator_as_stored
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.upgrade.route import check_pending
from skep_table.upgrade.settings import changes_between
from skep_table.write.planning.merge_options import ORDERING, PAYLOAD
from skep_table.write.planning.settings import DATABASE_NAME, KEY_GENERATOR, check_settings
from skep_table.write.planning.settings import HIVE_STYLE as HIVE_STYLE_OPTION
from skep_table.write.planning.settings import PARTITION_FIELDS as PARTITION_OPTION
from skep_table.write.planning.settings import RECORD_KEY as KEY_OPTION
from skep_table.write.planning.settings import URL_ENCODE as URL_ENCODE_OPTION

SKIPS_DEFAULT_PARTITION: Final = option(
    "hoodie.skip.default.partition.validation",
    boolean,
    False,
    "An upgrade from a version before 5 passes over the folder `default` of rows without partition value, which has"
    " another name from then on",
)
_SECOND_COPIES: Final = f"{META_FOLDER}/.aux"
_PLAN_SUFFIX: Final = ".compaction.requested"
_TOKEN_OF_COPIES: Final = "2-0-1"  # Hudi's archives have 1-0-1
_COMPARED_ROWS: Final = 100

log = logging.getLogger("skep.upgrade")


def become_written(table: HudiTable, *, goes_on: bool) -> HudiTable:
    """Brings a table of an older version to version 6, and returns the snapshot after it.

    Its metadata table is rebuilt now, or when the upgrade that `goes_on` to a newer version has arrived there.

    VersionChangeError where a needed setting is neither in the table nor among the options, or does not fit its rows;
    CommitConflictError while others write.
    """
    with table.context.locked():
        now = taken_over(table)
        check_version(table, now)
        after = settings_when_written(now)
        table = roll_back_failed(drop_older(now))
        check_pending(table, plans_stay=True)
        for path, name in archive_files(table.storage, META_FOLDER):
            table.context.lock.ensure_held()
            table.storage.replace_atomic(_kept_as(table, name), table.storage.read(path))
        table.context.lock.ensure_held()
        update_table_config(table.storage, changes_between(now.config, after))
        table.storage.delete_many(left_by_older(table))
        log.info("table %s: version %s is version %s now", after.name, now.config.version, after.version)
        return table.reload() if goes_on else create_again(table.reload())


def settings_when_written(table: HudiTable) -> TableConfig:
    """The settings of an older table in version 6, checked against its rows and the options. Changes nothing.

    VersionChangeError as for `become_written`; TableMismatchError for an option that contradicts the table.
    """
    config, partitions = table.config, table.view(metadata=False).partitions()
    found = dict(config.raw)
    found.update((key, text) for key, text in _from_options(table) if not found.get(key))
    given = TableConfig.parse(found)
    keys, fields = given.record_key_fields, given.partition_fields
    if not keys:
        raise _lacking(table, RECORD_KEY_FIELDS, "which columns identify a row", KEY_OPTION.key)
    if not fields and any(partitions):
        what = f"which columns make its folders, such as {next(filter(None, partitions))!r}"
        raise _lacking(table, PARTITION_FIELDS, what, PARTITION_OPTION.key)
    found.setdefault(PARTITION_FIELDS, "")
    found.setdefault(KEY_GENERATOR_CLASS, infer_key_generator(keys, given.typed_partition_fields or fields).class_name)
    found.setdefault(HIVE_STYLE, "true" if _are_hive_style(fields, partitions) else "false")
    for key, text in ((URL_ENCODE, "false"), (BASE_FORMAT, "PARQUET"), (ARCHIVE_FOLDER, "archived")):
        found.setdefault(key, text)
    found[PARTITION_FIELDS] = ",".join(fields)
    written = TableConfig.parse(with_checksum({**found, VERSION: str(DEFAULT.version), LAYOUT_VERSION: "1"}))
    check_settings(written, table.storage.root, table.options)
    _check_default_partition(table, written, partitions)
    _check_rows(table, written)
    return written


def left_by_older(table: HudiTable) -> list[str]:
    """What nothing reads any more once a table has version 6: second copies of plans, and archives beside the timeline
    that are in the archive's folder, too."""
    listed = table.storage.list_prefix(_SECOND_COPIES)
    plans = [file.path for file in listed if file.name.endswith(_PLAN_SUFFIX)]
    archived = {path for path, _ in archive_files(table.storage, table.layout.archive_folder)}
    beside = archive_files(table.storage, META_FOLDER)
    return plans + [path for path, name in beside if _kept_as(table, name) in archived]


def _kept_as(table: HudiTable, name: LogFileName) -> str:
    """Where an archive beside the timeline goes: by its token no other file has that name."""
    return f"{table.layout.archive_folder}/{replace(name, write_token=_TOKEN_OF_COPIES)}"


def _from_options(table: HudiTable) -> Iterator[tuple[str, str]]:
    """The settings that options state, those of the table go before them."""
    options = table.options
    lists = ((KEY_OPTION, RECORD_KEY_FIELDS), (PARTITION_OPTION, PARTITION_FIELDS), (ORDERING, PRECOMBINE_FIELD))
    for known, key in lists:
        if options.is_set(known):
            names = options.value(known)
            yield key, ",".join(names)
    for text, key in ((DATABASE_NAME, DATABASE), (PAYLOAD, PAYLOAD_CLASS)):
        if options.is_set(text) and options.value(text):
            yield key, options.value(text)
    for flag, key in ((HIVE_STYLE_OPTION, HIVE_STYLE), (URL_ENCODE_OPTION, URL_ENCODE)):
        if options.is_set(flag):
            yield key, "true" if options.value(flag) else "false"
    if options.is_set(KEY_GENERATOR):
        name = generator_name(options.value(KEY_GENERATOR))
        yield KEY_GENERATOR_CLASS, CLASS_OF_KEY_GENERATOR.get(name, name)


def _are_hive_style(fields: tuple[str, ...], partitions: Sequence[str]) -> bool:
    return bool(fields and partitions) and all(path.startswith(f"{fields[0]}=") for path in partitions)


def _lacking(table: HudiTable, key: str, what: str, option: str) -> VersionChangeError:
    return VersionChangeError(
        f"table {table.config.name} at {table.storage.root} has version {table.config.version}, and its settings do not"
        f" state {what} ({key})",
        hint=f"state it: skep upgrade {table.config.name} --option {option}=…",
        table=table.config.name,
        expected=key,
    )


def _check_default_partition(table: HudiTable, written: TableConfig, partitions: Sequence[str]) -> None:
    old = table.format.null_partition
    if old == format_of(written).null_partition or not written.is_partitioned:
        return
    first = written.partition_fields[0]
    name = f"{first}={old}" if written.hive_style else old
    if any(path.split("/")[0] == name for path in partitions) and not table.options.value(SKIPS_DEFAULT_PARTITION):
        raise VersionChangeError(
            f"table {table.config.name} at {table.storage.root} has the folder {name!r}, in which Hudi put rows"
            f" without a value of {first}: later ones would get another folder",
            hint=f"with Hudi {table.format.first_release} write its rows to the folder of another value and delete them"
            f" here; where {old} is a value like others: {SKIPS_DEFAULT_PARTITION.key}=true",
            table=table.config.name,
            found=name,
        )


def _check_rows(table: HudiTable, written: TableConfig) -> None:
    """VersionChangeError where some of the rows have other keys or folders than writes would give them."""
    if not written.populate_meta_fields or not table.timeline.data().completed().instants:
        return
    rows = read(table, ReadRequest(limit=_COMPARED_ROWS)).to_arrow().combine_chunks()
    try:
        generator = generator_as_stored(table.with_config(written), table.options)
    except UnsupportedError:
        if table.config.raw.get(KEY_GENERATOR_CLASS):
            return  # of somebody's own: the table states it, and writes need it
        raise
    try:
        made = {RECORD_KEY: generator.record_keys(rows)}
        if generator.lacks is None and not generator.timestamps and not written.dropped_columns:
            paths = generator.partition_paths(rows)
            made[PARTITION_PATH] = pc.replace_substring(paths, DEFAULT_PARTITION, table.format.null_partition)
    except KeyFieldError as error:
        raise _unfit(table, written, error.message) from error
    for name, texts in made.items():
        stored = rows.column(name)
        differs = pc.not_equal(stored, pa.chunked_array([texts]) if isinstance(texts, pa.Array) else texts)
        at = pc.index(differs, True).as_py()
        if at >= 0:
            found, expected = stored[at].as_py(), texts[at].as_py()
            raise _unfit(table, written, f"a row has {name} {found!r}, and these settings make {expected!r}")


def _unfit(table: HudiTable, written: TableConfig, why: str) -> VersionChangeError:
    keys = (RECORD_KEY_FIELDS, PARTITION_FIELDS, KEY_GENERATOR_CLASS, HIVE_STYLE, URL_ENCODE)
    settings = ", ".join(f"{key}={written.raw.get(key, '')}" for key in keys)
    return VersionChangeError(
        f"table {table.config.name} at {table.storage.root} can't become version {written.version} with {settings}:"
        f" {why}",
        hint="state what its writers have: --option hoodie.datasource.write.keygenerator.class=… and others of these",
        table=table.config.name,
        found=settings,
        path=f"{table.storage.root}/{PROPERTIES_PATH}",
    )
