"""One rank of a gang that trains a network on handwritten digits, data-parallel.

Every rank holds the whole network and a share of each batch. The ranks add up their gradients
round the ring and take the same step, so the networks stay equal; at the end they prove it.
"""

import hashlib
import os
import sys

import numpy as np
from demo.ring import Ring, join_ring
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PIXELS, HIDDEN, DIGITS = 64, 32, 10
EPOCHS = 30
BATCH = 128
LEARNING_RATE = 0.1
MOMENTUM = 0.9
TESTED_SHARE = 0.2
LEAST_ACCURACY = 0.9
SEED = 7


class Network:
    """Pixels to digits through one hidden layer; all weights are views of one vector."""

    def __init__(self, rng: np.random.Generator) -> None:
        shapes = (PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, DIGITS), (DIGITS,)
        self.parameters = rng.normal(0, 0.1, sum(int(np.prod(shape)) for shape in shapes))
        self._shapes = shapes

    def loss_and_gradient(self, images: Floats, digits: Ints) -> tuple[float, Floats]:
        """Cross-entropy summed over the images, and its gradient as one vector."""
        hidden, chances = self._forward(images)
        _, _, w2, _ = self._views(self.parameters)
        rows = np.arange(len(digits))
        loss = -np.log(chances[rows, digits]).sum()
        error = chances.copy()
        error[rows, digits] -= 1
        hidden_error = error @ w2.T * (1 - hidden**2)
        gradient = np.concatenate(
            [
                (images.T @ hidden_error).ravel(),
                hidden_error.sum(axis=0),
                (hidden.T @ error).ravel(),
                error.sum(axis=0),
            ]
        )
        return float(loss), gradient

    def accuracy(self, images: Floats, digits: Ints) -> float:
        _, chances = self._forward(images)
        return float((chances.argmax(axis=1) == digits).mean())

    def _forward(self, images: Floats) -> tuple[Floats, Floats]:
        w1, b1, w2, b2 = self._views(self.parameters)
        hidden = np.tanh(images @ w1 + b1)
        scores = hidden @ w2 + b2
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, chances / chances.sum(axis=1, keepdims=True)

    def _views(self, vector: Floats) -> list[Floats]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        parts = np.split(vector, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]


def train(ring: Ring, images: Floats, digits: Ints) -> Network:
    """The trained network, the same in all ranks.

    Raises:
        OSError: another rank is gone.
    """
    rng = np.random.default_rng(SEED)  # the same in all ranks: so are network and batches
    network = Network(rng)
    velocity = np.zeros_like(network.parameters)
    for epoch in range(1, EPOCHS + 1):
        epoch_loss = 0.0
        for batch in np.array_split(rng.permutation(len(images)), len(images) // BATCH):
            mine = batch[ring.rank :: ring.size]
            loss, gradient = network.loss_and_gradient(images[mine], digits[mine])
            total = np.append(gradient, loss)
            ring.all_reduce(total)
            velocity = MOMENTUM * velocity - LEARNING_RATE / len(batch) * total[:-1]
            network.parameters += velocity
            epoch_loss += total[-1]
        if ring.rank == 0 and epoch % 10 == 0:
            print(f"epoch {epoch}: loss {epoch_loss / len(images):.4f}")
    return network


def fingerprint(network: Network) -> str:
    return hashlib.sha256(network.parameters.tobytes()).hexdigest()[:12]


def main() -> None:
    ring = join_ring()
    images, digits = load_digits(return_X_y=True)
    images = images / 16  # pixels are 0 to 16
    order = np.random.default_rng(SEED).permutation(len(images))
    tested, trained = np.split(order, [int(len(images) * TESTED_SHARE)])
    network = train(ring, images[trained], digits[trained])
    own = fingerprint(network)
    neighbours = ring.exchange(own.encode()).decode()  # each with the one before: so all are equal
    accuracy = network.accuracy(images[tested], digits[tested])
    print(
        f"rank {ring.rank} of {ring.size} on GPUs {os.environ.get('CUDA_VISIBLE_DEVICES', '-')}: "
        f"accuracy {accuracy:.3f} on {len(tested)} unseen digits, weights {own}"
    )
    ring.close()
    if own != neighbours:
        sys.exit(f"the weights differ from those of the rank before: {neighbours}")
    if accuracy <= LEAST_ACCURACY:
        sys.exit(f"expected an accuracy above {LEAST_ACCURACY}")


if __name__ == "__main__":
    main()
