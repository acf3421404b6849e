"""The provider ``aws-ec2`` against moto, over HTTP: machines are listed, rebooted and deleted."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.providers.aws_cloud import (
    PASSED,
    AwsCloud,
    Fault,
    Forgetful,
    Unwaiting,
    instance,
    made_by,
    new_scope,
    order_of,
    pool_spec,
    refusal,
    serving,
    state,
)

from muster.autoscaling.standing import CreateOutcome
from muster.providers.provider import (
    MAX_LOG,
    Machine,
    MachineListing,
    MachineState,
    Provider,
    ProviderError,
    Scope,
)


@pytest.fixture(scope="module")
def server() -> Iterator[AwsCloud]:
    with serving() as cloud:
        yield cloud


@pytest.fixture
def cloud(server: AwsCloud) -> AwsCloud:
    server.reset()
    return server


# Last words


def test_last_words_are_the_end_of_the_console(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    (machine,) = provider.create(order_of("sl-1"))
    said = provider.log(machine)
    assert said == cloud.client.get_console_output(InstanceId=machine.id)["Output"][-MAX_LOG:]
    assert "Linux" in said
    cloud.faults["GetConsoleOutput"] = [refusal("UnauthorizedOperation", 403)]
    with pytest.raises(ProviderError, match="credentials"):
        provider.log(machine)


# Deleting


def test_a_slice_is_gone_once_all_its_machines_are_terminated(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    machines = provider.create(order_of("sl-1", 3))
    cloud.client.stop_instances(InstanceIds=[machines[0].id])

    assert not provider.delete("sl-1")
    assert provider.delete("sl-1")
    assert {instance(cloud, each)["State"]["Name"] for each in machines} == {"terminated"}
    assert len(cloud.asked("TerminateInstances")) == 1


def test_a_machine_that_is_leaving_is_left_alone(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    (machine,) = provider.create(order_of("sl-1"))
    cloud.rewrites["DescribeInstances"] = lambda answer: answer.replace(
        b">running<", b">shutting-down<"
    )

    assert not provider.delete("sl-1")
    assert not cloud.asked("TerminateInstances")
    with pytest.raises(ProviderError, match="is being deleted"):
        provider.reboot(machine)


def test_a_slice_that_nobody_knows_is_gone(cloud: AwsCloud) -> None:
    assert made_by(cloud).delete("sl-never")
    assert not cloud.asked("TerminateInstances")


def test_machines_that_are_not_listed_yet_are_deleted_too(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    (machine,) = provider.create(order_of("sl-1"))
    cloud.lists = lambda _: False

    assert not provider.delete("sl-1")
    assert state(cloud, machine) == "terminated"
    cloud.faults["TerminateInstances"] = [refusal("InvalidInstanceID.NotFound")]
    assert not provider.delete("sl-1")
    cloud.lists = lambda _: True
    assert provider.delete("sl-1")


def test_instances_of_others_are_neither_listed_nor_touched(cloud: AwsCloud) -> None:
    ours = new_scope()
    provider = made_by(cloud, ours)
    others = [
        made_by(cloud, new_scope()),  # another cluster, whose pool has the same name
        made_by(cloud, Scope(ours.cluster, "other", ours.directory)),
    ]
    theirs = [each.create(order_of("sl-1"))[0] for each in others]
    run = cloud.client.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1)
    stranger = Machine(run["Instances"][0]["InstanceId"], "sl-1", "x", MachineState.RUNNING)

    assert provider.list().machines == ()
    assert provider.delete("sl-1")
    for each in (*theirs, stranger):
        with pytest.raises(ProviderError, match="is no machine of pool gpus") as refused:
            provider.reboot(each)
        assert refused.value.outcome is CreateOutcome.BAD_REQUEST
        assert state(cloud, each) == "running"
    assert not cloud.asked("TerminateInstances")
    assert not cloud.asked("RebootInstances")


def test_instances_that_no_filter_kept_away_are_not_ours(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    cloud.faults["DescribeInstances"] = [page_of(new_scope(), range(3), "") for _ in range(2)]

    assert provider.list() == MachineListing(())
    assert provider.delete("sl-0000")
    assert not cloud.asked("TerminateInstances")


# Listing


def test_slices_are_listed_page_by_page(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    for each in range(12):
        provider.create(order_of(f"sl-{each:02}"))
    cloud.requests.clear()
    assert provider.limits.page == 5

    listing = provider.list()
    assert listing.complete
    assert [each.slice for each in listing.machines] == [f"sl-{each:02}" for each in range(12)]
    assert len(cloud.asked("DescribeInstances")) == 3

    cloud.faults["DescribeInstances"] = [PASSED, PASSED, *[refusal("InternalError", 500)] * 2]
    part = provider.list()
    assert not part.complete
    assert len(part.machines) == 10


def test_a_thousand_machines_are_listed(cloud: AwsCloud) -> None:
    scope = new_scope()
    cloud.faults["DescribeInstances"] = [
        page_of(scope, range(first, first + 100), str(first) if first < 900 else "")
        for first in range(0, 1000, 100)
    ]

    listing = made_by(cloud, scope).list()

    assert listing.complete
    assert [each.id for each in listing.machines] == [f"i-{each:04}" for each in range(1000)]
    tokens = [each.get("NextToken") for each in cloud.asked("DescribeInstances")]
    assert tokens == [None, *map(str, range(0, 900, 100))]


def page_of(scope: Scope, numbers: range, token: str) -> Fault:
    """A page of DescribeInstances as EC2 writes it."""
    own = {"cluster": scope.cluster, "pool": scope.pool}
    items = "".join(
        f"<item><instanceId>i-{each:04}</instanceId><instanceState><name>running</name>"
        "</instanceState><tagSet>"
        + "".join(
            f"<item><key>muster:{key}</key><value>{value}</value></item>"
            for key, value in (own | {"slice": f"sl-{each:04}", "machine": f"m-{each}"}).items()
        )
        + "</tagSet></item>"
        for each in numbers
    )
    body = (
        '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<reservationSet><item><reservationId>r-1</reservationId><instancesSet>{items}"
        f"</instancesSet></item></reservationSet><nextToken>{token}</nextToken>"
        "</DescribeInstancesResponse>"
    )
    return Fault(200, body.encode())


def test_a_listing_without_a_first_page_is_an_error(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    provider.create(order_of("sl-1"))
    cloud.faults["DescribeInstances"] = [refusal("InternalError", 500)] * 2

    with pytest.raises(ProviderError) as refused:
        provider.list()

    assert refused.value.outcome is CreateOutcome.UNKNOWN


def test_a_listing_tells_how_each_machine_is(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    running, stopped, ended = provider.create(order_of("sl-1", 3))
    client = cloud.client
    client.stop_instances(InstanceIds=[stopped.id])
    client.terminate_instances(InstanceIds=[ended.id])

    assert {each.id: each.state for each in provider.list().machines} == {
        running.id: MachineState.RUNNING,
        stopped.id: MachineState.STOPPED,
    }


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("pending", MachineState.COMING),
        ("stopping", MachineState.STOPPED),
        ("shutting-down", MachineState.LEAVING),
    ],
)
def test_states_that_pass_are_told(cloud: AwsCloud, word: str, state: MachineState) -> None:
    provider = made_by(cloud)
    provider.create(order_of("sl-1"))
    cloud.rewrites["DescribeInstances"] = lambda answer: answer.replace(
        b">running<", f">{word}<".encode()
    )

    assert [each.state for each in provider.list().machines] == [state]


def test_a_listing_is_incomplete_while_a_launch_is_not_listed(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    first, second = provider.create(order_of("sl-1", 2))
    cloud.lists = lambda id_: id_ != second.id

    listing = provider.list()
    assert [each.id for each in listing.machines] == [first.id]
    assert not listing.complete
    cloud.lists = lambda _: True
    assert provider.list().complete


def test_what_settled_long_ago_makes_no_listing_incomplete(cloud: AwsCloud) -> None:
    provider = Forgetful(pool_spec(cloud), new_scope())
    provider.create(order_of("sl-1"))
    cloud.lists = lambda _: False

    assert provider.list().complete


SPOT_REQUESTS = """\
<DescribeSpotInstanceRequestsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
<spotInstanceRequestSet>{items}</spotInstanceRequestSet></DescribeSpotInstanceRequestsResponse>"""
SPOT_REQUEST = """\
<item><spotInstanceRequestId>sir-1</spotInstanceRequestId><instanceId>{id}</instanceId>
<state>active</state><status><code>{code}</code><message>soon</message>
<updateTime>2026-11-23T12:00:00.000Z</updateTime></status></item>"""


def test_a_spot_notice_says_when_the_machine_leaves(cloud: AwsCloud) -> None:
    scope = new_scope()
    provider = made_by(cloud, scope, preemptible=True)
    taken, kept = provider.create(order_of("sl-1", 2, preemptible=True))
    items = SPOT_REQUEST.format(id=taken.id, code="marked-for-termination")
    items += SPOT_REQUEST.format(id=kept.id, code="fulfilled")
    body = SPOT_REQUESTS.format(items=items).encode()
    cloud.faults["DescribeSpotInstanceRequests"] = [Fault(200, body)]

    leave = {each.id: each.leaves_at for each in provider.list().machines}

    noticed = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
    assert leave == {taken.id: noticed + 120.0, kept.id: None}
    (asked,) = cloud.asked("DescribeSpotInstanceRequests")
    assert {"tag:muster:cluster", scope.cluster, "status-code"} <= set(asked.values())


def test_machines_are_listed_where_spot_notices_are_not_known(
    cloud: AwsCloud, caplog: pytest.LogCaptureFixture
) -> None:
    provider = made_by(cloud, preemptible=True)
    provider.create(order_of("sl-1", preemptible=True))
    cloud.faults["DescribeSpotInstanceRequests"] = [refusal("UnauthorizedOperation", 403)]

    listing = provider.list()

    assert listing.complete
    assert len(listing.machines) == 1
    assert "spot notices of pool gpus are not known" in caplog.text


def test_nobody_asks_for_spot_notices_of_other_machines(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    provider.create(order_of("sl-1"))
    provider.list()

    assert not cloud.asked("DescribeSpotInstanceRequests")


# Rebooting


def actions(cloud: AwsCloud) -> list[str]:
    return [each.action for each in cloud.requests if not each.action.startswith("Describe")]


def rebooted(cloud: AwsCloud, provider: Provider, machine: Machine, *, hard: bool) -> list[str]:
    cloud.requests.clear()
    provider.reboot(machine, hard=hard)
    return actions(cloud)


def test_a_machine_is_rebooted(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    (machine,) = provider.create(order_of("sl-1"))

    assert rebooted(cloud, provider, machine, hard=False) == ["RebootInstances"]


def test_a_hard_reboot_stops_by_force_and_starts(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    (machine,) = provider.create(order_of("sl-1"))

    assert rebooted(cloud, provider, machine, hard=True) == ["StopInstances", "StartInstances"]
    assert cloud.asked("StopInstances")[0]["Force"] == "true"
    assert provider.list().machines[0].state is MachineState.RUNNING


def test_a_spot_instance_cannot_be_stopped_and_is_rebooted(cloud: AwsCloud) -> None:
    provider = made_by(cloud, preemptible=True)
    (machine,) = provider.create(order_of("sl-1", preemptible=True))

    assert rebooted(cloud, provider, machine, hard=True) == ["RebootInstances"]


def test_a_machine_that_is_stopped_is_started(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    (machine,) = provider.create(order_of("sl-1"))
    cloud.client.stop_instances(InstanceIds=[machine.id])

    assert rebooted(cloud, provider, machine, hard=False) == ["StartInstances"]


def test_a_machine_that_stops_slowly_is_started_by_another_call(cloud: AwsCloud) -> None:
    provider = Unwaiting(pool_spec(cloud), new_scope())
    (machine,) = provider.create(order_of("sl-1"))
    cloud.rewrites["DescribeInstances"] = lambda answer: answer.replace(b">stopped<", b">stopping<")

    with pytest.raises(ProviderError, match="is stopping: another call starts it") as refused:
        provider.reboot(machine, hard=True)

    assert refused.value.outcome is CreateOutcome.UNKNOWN
    cloud.rewrites.clear()
    assert rebooted(cloud, provider, machine, hard=True) == ["StartInstances"]


# Checking


def test_a_check_makes_nothing(cloud: AwsCloud) -> None:
    scope = new_scope()
    provider = made_by(cloud, scope, preemptible=True, volume_gb=100)
    provider.check()

    assert [each["DryRun"] for each in cloud.asked("RunInstances")] == ["true"]
    assert provider.list() == MachineListing(())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"launch_template": {"name": "none-such"}}, "InvalidLaunchTemplateName.NotFound"),
        ({"launch_template": {"id": "lt-0"}}, "InvalidLaunchTemplateId.NotFound"),
        ({"image": "ami-0", "volume_gb": 9}, "InvalidAMIID.NotFound"),
    ],
)
def test_a_check_tells_what_there_is_not(
    cloud: AwsCloud, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ProviderError, match=told) as refused:
        made_by(cloud, **settings).check()

    assert refused.value.outcome is CreateOutcome.BAD_REQUEST


def test_a_check_tries_each_subnet(cloud: AwsCloud) -> None:
    provider = made_by(cloud, subnets=["subnet-1", "subnet-2"])
    cloud.faults["RunInstances"] = [
        refusal("DryRunOperation", 412),
        refusal("InvalidSubnetID.NotFound"),
    ]

    with pytest.raises(ProviderError, match="InvalidSubnetID"):
        provider.check()

    assert [each["SubnetId"] for each in cloud.asked("RunInstances")] == ["subnet-1", "subnet-2"]
