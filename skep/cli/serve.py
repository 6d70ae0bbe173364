"""`skep serve`: receives commits over HTTP and Kafka, watches timelines, syncs; in the foreground."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.output import FAILED
from skep.cli.scope import MetastoreOption, WarehouseOption, connected, settings_of, until_signalled
from skep.cli.sql_server import Access, access_settings, announced, end_process
from skep_format.errors import InputError
from skep_format.options import Options

if TYPE_CHECKING:
    from skep.base.config import Settings
    from skep.serve.hive.run import SqlServer
    from skep.serve.hive.settings import SqlServerSettings
    from skep.serve.kafka import KafkaSettings
    from skep.serve.run import HttpSettings
    from skep_catalog.catalogs import EntryCatalog
    from skep_sync.following.queue import Pending
    from skep_sync.following.service import AfterSync
    from skep_sync.sync import SyncReport

TOKEN = "SKEP_SERVE_TOKEN"


def serve(
    access: Access,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Base path below which callers may have tables synced; else the warehouse."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any.", min=0, max=65535)] = 8765,
    token_file: Annotated[
        Path | None, typer.Option(help=f"File with the callers' token; else ${TOKEN}.", exists=True, dir_okay=False)
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Ask no one; on loopback only.")] = False,
    certificate: Annotated[Path | None, typer.Option(help="TLS: the certificate's PEM file.", exists=True)] = None,
    key: Annotated[Path | None, typer.Option(help="TLS: its key's PEM file.", exists=True)] = None,
    body_limit: Annotated[int, typer.Option(help="Largest callback, in MiB.", min=1)] = 32,
    watch: Annotated[bool, typer.Option("--watch", help="Also watch the timelines of all tables.")] = False,
    database: Annotated[str | None, typer.Option("--database", "-d", help="Watch this database only.")] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks at a timeline.", min=0.1)] = 10.0,
    kafka: Annotated[str | None, typer.Option(metavar="HOST:PORT,…", help="Brokers of a callback topic.")] = None,
    kafka_topic: Annotated[str | None, typer.Option(help="The topic of the callbacks.")] = None,
    kafka_group: Annotated[str, typer.Option(help="The consumer group.")] = "skep",
    kafka_property: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of librdkafka; repeatable.")
    ] = None,
    maintain: Annotated[
        bool, typer.Option("--maintain", help="After a commit also do what is due: compact, cluster, clean, archive.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Syncs at once, for each target.", min=1)] = 4,
    grace: Annotated[float, typer.Option(help="Seconds that what is under way may take to end.", min=0)] = 30.0,
    sql: Annotated[bool, typer.Option("--sql", help="Also answer SQL, as `skep sql-server` does.")] = False,
    sql_port: Annotated[int, typer.Option(help="Port of SQL over TCP; 0 takes any.", min=0, max=65535)] = 10000,
    sql_http_port: Annotated[
        int | None, typer.Option(help="Also SQL over HTTP, on this port; 0 takes any.", min=0, max=65535)
    ] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="An option of the syncs; repeatable.")
    ] = None,
) -> None:
    """Keep metastores up to date: take Hudi's commit callbacks, watch timelines, retry what fails; until interrupted.

    JVM writers: hoodie.write.commit.callback.on=true, hoodie.write.commit.callback.http.url=http://HOST:PORT/callback,
    hoodie.write.commit.callback.http.api.key=TOKEN. Prints the service's address on stdout.
    """
    import skep.base.known_options  # noqa: F401 - those of the services that --maintain runs are known, too
    from skep.serve.run import HttpSettings, ServiceSettings, WatchSettings
    from skep.serve.run import serve as run
    from skep_sync.following.pending import KnownTables

    token = _token(token_file, no_token)
    http = HttpSettings(host, port, token, body_limit << 20, _text(certificate), _text(key))
    http.check()
    sql_settings = _sql(sql, access, http, sql_port, sql_http_port)
    consumer = _kafka(kafka, kafka_topic, kafka_group, settings_of(kafka_property, "--kafka-property"))
    flags = settings_of(settings, "--set")
    ended = until_signalled()
    with connected(metastore, warehouse) as (client, found):
        options = Options(found.options).with_values(flags)
        options.check()
        service = ServiceSettings(
            allowed=tuple(allow or [found.warehouse]),
            workers=workers,
            grace_seconds=grace,
            watch=WatchSettings(KnownTables(client, database), interval) if watch else None,
            http=http,
            kafka=consumer,
            after=_maintaining(client, found.warehouse, options) if maintain else None,
        )
        with _answering_sql(client, found, options, sql_settings) as server:
            in_time = run(client, found.warehouse, options, service, ended, ready=typer.echo)
    if server is not None:
        end_process(server)
    if not in_time:
        typer.echo("error: syncs or table services were cut off; the next start or commit does them", err=True)
        os._exit(FAILED)  # their threads would hold the process up


def _sql(asked: bool, access: Access, http: HttpSettings, port: int, http_port: int | None) -> SqlServerSettings | None:
    """The SQL server's settings. InputError for its options without it."""
    if not asked:
        if access != Access():
            raise InputError("users and limits of SQL are given without --sql", option="--sql")
        return None
    return access_settings(
        access, host=http.host, port=port, http_port=http_port, certificate=http.certificate, key=http.key
    )


@contextlib.contextmanager
def _answering_sql(
    client: EntryCatalog, found: Settings, options: Options, settings: SqlServerSettings | None
) -> Iterator[SqlServer | None]:
    """Statements on the same metastore, while the body runs."""
    if settings is None:
        yield None
        return
    from skep.lake import Lake
    from skep.query.spark import SparkHolder

    holder = SparkHolder(None, found.spark)
    lake = Lake(client, found.warehouse, holder, found.database, options)
    try:
        with announced(lake, settings) as server:
            yield server
    finally:
        holder.stop()


def _maintaining(client: EntryCatalog, warehouse: str, options: Options) -> AfterSync:
    """What is due on a table, under the locks that its writers take; a lake syncs what comes of it."""
    from skep.lake import Lake

    lake = Lake(client, warehouse, options=options)

    def after(_: Pending, report: SyncReport) -> None:
        lake.table(report.plan.full_name).maintain()

    return after


def _token(file: Path | None, none: bool) -> str | None:
    given = file.read_text(encoding="utf-8").strip() if file is not None else os.environ.get(TOKEN, "").strip()
    if none and given:
        raise InputError("--no-token, and a token is given", option="--no-token")
    if not none and not given:
        raise InputError(
            "callers need a token",
            hint=f"give --token-file or set {TOKEN}; on loopback --no-token serves everybody",
            option="--token-file",
        )
    return given or None


def _kafka(servers: str | None, topic: str | None, group: str, properties: dict[str, str]) -> KafkaSettings | None:
    if (servers is None) != (topic is None):
        raise InputError("--kafka and --kafka-topic go together", option="--kafka")
    if servers is None or topic is None:
        return None
    from skep.serve.kafka import KafkaSettings

    return KafkaSettings(servers, topic, group, properties)


def _text(path: Any) -> str | None:
    return None if path is None else str(path)
