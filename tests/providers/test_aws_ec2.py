"""The provider ``aws-ec2`` against moto, over HTTP: making slices, and finding them."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.providers.aws_cloud import (
    TOKEN,
    AwsCloud,
    QuickEc2,
    instance,
    made_by,
    new_scope,
    order_of,
    pool_spec,
    refusal,
    serving,
)
from tests.providers.conformance import Conformance, Site

from muster.autoscaling.standing import CreateOutcome
from muster.providers.aws.launch import MAX_USER_DATA, named_at_boot
from muster.providers.provider import MachineState, Provider, ProviderError, Scope


@pytest.fixture(scope="module")
def server() -> Iterator[AwsCloud]:
    with serving() as cloud:
        yield cloud


@pytest.fixture
def cloud(server: AwsCloud) -> AwsCloud:
    server.reset()
    return server


class AwsSite(Site):
    """An account, in which each test has clusters of its own."""

    def __init__(self, cloud: AwsCloud) -> None:
        self._cloud = cloud
        self._scope = new_scope()
        self._made: list[Provider] = []

    def provider(self, pool: str = "one", cluster: str = "c-1") -> Provider:
        scope = Scope(f"{self._scope.cluster}-{cluster}", pool, self._scope.directory)
        provider = QuickEc2(pool_spec(self._cloud), scope)
        self._made.append(provider)
        return provider

    def close(self) -> None:
        for each in self._made:
            each.close()


class TestAwsEc2(Conformance):
    @pytest.fixture
    def site(self, cloud: AwsCloud) -> Iterator[Site]:
        site = AwsSite(cloud)
        yield site
        site.close()


def deleted(provider: Provider, slice_: str) -> None:
    assert any(provider.delete(slice_) for _ in range(3))


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
