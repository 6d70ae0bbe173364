"""What services do alike: first, with the lock held, and in what they say of a commit that rewrites rows."""

from __future__ import annotations

from skep_table.commit.admission import check_version, drop_metadata_table
from skep_table.commit.setting import CommitSetting
from skep_table.schema.avro import avro_text
from skep_table.schema.types import Schema
from skep_table.slices.history import schema_with_ids
from skep_table.table import HudiTable
from skep_table.timeline.write import remove_stages


def prepared(table: HudiTable, setting: CommitSetting) -> HudiTable:
    """A fresh look at a table that may be changed: its version is written, its metadata table would not go stale."""
    if setting.lock.leased:
        remove_stages(table.storage)  # whoever lost the lock to this holder may not complete any more
    table = table.reload()
    check_version(table.config, table.storage.root)
    return drop_metadata_table(table, setting.options, setting.events)


def extra_of(table: HudiTable, schema: Schema) -> dict[str, str]:
    """The extra metadata of a commit that rewrites rows: the columns, which stay as they are."""
    return {**schema_with_ids(table), "schema": avro_text(schema)}
