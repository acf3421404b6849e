"""Commands about deployments against a served cluster whose time goes on by itself."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from click.testing import CliRunner, Result
from tests.api.served import ADA, LARGE, ServedCluster

from muster.cli.cluster import Cluster
from muster.cli.program import app
from muster.client import Client
from muster.core.owner import Owner
from muster.core.views.deployments import DeploymentView

WEB = """
kind: deployment
name: web
command: [forever]
replicas: 2
resources: {cpu: 10m}
drain: 0
"""
AGENTS = {"a1": LARGE}


def typed(cluster: ServedCluster, *words: str, stdin: str = "", owner: Owner = ADA) -> Result:
    """The output and the exit code of a command of one of the cluster's users."""
    obj = Cluster(cluster.url, cluster.token(owner))
    return CliRunner().invoke(app, list(words), input=stdin, obj=obj)


@contextmanager
def passing_time(cluster: ServedCluster) -> Iterator[None]:
    """The cluster's time goes on, a second in a few hundredths of one."""
    over = threading.Event()

    def pass_time() -> None:
        while not over.wait(0.02):
            cluster.pass_time(1.0)

    thread = threading.Thread(target=pass_time)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def settled(
    cluster: ServedCluster, client: Client, name: str, wanted: Callable[[DeploymentView], bool]
) -> DeploymentView:
    """The deployment once it is as wanted; time passes until then."""
    for _ in range(200):
        found = client.deployments.show(name)
        if wanted(found):
            return found
        cluster.pass_time(1.0)
    raise AssertionError(f"{name} is not as wanted: {found}")


def deployed(cluster: ServedCluster, client: Client, **keys: object) -> DeploymentView:
    """A deployment whose replicas are healthy."""
    spec = {"name": "web", "command": ["forever"], "resources": {"cpu": "10m"}, "drain": 0}
    made = client.deploy({**spec, **keys})
    return settled(cluster, client, made.name, lambda found: found.healthy >= found.replicas)
