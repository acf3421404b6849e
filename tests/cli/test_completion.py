from types import SimpleNamespace
from typing import cast

import pytest
import typer
from tests.cli.fake_cluster import IDS, FakeCluster, job

from muster.cli.completion import TIMEOUT_S, complete_ref
from muster.cli.target import OnContact, Target
from muster.client import Client
from muster.core.errors import MusterError


def complete(cluster: FakeCluster, typed: str, **words: str) -> list[tuple[str, str]]:
    """What is offered for ``typed`` after a command line with the options ``words``."""

    def connector(target: Target, timeout_s: float, on_contact: OnContact | None) -> Client:
        assert timeout_s <= TIMEOUT_S
        cluster.targets.append(target)
        return cluster.client()

    context = SimpleNamespace(obj=Target(connector=connector), params={})
    context.find_root = lambda: SimpleNamespace(params=words)
    return complete_ref(cast(typer.Context, context), typed)


def test_names_and_ids_of_live_jobs_are_offered() -> None:
    cluster = FakeCluster(jobs_=[job("train"), job("test", number=1)])
    assert complete(cluster, "t") == [("train", "running"), ("test", "running")]
    assert complete(cluster, "job-") == [(IDS[0], "running"), (IDS[1], "running")]


def test_cluster_is_the_one_that_the_line_names() -> None:
    cluster = FakeCluster()
    complete(cluster, "", url="http://a")
    assert cluster.targets[0].url == "http://a"


@pytest.mark.parametrize("error", [MusterError("no controller answers"), RuntimeError("defect")])
def test_nothing_is_offered_where_no_cluster_answers(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(FakeCluster(fails=cast(MusterError, error)), "") == []
    assert capsys.readouterr() == ("", "")
