"""Kafka sources by their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Final

from skep_format.avro.types import parse_record
from skep_format.errors import OptionError
from skep_format.options import Options
from skep_format.rowfiles.rejected import Rejected
from skep_format.schema.avro import parse_avro, to_avro
from skep_format.schema.types import Schema
from skep_stream.kafka import options as keys
from skep_stream.kafka.avro_messages import avro_messages
from skep_stream.kafka.client import Topic
from skep_stream.kafka.debezium import MYSQL, POSTGRES, changed_rows
from skep_stream.kafka.json_messages import json_messages, json_schema_messages
from skep_stream.kafka.properties import client_properties
from skep_stream.kafka.proto_messages import TypeOf, one_type, proto_messages
from skep_stream.kafka.source import Decode, KafkaSource, OffsetRule
from skep_stream.options import SKIP_INVALID_JSON, rejected_of, unknown_class
from skep_stream.proto.columns import MessageRows, Shape, message_rows
from skep_stream.proto.options import DESCRIPTORS
from skep_stream.proto.registered import registered_types
from skep_stream.proto.types import indexes_of, message_of_file
from skep_stream.protocols import SchemaProvider, StreamContext
from skep_stream.schemas.registry import registry_of

_OF_JSON: Final = {"StringDeserializer": json_messages, "KafkaJsonSchemaDeserializer": json_schema_messages}


def json_source(context: StreamContext) -> KafkaSource:
    """JsonKafkaSource: objects of JSON, read by the schema of a provider. OptionError without one."""
    schemas = _provided(context, "JSON is read by a schema")
    rejected = rejected_of(context.options, SKIP_INVALID_JSON)
    return source_of(context, _json_decoder(schemas, context.options, rejected), rejected)


def _json_decoder(schemas: SchemaProvider, options: Options, rejected: Rejected | None) -> Callable[[], Decode]:
    enveloped = options.value(keys.ENVELOPE)
    read = _OF_JSON.get(options.value(keys.JSON_DESERIALIZER).rpartition(".")[2])
    if read is None:
        raise unknown_class(keys.JSON_DESERIALIZER, options, *_OF_JSON)
    return lambda: partial(read, schema=_source_schema(schemas), rejected=rejected, enveloped=enveloped)


def avro_source(context: StreamContext) -> KafkaSource:
    """AvroKafkaSource, by the class of its deserializer. OptionError for one that is not known."""
    rejected = rejected_of(context.options)
    return source_of(context, avro_decoder(context, rejected), rejected)


def proto_source(context: StreamContext) -> KafkaSource:
    """ProtoKafkaSource, by the class of its deserializer. OptionError for one that is not known."""
    types, rejected = _proto_types(context.options), rejected_of(context.options)
    read = partial(proto_messages, types=types, rejected=rejected)
    return source_of(context, lambda: partial(read, target=_maybe(context.schemas)), rejected)


def _proto_types(options: Options) -> TypeOf | MessageRows:
    """A file of descriptors counts over a registry: it may have schemas as text only."""
    shape, found = options.read(Shape), options.value(keys.PROTO_DESERIALIZER)
    match found.rpartition(".")[2]:
        case "ByteArrayDeserializer":
            return message_rows(message_of_file(options), shape)
        case "KafkaProtobufDeserializer" if options.value(DESCRIPTORS):
            message = message_of_file(options)
            return one_type(message_rows(message, shape), indexes_of(message))
        case "KafkaProtobufDeserializer":
            found_by = registered_types(registry_of(options))
            return cache(lambda number, indexes: message_rows(found_by(number, indexes), shape))
    raise unknown_class(keys.PROTO_DESERIALIZER, options, "ByteArrayDeserializer", "KafkaProtobufDeserializer")


def _changes(context: StreamContext, columns: Mapping[str, str]) -> KafkaSource:
    rejected = rejected_of(context.options)
    envelopes: Callable[[], Decode]
    if context.options.value(keys.DESERIALIZER).rpartition(".")[2] == "StringDeserializer":
        schemas = _provided(context, "changes as JSON are read by the schema of their envelopes")
        envelopes = _json_decoder(schemas, context.options, rejected)
    else:
        envelopes = avro_decoder(context, rejected)
    read = partial(changed_rows, columns=columns, rejected=rejected)
    made = source_of(context, lambda: partial(read, envelopes=envelopes()), rejected)
    return replace(made, flattens=True)


mysql_source = partial(_changes, columns=MYSQL)
postgres_source = partial(_changes, columns=POSTGRES)
"""MysqlDebeziumSource and PostgresDebeziumSource: messages of Debezium's connectors."""


def avro_decoder(context: StreamContext, rejected: Rejected | None) -> Callable[[], Decode]:
    """How the Avro messages of a round are read. OptionError for settings that can't be used."""
    options, schemas = context.options, context.schemas
    own = options.value(keys.DESERIALIZER_SCHEMA)
    reader: Callable[[], Schema | None]
    match options.value(keys.DESERIALIZER).rpartition(".")[2]:
        case "KafkaAvroDeserializer":
            reader = partial(_maybe, schemas)
        case "KafkaAvroSchemaDeserializer" if own:
            given = parse_avro(own).without_meta()
            reader = lambda: given  # noqa: E731
        case "KafkaAvroSchemaDeserializer":
            reader = partial(_source_schema, _provided(context, "KafkaAvroSchemaDeserializer reads by a schema"))
        case "ByteArrayDeserializer":
            provider = _provided(context, "plain Avro is read by a schema")
            return lambda: _plain(_source_schema(provider), rejected)
        case _:
            known = ("KafkaAvroDeserializer", "KafkaAvroSchemaDeserializer", "ByteArrayDeserializer")
            raise unknown_class(keys.DESERIALIZER, options, *known)
    registry = registry_of(options)
    # Schemas of ids never change: each is read once.
    writers = cache(lambda number: parse_record(registry.schema(number)))
    return lambda: partial(avro_messages, writers=writers, target=reader(), rejected=rejected)


def _plain(schema: Schema, rejected: Rejected | None) -> Decode:
    return partial(avro_messages, writers=parse_record(to_avro(schema)), target=schema, rejected=rejected)


def source_of(context: StreamContext, decoder: Callable[[], Decode], rejected: Rejected | None) -> KafkaSource:
    """The source of a topic. OptionError where it is not named."""
    options = context.options
    name = options.needed(keys.TOPIC, "a Kafka source needs")
    if not options.get("bootstrap.servers"):
        raise OptionError("a Kafka source needs bootstrap.servers", option="bootstrap.servers")
    topic = Topic(name, client_properties(options), float(options.value(keys.TIMEOUT)))
    rule = options.read(OffsetRule)
    if options.value(keys.COMMIT_OFFSETS) and not options.get("group.id"):
        raise OptionError(f"{keys.COMMIT_OFFSETS.key} needs group.id", option="group.id")
    return KafkaSource(
        topic,
        decoder,
        rule,
        rejected or Rejected(),
        appends=options.value(keys.APPEND_OFFSETS),
        commits=options.value(keys.COMMIT_OFFSETS),
        events=context.events,
    )


def _provided(context: StreamContext, why: str) -> SchemaProvider:
    if context.schemas is None:
        raise OptionError(
            f"{why}: please provide a schema provider",
            hint="--schemaprovider-class FilebasedSchemaProvider or SchemaRegistryProvider",
            option="--schemaprovider-class",
        )
    return context.schemas


def _maybe(schemas: SchemaProvider | None) -> Schema | None:
    return None if schemas is None else schemas.source_schema()


def _source_schema(schemas: SchemaProvider) -> Schema:
    found = schemas.source_schema()
    if found is None:
        raise OptionError("the schema provider has no schema of the source", option="--schemaprovider-class")
    return found
