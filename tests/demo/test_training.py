"""The demonstration's gang: all-reduce round a ring of sockets, and the training that uses it."""

import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

import numpy as np
import pytest
from demo.ring import Ring, join_ring
from demo.train import Network, fingerprint, train
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits

TIMEOUT_S = 20.0
T = TypeVar("T")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def as_gang(size: int, work: Callable[[Ring], T]) -> list[Future[T]]:
    """Have ``work`` done by each rank of a gang, in threads; all of them have ended."""
    port = free_port()

    def run(rank: int) -> T:
        environ = {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        with closing(join_ring(environ, TIMEOUT_S)) as ring:
            return work(ring)

    with ThreadPoolExecutor(size) as pool:
        return [pool.submit(run, rank) for rank in range(size)]


def results(futures: list[Future[T]]) -> list[T]:
    return [future.result() for future in futures]


@settings(max_examples=30, deadline=None)
@given(
    size=st.integers(1, 5),
    length=st.integers(0, 17),
    seed=st.integers(0, 1000),
)
def test_all_reduce_of_any_gang_gives_every_rank_the_same_sum(
    size: int, length: int, seed: int
) -> None:
    vectors = np.random.default_rng(seed).normal(size=(size, length))

    def add_up(ring: Ring) -> bytes:
        own: NDArray[np.float64] = vectors[ring.rank].copy()
        ring.all_reduce(own)
        return own.tobytes()

    sums = results(as_gang(size, add_up))

    assert len(set(sums)) == 1, "equal to the last bit"
    np.testing.assert_allclose(np.frombuffer(sums[0]), vectors.sum(axis=0))


def test_all_reduce_when_a_rank_leaves_fails_instead_of_waiting() -> None:
    def add_up(ring: Ring) -> None:
        if ring.rank != 2:
            ring.all_reduce(np.ones(8))

    ranks = as_gang(3, add_up)

    assert ranks[2].exception() is None
    assert all(isinstance(rank.exception(), OSError) for rank in ranks[:2])


def test_join_ring_without_the_others_gives_up_in_time() -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    with pytest.raises(TimeoutError):
        join_ring(alone | {"MASTER_PORT": str(free_port())}, timeout_s=0.1)


def test_gradient_matches_the_slope_of_the_loss() -> None:
    rng = np.random.default_rng(3)
    network = Network(rng)
    images, digits = rng.random((5, 64)), rng.integers(0, 10, 5)
    _, gradient = network.loss_and_gradient(images, digits)
    for index in rng.choice(gradient.size, 20, replace=False):
        losses = []
        for step in (-1e-5, 2e-5):
            network.parameters[index] += step
            losses.append(network.loss_and_gradient(images, digits)[0])
        network.parameters[index] -= 1e-5
        assert gradient[index] == pytest.approx((losses[1] - losses[0]) / 2e-5, abs=1e-5)


def test_training_in_a_gang_of_four_gives_equal_networks_that_know_digits() -> None:
    images, digits = load_digits(return_X_y=True)
    images = images / 16

    networks = results(as_gang(4, lambda ring: train(ring, images[:500], digits[:500])))
    (alone,) = results(as_gang(1, lambda ring: train(ring, images[:500], digits[:500])))

    assert len({fingerprint(network) for network in networks}) == 1
    np.testing.assert_allclose(networks[0].parameters, alone.parameters, atol=1e-6)
    assert networks[0].accuracy(images[500:], digits[500:]) > 0.85
