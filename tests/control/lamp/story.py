"""The deeds of a product of which lamps are a part. It is run as a program, in the folder of such a
product (``tests.control.lamp.product``), and fails where lamps are no part of it."""

import runpy
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner
from proving.hollow.found_twins import found_twins
from proving.hollow.virtual_clock import VirtualClock
from proving.swarm.runner import PARTS, run
from proving.swarm.steps import Step
from tests.api.served import LARGE, ServedCluster
from tests.control.lamp.api import LAMPS
from tests.control.lamp.entity import LAMP, Lamp
from tests.control.lamp.module import LampModule
from tests.control.lamp.part import LAMPS as PART
from tests.control.lamp.part import LampsGoOut
from tests.control.lamp.twin import HollowLighter

from muster.api.app import RESOURCES
from muster.cli import kinds
from muster.cli.cluster import Cluster
from muster.cli.program import app
from muster.client import Client
from muster.control.modules import ENTITY_MODULES, cluster_audits, cluster_entities
from muster.core.specs.load import load_spec, models

ROOT = Path(sys.argv[1])


def is_in_every_registry() -> None:
    assert LampModule in ENTITY_MODULES
    assert LAMP in cluster_entities().values()
    assert set(LampModule.audits) <= set(cluster_audits())
    assert RESOURCES[-1] is LAMPS, "as it is the last of IdKind to which people refer"
    assert [each.name for each in kinds.every()][-1] == "lamp"
    assert "lamp" in [each.name for each in kinds.work()]
    assert models()["lamp"] is type(load_spec("kind: lamp\nname: porch"))
    assert PART is PARTS[-1]
    twins = found_twins(VirtualClock(), lambda outcome: None)
    assert [type(each) for each in twins] == [HollowLighter]


def is_drawn_and_described() -> None:
    states = runpy.run_path(str(ROOT / "scripts/draw_states.py"))["page"]()
    specs = runpy.run_path(str(ROOT / "scripts/write_specs.py"))["page"]()
    assert "## Lamp\n\nWhat gives light." in states
    assert "## A lamp (`kind: lamp`)" in specs


def is_served(place: Path) -> None:
    cluster = ServedCluster(place, {"a": LARGE})
    cluster.start()
    try:
        client = Client(cluster.url, cluster.token())
        target = Cluster(connector=lambda *_: client)
        lamp = client.submit({"kind": "lamp", "name": "porch"})
        cluster.pass_time(120.0)
        is_over = not cluster.call(lambda: cluster.plane.live.of(Lamp))
        listed = CliRunner().invoke(app, ["lamps"], obj=target)
        assert listed.output == ("" if is_over else "porch LIT\n"), listed.output
        for command in ("show", "why", "history"):
            told = CliRunner().invoke(app, [command, lamp.id], obj=target)
            assert told.exit_code == 0, told.output
        assert client.show("porch").id == lamp.id
    finally:
        cluster.stop()


def is_simulated() -> None:
    steps = [Step("lamp", {"number": number}) for number in range(3)]
    result = run(1, steps)
    assert result.violation is None, result.violation
    assert result.evaluated[LampsGoOut.says] == 3


def main() -> None:
    is_in_every_registry()
    is_drawn_and_described()
    with tempfile.TemporaryDirectory() as place:
        is_served(Path(place))
    is_simulated()


if __name__ == "__main__":
    main()
