"""The site of the provider ``kubernetes``: an API server, and a kubeconfig for it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.providers.conformance import Site
from tests.providers.kubernetes_api import TOKEN, serving
from tests.providers.kubernetes_cluster import Cluster

from muster.core.specs.pool import PoolSpec
from muster.providers.kubernetes.pods import KubernetesPods
from muster.providers.provider import Scope

IMAGE = "registry.example/muster:1"


class KubernetesSite(Site):
    def __init__(self, directory: Path, cluster: Cluster, url: str) -> None:
        self.cluster = cluster
        self.kubeconfig = directory / "kubeconfig"
        self._directory = directory
        self._opened = ExitStack()
        self.url = url
        self.write_kubeconfig(url)

    def write_kubeconfig(self, url: str, token: str = TOKEN) -> None:
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
