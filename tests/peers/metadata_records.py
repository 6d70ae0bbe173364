"""The records of a metadata table by names that two tables of one history have alike.

A time is named by the step of the history in which it is new, and a file group by its partition and the time at which
it began. What the bytes of a writer decide is left out: sizes, and Bloom filters. So are the bounds of columns with
nothing but nulls: Hudi states 0 for some types, and the counts show what they are.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table.keys import file_key, path_key
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, FILES, RECORD_INDEX, member_of
from skep_table.metadata_table.records.record_index import file_ids
from skep_table.metadata_write.compaction.merge import merged_puts
from skep_table.table import HudiTable

TIME = re.compile(r"\d{17}")
FILE_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-\d+")
TOKEN = re.compile(r"_\d+-\d+-\d+")
OF_TASKS = re.compile(r"(?<=>)_\d+_\d+$")
BYTES = ("totalSize", "totalUncompressedSize", "bloomFilter")

Records = dict[str, dict[str, Any]]
"""By partition of the metadata table and key."""


class Named:
    """One table, looked at after each step of its history."""

    def __init__(self) -> None:
        self._times: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._blooms: dict[str, str] = {}

    def records(self, table: HudiTable, step: str) -> Records:
        """What a compaction of the metadata table would write now."""
        metadata = table.metadata_table()
        assert metadata is not None, f"after {step} it is not kept"
        listed = {part: [file.name for file in metadata.files(part)] for part in metadata.partitions()}
        self._name(table, step, listed)
        found: Records = {FILES: {part: sorted(map(self._text, names)) for part, names in listed.items()}}
        for partition in set(table.config.metadata_partitions) - {FILES}:
            member = member_of(partition)
            assert member is not None, partition
            found[partition] = {}
            for group in metadata.group_readers(partition):
                for puts in merged_puts(partition, group.entries(column=member), table.format.metadata.release):
                    found[partition] |= self._of(partition, member, puts.combine_chunks())
        return found

    def _of(self, partition: str, member: str, puts: pa.Table) -> dict[str, Any]:
        keys, records = puts["key"].chunk(0), pc.struct_field(puts["record"].chunk(0), member)
        if partition == RECORD_INDEX:
            return {row.pop("record_key"): self._plain(row) for row in rows(keys, records)}
        pairs = zip(keys.to_pylist(), records.to_pylist(), strict=True)
        return {self._key(partition, key, record): self._plain(record) for key, record in pairs}

    def _name(self, table: HudiTable, step: str, listed: dict[str, list[str]]) -> None:
        times = {time for instant in table.timeline for time in TIME.findall(str(instant.requested_time))}
        times |= {time for names in listed.values() for name in names for time in TIME.findall(name)}
        for number, time in enumerate(sorted(times - set(self._times))):
            self._times[time] = f"<{step} {number}>"
        for part, names in listed.items():
            for name in sorted(names, key=TIME.findall):
                self._blooms[path_key(part) + file_key(name)] = name
                (group,), begin = FILE_ID.findall(name), TIME.findall(name)[0]
                self._groups.setdefault(group, f"{part} since {self._times[begin]}")
        named = list(self._groups.values())
        assert len(named) == len(set(named)), "one file group for each partition and write, else names are by chance"

    def _key(self, partition: str, key: str, record: dict[str, Any]) -> str:
        if partition == BLOOM_FILTERS:
            return self._text(self._blooms[key])
        column, file = record["columnName"], self._text(record["fileName"])
        return f"{column} of {file}" if partition == COLUMN_STATS else f"{column} in {file}"

    def _plain(self, value: Any) -> Any:
        match value:
            case {"valueCount": count, "nullCount": nulls} if count == nulls:
                return {"valueCount": count, "nullCount": nulls}
            case dict():
                return {key: self._plain(item) for key, item in value.items() if key not in BYTES}
            case str():
                return self._text(value)
            case bytes():
                return value.hex()
            case Decimal():
                return str(value.normalize())
        return value

    def _text(self, text: str) -> str:
        text = FILE_ID.sub(lambda found: self._groups.get(found[0], "a group that was never listed"), text)
        text = TIME.sub(lambda found: self._times.get(found[0], found[0]), TOKEN.sub("_token", text))
        return OF_TASKS.sub("", text)


def rows(keys: Any, records: Any) -> list[dict[str, Any]]:
    """Of the record index, with times as instants have them."""
    found = file_ids(keys, records).to_pylist()
    for row in found:
        moment = datetime.fromtimestamp(row.pop("instant_ms") / 1000, timezone.utc)
        row["instant"] = f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}"
    return found
