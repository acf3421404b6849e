"""The provider ``kubernetes`` while its API server refuses, fails, hangs and loses answers."""

import base64
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.providers.conformance import SHAPE, TOKEN, gone, ids
from tests.providers.kubernetes_cluster import Cluster, Fault
from tests.providers.kubernetes_site import KubernetesSite, kubernetes_site

from muster.autoscaling.standing import CreateOutcome
from muster.providers.kubernetes import api, pods
from muster.providers.kubernetes.pods import KubernetesPods
from muster.providers.provider import AgentSetup, Machine, MachineState, ProviderError, SliceOrder

CREDENTIALS, QUOTA, THROTTLED, BAD_REQUEST, UNKNOWN = (
    CreateOutcome.CREDENTIALS,
    CreateOutcome.QUOTA,
    CreateOutcome.THROTTLED,
    CreateOutcome.BAD_REQUEST,
    CreateOutcome.UNKNOWN,
)
AUTHORITY = "-----BEGIN CERTIFICATE-----"
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


def order(slice_: str = "sl-1", machines: int = 3) -> SliceOrder:
    setup = AgentSetup("10.0.0.5:7601", "default", TOKEN, AUTHORITY)
    names = tuple(f"{slice_}-{number}" for number in range(machines))
    return SliceOrder(slice_, names, SHAPE, False, {}, setup)


def refusal(call: Callable[[], object]) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        call()
    return raised.value


def everything(cluster: Cluster) -> list[str]:
    return cluster.named("pods") + cluster.named("secrets")


# create


@pytest.mark.parametrize(("kind", "skip"), [("secrets", 0), ("pods", 0), ("pods", 1), ("pods", 2)])
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.TRUNCATED, Fault.ERROR, Fault.NONSENSE])
def test_slice_whose_answer_was_lost_is_found_again(
    site: KubernetesSite, cluster: Cluster, kind: str, skip: int, fault: Fault
) -> None:
    cluster.plan(fault, "create", kind, skip=skip)
    assert refusal(lambda: site.provider().create(order())).outcome is UNKNOWN
    uids = {name: cluster.found("pods", name)["metadata"]["uid"] for name in cluster.named("pods")}

    machines = site.provider().create(order())

    assert cluster.named("pods") == sorted(ids(machines).values())
    assert len(machines) == 3
    for name, uid in uids.items():
        assert cluster.found("pods", name)["metadata"]["uid"] == uid, "it is made once"


@pytest.mark.parametrize("skip", [0, 1, 2])
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [(Fault.THROTTLED, THROTTLED), (Fault.FORBIDDEN, CREDENTIALS), (Fault.ECHO, BAD_REQUEST)],
)
def test_nothing_is_left_of_a_slice_that_is_refused(
    site: KubernetesSite, cluster: Cluster, skip: int, fault: Fault, outcome: CreateOutcome
) -> None:
    cluster.plan(fault, "create", "pods", skip=skip)
    assert refusal(lambda: site.provider().create(order())).outcome is outcome
    assert everything(cluster) == []


def test_nothing_is_left_of_a_slice_beyond_the_quota(
    site: KubernetesSite, cluster: Cluster
) -> None:
    provider = site.provider()
    first = provider.create(order("sl-1"))
    cluster.quota = 5
    refused = refusal(lambda: provider.create(order("sl-2")))
    assert refused.outcome is QUOTA
    assert "exceeded quota: compute, requested: pods=1, used: pods=5" in refused.told
    assert cluster.named("pods") == sorted(ids(first).values())
    assert len(cluster.named("secrets")) == 1


def test_slice_that_is_refused_and_cannot_be_deleted_may_be_there(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.plan(Fault.THROTTLED, "create", "pods", skip=1)
    cluster.plan(Fault.ERROR, "delete", "secrets")
    refused = refusal(lambda: site.provider().create(order()))
    assert refused.outcome is UNKNOWN
    assert "too many requests" in refused.told
    gone(site, site.provider(), "sl-1")
    assert everything(cluster) == []


@pytest.mark.usefixtures("short")
def test_slice_that_is_refused_and_takes_long_to_end_may_be_there(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.ends_after_s = 1e9
    cluster.lost_nodes.add("node-1")
    cluster.plan(Fault.THROTTLED, "create", "pods", skip=2)
    provider = site.provider()
    provider.create(order(machines=1))
    site.until(lambda: provider.list().machines[0].state is MachineState.RUNNING)
    refused = refusal(lambda: provider.create(order()))
    assert refused.outcome is UNKNOWN
    assert "some of the slice was made: it is still being deleted" in refused.told


def test_slice_that_was_begun_is_finished_without_asking_for_each_pod(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.plan(Fault.ERROR, "create", "pods", skip=8)
    refusal(lambda: site.provider().create(order(machines=10)))
    cluster.requests.clear()

    assert len(site.provider().create(order(machines=10))) == 10
    asked = [request.split("?")[0].rpartition("/")[2] for request in cluster.requests]
    assert asked == [cluster.named("secrets")[0], "pods", "pods", "pods"]


def test_slice_that_is_there_is_found_with_a_full_quota(
    site: KubernetesSite, cluster: Cluster
) -> None:
    """Kubernetes looks at the quota before it looks whether the pod exists."""
    machines = site.provider().create(order())
    cluster.quota = 3
    assert ids(site.provider().create(order())) == ids(machines)


def test_server_that_says_when_it_has_time_is_asked_again(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.retry_after = "0"
    cluster.plan(Fault.THROTTLED, "create", "pods", skip=1, times=3)
    assert len(site.provider().create(order())) == 3

    cluster.plan(Fault.THROTTLED, "create", "pods", skip=1, times=4)
    assert refusal(lambda: site.provider().create(order("sl-2"))).outcome is THROTTLED


@pytest.mark.usefixtures("short")
def test_server_that_has_time_when_nobody_waits_any_more_is_not_asked_again(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.retry_after = "3600"
    cluster.plan(Fault.THROTTLED, "list", "pods")
    assert refusal(site.provider().list).outcome is THROTTLED


def test_slice_that_is_being_deleted_is_not_taken_for_one_that_was_made(
    site: KubernetesSite, cluster: Cluster
) -> None:
    provider = site.provider()
    machines = provider.create(order())
    site.until(lambda: {each.state for each in provider.list().machines} == {"running"})
    cluster.ends_after_s = 1e9
    assert not provider.delete("sl-1")
    refused = refusal(lambda: provider.create(order()))
    assert refused.outcome is UNKNOWN
    assert "is being deleted" in refused.told
    for machine in machines:
        cluster.end(machine.id)
    assert len(provider.create(order())) == 3


_FAILURES = (Fault.LOST, Fault.TRUNCATED, Fault.ERROR)
_REFUSALS = (Fault.THROTTLED, Fault.FORBIDDEN)
_KIND = st.sampled_from(["pods", "secrets"])
_CHANCES = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(_FAILURES + _REFUSALS),
            st.sampled_from(["create", "delete", "patch"]),
            _KIND,
            st.integers(0, 3),
        ),
        st.tuples(
            st.sampled_from(_FAILURES), st.sampled_from(["get", "list"]), _KIND, st.integers(0, 3)
        ),
    ),
    max_size=4,
)
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesSite]:
    with kubernetes_site(tmp_path_factory.mktemp("site"), Cluster(ends_after_s=0.0)) as site:
        yield site


@given(_CHANCES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_fails_a_slice_is_whole_or_nothing_in_the_end(
    shared: KubernetesSite, chances: list[tuple[Fault, str, str, int]]
) -> None:
    cluster, provider = shared.cluster, shared.provider()
    wanted = order(f"sl-{next(_NUMBERS)}")
    cluster.planned.clear()
    for fault, verb, kind, skip in chances:
        cluster.plan(fault, verb, kind, skip=skip)

    def mine() -> set[str]:
        return {name for name in everything(cluster) if f"-{wanted.slice}-" in name}

    machines: tuple[Machine, ...] = ()
    for _ in range(len(chances) + 1):
        outcome, machines = _created(provider, wanted)
        assert outcome in (None, UNKNOWN) or not mine()
        if machines:
            break
    assert [machine.name for machine in machines] == [*wanted.names]
    assert mine() > set(ids(machines).values())
    assert len(mine()) == len(machines) + 1

    cluster.planned.clear()
    for fault, verb, kind, skip in chances:
        cluster.plan(fault, verb, kind, skip=skip)
    shared.until(lambda: _deleted(provider, wanted.slice))
    assert not mine()


def _created(
    provider: KubernetesPods, wanted: SliceOrder
) -> tuple[CreateOutcome | None, tuple[Machine, ...]]:
    try:
        return None, provider.create(wanted)
    except ProviderError as error:
        return error.outcome, ()


def _deleted(provider: KubernetesPods, slice_: str) -> bool:
    try:
        return provider.delete(slice_)
    except ProviderError:
        return False


# list


def test_pages_are_put_together(
    site: KubernetesSite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAGE", 2)
    provider = site.provider()
    machines = [*provider.create(order("sl-1")), *provider.create(order("sl-2"))]
    cluster.requests.clear()

    listing = provider.list()

    assert (ids(listing.machines), listing.complete) == (ids(machines), True)
    assert len(cluster.requests) == 3


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.LOST, Fault.TRUNCATED, Fault.NONSENSE])
def test_list_without_its_last_page_says_so(
    site: KubernetesSite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(api, "PAGE", 2)
    provider = site.provider()
    machines = ids(provider.create(order()))
    cluster.plan(fault, "list", "pods", skip=1)

    listing = provider.list()

    assert not listing.complete
    assert ids(listing.machines).items() < machines.items()
    assert len(listing.machines) == 2


def test_list_whose_next_page_has_expired_begins_anew(
    site: KubernetesSite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAGE", 2)
    provider = site.provider()
    machines = ids(provider.create(order()))
    cluster.plan(Fault.EXPIRED, "list", "pods", skip=1)
    listing = provider.list()
    assert (ids(listing.machines), listing.complete) == (machines, True)

    for again in range(3):
        cluster.plan(Fault.EXPIRED, "list", "pods", skip=1 + again)
    assert not provider.list().complete, "not for ever"


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.LOST, Fault.TRUNCATED, Fault.EXPIRED])
def test_nothing_is_known_without_the_first_page(
    site: KubernetesSite, cluster: Cluster, fault: Fault
) -> None:
    provider = site.provider()
    provider.create(order())
    cluster.plan(fault, "list", "pods", times=3)
    assert refusal(provider.list).outcome is UNKNOWN


# delete


def test_slice_of_which_not_all_is_listed_is_not_gone(
    site: KubernetesSite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAGE", 1)
    provider = site.provider()
    provider.create(order())
    cluster.plan(Fault.ERROR, "list", "pods", skip=1)
    assert refusal(lambda: provider.delete("sl-1")).outcome is UNKNOWN
    gone(site, provider, "sl-1")


def test_pod_that_cannot_be_deleted_keeps_no_other(site: KubernetesSite, cluster: Cluster) -> None:
    cluster.starts_after_s, cluster.collects = None, False
    provider = site.provider()
    machines = provider.create(order())
    cluster.plan(Fault.ERROR, "delete", "pods")
    assert refusal(lambda: provider.delete("sl-1")).outcome is UNKNOWN
    assert cluster.named("pods") == [machines[0].id]
    assert provider.delete("sl-1")


def test_slice_is_gone_once_its_pods_have_ended(site: KubernetesSite, cluster: Cluster) -> None:
    cluster.ends_after_s, cluster.collects = 1e9, False
    provider = site.provider()
    (machine,) = provider.create(order(machines=1))
    site.until(lambda: provider.list().machines[0].state is MachineState.RUNNING)

    assert not provider.delete("sl-1")
    assert not provider.delete("sl-1")
    assert [each.state for each in provider.list().machines] == [MachineState.LEAVING]
    assert sum(each.startswith("DELETE") and "/pods/" in each for each in cluster.requests) == 1
    cluster.end(machine.id)
    assert provider.delete("sl-1")


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ERROR])
@pytest.mark.parametrize(("verb", "kind"), [("delete", "pods"), ("create", "pods")])
def test_reboot_whose_answer_was_lost_may_be_repeated(
    site: KubernetesSite, cluster: Cluster, fault: Fault, verb: str, kind: str
) -> None:
    provider = site.provider()
    (machine,) = provider.create(order(machines=1))
    before = cluster.found("pods", machine.id)["metadata"]["uid"]
    cluster.plan(fault, verb, kind)
    assert refusal(lambda: provider.reboot(machine)).outcome is UNKNOWN

    provider.reboot(machine)
    assert cluster.named("pods") == [machine.id]
    assert cluster.found("pods", machine.id)["metadata"]["uid"] != before


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
    assert refusal(site.provider().check).outcome is QUOTA


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
    for call in (provider.check, provider.list, lambda: provider.create(order())):
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
    refused = refusal(lambda: site.provider().create(order()))
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
    call = provider.list if verb == "list" else lambda: provider.create(order())
    assert refusal(call).outcome is UNKNOWN
    assert time.monotonic() - began_s < 4 * SHORT_S + 2.0


def test_answer_without_end_is_given_up(
    site: KubernetesSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = site.provider()
    provider.create(order())
    monkeypatch.setattr(api, "MAX_ANSWER_BYTES", 1000)
    refused = refusal(provider.list)
    assert (refused.outcome, "the answer is too long" in refused.told) == (UNKNOWN, True)
