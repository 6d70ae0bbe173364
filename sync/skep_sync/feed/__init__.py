"""The changes of a table, commit by commit, to a receiver: a stream, a folder, an HTTP service or a Kafka topic."""

from skep_sync.feed.deliver import Fed as Fed
from skep_sync.feed.deliver import feed as feed
from skep_sync.feed.receivers import Receiver as Receiver
from skep_sync.feed.receivers import receiver_of as receiver_of
