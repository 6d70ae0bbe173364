"""Hudi's procedures that repair: each carries out the method of a table, and by default, as Hudi's, changes nothing."""

from __future__ import annotations

from skep_format.options import Options
from skep_sql.procedures.contract import Context, Rows, procedure
from skep_table.services.repairs.settings import load_properties


@procedure("repair_add_partition_meta(table, dry_run=True) -> partition_path, metadata_is_present, action")
def _add_metafiles(context: Context) -> Rows:
    found = context.services.add_partition_metafiles(dry_run=context["dry_run"])
    return [
        [each.partition, "Yes" if each.is_there else "No", "Repaired" if each.changed else "None"] for each in found
    ]


@procedure("""repair_migrate_partition_meta(table, dry_run=True) -> partition_path, text_metafile_present,
    base_metafile_present, action""")
def _migrate_metafiles(context: Context) -> Rows:
    planned = context["dry_run"]
    found = context.services.migrate_partition_metafiles(dry_run=planned)
    texts = {True: "true", False: "false"}
    return [
        [
            *(each.partition, texts[each.as_text], texts[each.as_base_file]),
            ("MIGRATE" if each.as_text else "NONE") if planned else "MIGRATED",
        ]
        for each in found
    ]


@procedure("repair_corrupted_clean_files(table) -> result:boolean")
def _corrupted_cleans(context: Context) -> None:
    context.services.delete_unreadable_cleans()


@procedure("repair_overwrite_hoodie_props(table, new_props_file_path) -> property, old_value, new_value")
def _overwrite_settings(context: Context) -> Rows:
    given = load_properties(str(context["new_props_file_path"]), Options(context.options()))
    change = context.services.overwrite_settings(given)
    # Hudi's text for a property that is not there
    return [[key, *("null" if text is None else text for text in texts)] for key, *texts in change.properties()]


@procedure("""repair_deduplicate(table, duplicated_partition_path, repaired_output_path, dry_run=True,
    dedupe_type='insert_type') -> result""")
def _deduplicate(context: Context) -> Rows:
    """As in Hudi, the rows that stay are written into a folder, too; the partition changes by a commit."""
    partition, keep = str(context["duplicated_partition_path"]), str(context["dedupe_type"])
    folder, planned = str(context["repaired_output_path"]).rstrip("/"), context["dry_run"]
    context.services.deduplicate(partition, keep=keep, copy_to=folder, dry_run=planned, **context.options())
    return [[f"Deduplicated files placed in: {folder if planned else partition}."]]
