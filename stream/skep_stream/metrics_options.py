"""How often the lag of streams with metrics is measured."""

from __future__ import annotations

from skep_format.options import at_least, option

LAG_SECONDS = option(
    "skep.stream.lag.seconds",
    at_least(0),
    15,
    "Of a stream with metrics: what waits in its source is listed so often, beside the rounds; 0: never",
)
