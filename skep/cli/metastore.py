"""`skep metastore`: the embedded metastore of a warehouse, in the foreground."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.output import reported

if TYPE_CHECKING:
    from skep.config import Settings
    from skep_catalog.client import Metastore

WarehouseOption = Annotated[
    str | None,
    typer.Option("--warehouse", "-w", help="Its folder; else as configured.", show_default=False),
]
MetastoreOption = Annotated[
    str | None,
    typer.Option("--metastore", "-m", help="Address; else as configured, or the warehouse's.", show_default=False),
]


def metastore(
    warehouse: WarehouseOption = None,
    port: Annotated[int | None, typer.Option(help="Loopback port; else any.", min=1, max=65535)] = None,
) -> None:
    """Run the Hive Metastore of the installed pyspark's jars, with its database in the warehouse, until interrupted.

    Prints its address on stdout. When one already runs for this warehouse, it is joined: it then lives as long as
    somebody uses it.
    """
    from skep.config import load
    from skep_catalog.embedded import EmbeddedMetastore

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with reported():
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


@contextmanager
def connected(metastore: str | None, warehouse: str | None) -> Iterator[tuple[Metastore, Settings]]:
    """A client of the metastore that flags and settings name, else of the warehouse's own; and these settings."""
    from skep.config import load
    from skep_catalog.client import Metastore

    settings = load({"metastore": metastore, "warehouse": warehouse}).settings
    with ExitStack() as stack:
        if settings.metastore is not None:
            client = Metastore.connect(settings.metastore, settings.options)
        else:
            from skep_catalog.embedded import EmbeddedMetastore

            # How other metastores are spoken to (TLS, Kerberos) does not concern it.
            embedded = stack.enter_context(EmbeddedMetastore.start_or_join(settings.warehouse))
            client = Metastore.connect(embedded.uri, revived=embedded.revived)
        yield stack.enter_context(client), settings


def register(app: typer.Typer) -> None:
    app.command("metastore")(metastore)
