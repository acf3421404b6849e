from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import click
import msgspec
import pytest
from click.shell_completion import CompletionItem
from click.testing import CliRunner
from tests.cli.fake_cluster import ANN, IDS, FakeCluster, job, session
from tests.cli.test_placement import agent

from muster.cli.bash_words import WholeWordsComplete
from muster.cli.cluster import Cluster, OnContact
from muster.cli.completion import (
    OF_DEPLOYMENTS,
    OF_WORK,
    TIMEOUT_S,
    complete_agent,
    complete_any,
    complete_cancelled,
    complete_dependency,
    complete_deployment,
    complete_group,
    complete_output,
    complete_pool,
    complete_slice,
    complete_user,
)
from muster.cli.program import app
from muster.client import Client
from muster.core.errors import MusterError
from muster.core.specs import DependencyCondition
from muster.core.states import AgentBar, JobState
from muster.core.states.deployment import EndpointLifecycle
from muster.core.states.slice import SliceStatus
from muster.core.views.cluster import GroupView
from muster.core.views.deployments import DeploymentView
from muster.core.views.pools import PoolView, SliceView

Complete = Callable[[click.Context, str], list[tuple[str, str]]]


def complete(
    cluster: FakeCluster, typed: str, completing: Complete = complete_cancelled, **words: str
) -> list[tuple[str, str]]:
    """The completions offered for ``typed`` after a command line with the options ``words``."""

    def connector(addressed: Cluster, timeout_s: float, on_contact: OnContact | None) -> Client:
        assert timeout_s <= TIMEOUT_S
        cluster.asked_at.append(addressed)
        return cluster.client()

    context = SimpleNamespace(obj=Cluster(connector=connector), params={})
    context.find_root = lambda: SimpleNamespace(params=words)
    return completing(cast(click.Context, context), typed)


def test_names_and_ids_of_live_jobs_are_offered() -> None:
    cluster = FakeCluster(jobs_=[job("train"), job("test", number=1)])
    assert complete(cluster, "t") == [("train", "running"), ("test", "running")]
    assert complete(cluster, "job-") == [(IDS[0], "running"), (IDS[1], "running")]


def test_what_ended_is_not_offered_to_be_cancelled() -> None:
    ended = job("test", JobState.SUCCEEDED, number=1)
    cluster = FakeCluster(jobs_=[ended, job("train")], sessions_=[session(name="tea")])
    assert complete(cluster, "t") == [("train", "running")]


def test_what_ended_is_offered_after_what_lives() -> None:
    ended = job("test", JobState.SUCCEEDED, number=1)
    cluster = FakeCluster(jobs_=[ended, job("train")], sessions_=[session(name="tea")])
    assert complete(cluster, "t", complete_output) == [
        ("train", "running"),
        ("test", "succeeded"),
        ("tea", "terminated"),
    ]


def test_words_that_bash_leaves_whole_are_offered_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A colon may be taken out of COMP_WORDBREAKS."""
    offered = CompletionItem("a:succeeded")
    for words, last, shown in (
        ("m run --after a : su", "su", "plain,succeeded"),
        ("m run --after a :", ":", "plain,succeeded"),
        ("m run --after a:su", "a:su", "plain,a:succeeded"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        bash = WholeWordsComplete(click.Command("m"), {}, "m", "_M_COMPLETE")
        _, incomplete = bash.get_completion_args()
        assert incomplete == f"a:{'su' if last.endswith('su') else ''}"
        assert bash.format_completion(offered) == shown


def test_agents_and_groups_are_offered() -> None:
    barred = agent(name="a2", barred=AgentBar.CORDONED)
    groups = [GroupView(name="gpu", spec={}, agents=2)]
    cluster = FakeCluster(agents_=[agent(), barred], groups_=groups)
    assert complete(cluster, "a", complete_agent) == [("a1", "alive"), ("a2", "cordoned")]
    assert complete(cluster, "g", complete_group) == [("gpu", "2 agents")]


def test_users_are_offered_with_their_domains() -> None:
    assert complete(FakeCluster(), "a", complete_user) == [("ann", "default")]
    assert complete(FakeCluster(), "b", complete_user) == []


def test_cluster_is_the_one_that_the_line_names() -> None:
    cluster = FakeCluster()
    complete(cluster, "", url="http://a")
    assert cluster.asked_at[0].url == "http://a"


@pytest.mark.parametrize("error", [MusterError("no controller answers"), RuntimeError("defect")])
def test_nothing_is_offered_where_no_cluster_answers(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(FakeCluster(fails=cast(MusterError, error)), "") == []
    assert capsys.readouterr() == ("", "")


def offered(cluster: FakeCluster, line: str) -> list[str]:
    """The completions that bash shows for the last word of ``line``."""
    words = line.split(" ")
    environment = {
        "_MUSTER_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    result = CliRunner(env=environment).invoke(app, obj=Cluster(connector=cluster.connect))
    return [each.partition(",")[2] for each in result.stdout.splitlines()]


def test_commands_their_options_and_commands_below_them_are_offered() -> None:
    cluster = FakeCluster()
    assert offered(cluster, "muster p") == ["plan", "ps", "proxy", "pools", "projects"]
    assert offered(cluster, "muster ps --l") == ["--limit"]
    assert offered(cluster, "muster quota ") == ["remove", "set"]
    assert offered(cluster, "muster users ") == ["add", "list", "remove", "set"]
    assert offered(cluster, "muster ps --state run") == ["running"]


def web() -> DeploymentView:
    return DeploymentView(
        id="dep-1",
        name="web",
        group="default",
        owner=ANN,
        status=EndpointLifecycle.READY,
        status_changed_at=0.0,
        created_at=0.0,
        revision=1,
        stable=1,
        replicas=1,
        healthy=1,
    )


def test_ids_of_what_ended_are_offered_to_those_alone_who_type_one() -> None:
    ended = job("train", JobState.SUCCEEDED)
    cluster = FakeCluster(jobs_=[ended], sessions_=[session(name="tea"), session(name=None)])
    assert complete(cluster, "", complete_any) == [("train", "succeeded"), ("tea", "terminated")]
    assert (ended.id, "succeeded") in complete(cluster, "job-", complete_any)


def test_work_and_deployments_to_wait_for_are_offered_with_the_states_that_they_can_have() -> None:
    cluster = FakeCluster(jobs_=[job("train")], deployments_=[web()])
    assert [name for name, _ in complete(cluster, "t", complete_dependency)] == ["train"]
    assert [name for name, _ in complete(cluster, "w", complete_dependency)] == ["web"]
    assert [name for name, _ in complete(cluster, "train:", complete_dependency)] == [
        "train:succeeded",
        "train:running",
        "train:ended",
        "train:failed",
    ]
    assert [n for n, _ in complete(cluster, "web:h", complete_dependency)] == ["web:healthy"]
    assert complete(cluster, "nothing:", complete_dependency) == []
    assert {*OF_WORK, *OF_DEPLOYMENTS} == {*DependencyCondition}


def test_deployments_that_are_being_taken_down_are_offered_to_nobody() -> None:
    going = msgspec.structs.replace(web(), name="wall", status=EndpointLifecycle.DESTROYING)
    cluster = FakeCluster(deployments_=[web(), going])
    assert [name for name, _ in complete(cluster, "w", complete_deployment)] == ["web"]
    assert [name for name, _ in complete(cluster, "w", complete_dependency)] == ["web"]


def test_bash_which_divides_words_at_colons_is_offered_what_follows_the_colon() -> None:
    cluster = FakeCluster(jobs_=[job("train")], deployments_=[web()])
    conditions = ["succeeded", "running", "ended", "failed"]
    assert offered(cluster, "muster run --after train :") == conditions
    assert offered(cluster, "muster run --after train : ru") == ["running"]
    assert offered(cluster, "muster run --after = train : ru") == ["running"]
    assert offered(cluster, "muster run --uses w") == ["web"]
    assert offered(cluster, "muster --url http : //host run --uses w") == ["web"]
    assert cluster.asked_at[-1].url == "http://host"


NAMED = {
    "REF", "[REF]...", "AGENT...", "USER", "--agent", "--group", "--owner", "--uses", "--after",
}  # fmt: skip
"""Parameters whose values a cluster names: their metavars, or options that have none."""
ELSEWHERE = {"muster agent --group", "muster agents invite --uses"}
"""The one talks to a controller as an agent, with no token that lists anything; the other is a
number."""


def parameters(
    command: click.Command, path: str = "muster"
) -> Iterator[tuple[str, click.Parameter]]:
    """All parameters of a command and those below it, with the words that lead there."""
    for parameter in command.params:
        yield path, parameter
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from parameters(below, f"{path} {name}")


def test_every_name_that_a_cluster_knows_is_completed() -> None:
    found = {
        f"{path} {name}": parameter
        for path, parameter in parameters(app)
        for name in (parameter.metavar, *parameter.opts)
        if name in NAMED
    }
    assert {name.rpartition(" ")[2] for name in found} == NAMED
    default = click.Option(["--nothing"])._custom_shell_complete
    not_completed = {n for n, each in found.items() if each._custom_shell_complete is default}
    assert not_completed == ELSEWHERE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_that_a_shell_evaluates_calls_the_program_back(shell: str) -> None:
    script = FakeCluster().run("completion", shell).stdout
    assert f"_MUSTER_COMPLETE={shell}_complete" in script
    assert FakeCluster().run("completion", "csh").exit_code == 2


def test_pools_are_offered_by_name_and_slices_by_id() -> None:
    pool = PoolView(
        id="pol-1",
        name="gpu",
        group="default",
        provider="local",
        status="PAUSED",
        status_changed_at=0.0,
        created_at=0.0,
        revision=1,
    )
    slice_ = SliceView(
        id="slc-1",
        pool="gpu",
        group="default",
        status=SliceStatus.BOOTING,
        status_changed_at=0.0,
        revision=1,
        created_at=0.0,
    )
    cluster = FakeCluster(pools_=[pool], slices_=[slice_])
    assert complete(cluster, "g", complete_pool) == [("gpu", "paused")]
    assert complete(cluster, "", complete_slice) == [("slc-1", "booting, of pool gpu")]
