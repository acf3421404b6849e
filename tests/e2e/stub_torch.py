"""Stubs of torch and torchrun, for the page on PyTorch: what they tell each other, and no numbers.

``install`` writes them into a folder. The step of an optimizer fails once where its directory has a
file ``fail-once``, so that there is something to go on from.
"""

from pathlib import Path

TORCHRUN = r"""
import os, subprocess, sys

given = {name: value for name, value in os.environ.items() if name.startswith("PET_")}
nodes, node = int(given["PET_NNODES"]), int(given["PET_NODE_RANK"])
processes = int(given.get("PET_NPROC_PER_NODE", "1"))
host, _, port = given["PET_RDZV_ENDPOINT"].rpartition(":")
assert 0 <= node < nodes and host and 0 < int(port) < 65536, given
running = []
for local in range(processes):
    told = {
        "RANK": node * processes + local,
        "LOCAL_RANK": local,
        "WORLD_SIZE": nodes * processes,
        "LOCAL_WORLD_SIZE": processes,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
    }
    env = {**os.environ, **{name: str(value) for name, value in told.items()}}
    running.append(subprocess.Popen([sys.executable, *sys.argv[1:]], env=env))
codes = [each.wait() for each in running]
sys.exit(max(codes))
"""

TORCH = r'''
import os, pickle, sys
from pathlib import Path
from types import SimpleNamespace

from torch import nn


class Values:
    """A tensor, as far as it is passed on."""

    def square(self):
        return self

    mean = square

    def backward(self):
        pass


def randn(*size, device):
    return Values()


def device(kind, index=0):
    return kind


def save(state, path):
    Path(path).write_bytes(pickle.dumps(state))


def load(path, map_location):
    return pickle.loads(Path(path).read_bytes())


cuda = SimpleNamespace(is_available=lambda: False, set_device=None)


class SGD(nn.Module):
    def __init__(self, model, lr):
        self.model = getattr(model, "module", model)

    def zero_grad(self):
        pass

    def step(self):
        self.steps += 1
        self.model.steps += 1
        if self.steps == 250 and os.environ["RANK"] == "0" and Path("fail-once").exists():
            Path("fail-once").unlink()
            sys.exit("a step went wrong")


optim = SimpleNamespace(SGD=SGD)
'''

NN = '''
class Module:
    """A model, or an optimizer, of which only its steps are known."""

    steps = 0

    def to(self, device):
        return self

    def __call__(self, samples):
        return samples

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]

    def parameters(self):
        return self


class Linear(Module):
    def __init__(self, inputs, outputs):
        pass
'''

DISTRIBUTED = r"""
import os


def init_process_group(backend):
    assert backend == "gloo"
    assert os.environ["MASTER_ADDR"] and os.environ["MASTER_PORT"]


def get_rank():
    return int(os.environ["RANK"])


def get_world_size():
    return int(os.environ["WORLD_SIZE"])


def barrier():
    pass


destroy_process_group = barrier
"""

PARALLEL = """
class DistributedDataParallel:
    def __init__(self, module):
        self.module = module

    def __call__(self, samples):
        return samples

    def parameters(self):
        return self.module
"""


def install(folder: Path, python: str) -> Path:
    """Write the stubs; the answer is the directory of ``torchrun``, and the modules lie there,
    too. ``python`` is the interpreter that runs it."""
    files = {
        "torch/__init__.py": TORCH,
        "torch/distributed.py": DISTRIBUTED,
        "torch/nn/__init__.py": NN,
        "torch/nn/parallel.py": PARALLEL,
        "torchrun": f"#!{python}\n{TORCHRUN}",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip())
    (folder / "torchrun").chmod(0o755)
    return folder
