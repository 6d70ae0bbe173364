"""`skep metastore`: the embedded metastore of a warehouse, in the foreground."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from skep.base.config import load
from skep.cli.scope import WarehouseOption


def metastore(
    warehouse: WarehouseOption = None,
    port: Annotated[int | None, typer.Option(help="Loopback port; else any.", min=1, max=65535)] = None,
) -> None:
    """Run the Hive Metastore of the installed pyspark's jars, with its database in the warehouse, until interrupted.

    Prints its address on stdout. When one already runs for this warehouse, it is joined: it then lives as long as
    somebody uses it.
    """
    from skep_catalog.embedded import EmbeddedMetastore

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    folder = load({"warehouse": warehouse}).settings.warehouse
    server = EmbeddedMetastore.start_or_join(folder, port=port)
    try:
        typer.echo(server.uri)
        how = "started" if server.started else "joined"
        typer.echo(f"{how}, process {server.server.pid}, log {server.server.log}; Ctrl-C ends it", err=True)
        while not ended.wait(1.0):
            if not server.is_alive():
                typer.echo(f"error: the metastore ended; see {server.server.log}", err=True)
                raise typer.Exit(1)
    finally:
        stopped = server.stop()
    typer.echo("stopped" if stopped else "left; others still use it", err=True)
