"""Equal specs are one object: sessions are many, and mostly alike."""

import gc

from muster.core.specs import SessionSpec
from muster.store.entities import ENTITIES
from muster.store.live import Live


def spec(name: str, command: str) -> SessionSpec:
    return SessionSpec.model_validate({"name": name, "kernels": [{"command": [command]}]})


def test_specs_that_differ_by_their_name_are_one() -> None:
    live = Live(ENTITIES)
    one = live.shared(spec("a", "/bin/true"))
    assert live.shared(spec("b", "/bin/true")) is one
    assert one.name is None


def test_specs_that_differ_otherwise_stay_apart() -> None:
    live = Live(ENTITIES)
    one, other = live.shared(spec("a", "/bin/true")), live.shared(spec("a", "/bin/false"))
    assert (one.kernels[0].command, other.kernels[0].command) == (["/bin/true"], ["/bin/false"])


def test_spec_that_nobody_holds_is_forgotten() -> None:
    live = Live(ENTITIES)
    live.shared(spec("a", "/bin/true"))
    gc.collect()
    assert not live.specs
