"""The callbacks that follow the commits of a write, by its options."""

from __future__ import annotations

from functools import partial

from skep_sync.callbacks import callback_hook
from skep_sync.callbacks.options import ON
from skep_sync.callbacks.senders import sender_of
from skep_table.events import Events
from skep_table.hooks import CommitHook
from skep_table.options import Options
from skep_table.table import HudiTable


def callback_hooks(options: Options, events: Events) -> tuple[CommitHook, ...]:
    """None where callbacks are off. Settings that make no sense are refused now, before anything is written."""
    if not options.value(ON):
        return ()
    sender = sender_of(options)
    return (callback_hook(lambda: sender, partial(HudiTable.open, options=options), events),)
