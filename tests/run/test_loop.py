"""The training loop on a disk that refuses what is not a checkpoint."""

import pytest

from lockstep.cli.main import main
from lockstep.reporting import journal
from lockstep.storage import weights
from lockstep.storage.checkpoint import CheckpointFailed


@pytest.mark.parametrize("what", ["weights", "numbers"])
def test_a_disk_that_is_full_at_an_evaluation_costs_a_warning(tmp_path, monkeypatch, capsys, what):
    save = weights.save_weights

    def full(path, *arguments, **options):
        raise OSError(28, "No space left on device", str(path))

    def full_for_the_best(path, *arguments, **options):
        if path.name == "best":
            raise CheckpointFailed(f"{path}: not written, No space left on device")
        save(path, *arguments, **options)

    if what == "weights":
        monkeypatch.setattr(weights, "save_weights", full_for_the_best)
    else:
        monkeypatch.setattr(journal, "write_atomically", full)
    words = ["--max-updates", "2", "--eval-every", "1", "--eval-episodes", "2", "--log-every", "1"]
    assert main(["train", "snake", "--preset", "debug", "--runs-dir", str(tmp_path), "--run-name", "a", *words]) == 0
    told = capsys.readouterr()
    warnings = [line for line in (told.out + told.err).splitlines() if "No space left on device" in line]
    # The weights are tried again at the next evaluation, since none were kept.
    assert len(warnings) == 2 and all("training continues" in line for line in warnings)
    assert (tmp_path / "a" / "final").is_dir() and (tmp_path / "a" / "best").is_dir() == (what == "numbers")
