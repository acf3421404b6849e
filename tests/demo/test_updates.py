"""The demonstration of updates under load, with one update of each strategy."""

from demo import updates
from tests.control.deployment.publishing.balancers import needs_haproxy

pytestmark = needs_haproxy


def test_an_update_of_each_strategy_costs_no_request_at_haproxy_and_at_the_proxy() -> None:
    outcomes = updates.run(1, lambda _: None)
    assert [each.strategy for each in outcomes] == ["rolling", "blue-green", "canary"]
    for each in outcomes:
        assert each.accounts.keys() == {"HAProxy", "the proxy"}
        for account in each.accounts.values():
            assert account.requests > 4 * updates.CLIENTS, "there was load"
            assert account.errors == {}
