"""`skep pull`: the next commits of a table by a query into Avro files, with the options of HiveIncrementalPuller."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import astuple
from typing import Annotated

import typer

from skep.cli.output import Output, OutputOption, print_rows
from skep.cli.scope import MetastoreOption, WarehouseOption

_COLUMNS = ("path", "since", "until", "commits", "rows")


def pull(
    sql_file: Annotated[str, typer.Option("--extractSQLFile", metavar="PATH", help="The query, in a file.")],
    source_db: Annotated[str, typer.Option("--sourceDb", metavar="NAME", help="Database of the table that is read.")],
    source_table: Annotated[str, typer.Option("--sourceTable", metavar="NAME", help="The table that is read.")],
    target_table: Annotated[str, typer.Option("--targetTable", metavar="NAME", help="The table that it is for.")],
    target_db: Annotated[str | None, typer.Option("--targetDb", metavar="NAME", help="Its database.")] = None,
    tmp: Annotated[str, typer.Option("--tmp", metavar="FOLDER", help="Folder of pulls.")] = "/app/hoodie/intermediate",
    tmpdb: Annotated[str, typer.Option("--tmpdb", metavar="NAME", help="Database of Hive's table.")] = "hoodie_temp",
    from_commit_time: Annotated[
        str | None,
        typer.Option("--fromCommitTime", metavar="TIME", help="After this commit.  [default: the target's checkpoint]"),
    ] = None,
    max_commits: Annotated[
        int, typer.Option("--maxCommits", metavar="N", help="So many commits at most; -1 for all.")
    ] = 3,
    hive_url: Annotated[
        str | None, typer.Option("--hiveUrl", metavar="URL", help="HiveServer2 runs the query, at jdbc:hive2://…")
    ] = None,
    hive_user: Annotated[str, typer.Option("--hiveUser", metavar="NAME", help="With --hiveUrl.")] = "hive",
    hive_pass: Annotated[str, typer.Option("--hivePass", envvar="SKEP_HIVE_PASS", help="With --hiveUrl.")] = "",
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="With --hiveUrl: YARN's queue.")] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write what changed in a table, by a query, to <tmp>/<targetTable>__<sourceTable>/<last commit>, in Avro.

    The source HiveIncrPullSource of `skep stream` reads these folders one after another. Without --hiveUrl the query
    runs here.
    """
    with ExitStack() as stack:
        from skep.flows.pulls import Pull
        from skep.flows.pulls import pull as pulled
        from skep.lake import connect
        from skep.metastore.hive_client import connected
        from skep_stream.properties import read_text

        asked = Pull(
            source_db=source_db,
            source_table=source_table,
            target_table=target_table,
            sql=read_text(sql_file).strip().rstrip(";"),
            target_db=target_db,
            tmp=tmp,
            tmpdb=tmpdb,
            from_commit_time=from_commit_time,
            max_commits=max_commits,
        )
        lake = stack.enter_context(connect(metastore, warehouse))
        hive = stack.enter_context(connected(hive_url, hive_user, hive_pass)) if hive_url else None
        done = pulled(lake, asked, hive, queue)
        if done is None:
            typer.echo("there are no commits to pull", err=True)
            return
        print_rows([astuple(done)], output, _COLUMNS)
