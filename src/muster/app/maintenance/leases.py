"""The kernels that stop while no controller renews the leases of their agents."""

import math
from collections.abc import Iterator
from contextlib import suppress

from sqlalchemy import distinct, func, select

from muster.core.errors import MusterError
from muster.core.text import count, duration
from muster.store.database import database_url
from muster.store.database.reading import reading
from muster.store.schema import agents, allocations


def warnings_of_leases(named: str) -> Iterator[str]:
    """A sentence for who is about to work on a database while its controller is stopped, if
    kernels depend on leases.

    Args:
        named: the database as it is before, as a person named it. One that cannot be read is left
            to the work itself.
    """
    rows = allocations.join(agents, agents.c.id == allocations.c.agent_id)
    statement = (
        select(
            func.count(distinct(allocations.c.kernel_id)),
            func.count(distinct(agents.c.id)),
            func.min(agents.c.lease_s),
        )
        .select_from(rows)
        .where(allocations.c.charged.is_(True), agents.c.lease_s > 0.0)
        .where(agents.c.lease_s < math.inf)
    )
    with suppress(MusterError), reading(database_url(named)) as (connection, _):
        kernels, machines, shortest_s = connection.execute(statement).one()
        if kernels:
            yield (
                f"{count(kernels, 'kernel')} on {count(machines, 'agent')} will stop once no "
                f"controller has renewed their leases for {duration(shortest_s)}, and run again "
                f"later: start the controller before that, or else drain first"
            )
