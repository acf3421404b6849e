"""The provider ``aws-ec2`` where EC2 refuses, is silent, lags or is asked twice."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.providers.aws_cloud import (
    LOST,
    TOKEN,
    AwsCloud,
    Fault,
    Forgetful,
    Impatient,
    QuickEc2,
    new_scope,
    order_of,
    pool_spec,
    refusal,
    serving,
)

from muster.autoscaling.standing import CreateOutcome
from muster.providers.aws.calls import CallLimits
from muster.providers.aws.errors import fate_of
from muster.providers.provider import CALL_S, Provider, ProviderError, Scope


@pytest.fixture(scope="module")
def server() -> Iterator[AwsCloud]:
    with serving() as cloud:
        yield cloud


@pytest.fixture
def cloud(server: AwsCloud) -> AwsCloud:
    server.reset()
    return server


def refused_with(provider: Provider, size: int = 1) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        provider.create(order_of("sl-1", size))
    return refused.value


# Refusals

OUTCOMES = [
    ("InsufficientInstanceCapacity", 500, CreateOutcome.STOCK_OUT),
    ("InsufficientFreeAddressesInSubnet", 400, CreateOutcome.STOCK_OUT),
    ("ReservationCapacityExceeded", 400, CreateOutcome.STOCK_OUT),
    ("SpotMaxPriceTooLow", 400, CreateOutcome.STOCK_OUT),
    ("VcpuLimitExceeded", 400, CreateOutcome.QUOTA),
    ("InstanceLimitExceeded", 400, CreateOutcome.QUOTA),
    ("MaxSpotInstanceCountExceeded", 400, CreateOutcome.QUOTA),
    ("RequestLimitExceeded", 503, CreateOutcome.THROTTLED),
    ("Throttling", 400, CreateOutcome.THROTTLED),
    ("AuthFailure", 401, CreateOutcome.CREDENTIALS),
    ("UnauthorizedOperation", 403, CreateOutcome.CREDENTIALS),
    ("ExpiredToken", 400, CreateOutcome.CREDENTIALS),
    ("InvalidClientTokenId", 403, CreateOutcome.CREDENTIALS),
    ("InvalidAMIID.NotFound", 400, CreateOutcome.BAD_REQUEST),
    ("InvalidParameterCombination", 400, CreateOutcome.BAD_REQUEST),
    ("Unsupported", 400, CreateOutcome.BAD_REQUEST),
    ("NewInThisYear", 400, CreateOutcome.BAD_REQUEST),
    ("InternalError", 500, CreateOutcome.UNKNOWN),
    ("Unavailable", 503, CreateOutcome.UNKNOWN),
    ("NewInThisYear", 500, CreateOutcome.UNKNOWN),
]


@pytest.mark.parametrize(("code", "status", "outcome"), OUTCOMES)
def test_each_error_of_ec2_has_its_outcome(
    cloud: AwsCloud, code: str, status: int, outcome: CreateOutcome
) -> None:
    provider = QuickEc2(pool_spec(cloud), new_scope())
    cloud.faults["RunInstances"] = [refusal(code, status, "says EC2")]
    error = refused_with(provider)

    assert (error.outcome, error.told) == (outcome, f"{code}: says EC2")
    assert len(cloud.asked("RunInstances")) == 1
    # What was refused is not there; of what was not answered, nobody knows for a while.
    assert provider.delete("sl-1") is (outcome is not CreateOutcome.UNKNOWN)
    assert provider.list().complete is (outcome is not CreateOutcome.UNKNOWN)


def test_a_look_that_is_throttled_is_repeated(cloud: AwsCloud) -> None:
    provider = QuickEc2(pool_spec(cloud), new_scope())
    cloud.faults["DescribeInstances"] = [refusal("RequestLimitExceeded", 503)]
    assert provider.list().complete

    cloud.faults["DescribeInstances"] = [refusal("RequestLimitExceeded", 503)] * 2
    assert refused_with(provider).outcome is CreateOutcome.THROTTLED
    assert not cloud.asked("RunInstances")


def test_what_instances_ended_of_is_an_outcome() -> None:
    assert fate_of(["Server.InsufficientInstanceCapacity"]) is CreateOutcome.STOCK_OUT
    assert fate_of(["", "Server.SpotInstanceTermination"]) is CreateOutcome.STOCK_OUT
    assert fate_of(["Client.VolumeLimitExceeded"]) is CreateOutcome.QUOTA
    assert fate_of(["Client.UserInitiatedShutdown", ""]) is CreateOutcome.UNKNOWN


def test_missing_credentials_are_told_and_looked_for_again(
    cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = QuickEc2(pool_spec(cloud, profile=None), new_scope())
    monkeypatch.setattr("muster.providers.aws.calls._sessions", {})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    error = refused_with(provider)
    monkeypatch.undo()

    assert error.outcome is CreateOutcome.CREDENTIALS
    assert "Unable to locate credentials" in error.told
    assert provider.create(order_of("sl-1"))


def test_a_profile_that_is_not_there_is_told(cloud: AwsCloud) -> None:
    error = refused_with(QuickEc2(pool_spec(cloud, profile="none-such"), new_scope()))

    assert error.outcome is CreateOutcome.CREDENTIALS
    assert "none-such" in error.told


# Silence


def test_no_call_outlasts_its_caller() -> None:
    assert CallLimits().longest_s < CALL_S


def test_a_call_of_a_silent_ec2_ends_in_time(cloud: AwsCloud) -> None:
    provider = Impatient(pool_spec(cloud), new_scope())
    cloud.hangs = {"RunInstances", "DescribeInstances"}
    began = time.monotonic()
    with pytest.raises(ProviderError) as refused:
        provider.list()
    cloud.hangs = {"RunInstances"}
    error = refused_with(provider)
    took_s = time.monotonic() - began

    assert refused.value.outcome is CreateOutcome.UNKNOWN
    assert error.outcome is CreateOutcome.UNKNOWN
    assert "Read timeout" in error.told
    assert took_s < 2 * Impatient.limits.longest_s


def test_a_call_begins_no_request_when_its_time_is_over(cloud: AwsCloud) -> None:
    class Late(QuickEc2):
        limits = replace(QuickEc2.limits, last_start_s=-1.0)

    error = refused_with(Late(pool_spec(cloud), new_scope()))

    assert error.outcome is CreateOutcome.UNKNOWN
    assert not cloud.requests


def test_an_ec2_that_is_not_there_is_unknown(cloud: AwsCloud) -> None:
    spec = pool_spec(cloud, endpoint_url="http://127.0.0.1:9")

    error = refused_with(QuickEc2(spec, new_scope()))
    assert error.outcome is CreateOutcome.UNKNOWN


@pytest.mark.parametrize("body", [b"<html>welcome", b"", b"\xff\x00"])
def test_an_answer_that_is_none_is_unknown(cloud: AwsCloud, body: bytes) -> None:
    provider = QuickEc2(pool_spec(cloud), new_scope())
    cloud.faults["RunInstances"] = [Fault(200, body)]

    assert refused_with(provider).outcome is CreateOutcome.UNKNOWN


# Answers that were lost


@pytest.mark.parametrize("kind", [QuickEc2, Forgetful])
def test_machines_of_a_lost_answer_are_found(cloud: AwsCloud, kind: type[QuickEc2]) -> None:
    scope = new_scope()
    cloud.faults["RunInstances"] = [LOST]
    assert refused_with(kind(pool_spec(cloud), scope), 3).outcome is CreateOutcome.UNKNOWN
    provider = kind(pool_spec(cloud), scope)
    machines = provider.create(order_of("sl-1", 3))

    assert [each.name for each in machines] == ["sl-1-0", "sl-1-1", "sl-1-2"]
    assert len(cloud.asked("RunInstances")) == 1
    assert provider.list().machines == machines


def test_machines_of_a_lost_answer_are_found_before_they_are_listed(cloud: AwsCloud) -> None:
    scope = new_scope()
    cloud.faults["RunInstances"] = [LOST]
    refused_with(QuickEc2(pool_spec(cloud), scope), 2)
    cloud.lists = lambda _: False
    machines = QuickEc2(pool_spec(cloud), scope).create(order_of("sl-1", 2))
    cloud.lists = lambda _: True

    listed = QuickEc2(pool_spec(cloud), scope).list().machines
    assert {each.id for each in listed} == {each.id for each in machines}


def test_the_subnet_of_a_lost_answer_is_asked_first(cloud: AwsCloud) -> None:
    subnets = [each["SubnetId"] for each in cloud.client.describe_subnets()["Subnets"]][:2]
    provider = QuickEc2(pool_spec(cloud, subnets=subnets), new_scope())
    cloud.faults["RunInstances"] = [refusal("InsufficientInstanceCapacity", 500), LOST]
    refused_with(provider)
    cloud.lists = lambda _: False
    provider.create(order_of("sl-1"))
    cloud.lists = lambda _: True

    asked = [each["SubnetId"] for each in cloud.asked("RunInstances")]
    assert asked == [*subnets, subnets[1]]
    assert len(provider.list().machines) == 1


def test_a_slice_that_was_launched_otherwise_is_not_launched_again(cloud: AwsCloud) -> None:
    scope = new_scope()
    cloud.faults["RunInstances"] = [LOST]
    refused_with(QuickEc2(pool_spec(cloud), scope))
    cloud.lists = lambda _: False
    changed = QuickEc2(pool_spec(cloud, instance_type="p4d.24xlarge"), scope)
    error = refused_with(changed)

    assert error.outcome is CreateOutcome.UNKNOWN
    assert "an earlier call launched this slice otherwise" in error.told
    cloud.lists = lambda _: True
    assert len(changed.create(order_of("sl-1"))) == 1
    assert len(changed.list().machines) == 1


def test_a_refusal_after_a_lost_answer_promises_nothing(cloud: AwsCloud) -> None:
    provider = QuickEc2(pool_spec(cloud), new_scope())
    cloud.faults["RunInstances"] = [LOST, refusal("RequestLimitExceeded", 503)]
    refused_with(provider)
    cloud.lists = lambda _: False
    error = refused_with(provider)

    assert error.outcome is CreateOutcome.UNKNOWN
    assert error.told.endswith("an earlier launch was not answered")
    assert not provider.delete("sl-1")
    assert not provider.list().complete
    cloud.lists = lambda _: True
    assert len(provider.create(order_of("sl-1"))) == 1


def test_a_look_that_is_refused_after_a_lost_answer_promises_nothing(cloud: AwsCloud) -> None:
    provider = QuickEc2(pool_spec(cloud), new_scope())
    cloud.faults["RunInstances"] = [LOST]
    refused_with(provider)
    cloud.faults["DescribeInstances"] = [refusal("UnauthorizedOperation", 403)]

    assert refused_with(provider).outcome is CreateOutcome.UNKNOWN


def test_what_is_left_and_cannot_be_deleted_may_be_there(cloud: AwsCloud) -> None:
    provider = QuickEc2(pool_spec(cloud), new_scope())
    machines = provider.create(order_of("sl-1", 2))
    cloud.client.terminate_instances(InstanceIds=[machines[0].id])
    cloud.faults["TerminateInstances"] = [refusal("UnauthorizedOperation", 403)]
    error = refused_with(provider, 2)

    assert error.outcome is CreateOutcome.UNKNOWN
    assert "what is left of an earlier launch is not deleted: Unauthorized" in error.told


def test_a_deletion_whose_answer_was_lost_is_repeated(cloud: AwsCloud) -> None:
    provider = QuickEc2(pool_spec(cloud), new_scope())
    provider.create(order_of("sl-1"))
    cloud.faults["TerminateInstances"] = [LOST] * 2
    with pytest.raises(ProviderError):
        provider.delete("sl-1")

    assert provider.delete("sl-1")


# What must never happen

TROUBLES = {
    "lost": [LOST],
    "throttled": [refusal("RequestLimitExceeded", 503)],
    "stock-out": [refusal("InsufficientInstanceCapacity", 500)],
    "broken": [refusal("InternalError", 500)],
}


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["create", "restart", "delete"]),
            st.sampled_from([None, *TROUBLES]),
            st.booleans(),
        ),
        max_size=5,
    )
)
@example(
    [
        ("create", None, False),
        ("delete", None, False),
        ("create", "lost", False),
        ("restart", None, True),
        ("create", "throttled", True),
    ]
)
def test_a_slice_is_never_there_twice(
    cloud: AwsCloud, steps: list[tuple[str, str | None, bool]]
) -> None:
    """However much is lost, refused or listed late: at most one slice lives, and a refusal that is
    not UNKNOWN left none that was not there before."""
    cloud.reset()
    scope = new_scope()
    provider = QuickEc2(pool_spec(cloud), scope)
    for step, trouble, lags in steps:
        cloud.faults["RunInstances"] = list(TROUBLES[trouble]) if trouble else []
        cloud.lists = ended_in(cloud, scope).__contains__ if lags else lambda _: True
        if step == "restart":
            provider = QuickEc2(pool_spec(cloud), scope)
        before = living(cloud, scope)
        refused: ProviderError | None = None
        gone, made = False, set[str]()
        try:
            if step == "delete":
                gone = provider.delete("sl-1")
            else:
                made = {each.id for each in provider.create(order_of("sl-1", 2))}
        except ProviderError as error:
            refused = error
        after = living(cloud, scope)
        assert len(after) in (0, 2)
        assert not made or made == after
        assert not after or not gone or lags
        if refused is not None and refused.outcome is not CreateOutcome.UNKNOWN:
            assert after <= before
    cloud.reset()
    assert len(provider.create(order_of("sl-1", 2))) == 2
    while not provider.delete("sl-1"):
        pass
    assert not living(cloud, scope)


def living(cloud: AwsCloud, scope: Scope) -> set[str]:
    """The ids of the cluster's instances that have not ended, whatever is listed."""
    return {id_ for id_, state in states_in(cloud, scope).items() if state not in ENDED}


def ended_in(cloud: AwsCloud, scope: Scope) -> set[str]:
    """The ids of the cluster's instances that have ended: EC2 has listed them for long."""
    return {id_ for id_, state in states_in(cloud, scope).items() if state in ENDED}


ENDED = ("shutting-down", "terminated")


def states_in(cloud: AwsCloud, scope: Scope) -> dict[str, str]:
    lists, cloud.lists = cloud.lists, lambda _: True
    filters = [{"Name": "tag:muster:cluster", "Values": [scope.cluster]}]
    answer = cloud.client.describe_instances(Filters=filters)
    cloud.lists = lists
    return {
        each["InstanceId"]: each["State"]["Name"]
        for reservation in answer["Reservations"]
        for each in reservation["Instances"]
    }


# Secrets


def test_no_error_and_no_log_tells_the_token(
    cloud: AwsCloud, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    provider = QuickEc2(pool_spec(cloud), new_scope())
    told = [repr(order_of("sl-1")), repr(provider.spec)]
    for fault in (refusal("InvalidParameterValue"), Fault(200, b"<html>"), LOST):
        cloud.faults["RunInstances"] = [fault]
        told.append(str(refused_with(provider)))
    told += [repr(each) for each in provider.create(order_of("sl-1"))]

    assert TOKEN not in "".join([*told, caplog.text])
