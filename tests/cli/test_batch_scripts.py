"""Scripts for other schedulers that are handed in."""

from pathlib import Path

import pytest

from muster.cli import kinds
from muster.cli.batch_scripts import note_on_options
from muster.cli.spec_file import read_spec
from muster.core.errors import MusterError
from muster.core.specs import JobSpec

SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:2\n#SBATCH --time=1:00:00\necho hello\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("words", [["./train.sh"], ["bash", "train.sh", "--lr", "1"]])
def test_options_of_a_script_that_are_not_read_are_told(script: Path, words: list[str]) -> None:
    note = note_on_options(words, str(script.parent))
    assert note is not None
    assert "train.sh has lines with #SBATCH, which are not read" in note
    assert note_on_options(["./other.sh", "x" * 5000], str(script.parent)) is None


def test_options_in_the_text_of_a_spec_are_told(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: |\n  #!/bin/bash\n  #PBS -l nodes=2\n  true\n")
    jobs = next(each for each in kinds.work() if each.name == "job")
    note = jobs.note(read_spec(str(file), JobSpec), str(file))
    assert note is not None
    assert "the command has lines with #PBS, which are not read" in note


def test_script_that_is_submitted_as_a_spec_is_told_apart(script: Path) -> None:
    with pytest.raises(MusterError) as refused:
        read_spec(str(script), JobSpec)
    assert str(refused.value) == (
        f"{script} is a script, not a spec: `muster run {script}`; its lines with #SBATCH are not "
        "read"
    )
