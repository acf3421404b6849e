"""The provider ``kubernetes`` where it is not let in, and where nobody answers in time."""

import base64
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.providers.conformance import TOKEN
from tests.providers.kubernetes_cluster import Cluster, Fault
from tests.providers.kubernetes_site import (
    KubernetesSite,
    everything,
    kubernetes_site,
    order,
    refusal,
)

from muster.autoscaling.standing import CreateOutcome
from muster.providers.kubernetes import api, pods

CREDENTIALS = CreateOutcome.CREDENTIALS
BAD_REQUEST = CreateOutcome.BAD_REQUEST
UNKNOWN = CreateOutcome.UNKNOWN
SHORT_S = 0.5


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def site(tmp_path: Path, cluster: Cluster) -> Iterator[KubernetesSite]:
    with kubernetes_site(tmp_path, cluster) as site:
        yield site


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have patience end soon."""
    monkeypatch.setattr(api, "REQUEST_S", SHORT_S)
    monkeypatch.setattr(pods, "LIMIT_S", 4 * SHORT_S)
    monkeypatch.setattr(pods, "UNDO_S", 2 * SHORT_S)


# check


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        *itertools.product(("create", "get", "delete"), ("pods", "secrets")),
        ("list", "pods"),
        ("patch", "secrets"),
    ],
)
def test_check_tells_each_permission_that_is_lacking(
    site: KubernetesSite, cluster: Cluster, verb: str, kind: str
) -> None:
    cluster.denied.add((verb, kind))
    refused = refusal(site.provider().check)
    assert refused.outcome is CREDENTIALS
    assert f'cannot {verb} resource "{kind}"' in refused.told
    assert everything(cluster) == []


def test_check_tells_used_up_quota(site: KubernetesSite, cluster: Cluster) -> None:
    cluster.quota = 0
    assert refusal(site.provider().check).outcome is CreateOutcome.QUOTA


def test_check_tells_what_kubernetes_does_not_have(site: KubernetesSite) -> None:
    for provider, told in (
        (site.provider(namespace="nowhere"), 'namespaces "nowhere" not found'),
        (site.provider(service_account="nobody"), 'serviceaccount "nobody" not found'),
    ):
        refused = refusal(provider.check)
        assert refused.outcome is BAD_REQUEST
        assert told in refused.told


# Credentials, secrets, and patience


def test_wrong_credential_is_told(site: KubernetesSite, cluster: Cluster) -> None:
    site.write_kubeconfig(site.url, token="wrong")
    provider = site.provider()
    for call in (provider.check, provider.list, lambda: provider.create(order(machines=3))):
        assert refusal(call).outcome is CREDENTIALS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "not found"),
        ("token: 'very-secret", "it is no valid YAML"),
        ("[very-secret]", "cannot be used"),
        (json.dumps({"clusters": [], "contexts": [], "users": []}), "No current context"),
        (
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                    "users": [{"name": "u", "user": {"token": ["very-secret"]}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            ),
            "cannot be used",
        ),
    ],
)
def test_unusable_kubeconfig_is_told_and_not_shown(
    site: KubernetesSite, text: str | None, told: str
) -> None:
    site.kubeconfig.unlink()
    if text is not None:
        site.kubeconfig.write_text(text)
    refused = refusal(site.provider().check)
    assert refused.outcome is CREDENTIALS
    assert told in refused.told
    assert "very-secret" not in refused.told


def test_context_that_is_not_there_is_told(site: KubernetesSite) -> None:
    refused = refusal(site.provider(context="elsewhere").list)
    assert (refused.outcome, "'elsewhere' not found" in refused.told) == (CREDENTIALS, True)


def test_server_that_repeats_what_it_was_sent_tells_no_secret(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.plan(Fault.ECHO, "create", "secrets")
    refused = refusal(lambda: site.provider().create(order(machines=3)))
    assert refused.outcome is BAD_REQUEST
    assert "not wanted" in refused.told
    for secret in (TOKEN, base64.b64encode(TOKEN.encode()).decode()):
        assert secret not in refused.told


def test_nobody_listens(site: KubernetesSite) -> None:
    site.write_kubeconfig("http://127.0.0.1:1")
    assert refusal(site.provider().list).outcome is UNKNOWN


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("fault", [Fault.HANG, Fault.DRIP])
@pytest.mark.parametrize(("verb", "kind"), [("list", "pods"), ("create", "pods")])
def test_no_call_waits_for_good(
    site: KubernetesSite, cluster: Cluster, fault: Fault, verb: str, kind: str
) -> None:
    """A server that says something now and then is as bad as one that says nothing."""
    cluster.plan(fault, verb, kind, times=1000)
    provider = site.provider()
    began_s = time.monotonic()
    call = provider.list if verb == "list" else lambda: provider.create(order(machines=3))
    assert refusal(call).outcome is UNKNOWN
    assert time.monotonic() - began_s < 4 * SHORT_S + 2.0


def test_answer_without_end_is_given_up(
    site: KubernetesSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = site.provider()
    provider.create(order(machines=3))
    monkeypatch.setattr(api, "MAX_ANSWER_BYTES", 1000)
    refused = refusal(provider.list)
    assert (refused.outcome, "the answer is too long" in refused.told) == (UNKNOWN, True)
