"""Sources, schema providers and transformers by their names: Hudi's classes, short names, entry points, functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

from skep_format.errors import OptionError, UnsupportedError
from skep_format.options import comma_list
from skep_format.table_config.keys import simple_name
from skep_stream.protocols import SchemaProvider, Source, StreamContext, Transformer

_FILES: Final = "skep_stream.files.source"
SOURCES: Final[Mapping[str, str]] = {
    "JsonDFSSource": f"{_FILES}:json_source",
    "CsvDFSSource": f"{_FILES}:csv_source",
    "ParquetDFSSource": f"{_FILES}:parquet_source",
    "AvroDFSSource": f"{_FILES}:avro_source",
    "ORCDFSSource": f"{_FILES}:orc_source",
    "HoodieIncrSource": "skep_stream.sources.hudi:hudi_source",
    "HiveIncrPullSource": "skep_stream.sources.incremental_pulls:incr_pull_source",
    "JdbcSource": "skep_stream.sources.jdbc:jdbc_source",
    "JsonKafkaSource": "skep_stream.kafka.made:json_source",
    "AvroKafkaSource": "skep_stream.kafka.made:avro_source",
    "ProtoKafkaSource": "skep_stream.kafka.made:proto_source",
    "MysqlDebeziumSource": "skep_stream.kafka.made:mysql_source",
    "PostgresDebeziumSource": "skep_stream.kafka.made:postgres_source",
    "SqlSource": "skep_stream.sources.sql:query_source",
    "SqlFileBasedSource": "skep_stream.sources.sql:query_file_source",
}
PROVIDERS: Final[Mapping[str, str]] = {
    "FilebasedSchemaProvider": "skep_stream.schemas.providers:file_schemas",
    "HiveSchemaProvider": "skep_stream.schemas.providers:metastore_schemas",
    "ProtoClassBasedSchemaProvider": "skep_stream.registry_schemas:message_schemas",
    "RowBasedSchemaProvider": "skep_stream.schemas.providers:row_schemas",
    "SchemaRegistryProvider": "skep_stream.registry_schemas:registry_schemas",
    "TableSchemaProvider": "skep_stream.schemas.providers:table_schemas",
}
TRANSFORMERS: Final[Mapping[str, str]] = {
    "SqlQueryBasedTransformer": "skep_stream.transform:query_transformer",
    "SqlFileBasedTransformer": "skep_stream.transform:script_transformer",
    "FlatteningTransformer": "skep_stream.transform:flatten",
    "AWSDmsTransformer": "skep_stream.transform:with_dms_operation",
    "IdentityTransformer": "skep_stream.transform:identity",
}
_WITH_CONTEXT: Final = ("SqlQueryBasedTransformer", "SqlFileBasedTransformer")
_UNBUILT: Final = (
    *("PulsarSource", "JsonKinesisSource"),
    *("S3EventsSource", "S3EventsHoodieIncrSource"),
    *("GcsEventsSource", "GcsEventsHoodieIncrSource", "AvroDebeziumSource"),
    "JdbcbasedSchemaProvider",
    *("ChainedTransformer", "ErrorTableAwareChainedTransformer", "SparkAvroPostProcessor"),
)
"""Hudi's classes that are known and not built."""


def source_of(name: str, context: StreamContext) -> Source:
    """A source by its name. OptionError for one that is not known."""
    return _found(name, "source", SOURCES, "skep.stream.sources")(context)


def provider_of(name: str, context: StreamContext) -> SchemaProvider:
    """A schema provider by its name. OptionError for one that is not known."""
    return _found(name, "schema provider", PROVIDERS, "skep.stream.schema_providers")(context)


def transformers_of(text: str, context: StreamContext) -> list[Transformer]:
    """The transformers that a comma-separated text names, each as `name` or, with settings of its own, `id:name`.

    A Python function is `module:function`. OptionError for an id given twice and for a name that is not known.
    """
    found, ids = [], set()
    for each in comma_list(text):
        part, name = _with_id(each)
        if part is not None and part in ids:
            raise OptionError(f"two transformers have the id {part}", option="--transformer-class", found=part)
        ids.add(part)
        found.append(_transformer(name, part, context))
    return found


def _with_id(text: str) -> tuple[str | None, str]:
    """`id:class` has an id; `module:function`, whose second part is no known name, has none."""
    part, colon, name = text.partition(":")
    if colon and (
        ":" in name or simple_name(name) in (*TRANSFORMERS, *_UNBUILT) or name in _named("skep.stream.transformers")
    ):
        return part, name
    return None, text


def _transformer(name: str, part: str | None, context: StreamContext) -> Transformer:
    from skep_stream.transform import own_function

    made = _found(name, "transformer", TRANSFORMERS, "skep.stream.transformers")
    if simple_name(name) in _WITH_CONTEXT:
        return partial(made, context, part)()
    return partial(own_function, name, made)


def _named(group: str) -> Mapping[str, Any]:
    return {each.name: each for each in entry_points(group=group)}


def _found(name: str, kind: str, built: Mapping[str, str], group: str) -> Any:
    """What makes it: an entry point of that very name, a class of Hudi's, a function `module:function`."""
    own = _named(group)
    if name in own:
        return own[name].load()
    if simple_name(name) in built:
        return imported(built[simple_name(name)], name)
    if simple_name(name) in _UNBUILT:
        raise UnsupportedError(
            f"{kind} {simple_name(name)} is known, and not built yet", found=name, expected=", ".join(built)
        )
    if ":" in name:
        return imported(name, name)
    raise OptionError(
        f"{kind} {name} is not known",
        hint=f"there are {', '.join([*built, *own])}; another is an entry point of group {group}, or module:function",
        found=name,
    )


def imported(place: str, name: str, option: str | None = None) -> Any:
    """What `module:attribute` names. OptionError where it can't be imported, for the `name` that was given."""
    module, _, attribute = place.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        where = f"{option}: " if option else ""
        raise OptionError(f"{where}{name} can't be imported: {error}", option=option, found=name) from error
