"""`skep demo`: the main job on a year of flights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skep.cli.output import reported


def demo(
    folder: Annotated[Path, typer.Option("--folder", "-f", help="The demo's warehouse.")] = Path("skep-demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete what an earlier run left, start afresh.")] = False,
) -> None:
    """Write a year of real flights, update and delete day by day, sync each commit, query, and check the answer."""
    with reported():
        from skep.demo import run

        run(folder, fresh=fresh)


def register(app: typer.Typer) -> None:
    app.command()(demo)
