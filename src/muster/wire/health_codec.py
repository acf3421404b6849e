"""What agents see of their own health in its protobuf form, and back."""

from collections.abc import Mapping

from muster.core.health.remedy import Remedy
from muster.core.health.verdict import MAX_WHAT
from muster.core.text import made_text
from muster.wire import agent_pb2 as pb
from muster.wire.messages import HealthSeen, Sighting

_REMEDIES: Mapping[str, Remedy] = {each.value: each for each in Remedy}


def encode_sightings(seen: HealthSeen) -> pb.HealthSeen:
    return pb.HealthSeen(
        sightings=[
            pb.Sighting(
                seq=each.seq,
                remedy=each.remedy,
                what=made_text(each.what, MAX_WHAT),
                devices=each.devices,
                confirmed=each.confirmed,
                boot_id=each.boot_id,
                at=each.at,
            )
            for each in seen.sightings
        ]
    )


def decode_sightings(seen: pb.HealthSeen) -> HealthSeen:
    """The message. A remedy that only a newer agent knows becomes a check: refusing the message
    would make the agent repeat it for ever."""
    return HealthSeen(
        tuple(
            Sighting(
                each.seq,
                _REMEDIES.get(each.remedy, Remedy.CHECK),
                each.what,
                tuple(each.devices),
                each.confirmed,
                each.boot_id,
                each.at,
            )
            for each in seen.sightings
        )
    )
