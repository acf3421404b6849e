"""The provider ``kubernetes`` while its API server refuses, fails, hangs and loses answers."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.providers.conformance import gone, ids
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
from muster.providers.kubernetes.pods import KubernetesPods
from muster.providers.provider import Machine, MachineState, ProviderError, SliceOrder

CREDENTIALS, QUOTA, THROTTLED, BAD_REQUEST, UNKNOWN = (
    CreateOutcome.CREDENTIALS,
    CreateOutcome.QUOTA,
    CreateOutcome.THROTTLED,
    CreateOutcome.BAD_REQUEST,
    CreateOutcome.UNKNOWN,
)
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


# create


@pytest.mark.parametrize(("kind", "skip"), [("secrets", 0), ("pods", 0), ("pods", 1), ("pods", 2)])
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.TRUNCATED, Fault.ERROR, Fault.NONSENSE])
def test_slice_whose_answer_was_lost_is_found_again(
    site: KubernetesSite, cluster: Cluster, kind: str, skip: int, fault: Fault
) -> None:
    cluster.plan(fault, "create", kind, skip=skip)
    assert refusal(lambda: site.provider().create(order(machines=3))).outcome is UNKNOWN
    uids = {name: cluster.found("pods", name)["metadata"]["uid"] for name in cluster.named("pods")}

    machines = site.provider().create(order(machines=3))

    assert cluster.named("pods") == sorted(ids(machines).values())
    assert len(machines) == 3
    for name, uid in uids.items():
        assert cluster.found("pods", name)["metadata"]["uid"] == uid, "it is made once"


@pytest.mark.parametrize("skip", [0, 1, 2])
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault.THROTTLED, THROTTLED),
        (Fault.CONFLICT, THROTTLED),
        (Fault.RECOUNTED, THROTTLED),
        (Fault.FORBIDDEN, CREDENTIALS),
        (Fault.ECHO, BAD_REQUEST),
    ],
)
def test_nothing_is_left_of_a_slice_that_is_refused(
    site: KubernetesSite, cluster: Cluster, skip: int, fault: Fault, outcome: CreateOutcome
) -> None:
    cluster.plan(fault, "create", "pods", skip=skip)
    assert refusal(lambda: site.provider().create(order(machines=3))).outcome is outcome
    assert everything(cluster) == []


def test_nothing_is_left_of_a_slice_beyond_the_quota(
    site: KubernetesSite, cluster: Cluster
) -> None:
    provider = site.provider()
    first = provider.create(order("sl-1", 3))
    cluster.quota = 5
    refused = refusal(lambda: provider.create(order("sl-2", 3)))
    assert refused.outcome is QUOTA
    assert "exceeded quota: compute, requested: pods=1, used: pods=5" in refused.told
    assert cluster.named("pods") == sorted(ids(first).values())
    assert len(cluster.named("secrets")) == 1


def test_slice_that_is_refused_and_cannot_be_deleted_may_be_there(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.plan(Fault.THROTTLED, "create", "pods", skip=1)
    cluster.plan(Fault.ERROR, "delete", "secrets")
    refused = refusal(lambda: site.provider().create(order(machines=3)))
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
    refused = refusal(lambda: provider.create(order(machines=3)))
    assert refused.outcome is UNKNOWN
    assert "some of the slice was made: it is still being deleted" in refused.told


def test_pods_whose_secret_is_gone_are_not_taken_for_those_of_the_next(
    site: KubernetesSite, cluster: Cluster
) -> None:
    """Kubernetes' garbage collector is about to delete them."""
    cluster.collects = False
    cluster.plan(Fault.FORBIDDEN, "create", "pods", skip=2)
    cluster.plan(Fault.ERROR, "list", "pods")
    provider = site.provider()
    assert refusal(lambda: provider.create(order(machines=3))).outcome is UNKNOWN
    assert (len(cluster.named("pods")), cluster.named("secrets")) == (2, [])
    for _ in range(2):
        refused = refusal(lambda: provider.create(order(machines=3)))
        assert (refused.outcome, "being deleted" in refused.told) == (UNKNOWN, True)

    cluster.collects = True
    site.until(lambda: not cluster.named("pods"))
    machines = provider.create(order(machines=3))
    for _ in range(2):
        cluster.settle()
    assert cluster.named("pods") == sorted(ids(machines).values())


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
    machines = site.provider().create(order(machines=3))
    cluster.quota = 3
    assert ids(site.provider().create(order(machines=3))) == ids(machines)


def test_server_that_says_when_it_has_time_is_asked_again(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.retry_after = "0"
    cluster.plan(Fault.THROTTLED, "create", "pods", skip=1, times=3)
    assert len(site.provider().create(order(machines=3))) == 3

    cluster.plan(Fault.THROTTLED, "create", "pods", skip=1, times=4)
    assert refusal(lambda: site.provider().create(order("sl-2", 3))).outcome is THROTTLED


@pytest.mark.usefixtures("short")
def test_server_that_has_time_when_nobody_waits_any_more_is_not_asked_again(
    site: KubernetesSite, cluster: Cluster
) -> None:
    cluster.retry_after = "3600"
    cluster.plan(Fault.THROTTLED, "list", "pods")
    assert refusal(site.provider().list).outcome is THROTTLED


def test_slice_whose_token_cannot_be_renewed_stays_as_it_is(
    site: KubernetesSite, cluster: Cluster
) -> None:
    machines = site.provider().create(order(machines=3))
    cluster.denied.add(("patch", "secrets"))
    renewed = replace(order(machines=3), setup=replace(order(machines=3).setup, token="another"))
    assert refusal(lambda: site.provider().create(renewed)).outcome is UNKNOWN
    assert cluster.named("pods") == sorted(ids(machines).values())


def test_slice_whose_secret_is_held_is_not_gone(site: KubernetesSite, cluster: Cluster) -> None:
    provider = site.provider()
    (machine,) = provider.create(order(machines=1))
    (secret,) = cluster.named("secrets")
    cluster.edit(
        secret, lambda found: found["metadata"].update(finalizers=["x.example/y"]), "secrets"
    )
    site.until(lambda: not provider.delete("sl-1") and not cluster.named("pods"))
    for call in (lambda: provider.create(order(machines=3)), lambda: provider.reboot(machine)):
        refusal(call)
    assert cluster.named("pods") == []
    assert not provider.delete("sl-1")
    cluster.end(secret, "secrets")
    assert provider.delete("sl-1")


def test_slice_that_is_being_deleted_is_not_taken_for_one_that_was_made(
    site: KubernetesSite, cluster: Cluster
) -> None:
    provider = site.provider()
    machines = provider.create(order(machines=3))
    site.until(lambda: {each.state for each in provider.list().machines} == {"running"})
    cluster.ends_after_s = 1e9
    assert not provider.delete("sl-1")
    refused = refusal(lambda: provider.create(order(machines=3)))
    assert refused.outcome is UNKNOWN
    assert "is being deleted" in refused.told
    for machine in machines:
        cluster.end(machine.id)
    assert len(provider.create(order(machines=3))) == 3


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
@example(
    [
        (Fault.FORBIDDEN, "create", "pods", 2),
        (Fault.TRUNCATED, "list", "pods", 0),
        (Fault.ERROR, "list", "secrets", 3),
        (Fault.LOST, "list", "pods", 0),
    ]
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_fails_a_slice_is_whole_or_nothing_in_the_end(
    shared: KubernetesSite, chances: list[tuple[Fault, str, str, int]]
) -> None:
    cluster, provider = shared.cluster, shared.provider()
    wanted = order(f"sl-{next(_NUMBERS)}", 3)
    cluster.planned.clear()
    for fault, verb, kind, skip in chances:
        cluster.plan(fault, verb, kind, skip=skip)

    def mine() -> set[str]:
        return {name for name in everything(cluster) if f"-{wanted.slice}-" in name}

    machines: tuple[Machine, ...] = ()
    for _ in range(len(chances) + 1):  # each that fails has met one of them at least
        outcome, machines = _created(provider, wanted)
        assert outcome in (None, UNKNOWN) or not mine()
        for _ in range(2):  # orphans are deleted, and then end
            cluster.settle()
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
    machines = [*provider.create(order("sl-1", 3)), *provider.create(order("sl-2", 3))]
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
    machines = ids(provider.create(order(machines=3)))
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
    machines = ids(provider.create(order(machines=3)))
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
    provider.create(order(machines=3))
    cluster.plan(fault, "list", "pods", times=3)
    assert refusal(provider.list).outcome is UNKNOWN


# delete


def test_slice_of_which_not_all_is_listed_is_not_gone(
    site: KubernetesSite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAGE", 1)
    provider = site.provider()
    provider.create(order(machines=3))
    cluster.collects = False  # nor is any gone before the second page is asked for
    cluster.plan(Fault.ERROR, "list", "pods", skip=1)
    assert refusal(lambda: provider.delete("sl-1")).outcome is UNKNOWN
    cluster.collects = True
    gone(site, provider, "sl-1")


def test_pod_that_cannot_be_deleted_keeps_no_other(site: KubernetesSite, cluster: Cluster) -> None:
    cluster.starts_after_s, cluster.collects = None, False
    provider = site.provider()
    machines = provider.create(order(machines=3))
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
