"""Quotas that a former version stored fall back, as those that are set now."""

import json
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text
from tests.databases import ON_BOTH, empty_url_at

from muster.core.owner import Owner
from muster.core.specs import QuotaSpec
from muster.scheduling.accounting.usage import Quotas, scopes
from muster.store.database.address import parsed
from muster.store.database.migrating import migrate

pytestmark = ON_BOTH

LIMITS: dict[str, Any] = {"cpu": None, "memory": None, "disk": None, "gpu": None, "extra": {}}
COUNTS = dict.fromkeys(
    ("sessions", "pending_sessions", "open_work", "open_specs", "ended_specs"), None
)
FORMER: dict[str, dict[str, Any]] = {
    "*/*/*": {"limits": {**LIMITS, "gpu": "8000m"}, **COUNTS, "sessions": 9, "weight": 3.0},
    "default/default/ann": {"limits": {**LIMITS, "memory": 2**30}, **COUNTS, "weight": 1.0},
    "default/default/bob": {"limits": LIMITS, **COUNTS, "weight": 2.0},
}


def test_keys_that_a_former_version_wrote_without_a_value_are_not_said(tmp_path: Path) -> None:
    engine = create_engine(parsed(empty_url_at(tmp_path)))
    with engine.begin() as connection:
        migrate(connection, "0032")
        insert = text("INSERT INTO quotas (level, name, spec) VALUES ('user', :name, :spec)")
        for name, said in FORMER.items():
            spec = {"kind": "quota", "level": "user", "name": name, "largest": LIMITS, **said}
            connection.execute(insert, {"name": name, "spec": json.dumps(spec)})
        migrate(connection)
        stored = connection.execute(text("SELECT spec FROM quotas")).scalars().all()
    engine.dispose()
    quotas = Quotas(map(QuotaSpec.model_validate_json, stored))
    ann, bob = (quotas.of(scopes(Owner("default", "default", user))[0]) for user in ("ann", "bob"))
    assert ann is not None
    assert bob is not None
    assert (dict(ann.limits.amounts), ann.sessions) == ({"gpu": 8000, "memory": 2**30}, 9)
    assert (ann.weight, bob.weight) == (3.0, 2.0), "one that nobody had set is everybody's"
    assert dict(bob.limits.amounts) == {"gpu": 8000}
