"""AWS Glue as a catalog, on moto's server: the contract, its batches and limits, what it lacks, its errors."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from client_contract import EntriesContract, table

from skep_catalog.addresses import catalog_at
from skep_catalog.entities import Column, Database, Partition
from skep_catalog.glue.client import GlueCatalog
from skep_catalog.glue.settings import GlueSettings
from skep_catalog.lengths import GLUE_LENGTHS, partition_too_long, too_long, with_short_comments
from skep_format.errors import (
    AuthenticationError,
    CatalogError,
    EntryChangedError,
    InputError,
    MetastoreUnreachableError,
    NoSuchTableError,
    OptionError,
    UnsupportedError,
)
from skep_format.options import Options

ADDRESS = "glue://us-east-1"
SYNC = "hoodie.datasource.meta.sync.glue."


@pytest.fixture
def metastore(glue: GlueCatalog) -> GlueCatalog:
    return glue


@pytest.fixture
def database(glue: GlueCatalog, glue_database: str) -> str:
    glue.create_database(Database(glue_database))
    return glue_database


@pytest.fixture
def requests(metastore: GlueCatalog) -> Counter[str]:
    """The calls of the client by name, from now on."""
    found: Counter[str] = Counter()

    def count(model: Any, **_: object) -> None:
        found[model.name] += 1

    metastore._connected().meta.events.register("before-call.glue", count)
    return found


class TestContract(EntriesContract):
    """What Hive Metastores and Glue have in common."""

    nowhere = "file:///nowhere"


def answer(status: int, code: str) -> AWSResponse:
    class Body:
        def stream(self, *_: object, **__: object) -> Iterator[bytes]:
            yield json.dumps({"__type": code, "message": "because"}).encode()

    return AWSResponse("http://nowhere", status, {"content-type": "application/x-amz-json-1.1"}, Body())


class TestEntries:
    def test_what_has_no_name_here_survives_an_alteration(self, metastore: GlueCatalog, database: str) -> None:
        raw = {
            "Name": "t",
            "Description": "by hand",
            "Retention": 7,
            "StorageDescriptor": {
                "Columns": [{"Name": "a", "Type": "int", "Parameters": {"seen": "crawler"}}],
                "SortColumns": [{"Column": "a", "SortOrder": 1}],
            },
        }
        client = metastore._connected()
        client.create_table(DatabaseName=database, TableInput=raw)
        found = metastore.table(database, "t")
        columns = (*found.storage.columns, Column("b", "string"))
        metastore.alter_table(database, "t", replace(found, storage=replace(found.storage, columns=columns)))
        again = client.get_table(DatabaseName=database, Name="t")["Table"]
        assert (again["Description"], again["Retention"]) == ("by hand", 7)
        assert again["StorageDescriptor"]["SortColumns"] == raw["StorageDescriptor"]["SortColumns"]  # type: ignore[index]
        assert again["StorageDescriptor"]["Columns"] == [
            {"Name": "a", "Type": "int", "Parameters": {"seen": "crawler"}},
            {"Name": "b", "Type": "string"},
        ]

    def test_the_version_that_was_read_is_the_one_that_is_altered(
        self, metastore: GlueCatalog, database: str, glue_options: dict[str, str]
    ) -> None:
        metastore.create_table(table(database))
        mine = metastore.table(database, "t")
        sent: list[dict[str, Any]] = []
        metastore._connected().meta.events.register(
            "provide-client-params.glue.UpdateTable", lambda params, **_: sent.append(dict(params))
        )
        metastore.alter_table(database, "t", replace(mine, parameters={"x": "1"}))
        assert [(one["VersionId"], one["SkipArchive"]) for one in sent] == [("1", True)]
        with pytest.raises(EntryChangedError, match=rf"{database}\.t in glue://us-east-1 was changed by another"):
            metastore.alter_table(database, "t", replace(mine, parameters={"x": "2"}))
        assert metastore.table(database, "t").parameters == {"x": "1"}
        archived = GlueCatalog.connect(ADDRESS, {**glue_options, SYNC + "skip_table_archive": "false"})
        archived._connected().meta.events.register(
            "provide-client-params.glue.UpdateTable", lambda params, **_: sent.append(dict(params))
        )
        archived.alter_table(database, "t", archived.table(database, "t"))
        assert sent[-1]["SkipArchive"] is False

    def test_a_database_with_tables_is_not_dropped(self, metastore: GlueCatalog, database: str) -> None:
        """Glue would drop the tables, too."""
        metastore.create_table(table(database))
        with pytest.raises(CatalogError, match="has tables in it: t"):
            metastore.drop_database(database)
        assert metastore.tables(database) == ["t"]

    def test_what_glue_lacks_is_refused_by_name(self, metastore: GlueCatalog, database: str) -> None:
        metastore.create_table(table(database))
        found = metastore.table(database, "t")
        for what, refused in {
            "no rename of tables": lambda: metastore.rename_table(database, "t", database, "u"),
            "no rename of tables.*": lambda: metastore.alter_table(database, "t", replace(found, name="u")),
            "no alteration that goes to all": lambda: metastore.alter_table(database, "t", found, cascade=True),
            "no managed tables": lambda: metastore.create_table(replace(found, name="m", table_type="MANAGED_TABLE")),
        }.items():
            with pytest.raises(UnsupportedError, match=rf"{database}\.\w: AWS Glue \(glue://us-east-1\) has {what}"):
                refused()
        assert metastore.tables(database) == ["t"]


class TestBatches:
    def test_calls_are_of_glues_sizes(self, metastore: GlueCatalog, database: str, requests: Counter[str]) -> None:
        metastore.create_table(table(database))
        storage = metastore.table(database, "t").storage
        wanted = [Partition((f"{i:03}",), storage) for i in range(230)]
        metastore.add_partitions(database, "t", wanted)
        names = metastore.partition_names(database, "t")
        assert len(names) == 230
        found = list(metastore.partitions(database, "t", names))
        metastore.alter_partitions(database, "t", found)
        metastore.drop_partitions(database, "t", names[:60])
        assert {name: count for name, count in requests.items() if "Partition" in name} == {
            "BatchCreatePartition": 3,
            "GetPartitions": 1,
            "BatchGetPartition": 1,
            "BatchUpdatePartition": 3,
            "BatchDeletePartition": 3,
        }

    def test_several_at_once(
        self, database: str, glue_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("skep_catalog.glue.client._READ", 10)
        monkeypatch.setattr("skep_catalog.glue.client._CREATED", 10)
        at_once = {
            SYNC + "all_partitions_read_parallelism": "4",
            SYNC + "changed_partitions_read_parallelism": "2",
            SYNC + "partition_change_parallelism": "3",
        }
        with GlueCatalog.connect(ADDRESS, {**glue_options, **at_once}) as client:
            segments: list[Any] = []
            client._connected().meta.events.register(
                "provide-client-params.glue.GetPartitions", lambda params, **_: segments.append(params["Segment"])
            )
            client.create_table(table(database))
            storage = client.table(database, "t").storage
            client.add_partitions(database, "t", [Partition((f"{i:04}",), storage) for i in range(35)])
            names = client.partition_names(database, "t")
            assert len(names) == 35, "each once: moto takes no notice of segments"
            assert sorted(one["SegmentNumber"] for one in segments) == [0, 1, 2, 3]
            assert [partition.values for partition in client.partitions(database, "t", names)] == [
                (name[2:],) for name in names
            ]

    def test_pages_and_keys_that_were_left_over(self, metastore: GlueCatalog, database: str) -> None:
        metastore.create_table(table(database))
        storage = metastore.table(database, "t").storage
        metastore.add_partitions(database, "t", [Partition((f"{i}",), storage) for i in range(3)])
        events = metastore._connected().meta.events
        pages, left = [["1"], ["2"]], [[{"Values": ["1"]}], []]

        def paged(parsed: dict[str, Any], **_: object) -> None:
            if len(pages) == 2:
                parsed["NextToken"] = "more"
            parsed["Partitions"] = [p for p in parsed["Partitions"] if p["Values"] == pages[0]]
            pages.pop(0)

        def some(parsed: dict[str, Any], **_: object) -> None:
            parsed["UnprocessedKeys"] = left.pop(0)

        events.register("after-call.glue.GetPartitions", paged)
        assert metastore.partition_names(database, "t") == ["p=1", "p=2"]
        events.register("after-call.glue.BatchGetPartition", some)
        assert sorted(p.values for p in metastore.partitions(database, "t", ["p=0"])) == [("0",), ("1",)]


class TestErrors:
    @pytest.mark.parametrize("call", ["add_partitions", "alter_partitions", "drop_partitions"])
    def test_some_of_a_batch_that_fail_are_named(self, metastore: GlueCatalog, database: str, call: str) -> None:
        metastore.create_table(table(database))
        storage = metastore.table(database, "t").storage
        rows = [Partition((value,), storage) for value in ("a", "b")]
        if call != "add_partitions":
            metastore.add_partitions(database, "t", rows)

        def fails(parsed: dict[str, Any], **_: object) -> None:
            key = "PartitionValueList" if call == "alter_partitions" else "PartitionValues"
            detail = {"ErrorCode": "ResourceNumberLimitExceededException", "ErrorMessage": "too many"}
            parsed["Errors"] = [{key: ["b"], "ErrorDetail": detail}]

        metastore._connected().meta.events.register("after-call.glue", fails)
        items = ["p=a", "p=b"] if call == "drop_partitions" else rows
        with pytest.raises(CatalogError, match=r"did not take 1 partitions by batch_\w+: b: ResourceNumberLimit.*many"):
            list(getattr(metastore, call)(database, "t", items))

    def test_a_throttled_call_is_repeated_by_botocore(
        self, metastore: GlueCatalog, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pauses: list[float] = []
        monkeypatch.setattr("botocore.endpoint.time.sleep", pauses.append)
        answers = [answer(400, "ThrottlingException")] * 2

        def throttled(**_: object) -> AWSResponse | None:
            return answers.pop() if answers else None

        metastore._connected().meta.events.register("before-send.glue.GetTables", throttled)
        assert metastore.tables(database) == []
        assert len(pauses) == 2
        answers += [answer(400, "ThrottlingException")] * 20
        with pytest.raises(MetastoreUnreachableError, match="refused get_tables: ThrottlingException: because"):
            metastore.tables(database)
        answers.clear()

    def test_attempts_are_those_of_the_option(self, database: str, glue_options: dict[str, str]) -> None:
        with GlueCatalog.connect(ADDRESS, {**glue_options, "skep.metastore.attempts": "1"}) as client:
            client._connected().meta.events.register(
                "before-send.glue.GetTables", lambda **_: answer(503, "ServiceUnavailable")
            )
            with pytest.raises(MetastoreUnreachableError):
                client.tables(database)
            assert client.calls == 1

    def test_nobody_listens(self) -> None:
        given = {"hoodie.aws.glue.endpoint": "http://127.0.0.1:1", "skep.metastore.attempts": "1"}
        keys = {"hoodie.aws.access.key": "key", "hoodie.aws.secret.key": "secret"}
        with pytest.raises(MetastoreUnreachableError, match=r"table d\.t: glue://us-east-1 could not be asked for"):
            GlueCatalog.connect(ADDRESS, {**given, **keys}).table("d", "t")

    def test_no_credentials_and_no_region(self, monkeypatch: pytest.MonkeyPatch, glue_options: dict[str, str]) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, "/nowhere")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        endpoint = {"hoodie.aws.glue.endpoint": glue_options["hoodie.aws.glue.endpoint"]}
        with pytest.raises(AuthenticationError) as refused:
            GlueCatalog.connect(ADDRESS, endpoint).databases()
        assert "hoodie.aws.access.key" in (refused.value.hint or "")
        with pytest.raises(OptionError) as unknown:
            GlueCatalog.connect("glue:", glue_options).databases()
        assert "hoodie.aws.glue.region" in (unknown.value.hint or "")

    def test_access_that_is_denied(self, metastore: GlueCatalog) -> None:
        metastore._connected().meta.events.register(
            "before-send.glue.GetDatabase", lambda **_: answer(400, "AccessDeniedException")
        )
        with pytest.raises(AuthenticationError, match="AccessDeniedException"):
            metastore.database("d")


class TestSettings:
    def test_an_address_wins_over_options(self) -> None:
        options = {"hoodie.aws.glue.region": "us-east-1", SYNC + "catalogId": "1"}
        settings = GlueSettings.of("glue://eu-central-1/123456789012", options)
        assert (settings.region, settings.catalog) == ("eu-central-1", "123456789012")
        settings = GlueSettings.of("glue:", options)
        assert (settings.region, settings.catalog) == ("us-east-1", "1")

    @pytest.mark.parametrize("uri", ["glue", "glue:/x", "glue://a/b/c", "glue://a?b"])
    def test_other_addresses_are_refused(self, uri: str) -> None:
        with pytest.raises(InputError, match="not an address of AWS Glue"):
            GlueSettings.of(uri)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"hoodie.aws.access.key": "k"}, r"needs hoodie\.aws\.secret\.key"),
            ({SYNC + "all_partitions_read_parallelism": "11"}, "from 1 to 10"),
            ({SYNC + "resource_tags": "a"}, "key:value"),
            (
                {SYNC + "partition_index_fields": "a,b,c,d", SYNC + "partition_index_fields.enable": "true"},
                "up to three",
            ),
            ({SYNC + "partition_index_fields": "a;", SYNC + "partition_index_fields.enable": "true"}, "up to three"),
        ],
    )
    def test_wrong_options_are_refused(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            catalog_at("glue:", options)

    def test_secrets_are_not_shown(self) -> None:
        given = {"hoodie.aws.access.key": "k", "hoodie.aws.secret.key": "s3cret", "hoodie.aws.session.token": "t0ken"}
        assert not {"s3cret", "t0ken"} & set(Options(given).masked().values())
        assert "s3cret" not in repr(GlueSettings.of("glue:", given))

    def test_the_catalog_and_tags_are_sent(self, glue_options: dict[str, str], metastore: GlueCatalog) -> None:
        tags = {SYNC + "resource_tags": "team:data, stage:test"}
        sent: list[dict[str, Any]] = []
        name = f"db_{uuid.uuid4().hex[:10]}"
        with GlueCatalog.connect(f"{ADDRESS}/123456789012", {**glue_options, **tags}) as client:
            assert client.uri == f"{ADDRESS}/123456789012"
            client._connected().meta.events.register(
                "provide-client-params.glue", lambda params, **_: sent.append(dict(params))
            )
            client.create_database(Database(name))
            client.database(name)
        assert [one["CatalogId"] for one in sent] == ["123456789012"] * 2
        assert sent[0]["Tags"] == {"team": "data", "stage": "test"}
        metastore.drop_database(name)

    def test_a_role_is_assumed(
        self, glue_options: dict[str, str], monkeypatch: pytest.MonkeyPatch, metastore: GlueCatalog
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", glue_options["hoodie.aws.glue.endpoint"])
        role = {"hoodie.aws.role.arn": "arn:aws:iam::123456789012:role/syncs", "hoodie.aws.role.external.id": "42"}
        with GlueCatalog.connect(ADDRESS, {**glue_options, **role}) as client:
            assert client.databases() == metastore.databases()
            assert client._connected()._request_signer._credentials.get_frozen_credentials().access_key != "key"


class TestLengths:
    def test_comments_are_cut_by_bytes_and_are_one_line(self) -> None:
        columns, cut = with_short_comments(
            [Column("a", "int", "one\ntwo"), Column("b", "int", "ü" * 200)], GLUE_LENGTHS.comment, GLUE_LENGTHS
        )
        assert columns[0].comment == "one two"
        assert cut == ["b"]
        assert len((columns[1].comment or "").encode()) in (254, 255)

    def test_limits_are_glues(self) -> None:
        assert partition_too_long("p=x", ["x" * 1024], GLUE_LENGTHS) is None
        assert "1,025 bytes of at most 1,024" in (partition_too_long("p=x", ["x" * 1025], GLUE_LENGTHS) or "")
        assert too_long(replace(table("d"), owner="o" * 256), GLUE_LENGTHS) == [
            "the owner has 256 bytes of at most 255"
        ]


def test_a_missing_database_is_named(metastore: GlueCatalog) -> None:
    with pytest.raises(NoSuchTableError, match="has no database nothere"):
        metastore.create_table(table("nothere"))
