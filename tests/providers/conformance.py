"""The duties of every provider, as tests: a provider's test file has a class that derives from
``Conformance`` and a fixture ``site``.

    @pytest.fixture
    def site(tmp_path: Path) -> Iterator[Site]:
        with MySite(tmp_path) as site:
            yield site

    class TestMyProvider(Conformance):
        pass
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pytest

from muster.core.specs.pool import MachineShape
from muster.providers.provider import (
    AgentSetup,
    Machine,
    MachineState,
    Provider,
    ProviderError,
    SliceOrder,
)

TOKEN = "a-secret-token"
SHAPE = MachineShape.model_validate({"cpu": 2, "memory": "64MiB", "disk": "1GiB"})
SETUP = AgentSetup("127.0.0.1:1", "default", TOKEN)
PATIENCE_S = 60.0

T = TypeVar("T")


class Site(ABC):
    """The world of a provider under test: an account, a cluster, a machine."""

    @abstractmethod
    def provider(self, pool: str = "one", cluster: str = "c-1") -> Provider:
        """A provider's new object for a pool, as a controller that has just started makes it. The
        site closes it in the end."""

    def order(self, slice_: str = "sl-1", machines: int = 2) -> SliceOrder:
        """An order that the provider can carry out."""
        names = tuple(f"{slice_}-{number}" for number in range(machines))
        return SliceOrder(slice_, names, SHAPE, False, {"zone": "a"}, SETUP)

    def until(self, condition: Callable[[], T]) -> T:
        """The first true answer of ``condition``; time goes on meanwhile, as it does at the site.

        Raises:
            AssertionError: there was none in time.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        while not (answer := condition()):
            assert time.monotonic() < deadline_s, "nothing happens"
            time.sleep(0.05)
        return answer


def gone(site: Site, provider: Provider, slice_: str) -> None:
    """Delete a slice until it is gone."""
    site.until(lambda: provider.delete(slice_))


def ids(machines: Collection[Machine]) -> dict[str, str]:
    """The provider's id of each machine, by name."""
    return {machine.name: machine.id for machine in machines}


def listed(provider: Provider, slice_: str | None = None) -> dict[str, str]:
    """The ids of the machines that are listed and are not leaving, by name; of one slice, if one is
    named."""
    listing = provider.list()
    assert listing.complete
    return ids(
        [
            machine
            for machine in listing.machines
            if machine.state is not MachineState.LEAVING and slice_ in (None, machine.slice)
        ]
    )


class Conformance:
    """The tests; each begins with an empty site."""

    def test_slice_has_the_machines_that_were_ordered(self, site: Site) -> None:
        order = site.order(machines=2)
        machines = site.provider().create(order)

        assert [machine.name for machine in machines] == [*order.names]
        assert {machine.slice for machine in machines} == {order.slice}
        assert len({machine.id for machine in machines}) == 2
        assert {machine.state for machine in machines} <= {
            MachineState.COMING,
            MachineState.RUNNING,
        }

    def test_machines_are_up_in_the_end(self, site: Site) -> None:
        provider = site.provider()
        provider.create(site.order())

        def up() -> bool:
            machines = provider.list().machines
            return {machine.state for machine in machines} == {MachineState.RUNNING}

        assert site.until(up)

    def test_slice_is_made_once_however_often_it_is_asked_for(self, site: Site) -> None:
        provider = site.provider()
        first = provider.create(site.order())

        assert ids(provider.create(site.order())) == ids(first)
        assert ids(site.provider().create(site.order())) == ids(first), "by another controller"
        assert listed(provider) == ids(first)

    def test_slice_that_is_asked_for_twice_at_once_is_made_once(self, site: Site) -> None:
        providers = [site.provider(), site.provider()]
        with ThreadPoolExecutor(2) as pool:
            made = [*pool.map(lambda each: _created(each, site.order()), providers)]

        answered = [machines for machines in made if machines is not None]
        assert answered, "one of them may be told to come again, but not both"
        assert ids(site.provider().create(site.order())) == ids(answered[0])
        assert listed(providers[0]) == ids(answered[0])

    def test_machines_of_all_slices_are_listed_by_a_new_controller(self, site: Site) -> None:
        provider = site.provider()
        one = provider.create(site.order("sl-1"))
        two = provider.create(site.order("sl-2", machines=1))

        assert listed(site.provider()) == ids(one) | ids(two)
        assert listed(site.provider(), "sl-2") == ids(two)

    def test_pool_without_machines_has_none(self, site: Site) -> None:
        listing = site.provider().list()
        assert (listing.machines, listing.complete) == ((), True)

    def test_pool_that_has_ended_leaves_no_file(self, site: Site) -> None:
        provider = site.provider()
        provider.create(site.order(machines=1))
        site.until(lambda: provider.delete("sl-1"))
        site.until(lambda: not provider.list().machines)
        provider.forget()

        assert not [*provider.scope.directory.glob("*")]
        site.provider().forget()
        assert site.provider().delete("sl-1"), "it is gone all the same"

    def test_deleted_slice_is_gone_and_others_stay(self, site: Site) -> None:
        provider = site.provider()
        provider.create(site.order("sl-1"))
        other = provider.create(site.order("sl-2", machines=1))

        gone(site, provider, "sl-1")

        assert {machine.slice for machine in provider.list().machines} == {"sl-2"}
        assert listed(provider) == ids(other)

    def test_slice_may_be_deleted_again(self, site: Site) -> None:
        provider = site.provider()
        provider.create(site.order())
        gone(site, provider, "sl-1")

        assert provider.delete("sl-1")
        assert site.provider().delete("sl-1"), "by another controller"
        assert listed(provider) == {}

    def test_slice_that_never_was_is_gone(self, site: Site) -> None:
        assert site.provider().delete("sl-unknown")

    def test_slice_is_deleted_by_a_controller_that_did_not_make_it(self, site: Site) -> None:
        site.provider().create(site.order())
        gone(site, site.provider(), "sl-1")
        assert site.provider().list().machines == ()

    def test_pools_do_not_see_each_others_machines(self, site: Site) -> None:
        one, two = site.provider("one"), site.provider("two")
        of_one = one.create(site.order("sl-1", machines=1))
        of_two = two.create(site.order("sl-2", machines=1))

        assert listed(one) == ids(of_one)
        assert listed(two) == ids(of_two)
        assert one.delete("sl-2"), "it has no such slice"
        assert listed(two) == ids(of_two)

    def test_clusters_do_not_see_each_others_machines(self, site: Site) -> None:
        here, there = site.provider(cluster="c-1"), site.provider(cluster="c-2")
        of_here = here.create(site.order("sl-1", machines=1))
        of_there = there.create(site.order("sl-2", machines=1))

        assert listed(here) == ids(of_here)
        assert here.delete("sl-2")
        assert listed(there) == ids(of_there)

    def test_rebooted_machine_comes_back_as_itself(self, site: Site) -> None:
        provider = site.provider()
        provider.create(site.order(machines=1))

        for hard in (False, True):

            def running() -> Machine | None:
                (machine,) = provider.list().machines
                return machine if machine.state is MachineState.RUNNING else None

            before = site.until(running)
            assert before is not None
            provider.reboot(before, hard=hard)
            after = site.until(running)
            assert after is not None
            assert (after.id, after.name, after.slice) == (before.id, before.name, before.slice)

    def test_machine_that_is_not_there_is_not_rebooted(self, site: Site) -> None:
        provider = site.provider()
        (machine,) = provider.create(site.order(machines=1))
        gone(site, provider, "sl-1")

        with pytest.raises(ProviderError):
            provider.reboot(machine)
        with pytest.raises(ProviderError):
            provider.reboot(replace(machine, id="../../etc", name="../..", slice="../.."))

    def test_check_makes_nothing(self, site: Site) -> None:
        provider = site.provider()
        provider.check()
        assert provider.list().machines == ()

    def test_machines_outlive_the_object_that_made_them(self, site: Site) -> None:
        provider = site.provider()
        machines = provider.create(site.order())
        provider.close()
        assert listed(site.provider()) == ids(machines)

    def test_no_machine_tells_the_secret(self, site: Site) -> None:
        machines = (*site.provider().create(site.order()), *site.provider().list().machines)
        assert TOKEN not in repr((site.order(), machines))


def _created(provider: Provider, order: SliceOrder) -> tuple[Machine, ...] | None:
    """The machines; None where the provider asks its caller to come again."""
    try:
        return provider.create(order)
    except ProviderError:
        return None
