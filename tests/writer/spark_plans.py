"""What the plan of a frame did, by the metrics of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def executed(frame: Any) -> Any:
    """The plan as it ran, adaptive planning's final one."""
    plan = frame._jdf.queryExecution().executedPlan()
    return plan.executedPlan() if "AdaptiveSparkPlan" in plan.getClass().getSimpleName() else plan


def scans(frame: Any) -> Iterator[Any]:
    """The scans of files in the plan that ran, those below a stage of adaptive planning included."""
    pending = [executed(frame)]
    while pending:
        node = pending.pop()
        kind = node.getClass().getSimpleName()
        if kind == "FileSourceScanExec":
            yield node
        if kind.endswith("QueryStageExec"):
            pending.append(node.plan())
        children = node.children()
        pending += [children.apply(at) for at in range(children.size())]


def metric(frame: Any, name: str) -> int:
    """A metric of all scans of files together."""
    return sum(node.metrics().apply(name).value() for node in scans(frame))
