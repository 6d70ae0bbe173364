"""The procedure that makes a table of a folder of files."""

from __future__ import annotations

from typing import Any, Final

from skep_sql.procedures.contract import Context, Rows, one_of, procedure

_TYPES: Final = {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}
_KEY_GENERATOR: Final = "org.apache.hudi.keygen.SimpleKeyGenerator"
_PAYLOAD: Final = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
_OPTIONS: Final = {
    "base_file_format": "hoodie.table.base.file.format",
    "bootstrap_index_class": "hoodie.bootstrap.index.class",
    "selector_class": "hoodie.bootstrap.mode.selector",
    "full_bootstrap_input_provider": "hoodie.bootstrap.full.input.provider",
    "parallelism": "hoodie.bootstrap.parallelism",
}
_OF_TABLE: Final = (
    "hoodie.datasource.write.precombine.field",
    "hoodie.table.precombine.field",
    "hoodie.table.ordering.fields",
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.table.base.file.format",
)
"""What a session or the argument `options` may state about the table."""


@procedure("""run_bootstrap(table, table_type, bootstrap_path, base_path, rowKey_field, base_file_format?,
    partition_path_field='', bootstrap_index_class='org.apache.hudi.common.bootstrap.index.HFileBootstrapIndex',
    selector_class='org.apache.hudi.client.bootstrap.selector.MetadataOnlyBootstrapModeSelector',
    key_generator_class='org.apache.hudi.keygen.SimpleKeyGenerator',
    full_bootstrap_input_provider='org.apache.hudi.bootstrap.SparkParquetBootstrapDataProvider',
    schema_provider_class=''!, payload_class='org.apache.hudi.common.model.OverwriteWithLatestAvroPayload',
    parallelism=1500, enable_hive_sync=False, props_file_path=''!, bootstrap_overwrite=False!, options?) ->
    status:int""")
def _run_bootstrap(context: Context) -> Rows:
    """The table is in the catalog afterwards, whatever `enable_hive_sync` is."""
    kind = one_of("table_type", str(context["table_type"]).upper(), _TYPES)
    options = context.options()  # without base_file_format the table has the format of the source
    options = {**{key: str(context[name]) for name, key in _OPTIONS.items() if context[name] is not None}, **options}
    properties: dict[str, str] = {key: options.pop(key) for key in _OF_TABLE if key in options}
    for name, default, key in (
        ("key_generator_class", _KEY_GENERATOR, "hoodie.datasource.write.keygenerator.class"),
        ("payload_class", _PAYLOAD, "hoodie.datasource.write.payload.class"),
    ):
        if context[name] != default:  # the default follows from the columns
            properties[key] = str(context[name])
    described: dict[str, Any] = {
        "key": str(context["rowKey_field"]).split(","),
        "partition_by": [name for name in str(context["partition_path_field"]).split(",") if name],
        "type": _TYPES[kind],
        "location": str(context["base_path"]),
        "properties": properties,
    }
    context.session.catalog.bootstrap(str(context["table"]), str(context["bootstrap_path"]), options, **described)
    return [[0]]
