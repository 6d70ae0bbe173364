"""Procedures that copy: rows into another table, a read under a name, instants into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sqlglot import exp

from skep_format.errors import EntryExistsError, InputError
from skep_format.timeline.metadata import WriteOperation
from skep_sql.bind import NamedQuery
from skep_sql.procedures.contract import Context, Rows, one_of, procedure
from skep_table.query.filters.text import SqlDialect
from skep_table.reports.commits import export_instants

_QUERIES: Final = ("snapshot", "read_optimized", "incremental")
_MODES: Final = ("append", "overwrite", "ignore", "errorifexists", "error")


def _request(context: Context) -> dict[str, Any]:
    """What is read, as of `Target.rows`."""
    query = one_of("query_type", str(context["query_type"]).lower(), _QUERIES)
    since, until, moment = (context[name] for name in ("begin_instance_time", "end_instance_time", "as_of_instant"))
    if query == "incremental":
        if not since or not until:
            raise InputError(
                "an incremental query needs begin_instance_time and end_instance_time", option="begin_instance_time"
            )
        return {"query": query, "since": since, "until": until}
    return {"query": query} if not moment else {"query": query, "as_of": moment}


@procedure("""copy_to_table(table, query_type='snapshot', new_table, begin_instance_time='', end_instance_time='',
    as_of_instant='', save_mode='overwrite', columns='') -> status:int""")
def _copy_to_table(context: Context) -> Rows:
    name, mode = str(context["new_table"]), one_of("save_mode", str(context["save_mode"]).lower(), _MODES)
    rows = context.target.rows(**_request(context)).to_arrow()
    chosen = [part.strip() for part in str(context["columns"] or "").split(",") if part.strip()]
    data = rows.select(chosen or [each for each in rows.schema.names if not each.startswith("_hoodie_")])
    catalog = context.session.catalog
    if catalog.facts(name) is None:
        with catalog.new_table(name, data.schema, managed=True) as made:
            made.write(WriteOperation.BULK_INSERT, data, context.options())
    elif mode in ("error", "errorifexists"):
        raise EntryExistsError(f"table {name} already exists", option="save_mode")
    elif mode != "ignore":
        operation = WriteOperation.INSERT_OVERWRITE_TABLE if mode == "overwrite" else WriteOperation.INSERT
        catalog.table(name).write(operation, data, context.options())
    return [[0]]


@procedure("""copy_to_temp_view(table, query_type='snapshot', view_name, begin_instance_time='',
    end_instance_time='', as_of_instant='', replace=False, global=False!) -> status:int""")
def _copy_to_view(context: Context) -> Rows:
    """A temporary view of the read; it reads the table again with each query, as a view does."""
    views = context.session.views
    name = str(context["view_name"]).lower()
    if name in views and not context["replace"]:
        raise EntryExistsError(f"temporary view {name} already exists", hint="replace => true")
    request, table = _request(context), context.full_name
    if "as_of" in request:
        source = f"`{table.replace('.', '`.`')}` TIMESTAMP AS OF '{request['as_of']}'"
    else:
        arguments = [table, *request.values()]
        source = f"hudi_query({', '.join(repr(each) for each in arguments)})"
    query: Any = exp.maybe_parse(f"SELECT * FROM {source}", dialect=SqlDialect)
    views[name] = NamedQuery(query)
    return [[0]]


@procedure("""export_instants(table, local_folder, limit=-1,
    actions='clean,commit,deltacommit,rollback,savepoint,restore', desc=False) -> export_detail""")
def _export(context: Context) -> Rows:
    """The newest completed instants, each in a file with its name. Plans and metadata in Avro are written as JSON."""
    folder = Path(str(context["local_folder"]))
    wanted = {name.strip() for name in str(context["actions"]).split(",")}
    chosen = export_instants(
        context.table, folder, actions=wanted, limit=context["limit"], newest_first=context["desc"]
    )
    return [[f"Exported {len(chosen)} Instants to {folder}"]]
