"""Channels that are told of the end of work, and what befalls them."""

from dataclasses import asdict

from proving.hollow.performers.notices import NO_FAULTS, Faults
from proving.swarm.invariants.notices import EndsAreTold
from proving.swarm.part import Part
from proving.swarm.scene import Scene
from proving.swarm.steps import Kinds, Lot, Params, Seconds

FAULTS = Kinds(faults=True)


def _draw_channels(lot: Lot) -> Params:
    rng = lot.rng
    faults = Faults(
        lost=rng.choice([0, 0.3]),
        doubled=rng.choice([0, 0.3]),
        mute=rng.choice([0, 0.3]),
        refused=rng.choice([0, 0.5]),
        outcome_doubled=rng.choice([0, 0.3]),
        late_s=rng.choice([0, 2, 90]),
    )
    return asdict(faults)


@FAULTS.add(2, _draw_channels)
def channels(
    scene: Scene,
    lost: float = 0.0,
    doubled: float = 0.0,
    mute: float = 0.0,
    refused: float = 0.0,
    outcome_doubled: float = 0.0,
    late_s: Seconds = 0.0,
) -> None:
    """Notices and their outcomes are lost, doubled, refused or late."""
    scene.world.set_channels(Faults(lost, doubled, mute, refused, outcome_doubled, late_s))


def _calm(scene: Scene) -> None:
    scene.world.set_channels(NO_FAULTS)


NOTICES = Part(FAULTS, [EndsAreTold], _calm, place=2)
