"""The settings of an ``aws-ec2`` pool: what is wrong with them is told before anybody is asked."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.aws_cloud import new_scope

from muster.core.errors import InvalidSpec
from muster.core.specs.pool import MachineShape, PoolSpec
from muster.providers.aws.ec2 import AwsEc2
from muster.providers.aws.launch import client_token
from muster.providers.aws.settings import AwsSettings
from muster.providers.found import problems_of, provider_class
from muster.providers.provider import Scope

GOOD = {"region": "us-east-1", "image": "ami-0123456789", "instance_type": "p5.48xlarge"}
SECRET = "AKIA-which-nobody-may-see"


def spec_with(settings: dict[str, Any], *, preemptible: bool = False) -> PoolSpec:
    return PoolSpec(
        name="gpus",
        provider="aws-ec2",
        machine=MachineShape.model_validate({"cpu": 4, "memory": "8GiB"}),
        max_slices=4,
        preemptible=preemptible,
        settings=settings,
    )


def told(settings: dict[str, Any], *, preemptible: bool = False) -> list[str]:
    return [each.sentence() for each in problems_of(spec_with(settings, preemptible=preemptible))]


@pytest.mark.parametrize(
    "settings",
    [
        GOOD,
        {"region": "us-east-1", "launch_template": {"id": "lt-0abc", "version": 7}},
        {"region": "us-east-1", "launch_template": {"name": "gpu nodes"}, "subnets": ["subnet-1"]},
        GOOD
        | {
            "subnets": ["subnet-1", "subnet-2"],
            "security_groups": ["sg-1"],
            "key_name": "ops",
            "instance_profile": "arn:aws:iam::1:instance-profile/gpu",
            "volume_gb": 200,
            "placement_group": "close",
            "capacity_reservation": "cr-0123",
            "prepare": ["pip install muster-scheduler", ""],
            "program": ["/opt/muster/bin/muster"],
            "profile": "training",
            "endpoint_url": "https://ec2.example.org/",
        },
        GOOD | {"endpoint_url": "http://127.0.0.1:5000"},
    ],
)
def test_good_settings_have_no_problem(settings: dict[str, Any]) -> None:
    assert told(settings) == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "settings.region: missing, and it has no default"),
        (
            {"region": "us-east-1"},
            "settings.image: expected launch_template, or image with instance_type",
        ),
        (
            {"region": "us-east-1", "image": "ami-1"},
            "settings.instance_type: expected launch_template, or image with instance_type",
        ),
        (
            {"region": "us-east-1", "launch_template": {}},
            "settings.launch_template: expected either id or name",
        ),
        (
            {"region": "us-east-1", "launch_template": {"id": "lt-1"}, "volume_gb": 9},
            "settings.volume_gb is 9: expected only with image: else the launch template says it",
        ),
        (GOOD | {"subnet": "x"}, "settings.subnet: unknown key; did you mean subnets?"),
        (
            GOOD | {"region": "us-east-1.evil.example.org"},
            "settings.region is 'us-east-1.evil.example.org': expected a region such as us-east-1",
        ),
        (
            GOOD | {"image": "ubuntu"},
            "settings.image is 'ubuntu': expected the id of an image, such as ami-0123456789",
        ),
        (
            GOOD | {"subnets": ["subnet-1", "subnet-1"]},
            "settings.subnets: expected each subnet once",
        ),
        (
            GOOD | {"max_price": 1.0},
            "settings.max_price is 1.0: expected only with preemptible: true",
        ),
        (GOOD | {"prepare": ["a\nb"]}, "settings.prepare.0 is 'a\\nb': expected one line"),
    ],
)
def test_what_is_wrong_is_told(settings: dict[str, Any], problem: str) -> None:
    assert told(settings) == [problem]


def test_spot_instances_use_no_reservation() -> None:
    problems = told(GOOD | {"capacity_reservation": "cr-1"}, preemptible=True)

    assert problems == [
        "settings.capacity_reservation is 'cr-1': expected only without preemptible: spot "
        "instances use no reservation"
    ]


@pytest.mark.parametrize(
    "key", ["aws_secret_access_key", "AWS_ACCESS_KEY_ID", "session_token", "password", "accesskey"]
)
def test_credentials_are_refused_and_not_shown(key: str) -> None:
    assert told(GOOD | {key: SECRET}) == [
        f"settings.{key}: expected no credentials in a pool: boto3 finds the controller's own"
    ]


@pytest.mark.parametrize(
    "url",
    [
        f"https://me:{SECRET}@example.org",
        f"https://example.org/?token={SECRET}",
        f"http://{SECRET}.example.org",
        f"file:///{SECRET}",
        f"https://{SECRET} example.org",
        "https://",
        "http://127.0.0.1@example.org",
        7,
    ],
)
def test_an_endpoint_that_is_none_is_refused_and_not_shown(url: object) -> None:
    assert told(GOOD | {"endpoint_url": url}) == [
        "settings.endpoint_url: expected https://… with no user, password or query; http only to "
        "this host"
    ]


def test_wrong_settings_make_no_provider() -> None:
    with pytest.raises(InvalidSpec, match=r"settings\.region"):
        AwsEc2(spec_with({}), new_scope())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*AwsSettings.model_fields]), VALUES))
def test_no_settings_fail_otherwise_than_by_problems(settings: dict[str, Any]) -> None:
    assert isinstance(told(settings), list)


def test_a_controller_without_boto3_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['boto3'] = None\n"
        "from muster.providers.found import provider_class\n"
        "provider_class('aws-ec2')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert run.stderr.splitlines()[-1].endswith(
        "provider is 'aws-ec2': needs `pip install 'muster-scheduler[aws]'` on the controller"
    )


def test_the_provider_is_found_by_its_name() -> None:
    assert provider_class("aws-ec2") is AwsEc2


def test_each_slice_subnet_and_attempt_has_its_own_client_token() -> None:
    here, there = new_scope(), new_scope()
    other = Scope(here.cluster, "other", here.directory)
    tokens = {
        client_token(scope, slice_, subnet, attempt)
        for scope in (here, there, other)
        for slice_ in ("sl-1", "sl-2")
        for subnet in ("", "subnet-1")
        for attempt in (0, 1)
    }

    assert len(tokens) == 24
    assert all(len(each) <= 64 and each.isascii() for each in tokens)
    assert client_token(here, "sl-1", "", 0) in tokens
