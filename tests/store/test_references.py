"""References that people write: ids, prefixes of ids, and names."""

from functools import partial

import pytest
from sqlalchemy import Connection
from tests.control.world import ADA, World
from tests.store.test_queries import BOB, ROOT, fresh, job

from muster.core.errors import Ambiguous, NotFound
from muster.store.entities import JOB
from muster.store.queries.refs import resolve


def test_job_is_found_by_id_by_prefix_in_any_case_and_by_name(
    world: World, connection: Connection
) -> None:
    wanted = world.submit(job("train")).id
    find = partial(resolve, connection, JOB, ADA)
    body = wanted.removeprefix("job-")
    refs = [wanted, body, wanted[:-1], body[:9], body.upper(), "train"]
    assert [find(ref) for ref in refs] == [wanted] * len(refs)


def test_name_means_the_live_job_before_newer_ones_that_ended(
    world: World, connection: Connection
) -> None:
    world.submit(job("train"))
    world.run(5)
    second = world.submit(job("train"))
    assert resolve(fresh(connection), JOB, ADA, "train") == second.id
    world.run(5)
    assert resolve(fresh(connection), JOB, ADA, "train") == second.id, "the newest that ended"
    assert resolve(connection, JOB, ROOT, "train") == second.id


def test_name_that_looks_like_a_prefix_of_an_id_is_taken_as_the_name(
    world: World, connection: Connection
) -> None:
    other = world.submit(job("other"))
    prefix = other.id.removeprefix("job-")[:6]
    named = world.submit(job(prefix))
    assert resolve(connection, JOB, ADA, prefix) == named.id


def test_prefix_of_several_jobs_names_the_candidates(world: World, connection: Connection) -> None:
    first, second = world.submit(job("one")), world.submit(job("two"))
    with pytest.raises(Ambiguous) as told:
        resolve(connection, JOB, ADA, first.id.removeprefix("job-")[:5])
    assert f"{second.id} (two), {first.id} (one)" in str(told.value)


def test_jobs_of_others_are_neither_found_nor_candidates(
    world: World, connection: Connection
) -> None:
    mine = world.submit(job("same"))
    theirs = world.submit(job("same"), BOB)
    prefix = mine.id[:9]
    assert resolve(connection, JOB, ADA, prefix) == mine.id
    assert resolve(connection, JOB, BOB, "same") == theirs.id
    for ref in (theirs.id, theirs.id[4:]):
        with pytest.raises(NotFound, match="there is no job"):
            resolve(connection, JOB, ADA, ref)


def test_admin_finds_everybodys_jobs_own_ones_first(world: World, connection: Connection) -> None:
    world.submit(job("same"))
    bobs = world.submit(job("same"), BOB)
    with pytest.raises(Ambiguous, match="'same' means several jobs"):
        resolve(fresh(connection), JOB, ROOT, "same")
    own = world.submit(job("same"), ROOT)
    assert resolve(fresh(connection), JOB, ROOT, "same") == own.id
    assert resolve(connection, JOB, ROOT, bobs.id) == bobs.id


@pytest.mark.parametrize(
    "ref", ["", "nothing", "job-", "job-zzzz", "ses-0", "%", "_" * 16, "x" * 500]
)
def test_reference_that_means_nothing_is_not_found(
    world: World, connection: Connection, ref: str
) -> None:
    world.submit(job("train"))
    with pytest.raises(NotFound):
        resolve(connection, JOB, ADA, ref)
