"""`skep sql-server` and `skep sql-user`: SQL for JDBC, beeline and PyHive, and lines for the file of its users."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.output import FAILED
from skep.cli.scope import MetastoreOption, WarehouseOption, settings_of, until_signalled
from skep_format.errors import InputError

if TYPE_CHECKING:
    from skep.lake import Lake
    from skep.serve.hive.run import SqlServer
    from skep.serve.hive.settings import SqlServerSettings

_SHORTEST_PASSWORD = 8


@dataclass(frozen=True)
class Access:
    """Who may use the server; options that `skep sql-server` and `skep serve --sql` share."""

    users_file: Annotated[
        Path | None,
        typer.Option(help="File of the users of SQL, with lines of `skep sql-user`.", exists=True, dir_okay=False),
    ] = None
    anonymous_writes: Annotated[
        bool, typer.Option("--anonymous-writes", help="Without users: everybody on this machine may write by SQL.")
    ] = False
    statements: Annotated[int, typer.Option(help="SQL statements that run at once.", min=1)] = 32
    connections: Annotated[int, typer.Option(help="Connections for SQL at once.", min=1)] = 200


def access_settings(access: Access, **given: object) -> SqlServerSettings:
    """The settings of the SQL server. EnvironmentMissingError and InputError come before anything is started."""
    from skep.serve.hive.settings import Limits, SqlServerSettings
    from skep.serve.hive.users import Users

    settings = SqlServerSettings(
        users=Users.from_file(access.users_file) if access.users_file is not None else None,
        anonymous_writes=access.anonymous_writes,
        limits=Limits(connections=access.connections, statements=access.statements),
        **given,  # type: ignore[arg-type]
    )
    settings.check()
    return settings


@contextlib.contextmanager
def announced(lake: Lake, settings: SqlServerSettings) -> Iterator[SqlServer]:
    """Serves, with the addresses on stdout."""
    from skep.serve.hive.run import sql_server

    with sql_server(lake, settings) as server:
        for url in server.urls:
            typer.echo(url)
        yield server


def sql_server(
    access: Access,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of Thrift over TCP; 0 takes any.", min=0, max=65535)] = 10000,
    http_port: Annotated[
        int | None, typer.Option(help="Also Thrift over HTTP, on this port; 0 takes any.", min=0, max=65535)
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS: the certificate's PEM file.", exists=True)] = None,
    key: Annotated[Path | None, typer.Option(help="TLS: its key's PEM file.", exists=True)] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="An option of the lake; repeatable.")
    ] = None,
) -> None:
    """Answer SQL over HiveServer2's protocol, for JDBC, beeline, PyHive and DBeaver; until interrupted.

    Prints an address for each port on stdout.
    """
    from skep.lake import connect

    chosen = access_settings(
        access,
        host=host,
        port=port,
        http_port=http_port,
        certificate=None if certificate is None else str(certificate),
        key=None if key is None else str(key),
    )
    ended = until_signalled()
    options = settings_of(settings, "--set")
    with connect(metastore, warehouse, options=options) as lake, announced(lake, chosen) as server:
        ended.wait()
    end_process(server)


def end_process(server: SqlServer) -> None:
    """Ends the process where a statement does not: its thread would hold it up."""
    if not server.ended_in_time:
        typer.echo(
            "error: statements were cut off; what they had not committed is rolled back by a next write", err=True
        )
        sys.stdout.flush()
        os._exit(FAILED)


def sql_user(
    name: Annotated[str, typer.Argument(help="The user's name.")],
    write: Annotated[bool, typer.Option("--write", help="With the right to write.")] = False,
    token: Annotated[
        bool, typer.Option("--token", help="Make a random token, printed on stderr, in place of a password.")
    ] = False,
) -> None:
    """Print the line of a user for `--users-file`. The password is asked for, or read from stdin."""
    from skep.serve.hive.users import kept_password, kept_token

    if not name or any(sign.isspace() or sign in ":#" for sign in name):
        raise InputError(f"{name!r} can't be a user's name: no blanks, colons or #", found=name)
    right = "write" if write else "read"
    if token:
        import secrets  # which the help of all commands would wait for

        made = secrets.token_urlsafe(32)
        typer.echo(f"token: {made}", err=True)
        typer.echo(f"{name}:{right}:{kept_token(made)}")
        return
    asked = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if len(asked) < _SHORTEST_PASSWORD:
        raise InputError(f"a password has {_SHORTEST_PASSWORD} characters or more")
    typer.echo(f"{name}:{right}:{kept_password(asked)}")
