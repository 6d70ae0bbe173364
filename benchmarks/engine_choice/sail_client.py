"""Sail in this process, by the messages of Spark Connect alone: no pyspark, no pandas, no py4j.

The messages' classes are those of pyspark-client, whose packages are not imported: only where they are is used.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa


def _without_pyspark() -> None:
    """Packages of these names that hold nothing, so that a module in them is all that is imported."""
    (root,) = importlib.util.find_spec("pyspark").submodule_search_locations  # type: ignore[union-attr, misc]
    for name, folder in (("pyspark", ""), ("pyspark.sql", "/sql"), ("pyspark.sql.connect", "/sql/connect")):
        package = types.ModuleType(name)
        package.__path__ = [root + folder]
        sys.modules[name] = package


_without_pyspark()

import grpc  # noqa: E402
from pysail.spark import SparkConnectServer  # noqa: E402
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc, commands_pb2, relations_pb2  # noqa: E402

AS_TEXTS = ("year_month_interval", "variant")  # for which Arrow has no type: as skep shows Spark's
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
MOST_SECONDS = 120


class Sail:
    """A server on a port of this machine, and one session in it."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._server = SparkConnectServer()
        self._server.start(background=True)
        self._stub = self._connected()
        self._session = {"session_id": str(uuid.uuid4()), "user_context": base_pb2.UserContext(user_id="skep")}
        if settings:
            pairs = [base_pb2.KeyValue(key=key, value=value) for key, value in settings.items()]
            operation = base_pb2.ConfigRequest.Operation(set=base_pb2.ConfigRequest.Set(pairs=pairs))
            self._stub.Config(base_pb2.ConfigRequest(operation=operation, **self._session))

    def _connected(self) -> Any:
        host, port = self._server.listening_address
        return base_pb2_grpc.SparkConnectServiceStub(grpc.insecure_channel(f"{host}:{port}", options=UNLIMITED))

    def register(self, name: str, rows: pa.Table) -> None:
        """A temporary view of rows, which are sent to the server."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        local = relations_pb2.LocalRelation(data=sink.getvalue().to_pybytes())
        self.view(name, relations_pb2.Relation(local_relation=local))

    def view(self, name: str, relation: Any) -> None:
        """A temporary view of a relation."""
        made = commands_pb2.CreateDataFrameViewCommand(input=relation, name=name, is_global=False, replace=True)
        command = commands_pb2.Command(create_dataframe_view=made)
        list(self._executed(base_pb2.Plan(command=command)))

    def rows(self, query: str) -> pa.Table:
        """The answer as Sail gives it; texts for intervals of years and months, and for variants."""
        kinds = self._kinds(query)
        if any(kind in AS_TEXTS for _, kind in kinds):
            names = ", ".join(f"c{at}" for at in range(len(kinds)))
            listed = (
                f"CAST(c{at} AS STRING) AS c{at}" if kind in AS_TEXTS else f"c{at}"
                for at, (_, kind) in enumerate(kinds)
            )
            found = self.raw(f"SELECT {', '.join(listed)} FROM ({query}) AS q({names})")
            return found.rename_columns([name for name, _ in kinds])
        return self.raw(query)

    def raw(self, query: str) -> pa.Table:
        """The answer as Sail gives it, without a request for its types before."""
        relation = relations_pb2.Relation(sql=relations_pb2.SQL(query=query))
        batches = [
            each.arrow_batch.data
            for each in self._executed(base_pb2.Plan(root=relation))
            if each.HasField("arrow_batch")
        ]
        return pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in batches])

    def _kinds(self, query: str) -> list[tuple[str, str]]:
        plan = base_pb2.Plan(root=relations_pb2.Relation(sql=relations_pb2.SQL(query=query)))
        request = base_pb2.AnalyzePlanRequest(schema=base_pb2.AnalyzePlanRequest.Schema(plan=plan), **self._session)
        schema = self._stub.AnalyzePlan(request, timeout=MOST_SECONDS).schema.schema
        return [(each.name, each.data_type.WhichOneof("kind")) for each in schema.struct.fields]

    def _executed(self, plan: Any) -> Iterator[Any]:
        request = base_pb2.ExecutePlanRequest(plan=plan, **self._session)
        yield from self._stub.ExecutePlan(request, timeout=MOST_SECONDS)
