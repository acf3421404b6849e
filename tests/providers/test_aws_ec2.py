"""The provider ``aws-ec2`` against moto, over HTTP."""

import base64
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.providers.aws_cloud import (
    ENVIRONMENT,
    PASSED,
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
)

from muster.autoscaling.standing import CreateOutcome
from muster.providers.aws.launch import MAX_USER_DATA, named_at_boot
from muster.providers.provider import Listing, Machine, MachineState, Provider, ProviderError, Scope


@pytest.fixture(scope="module")
def server() -> Iterator[AwsCloud]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with AwsCloud().running() as cloud:
            yield cloud


@pytest.fixture
def cloud(server: AwsCloud) -> AwsCloud:
    server.reset()
    return server


def made_by(
    cloud: AwsCloud, scope: Scope | None = None, *, preemptible: bool = False, **settings: Any
) -> QuickEc2:
    spec = pool_spec(cloud, preemptible=preemptible, **settings)
    return QuickEc2(spec, scope or new_scope())


def deleted(provider: Provider, slice_: str) -> None:
    assert any(provider.delete(slice_) for _ in range(3))


def instance(cloud: AwsCloud, machine: Machine) -> dict[str, Any]:
    """What EC2 says of a machine."""
    answer = cloud.client.describe_instances(InstanceIds=[machine.id])
    found: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
    return found


def tags_of(thing: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in thing["Tags"]}


# Making


def test_a_slice_is_one_launch_of_all_its_machines(cloud: AwsCloud) -> None:
    machines = made_by(cloud).create(order_of("sl-1", 3))

    assert [each.name for each in machines] == ["sl-1-0", "sl-1-1", "sl-1-2"]
    assert {each.state for each in machines} == {MachineState.COMING}
    (launch,) = cloud.asked("RunInstances")
    assert (launch["MinCount"], launch["MaxCount"]) == ("3", "3")
    assert [instance(cloud, each)["AmiLaunchIndex"] for each in machines] == [0, 1, 2]


@pytest.mark.parametrize("size", [1, 2])
def test_instances_and_volumes_have_the_tags_of_their_scope(cloud: AwsCloud, size: int) -> None:
    scope = new_scope()
    machine = made_by(cloud, scope).create(order_of("sl-1", size))[-1]

    found = instance(cloud, machine)
    expected = {"muster:cluster": scope.cluster, "muster:pool": "gpus", "muster:slice": "sl-1"}
    named = {"muster:machine": machine.name, "Name": machine.name}
    assert tags_of(found) == expected | named
    volume = found["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    (disk,) = cloud.client.describe_volumes(VolumeIds=[volume])["Volumes"]
    assert tags_of(disk).items() >= expected.items()


def test_all_settings_reach_the_launch(cloud: AwsCloud) -> None:
    client = cloud.client
    (subnet, *_) = client.describe_subnets()["Subnets"]
    group = client.describe_security_groups()["SecurityGroups"][0]["GroupId"]
    provider = made_by(
        cloud,
        subnets=[subnet["SubnetId"]],
        security_groups=[group],
        key_name="ops",
        volume_gb=300,
        placement_group="close",
        capacity_reservation="cr-0123",
    )
    provider.create(order_of("sl-1"))

    (launch,) = cloud.asked("RunInstances")
    expected = {
        "SubnetId": subnet["SubnetId"],
        "SecurityGroupId.1": group,
        "KeyName": "ops",
        "BlockDeviceMapping.1.DeviceName": "/dev/sda1",
        "BlockDeviceMapping.1.Ebs.VolumeSize": "300",
        "Placement.GroupName": "close",
        "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId": (
            "cr-0123"
        ),
        "MetadataOptions.HttpTokens": "required",
        "DisableApiTermination": "false",
        "InstanceType": "p5.48xlarge",
    }
    assert launch.items() >= expected.items()
    assert not any(key.startswith("InstanceMarketOptions") for key in launch)


def test_a_launch_template_says_what_the_settings_do_not(cloud: AwsCloud) -> None:
    data = {"ImageId": "ami-000c540e28953ace2", "InstanceType": "g5.xlarge"}
    cloud.client.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data)
    provider = made_by(
        cloud, image=None, instance_type=None, launch_template={"name": "gpu", "version": 1}
    )
    provider.check()
    (machine,) = provider.create(order_of("sl-1"))

    assert instance(cloud, machine)["ImageId"] == data["ImageId"]
    (launch,) = [each for each in cloud.asked("RunInstances") if "DryRun" not in each]
    assert launch["LaunchTemplate.LaunchTemplateName"] == "gpu"
    assert launch["LaunchTemplate.Version"] == "1"
    assert "ImageId" not in launch


def test_user_data_makes_the_machine_an_agent(cloud: AwsCloud) -> None:
    made_by(cloud, prepare=["pip install muster"], program=["/opt/muster/bin/muster"]).create(
        order_of("sl-1")
    )

    (launch,) = cloud.asked("RunInstances")
    script = base64.b64decode(launch["UserData"]).decode()
    assert script.startswith("#!/bin/sh\n")
    assert "pip install muster\n" in script
    assert "/opt/muster/bin/muster agent --controller controller:7077 --name sl-1-0" in script
    assert TOKEN in script


def test_machines_of_a_launch_take_their_names_by_their_place_in_it(tmp_path: Path) -> None:
    curl = tmp_path / "curl"
    curl.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        "*-X\\ PUT*/latest/api/token) echo session ;;\n"
        "*aws-ec2-metadata-token:\\ session*/ami-launch-index) cat index ;;\n"
        "*) exit 1 ;;\n"
        "esac\n"
    )
    curl.chmod(0o755)
    script = named_at_boot("#!/bin/sh\ncat >&2 && echo it is NAME '$NAME'\n", "NAME", ["a", "b.c"])
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}

    def booted(index: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "index").write_text(index)
        return subprocess.run(
            ["sh", "-c", script], env=path, cwd=tmp_path, text=True, timeout=10, input="",
            capture_output=True, check=False,
        )  # fmt: skip

    assert booted("0").stdout == "it is a $a\n"
    assert booted("1").stdout == "it is b.c $b.c\n"
    assert booted("2").returncode == 1
    assert "its launch index is 2" in booted("2").stderr
    assert {each.name for each in tmp_path.iterdir()} == {"curl", "index"}


def test_user_data_that_ec2_does_not_take_is_refused_before(cloud: AwsCloud) -> None:
    provider = made_by(cloud, prepare=["x" * 900] * 20)

    with pytest.raises(ProviderError, match="EC2 takes 16 KiB") as refused:
        provider.create(order_of("sl-1"))

    assert refused.value.outcome is CreateOutcome.BAD_REQUEST
    assert MAX_USER_DATA < 20 * 900
    assert not cloud.asked("RunInstances")


def test_a_preemptible_pool_has_spot_instances(cloud: AwsCloud) -> None:
    provider = made_by(cloud, preemptible=True, max_price=1.5)
    (machine,) = provider.create(order_of("sl-1", preemptible=True))

    (launch,) = cloud.asked("RunInstances")
    options = {
        key.removeprefix("InstanceMarketOptions."): value
        for key, value in launch.items()
        if key.startswith("InstanceMarketOptions.")
    }
    assert options == {
        "MarketType": "spot",
        "SpotOptions.MaxPrice": "1.5",
        "SpotOptions.SpotInstanceType": "one-time",
        "SpotOptions.InstanceInterruptionBehavior": "terminate",
    }
    kinds = {value for key, value in launch.items() if key.endswith("ResourceType")}
    assert kinds == {"instance", "volume", "spot-instances-request"}
    assert machine.detail.endswith("spot")


def test_a_slice_goes_where_there_is_room(cloud: AwsCloud) -> None:
    subnets = [each["SubnetId"] for each in cloud.client.describe_subnets()["Subnets"]][:3]
    provider = made_by(cloud, subnets=subnets)
    cloud.faults["RunInstances"] = [
        refusal("InsufficientInstanceCapacity", 500),
        refusal("Unsupported"),
    ]
    machines = provider.create(order_of("sl-1", 2))

    assert {instance(cloud, each)["SubnetId"] for each in machines} == {subnets[2]}
    assert [each["SubnetId"] for each in cloud.asked("RunInstances")] == subnets
    assert len({each["ClientToken"] for each in cloud.asked("RunInstances")}) == 3


def test_want_of_stock_in_all_subnets_is_told(cloud: AwsCloud) -> None:
    provider = made_by(cloud, subnets=["subnet-1", "subnet-2"])
    cloud.faults["RunInstances"] = [
        refusal("Unsupported"),
        refusal("InsufficientInstanceCapacity", 500, "none left"),
    ]

    with pytest.raises(ProviderError) as refused:
        provider.create(order_of("sl-1"))

    assert refused.value.outcome is CreateOutcome.STOCK_OUT
    assert refused.value.told == "InsufficientInstanceCapacity: none left (and 1 more subnets)"


# Finding


def test_a_slice_is_made_once_however_often_it_is_asked_for(cloud: AwsCloud) -> None:
    scope = new_scope()
    provider = made_by(cloud, scope)
    first = provider.create(order_of("sl-1", 2))
    again = made_by(cloud, scope).create(order_of("sl-1", 2))

    assert [each.id for each in again] == [each.id for each in first]
    assert len(cloud.asked("RunInstances")) == 1


def test_a_slice_whose_machines_have_ended_is_made_anew(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    first = provider.create(order_of("sl-1", 2))
    deleted(provider, "sl-1")
    again = provider.create(order_of("sl-1", 2))

    assert not {each.id for each in first} & {each.id for each in again}
    assert [each.id for each in provider.list().machines] == [each.id for each in again]


def test_machines_that_ended_unlisted_are_not_taken_for_new_ones(
    cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = made_by(cloud)
    first = provider.create(order_of("sl-1"))
    deleted(provider, "sl-1")
    old = {each.id for each in first}
    cloud.lists = lambda id_: id_ not in old  # as EC2 does an hour later
    monkeypatch.setattr("muster.providers.aws.ec2._FORGOTTEN_S", -3600.0)
    with pytest.raises(ProviderError, match="launches of this slice have ended"):
        provider.create(order_of("sl-1"))
    monkeypatch.undo()
    assert len({each["ClientToken"] for each in cloud.asked("RunInstances")}) == 32


def test_what_is_left_of_a_slice_is_deleted(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    machines = provider.create(order_of("sl-1", 3))
    cloud.client.terminate_instances(InstanceIds=[machines[1].id])

    with pytest.raises(ProviderError, match="2 of 3 machines were left") as refused:
        provider.create(order_of("sl-1", 3))

    assert refused.value.outcome is CreateOutcome.UNKNOWN
    assert "Client.UserInitiatedShutdown" in refused.value.told
    assert provider.list().machines == ()


def test_a_slice_that_is_listed_in_part_is_not_torn_down(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    machines = provider.create(order_of("sl-1", 3))
    cloud.lists = lambda id_: id_ != machines[1].id

    with pytest.raises(ProviderError, match="2 of 3 machines are listed so far") as refused:
        provider.create(order_of("sl-1", 3))

    assert refused.value.outcome is CreateOutcome.UNKNOWN
    assert not cloud.asked("TerminateInstances")
    cloud.lists = lambda _: True
    assert [each.id for each in provider.create(order_of("sl-1", 3))] == [
        each.id for each in machines
    ]


def test_of_two_launches_of_a_slice_one_stays_whoever_asks(cloud: AwsCloud) -> None:
    scope = new_scope()
    first = {each.id for each in made_by(cloud, scope).create(order_of("sl-1", 2))}
    cloud.lists = lambda id_: id_ not in first
    subnet = cloud.client.describe_subnets()["Subnets"][0]["SubnetId"]
    changed = made_by(cloud, scope, subnets=[subnet]).create(order_of("sl-1", 2))
    second = {each.id for each in changed}
    cloud.lists = lambda _: True
    provider = made_by(cloud, scope)

    assert {each.id for each in provider.list().machines} == first | second
    kept = {each.id for each in provider.create(order_of("sl-1", 2))}
    assert kept in (first, second)
    assert {each.id for each in provider.list().machines} == kept
    assert {each.id for each in made_by(cloud, scope).create(order_of("sl-1", 2))} == kept


def test_names_that_were_not_tagged_are_tagged_by_the_next_call(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    cloud.faults["CreateTags"] = [refusal("RequestLimitExceeded", 503)] * 4
    with pytest.raises(ProviderError, match="not all machines have their name") as refused:
        provider.create(order_of("sl-1", 2))

    assert refused.value.outcome is CreateOutcome.UNKNOWN
    assert {each.name for each in provider.list().machines} == {
        each.id for each in provider.list().machines
    }
    assert [each.name for each in provider.create(order_of("sl-1", 2))] == ["sl-1-0", "sl-1-1"]
    assert [each.name for each in provider.list().machines] == ["sl-1-0", "sl-1-1"]
    assert len(cloud.asked("RunInstances")) == 1


def test_a_tag_waits_until_its_instance_is_known_everywhere(cloud: AwsCloud) -> None:
    cloud.faults["CreateTags"] = [refusal("InvalidInstanceID.NotFound")] * 3

    assert len(made_by(cloud).create(order_of("sl-1", 2))) == 2
    assert len(cloud.asked("CreateTags")) == 5


# Deleting


def test_a_slice_is_gone_once_all_its_machines_are_terminated(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    machines = provider.create(order_of("sl-1", 3))
    cloud.client.stop_instances(InstanceIds=[machines[0].id])

    assert not provider.delete("sl-1")
    assert provider.delete("sl-1")
    assert {instance(cloud, each)["State"]["Name"] for each in machines} == {"terminated"}
    assert len(cloud.asked("TerminateInstances")) == 1


def test_a_slice_that_nobody_knows_is_gone(cloud: AwsCloud) -> None:
    assert made_by(cloud).delete("sl-never")
    assert not cloud.asked("TerminateInstances")


def test_machines_that_are_not_listed_yet_are_deleted_too(cloud: AwsCloud) -> None:
    provider = made_by(cloud)
    (machine,) = provider.create(order_of("sl-1"))
    cloud.lists = lambda _: False

    assert not provider.delete("sl-1")
    assert instance_state(cloud, machine) == "terminated"
    cloud.faults["TerminateInstances"] = [refusal("InvalidInstanceID.NotFound")]
    assert not provider.delete("sl-1")
    cloud.lists = lambda _: True
    assert provider.delete("sl-1")


def instance_state(cloud: AwsCloud, machine: Machine) -> str:
    lists, cloud.lists = cloud.lists, lambda _: True
    state = instance(cloud, machine)["State"]["Name"]
    cloud.lists = lists
    return str(state)


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
        assert instance_state(cloud, each) == "running"
    assert not cloud.asked("TerminateInstances")
    assert not cloud.asked("RebootInstances")


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
    provider = Impatient(pool_spec(cloud), new_scope())
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
    assert provider.list() == Listing(())


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
