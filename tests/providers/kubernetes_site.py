"""The site of the provider ``kubernetes``: an API server, and a kubeconfig for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.providers.conformance import TOKEN, Site
from tests.providers.kubernetes_api import BEARER, serving
from tests.providers.kubernetes_cluster import Cluster
from tests.providers.kubernetes_rules import Object

from muster.core.specs.pool import MachineShape, PoolSpec
from muster.providers.kubernetes.pods import KubernetesPods
from muster.providers.provider import (
    AgentSetup,
    Machine,
    MachineState,
    ProviderError,
    Scope,
    SliceOrder,
)

IMAGE = "registry.example/muster:1"
GPUS = MachineShape.model_validate(
    {
        "cpu": "7500m",
        "memory": "64GiB",
        "disk": "100GiB",
        "gpus": 4,
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "extra": {"licence": 2},
    }
)
SETUP = AgentSetup("10.0.0.5:7601", "training", TOKEN, authority="-----BEGIN CERTIFICATE-----")


class KubernetesSite(Site):
    def __init__(self, directory: Path, cluster: Cluster, url: str) -> None:
        self.cluster = cluster
        self.kubeconfig = directory / "kubeconfig"
        self._directory = directory
        self._opened = ExitStack()
        self.url = url
        self.write_kubeconfig(url)

    def write_kubeconfig(self, url: str, token: str = BEARER) -> None:
        server = {"server": url, "insecure-skip-tls-verify": True}  # and no authorities are read
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "clusters": [{"name": "here", "cluster": server}],
                    "users": [{"name": "muster", "user": {"token": token}}],
                    "contexts": [
                        {
                            "name": "work",
                            "context": {"cluster": "here", "user": "muster", "namespace": "work"},
                        }
                    ],
                    "current-context": "work",
                }
            )
        )

    def provider(self, pool: str = "one", cluster: str = "c-1", **settings: Any) -> KubernetesPods:
        spec = pool_spec(pool, kubeconfig=str(self.kubeconfig), **settings)
        provider = KubernetesPods(spec, Scope(cluster, pool, self._directory / pool))
        self._opened.callback(provider.close)
        return provider

    def close(self) -> None:
        self._opened.close()


def pool_spec(pool: str = "one", **settings: Any) -> PoolSpec:
    written = {
        "name": pool,
        "provider": "kubernetes",
        "machine": {"cpu": 2, "memory": "64MiB"},
        "max_slices": 3,
        "settings": {"image": IMAGE} | settings,
    }
    return PoolSpec.model_validate(written)


@contextmanager
def kubernetes_site(directory: Path, cluster: Cluster | None = None) -> Iterator[KubernetesSite]:
    cluster = cluster or Cluster()
    with serving(cluster) as url:
        site = KubernetesSite(directory, cluster, url)
        try:
            yield site
        finally:
            site.close()


def order(slice_: str = "sl-1", machines: int = 1, setup: AgentSetup = SETUP) -> SliceOrder:
    names = tuple(f"{slice_}-{number}" for number in range(machines))
    return SliceOrder(slice_, names, GPUS, False, {"zone": "a"}, setup)


def the_pod(cluster: Cluster) -> Object:
    (name,) = cluster.named("pods")
    return cluster.found("pods", name)


def the_machine(provider: KubernetesPods) -> Machine:
    (machine,) = provider.list().machines
    return machine


def running(site: KubernetesSite, provider: KubernetesPods) -> Machine:
    """The only machine, once it runs."""
    site.until(lambda: the_machine(provider).state is MachineState.RUNNING)
    return the_machine(provider)


def refusal(call: Callable[[], object]) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        call()
    return raised.value


def everything(cluster: Cluster) -> list[str]:
    return cluster.named("pods") + cluster.named("secrets")
