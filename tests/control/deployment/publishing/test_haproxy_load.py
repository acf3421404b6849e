"""The load that HAProxy's counters tell."""

from tests.control.deployment.publishing.balancers import service

from muster.control.deployment.publishing.haproxy_load import Counters, Growth
from muster.core.serving.traffic import Target


def test_counters_that_begin_anew_or_are_read_first_tell_nothing_that_was_not() -> None:
    target = Target(route="r", host="a", port=1, revision=1)
    growth, services = Growth(), [service("chat", target)]
    assert growth.report({("b", "r"): Counters(1, 500, 3, 7)}, services, 10.0) is None
    report = growth.report({("b", "r"): Counters(2, 511, 4, 7)}, services, 12.0)
    assert report is not None
    ((load,),) = [each.routes for each in report.services]
    assert (report.seconds, load.in_flight, load.requests, load.failures) == (2.0, 2, 10, 1)
    assert sum(load.latencies) == load.latencies[3] == 10
    report = growth.report({("b", "r"): Counters(1, 5, 0, 0)}, services, 13.0)
    assert report is not None
    ((load,),) = [each.routes for each in report.services]
    assert (load.in_flight, load.requests, load.failures) == (1, 4, 0)
