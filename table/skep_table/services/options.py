"""Options of the table services, by Hudi's names and with Hudi's defaults."""

from __future__ import annotations

from enum import Enum

from skep_format.options import Status, at_least, boolean, one_of, option, planned


class CleanPolicy(str, Enum):
    """What a clean leaves: slices that the last commits need, those of the last hours, or a number of each group."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


CLEAN_POLICY = option(
    "hoodie.cleaner.policy",
    one_of(CleanPolicy),
    CleanPolicy.KEEP_LATEST_COMMITS,
    "What a clean leaves",
    "hoodie.clean.policy",
)
COMMITS_RETAINED = option(
    "hoodie.cleaner.commits.retained",
    at_least(1),
    10,
    "KEEP_LATEST_COMMITS: the table as of each of so many last commits stays readable",
    "hoodie.clean.commits.retained",
)
HOURS_RETAINED = option(
    "hoodie.cleaner.hours.retained",
    at_least(1),
    24,
    "KEEP_LATEST_BY_HOURS: the table as of any moment of so many hours stays readable",
    "hoodie.clean.hours.retained",
)
FILE_VERSIONS_RETAINED = option(
    "hoodie.cleaner.fileversions.retained",
    at_least(1),
    3,
    "KEEP_LATEST_FILE_VERSIONS: so many slices of each file group stay",
    "hoodie.clean.fileversions.retained",
)
INCREMENTAL_CLEAN = option(
    "hoodie.cleaner.incremental.mode",
    boolean,
    True,
    "A clean looks only into partitions that were written to since the last one",
    "hoodie.clean.incremental.enabled",
)
KEEP_MAX_COMMITS = option("hoodie.keep.max.commits", at_least(2), 30, "More commits than these start an archiving")
KEEP_MIN_COMMITS = option("hoodie.keep.min.commits", at_least(1), 20, "Archiving leaves so many commits active")
KEEP_CHECKPOINT = option(
    "skep.archive.keep.checkpoint", boolean, True, "The commit with the newest checkpoint of a streamer stays active"
)
ARCHIVE_BATCH = option(
    "hoodie.commits.archival.batch", at_least(1), 10, "Version 6: entries of one block of an archive file"
)
AUTO_CLEAN = option("hoodie.clean.automatic", boolean, True, "Clean after a commit")
ASYNC_CLEAN = option(
    "hoodie.clean.async", boolean, False, "Clean beside the writes that follow", "hoodie.clean.async.enabled"
)
CLEAN_COMMITS = option(
    "hoodie.clean.max.commits",
    at_least(1),
    1,
    "So many commits after a clean the next one is looked for",
    "hoodie.clean.trigger.max.commits",
)
HISTORY_BATCH = option(
    "hoodie.timeline.compaction.batch.size",
    at_least(2),
    10,
    "Versions 8 and 9: so many files of a level of the archive are merged into one of the next",
)
HISTORY_MANIFESTS = option(
    "hoodie.timeline.manifest.retained.versions",
    at_least(1),
    3,
    "Versions 8 and 9: so many last states of the archive stay for those that read it meanwhile",
)
AUTO_ARCHIVE = option("hoodie.archive.automatic", boolean, True, "Archive after a commit")
ASYNC_ARCHIVE = option("hoodie.archive.async", boolean, False, "Archive beside the writes that follow")

for key, (anyway, doc) in {
    "hoodie.clean.trigger.strategy": ("NUM_COMMITS", "NUM_COMMITS is the only one"),
    "hoodie.cleaner.parallelism": ("", "deletes run on threads"),
    "hoodie.clean.parallelism": ("", "deletes run on threads"),
    "hoodie.clean.allow.multiple": ("false", "a clean finishes those that are pending first"),
    "hoodie.clean.multiple.enabled": ("false", "a clean finishes those that are pending first"),
    "hoodie.clean.optimize.using.local.engine.context": ("true", "cleans are planned on threads"),
    "hoodie.archive.merge.enable": ("false", "archive files are not merged"),
    "hoodie.archive.merge.files.batch.size": ("", "archive files are not merged"),
    "hoodie.archive.merge.small.file.limit.bytes": ("", "archive files are not merged"),
    "hoodie.archive.delete.parallelism": ("", "deletes run on threads"),
}.items():
    option(key, str, anyway, doc, status=Status.NO_EFFECT)
planned(
    "hoodie.archive.beyond.savepoint",
    "hoodie.cleaner.delete.bootstrap.base.file",
    "hoodie.clean.delete.bootstrap.base.file",
    "hoodie.clean.max.commits.to.clean",
    "hoodie.clean.partition.filter.regex",
    "hoodie.clean.partition.filter.selected",
    "hoodie.cleaner.partition.filter.regex",
    "hoodie.cleaner.partition.filter.selected",
)
