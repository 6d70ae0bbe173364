"""What metastores from 3.1 on tell of a table beyond the fields that the generated code knows of.

Without these an entry that is read, altered and written back would lose them: the server would take an owner that is a
role for a user. (Thrift's C decoder goes by these specs; its Python one, used where C is missing, drops the fields.)
"""

from __future__ import annotations

from typing import Any

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.Thrift import TType


def teach() -> None:
    """Adds the fields to the generated Table, wherever a call or an answer holds one."""
    table: Any = ttypes.Table
    if hasattr(table, "ownerType"):
        return
    newer = (None, (17, TType.STRING, "catName", "UTF8", None), (18, TType.I32, "ownerType", None, None))
    spec = (*table.thrift_spec, *newer)
    for module in (ttypes, ThriftHiveMetastore):
        for struct in vars(module).values():
            for field in filter(None, getattr(struct, "thrift_spec", None) or ()):
                inner = field[3][1] if isinstance(field[3], tuple) and len(field[3]) > 1 else field[3]
                if isinstance(inner, list) and inner[0] is table:
                    inner[1] = spec
    table.thrift_spec, table.catName, table.ownerType = spec, None, None
