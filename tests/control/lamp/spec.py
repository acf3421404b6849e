"""A lamp as people write it."""

from typing import Literal

from muster.core.specs.amounts import Name, Spec
from muster.core.specs.notify import Channels
from muster.core.specs.placement import Dependencies


class LampSpec(Spec):
    """A thing that gives light.

    Args:
        name: by which people refer to it.
        project: the owner's project for which it counts; the owner's first when left out.
        group: the scaling group in which it hangs.
        after: other work for which it waits.
        session: the id of a session beside which it hangs, whose history it shows.
        notify: channels that are told when it is out.
    """

    kind: Literal["lamp"] = "lamp"
    name: Name
    project: Name | None = None
    group: Name = "default"
    after: Dependencies = ()
    session: str | None = None
    notify: Channels = ()


KIND = LampSpec
