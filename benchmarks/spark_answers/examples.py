"""Spark's documented examples of its functions, as a session's own registry has them."""

from __future__ import annotations

import re
from typing import Any


def documented_examples(spark: Any) -> dict[str, list[str]]:
    """Each example of `DESCRIBE FUNCTION EXTENDED` of this release, in order, and the functions which it documents."""
    registry = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    names = registry.listFunction()
    found: dict[str, list[str]] = {}
    for at in range(names.size()):
        name = names.apply(at).funcName()
        text = registry.lookupFunction(names.apply(at)).get().getExamples()
        for each in re.findall(r"^\s*> (.*?);$", text, re.MULTILINE | re.DOTALL):
            owners = found.setdefault(each.strip(), [])
            if name not in owners:
                owners.append(name)
    return {text: found[text] for text in sorted(found) if not text.startswith("SET ")}
