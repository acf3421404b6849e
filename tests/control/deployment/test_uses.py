"""Work that uses deployments: it is told where they are reached."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.deployment.test_dependents import deploy, job, served, why
from tests.control.served_cluster import SERVES, Cluster
from tests.control.world import BOB

from muster.control.deployment.loads import Loads
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.core.errors import InvalidSpec
from muster.core.serving.traffic import LoadReport
from muster.core.specs import SessionSpec

HERE = "http://127.0.0.1:8282"
ELSEWHERE = "https://proxy.example.org:8282"


def report(cluster: Cluster, *urls: str) -> None:
    """Have proxies report that are reached at these URLs."""

    def tell(work: Work, parts: Parts) -> None:
        for url in urls:
            parts[Loads].told(LoadReport(proxy=url, seconds=1.0, url=url), work.now)

    cluster.world.ask(tell)


def move_to(cluster: Cluster, host: str) -> None:
    """Have all machines be reached at this host."""
    for agent in cluster.world.plane.live.agents.values():
        agent.host = host


def test_work_gets_the_addresses_of_the_deployments_that_it_uses(worlds: MakeWorld) -> None:
    cluster, programs = served(worlds, web=SERVES)
    move_to(cluster, "10.0.0.5")
    report(cluster, HERE, ELSEWHERE)
    deploy(cluster, "my.chat-2")
    deploy(cluster, "web", command=["web"], uses=["my.chat-2"])
    cluster.world.submit(job("ask", uses=["my.chat-2", "web"]))
    kernels = [{"command": ["look"], "uses": ["web"]}, {"command": ["other"]}]
    cluster.world.submit_session(SessionSpec.model_validate({"kernels": kernels}))
    cluster.world.run(1)
    told = {
        name: {key: text for key, text in env.items() if key.startswith("MUSTER_URL")}
        for name, env in programs.environments.items()
    }
    chat, web = f"{ELSEWHERE}/my.chat-2", f"{ELSEWHERE}/web"
    assert told == {
        "serve": {},
        "web": {"MUSTER_URL_MY_CHAT_2": chat},
        "ask": {"MUSTER_URL_MY_CHAT_2": chat, "MUSTER_URL_WEB": web},
        "look": {"MUSTER_URL_WEB": web},
        "other": {},
    }


def test_machine_that_is_reached_by_loopback_gets_the_address_on_loopback(
    worlds: MakeWorld,
) -> None:
    cluster, programs = served(worlds)
    report(cluster, HERE, ELSEWHERE)
    deploy(cluster, "chat")
    cluster.world.submit(job("ask", uses=["chat"]))
    cluster.world.run(1)
    assert programs.environments["ask"]["MUSTER_URL_CHAT"] == f"{HERE}/chat"


@pytest.mark.parametrize(
    ("urls", "name", "refusal"),
    [
        ((ELSEWHERE,), "search", "there is no such deployment"),
        ((ELSEWHERE,), "bobs", "this deployment takes no requests of yours"),
        ((ELSEWHERE,), "gone", "this deployment is being taken down"),
        ((), "chat", "it has no address: no proxy reports to the controller"),
        ((HERE,), "chat", "the proxy listens on loopback alone"),
    ],
)
def test_use_of_what_has_no_address_is_refused(
    worlds: MakeWorld, urls: tuple[str, ...], name: str, refusal: str
) -> None:
    cluster, _ = served(worlds)
    move_to(cluster, "10.0.0.5")
    report(cluster, *urls)
    deploy(cluster, "gone")
    cluster.run(1)
    cluster.ask("destroy")
    deploy(cluster, "chat")
    deploy(cluster, "bobs", BOB)
    with pytest.raises(InvalidSpec, match=rf"uses is '{name}': .*{refusal}"):
        cluster.world.submit(job("ask", uses=[name]))
    with pytest.raises(InvalidSpec, match=rf"uses is '{name}': .*{refusal}"):
        deploy(cluster, "web", uses=[name])


def test_two_names_of_one_variable_are_refused() -> None:
    (problem,) = job("ask", uses=["my.chat", "my-chat"]).contradictions()
    assert (
        str(problem.expected) == "MUSTER_URL_MY_CHAT is the variable of 'my.chat': use one of them"
    )


def test_work_waits_for_an_address_that_is_not_known_after_a_restart(
    worlds: MakeWorld,
) -> None:
    cluster, programs = served(worlds, load=Run(3))
    report(cluster, ELSEWHERE)
    deploy(cluster, "chat")
    cluster.world.submit(job("load"))
    asks = cluster.world.submit(job("ask", "load", uses=["chat"]))
    cluster.world.run(1)
    cluster.world.restart_controller()
    cluster.world.run(20)
    assert "ask" not in programs.started
    assert why(cluster, asks)[0].startswith("it uses deployment chat, whose address is not known")
    report(cluster, ELSEWHERE)
    cluster.world.run(3)
    assert programs.environments["ask"]["MUSTER_URL_CHAT"] == f"{ELSEWHERE}/chat"


def test_uses_make_a_new_revision_and_their_absence_is_none_of_its_keys(
    worlds: MakeWorld,
) -> None:
    cluster, _ = served(worlds)
    report(cluster, ELSEWHERE)
    deploy(cluster, "chat")
    made = deploy(cluster, "web")
    assert "uses" not in made.revisions[0].template
    cluster.run(8)
    deploy(cluster, "web", uses=["chat"])
    assert made.revision == 2
