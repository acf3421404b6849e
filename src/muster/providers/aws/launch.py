"""The request of RunInstances: parameters, client tokens, and user data."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from muster.autoscaling.standing import CreateOutcome
from muster.core.text import NAME
from muster.providers.aws.errors import Ec2Error
from muster.providers.aws.settings import AwsSettings
from muster.providers.provider import Scope, SliceOrder
from muster.providers.starting import AgentPlace, start_script

CLUSTER, POOL, SLICE, MACHINE = "muster:cluster", "muster:pool", "muster:slice", "muster:machine"
"""The tags' keys."""
MAX_USER_DATA = 16 * 1024
"""Bytes of user data that EC2 takes."""
_PLACEHOLDER = "muster-machine-name-to-be"
_NAME = re.compile(NAME)


def tags(values: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def name_tags(name: str) -> dict[str, str]:
    """The tags of one machine: its name, also where EC2's console shows it."""
    return {MACHINE: name, "Name": name}


def client_token(scope: Scope, slice_: str, subnet: str, attempt: int) -> str:
    """The token by which EC2 launches a slice once.

    EC2 knows a token in one availability zone, and answers the instances of its first call even
    where they have ended. So the token depends on the subnet, and on a number that goes up past the
    attempts whose instances have ended. It does not depend on what is launched: a call with other
    parameters, as after a change of the pool, is refused instead of launching the slice again.
    """
    key = "\n".join((scope.cluster, scope.pool, slice_, subnet, str(attempt)))
    return hashlib.sha256(key.encode()).hexdigest()


def launch_parameters(
    order: SliceOrder,
    scope: Scope,
    settings: AwsSettings,
    subnet: str,
    root_device: str | None,
) -> dict[str, Any]:
    """The parameters of RunInstances for a whole slice, without a client token.

    Args:
        subnet: id; empty for the launch template's, or the default one.
        root_device: of the image; needed for ``volume_gb``.

    Raises:
        Ec2Error: the user data would be too large.
    """
    count = len(order.names)
    placement = {"GroupName": settings.placement_group} if settings.placement_group else None
    parameters = {
        "MinCount": count,
        "MaxCount": count,
        "UserData": user_data(order, settings),
        "DisableApiTermination": False,
        "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required"},
        "TagSpecifications": _tag_specifications(order, scope),
        "LaunchTemplate": settings.launch_template and settings.launch_template.parameters(),
        "ImageId": settings.image,
        "InstanceType": settings.instance_type,
        "SubnetId": subnet,
        "SecurityGroupIds": list(settings.security_groups),
        "KeyName": settings.key_name,
        "IamInstanceProfile": _instance_profile(settings.instance_profile),
        "BlockDeviceMappings": _root_volume(root_device, settings.volume_gb),
        "Placement": placement,
        "CapacityReservationSpecification": _reservation(settings.capacity_reservation),
        "InstanceMarketOptions": _spot(settings.max_price) if order.preemptible else None,
    }
    return {key: value for key, value in parameters.items() if value not in (None, "", [])}


def user_data(order: SliceOrder, settings: AwsSettings) -> str:
    """The script that an instance runs at its first boot. All instances of a launch get the same.

    Raises:
        Ec2Error: it would be too large.
    """
    place = AgentPlace(program=settings.program)
    if len(order.names) == 1:
        script = start_script(order, order.names[0], place, settings.prepare)
    else:
        script = named_at_boot(
            start_script(order, _PLACEHOLDER, place, settings.prepare), _PLACEHOLDER, order.names
        )
    if len(script.encode()) > MAX_USER_DATA:
        told = f"the user data would have {len(script.encode())} bytes, and EC2 takes 16 KiB"
        raise Ec2Error(CreateOutcome.BAD_REQUEST, f"{told}: shorten `prepare`, or the slice")
    return script


def named_at_boot(script: str, placeholder: str, names: Sequence[str]) -> str:
    """``script`` with the name of the instance that it runs on in place of ``placeholder``: the
    name at the place that the instance has among those of its launch, which its metadata tell.

    Raises:
        ValueError: a name is none.
    """
    if not all(map(_NAME.fullmatch, names)):
        raise ValueError("expected names of letters, digits, '.', '-' and '_'")
    cases = "\n".join(f"{index}) name={name} ;;" for index, name in enumerate(names))
    return f"""\
#!/bin/sh
set -eu
ask() {{
curl -sSf --retry 5 --retry-connrefused --max-time 5 "$@"
}}
metadata=http://169.254.169.254/latest
session=$(ask -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$metadata/api/token")
index=$(ask -H "X-aws-ec2-metadata-token: $session" "$metadata/meta-data/ami-launch-index")
case $index in
{cases}
*) echo "this machine has no name: its launch index is $index" >&2; exit 1 ;;
esac
script=$(mktemp)
trap 'rm -f "$script"' EXIT
sed "s/{placeholder}/$name/g" >"$script" <<'end of the script'
{script.rstrip()}
end of the script
sh "$script"
"""


def _tag_specifications(order: SliceOrder, scope: Scope) -> list[dict[str, Any]]:
    values = {CLUSTER: scope.cluster, POOL: scope.pool, SLICE: order.slice}
    if len(order.names) == 1:
        values |= name_tags(order.names[0])
    kinds = ["instance", "volume"]
    if order.preemptible:
        kinds.append("spot-instances-request")
    return [{"ResourceType": kind, "Tags": tags(values)} for kind in kinds]


def _instance_profile(profile: str | None) -> dict[str, str] | None:
    if profile is None:
        return None
    return {"Arn" if profile.startswith("arn:") else "Name": profile}


def _root_volume(device: str | None, size_gb: int | None) -> list[dict[str, Any]]:
    if device is None or size_gb is None:
        return []
    ebs = {"VolumeSize": size_gb, "VolumeType": "gp3", "DeleteOnTermination": True}
    return [{"DeviceName": device, "Ebs": ebs}]


def _reservation(reservation: str | None) -> dict[str, Any] | None:
    if reservation is None:
        return None
    group = reservation.startswith("arn:")
    key = "CapacityReservationResourceGroupArn" if group else "CapacityReservationId"
    return {"CapacityReservationTarget": {key: reservation}}


def _spot(max_price: float | None) -> dict[str, Any]:
    """A spot instance that ends when it is taken back, and is not requested again."""
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if max_price is not None:
        options["MaxPrice"] = f"{max_price:.6f}".rstrip("0").rstrip(".")
    return {"MarketType": "spot", "SpotOptions": options}
