"""What is exported for Prometheus keeps the rules of `promtool check metrics`, and names each series once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from skep_format.errors import SyncError
from skep_format.storage import LocalStorage
from skep_table.events import Event

prometheus_client = pytest.importorskip("prometheus_client")
SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:]\w*)(?P<labels>\{.*\})? \S+")
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum"), "counter": (), "gauge": ()}
NOT_BASE = (
    "milliseconds|microseconds|nanoseconds|ms|us|ns|minutes|hours|days|weeks|kilobytes|megabytes|kb|mb|gb|percent"
)


def problems(text: str) -> list[str]:
    """By the rules of promlint (names, types, help, units, labels), and of the format: no series twice."""
    found: list[str] = []
    help_of: dict[str, str] = {}
    kinds: dict[str, str] = {}
    series: Counter[str] = Counter()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            if name in help_of:
                found.append(f"{name}: help twice")
            help_of[name] = words.strip()
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            kinds[name] = kind
            if help_of.get(name, "") == "":
                found.append(f"{name}: no help")
            if (kind == "counter") is not name.endswith("_total"):
                found.append(f"{name}: only counters end in _total")
            if kind != "histogram" and name.endswith("_bucket"):
                found.append(f"{name}: a suffix of histograms")
            if kind not in ("histogram", "summary") and name.endswith(("_count", "_sum")):
                found.append(f"{name}: a suffix of histograms and summaries")
            if ":" in name or name != name.lower() or kind in name.split("_"):
                found.append(f"{name}: a colon, a capital or its type in the name")
            if set(name.split("_")) & set(NOT_BASE.split("|")):
                found.append(f"{name}: no base unit")
        elif line:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            series[f"{sample['name']}{sample['labels'] or ''}"] += 1
            last = next(reversed(kinds))
            if sample["name"] not in {last, *(last + suffix for suffix in SUFFIXES[kinds[last]])}:
                found.append(f"{sample['name']}: not below its type")
            labels = set(re.findall(r'[{,](\w+)="', sample["labels"] or ""))
            if any(label != label.lower() for label in labels) or ("le" in labels and kinds[last] != "histogram"):
                found.append(f"{sample['name']}: labels {labels}")
    return found + [f"{name} is there {times} times" for name, times in series.items() if times > 1]


def test_the_service(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from skep.serve.metrics import Metrics
    from skep_sync.following.queue import SyncQueue

    queue = SyncQueue(LocalStorage(str(tmp_path)))
    for path in ("/lake/a/orders", "/lake/b/orders"):  # two tables of one name
        waits = queue.add("dr", path, "orders", None)
        for _ in range(2 if "/b/" in path else 1):
            waits = queue.failed(waits, SyncError("no metastore answers"))
        queue.note(waits)
    queue.add("main", "/lake/a/orders", "orders", None)
    metrics = Metrics(queue.pending)
    events = [
        ("service.failed", {"target": "dr"}),
        ("service.heard", {"source": "http", "result": "taken"}),
        ("service.dropped", {"target": "dr"}),
        ("service.after", {}),
        ("watch.round", {"tables": 3}),
        ("watch.failed", {}),
        ("lock.acquired", {"lock": "zk", "waited_seconds": 1}),
        ("lock.released", {"lock": "zk", "held_seconds": 1}),
        ("lock.lost", {"lock": "zk"}),
        ("write.retried", {}),
    ]
    for name, facts in events:
        metrics(Event(name, facts))
    text = metrics.text().decode()
    assert problems(text) == []
    assert 'skep_failing_attempts{table="orders",target="dr"} 2.0' in text.splitlines()


def test_streams() -> None:
    from skep.base.lock_metrics import LockMetrics
    from skep.flows.stream_metrics import StreamMetrics

    registry = prometheus_client.CollectorRegistry()
    metrics = StreamMetrics(registry)
    LockMetrics(registry)
    for table in ("a", "b"):
        metrics(Event("stream.round.start", {"table": table}))
        metrics(Event("stream.round", {"table": table, "committed": "1", "rows": 5, "rejected": 0}, 1.5))
        metrics(Event("stream.round.failed", {"table": table}))
        metrics(Event("stream.fetch", {"table": table}, 1.5))
        metrics(Event("stream.lag", {"table": table, "waiting_messages": 3, "waiting_bytes": 9, "waiting_since": 990}))
    assert problems(prometheus_client.generate_latest(registry).decode()) == []


def test_the_rules_are_kept() -> None:
    """That the checker finds what it is to find."""
    text = '# HELP a_ms x\n# TYPE a_ms counter\na_ms{a="1"} 1\na_ms{a="1"} 1\n# HELP b \n# TYPE b gauge\nb_sum 1\n'
    assert [each.partition(":")[0].partition(" is")[0] for each in problems(text)] == [
        "a_ms",
        "a_ms",
        "b",
        "b_sum",
        'a_ms{a="1"}',
    ]
