"""The settings of a pool of EC2 instances, as operators write them."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.amounts import ShortText, Spec, Text, Whole
from muster.core.specs.load import parse_spec
from muster.core.specs.pool import PoolSpec
from muster.core.text import MAX_NAME

DEFAULT_VERSION = "$Default"
"""The version of a launch template that its owner has made the default one."""
_SECRET = re.compile(r"secret|token|passw|credential|access_?key|private_?key", re.IGNORECASE)
_URL = re.compile(r"https?://[A-Za-z0-9.-]{1,200}(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]{0,200})?")
_LOOPBACK = ("localhost", "127.0.0.1")


def _like(pattern: str, expected: str) -> AfterValidator:
    """Text of this pattern; ``expected`` is told about any other."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


def _id(prefix: str, thing: str) -> AfterValidator:
    return _like(rf"{prefix}-[0-9a-z]{{1,40}}", f"the id of {thing}, such as {prefix}-0123456789")


def _is_endpoint(url: object) -> bool:
    """Whether this is the URL of an endpoint, without a user, password or query; user data pass no
    network in the clear."""
    if not isinstance(url, str) or len(url) > MAX_NAME or not _URL.fullmatch(url):
        return False
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK


_NotEmpty = _like(r"[^\x00-\x1f\x7f]+", "some text on one line")
_Word = Annotated[ShortText, _NotEmpty]
_Subnet = Annotated[ShortText, _id("subnet", "a subnet")]
_SecurityGroup = Annotated[ShortText, _id("sg", "a security group")]
_Line = Annotated[Text, _like(r"[^\x00\n]*", "one line"), Field(max_length=1000)]


class LaunchTemplate(Spec):
    """A launch template, by id or by name.

    Args:
        version: a number, ``$Default`` or ``$Latest``.
    """

    id: Annotated[ShortText, _id("lt", "a launch template")] | None = None
    name: _Word | None = None
    version: Annotated[
        ShortText, _like(r"[0-9]{1,9}|\$Default|\$Latest", "a number, $Default or $Latest")
    ] = DEFAULT_VERSION

    def parameters(self) -> dict[str, str]:
        """The template as RunInstances takes it."""
        named = {"LaunchTemplateId": self.id, "LaunchTemplateName": self.name}
        return {key: value for key, value in named.items() if value} | {"Version": self.version}


class AwsSettings(Spec):
    """How instances are made. What is not given here comes from the launch template.

    Args:
        region: of EC2.
        subnets: tried in this order; the instances of a slice are in one of them.
        security_groups: ids.
        instance_profile: name or ARN of the role that instances have.
        volume_gb: GiB of the root volume, of type gp3; only with ``image``.
        max_price: dollars an hour for a spot instance; without it the on-demand price.
        placement_group: its name.
        capacity_reservation: id of a reservation, or ARN of a resource group of them.
        prepare: lines of a shell script, run as root at the first boot before the agent starts.
        program: the words that start ``muster`` on an instance.
        profile: of the controller's AWS configuration.
        endpoint_url: of a private cloud that speaks EC2's protocol, or of a test.
    """

    region: Annotated[ShortText, _like(r"[a-z0-9-]{1,50}", "a region such as us-east-1")]
    launch_template: LaunchTemplate | None = None
    image: Annotated[ShortText, _id("ami", "an image")] | None = None
    instance_type: (
        Annotated[ShortText, _like(r"[a-z0-9.-]{1,60}", "a type such as p5.48xlarge")] | None
    ) = None
    subnets: Annotated[tuple[_Subnet, ...], Field(max_length=16)] = ()
    security_groups: Annotated[tuple[_SecurityGroup, ...], Field(max_length=16)] = ()
    key_name: _Word | None = None
    instance_profile: _Word | None = None
    volume_gb: Annotated[Whole, Field(ge=1, le=65_536)] | None = None
    max_price: Annotated[float, Field(gt=0, le=10_000)] | None = None
    placement_group: _Word | None = None
    capacity_reservation: (
        Annotated[ShortText, _like(r"cr-[0-9a-z]{1,40}|arn:[^\s]+", "an id such as cr-0123456789")]
        | None
    ) = None
    prepare: Annotated[tuple[_Line, ...], Field(max_length=100)] = ()
    program: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=16)] = ("muster",)
    profile: _Word | None = None
    endpoint_url: ShortText | None = None

    def contradictions(self) -> Iterator[Problem]:
        template = self.launch_template
        if template is None and not (self.image and self.instance_type):
            missing = "instance_type" if self.image else "image"
            expected = "expected launch_template, or image with instance_type"
            yield Problem(missing, "", expected)
        if template is not None and (template.id is None) == (template.name is None):
            yield Problem("launch_template", "", "expected either id or name")
        if self.volume_gb is not None and self.image is None:
            expected = "expected only with image: else the launch template says it"
            yield Problem("volume_gb", str(self.volume_gb), expected)
        if len(set(self.subnets)) < len(self.subnets):
            yield Problem("subnets", "", "expected each subnet once")


def settings_of(spec: PoolSpec) -> AwsSettings:
    """The settings of a pool.

    Raises:
        InvalidSpec: with every problem found; fields begin with ``settings.``. Values that may be
            secrets are not told.
    """
    problems: list[Problem] = []
    settings: AwsSettings | None = None
    try:
        settings = parse_spec(AwsSettings, _without_secrets(spec.settings, problems.append))
    except InvalidSpec as error:
        problems += error.problems
    if settings is not None:
        problems += _against(spec, settings)
    if problems or settings is None:
        raise InvalidSpec([replace(each, field=f"settings.{each.field}") for each in problems])
    return settings


def _without_secrets(
    settings: Mapping[str, Any], tell: Callable[[Problem], None]
) -> dict[str, Any]:
    """The settings without what may be a secret; each of these is told as a problem."""
    kept = {}
    for key, value in settings.items():
        if _SECRET.search(key):
            expected = "expected no credentials in a pool: boto3 finds the controller's own"
            tell(Problem(key, "", expected))
        elif key == "endpoint_url" and value is not None and not _is_endpoint(value):
            expected = "expected https://… with no user, password or query; http only to this host"
            tell(Problem(key, "", expected))
        else:
            kept[key] = value
    return kept


def _against(spec: PoolSpec, settings: AwsSettings) -> Iterator[Problem]:
    """Settings that contradict the pool."""
    if settings.max_price is not None and not spec.preemptible:
        yield Problem("max_price", str(settings.max_price), "expected only with preemptible: true")
    if settings.capacity_reservation is not None and spec.preemptible:
        expected = "expected only without preemptible: spot instances use no reservation"
        yield Problem("capacity_reservation", repr(settings.capacity_reservation), expected)
