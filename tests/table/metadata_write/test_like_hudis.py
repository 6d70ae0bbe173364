"""What Hudi wrote into its metadata tables, and what skep builds from the same commits: the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skep_format.avro import decode_values, parse_record
from skep_format.hfile import HFile
from skep_format.logfile import BlockType, HeaderKey, LogBlock, read_blocks
from skep_format.names import LogFileName
from skep_format.properties import parse_properties
from skep_format.storage import FolderStorage, LocalStorage
from skep_format.table_config import TableConfig, TableType
from skep_format.timeline.instant import Action
from skep_format.timeline.plans import CleanMetadata
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.partitions import FILES
from skep_table.metadata_table.records.files import files_of_clean, files_of_commit
from skep_table.metadata_write.making.create import create_metadata_table
from skep_table.metadata_write.own import open_own
from skep_table.metadata_write.records import entries_of, hfile_of, record_schema
from skep_table.table import HudiTable

CASES = ("cow_upsert_mdt", "cow_column_stats", "cow_record_index")
OWN = ("hoodie.table.name", "hoodie.table.checksum", "hoodie.table.timeline.timezone")
Records = dict[str, tuple[int, dict[str, tuple[int, bool]]]]


@pytest.fixture(params=["0.15.0", "1.0.2", "1.1.1"])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=CASES)
def data(request: pytest.FixtureRequest, golden: Path, release: str) -> HudiTable:
    return HudiTable.open(golden / release / request.param / "table")


def blocks_of(own: HudiTable) -> Iterator[LogBlock]:
    for file in own.storage.list_prefix(FILES):
        if LogFileName.parse(file.name) is not None:
            yield from read_blocks(own.storage.open_input(file.path), file.path, file.size_bytes)


def scanned(file: HFile) -> pa.Table:
    return pa.Table.from_batches(file.scan()).combine_chunks()


def records_of(entries: pa.Table, schema: str) -> Records:
    decoded = decode_values(parse_record(schema), entries["value"].combine_chunks(), path="test")
    assert not any(decoded.column("key").to_pylist()), "the key is that of the HFile"
    kinds, files = (decoded.column(name).to_pylist() for name in ("type", "filesystemMetadata"))
    return {
        key.decode(): (kind, {name: (info["size"], info["isDeleted"]) for name, info in listed})
        for key, kind, listed in zip(entries["key"].to_pylist(), kinds, files, strict=True)
    }


def test_records_of_commits_are_hudis(data: HudiTable) -> None:
    own = HudiTable.open(FolderStorage(data.storage, FOLDER))
    written = {i.requested_time: i for i in data.timeline.completed().of(Action.COMMIT, Action.CLEAN)}
    compared = 0
    for block in blocks_of(own):
        if block.type is not BlockType.HFILE_DATA or block.instant_time not in written:
            continue
        instant = written[block.instant_time]
        plan = data.plan(instant) if instant.action is Action.CLEAN else None
        if isinstance(plan, CleanMetadata):
            update = files_of_clean(plan)
        else:
            update = files_of_commit(data.commit_metadata(instant))
        theirs = HFile(block.content().to_pybytes(), block.path, block.content_offset)
        schema = record_schema(data.format.metadata.release)
        ours = HFile(hfile_of(entries_of(update.puts, schema), schema), "ours")
        assert records_of(scanned(ours), schema.file_text) == records_of(scanned(theirs), block.schema_text)
        assert scanned(ours).equals(scanned(theirs)), "other bytes"
        compared += 1
    assert compared >= 3


def test_the_schema_of_the_records_is_hudis(data: HudiTable) -> None:
    own = HudiTable.open(FolderStorage(data.storage, FOLDER))
    stated = next(block.schema_text for block in blocks_of(own) if block.type is BlockType.HFILE_DATA)
    ours = record_schema(data.format.metadata.release).file_text
    assert parse_record(ours) == parse_record(stated)
    assert java_strings(json.loads(ours)) == java_strings(json.loads(stated))


def java_strings(schema: Any) -> Any:
    """The strings and maps that Java reads as its own, by the names of the members above them."""
    if isinstance(schema, list):
        return [java_strings(each) for each in schema]
    if isinstance(schema, dict):
        below = {key: java_strings(schema[key]) for key in ("fields", "values", "items", "type") if key in schema}
        return {"name": schema.get("name"), "java": schema.get("avro.java.string"), **below}
    return schema.rpartition(".")[2] if isinstance(schema, str) else schema


@pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
def test_a_new_metadata_table_is_as_hudis(golden: Path, table_version: int, tmp_path: Path) -> None:
    from metadata_listings import new_table

    release = {6: "0.15.0", 8: "1.0.2", 9: "1.1.1"}[table_version]
    theirs = LocalStorage(str(golden / release / "cow_upsert_mdt" / "table" / FOLDER))
    table = new_table(tmp_path, TableType.COPY_ON_WRITE)
    own = open_own(create_metadata_table(table, table.context.clock))
    path = ".hoodie/hoodie.properties"
    settings = [parse_properties(storage.read(path)) for storage in (own.storage, theirs)]
    for each in settings:
        for key in OWN:
            each.pop(key, None)
    assert settings[0] == settings[1]
    assert isinstance(TableConfig.parse(parse_properties(own.storage.read(path))), TableConfig)
    (first,) = own.timeline.instants
    name = next(f.path for f in own.storage.list_prefix(FILES) if ".log." in f.name)
    assert own.storage.read(name) == theirs.read(name), "the log file that begins the file group"
    metafile = f"{FILES}/.hoodie_partition_metadata"
    assert parse_properties(own.storage.read(metafile)) == parse_properties(theirs.read(metafile))
    stated = next(block for block in blocks_of(own))
    assert stated.headers == {HeaderKey.INSTANT_TIME: first.requested_time}
