"""Runs made before a change of the market: what cannot be continued says so in one line, and its weights still help."""

import pytest

from lockstep.cli.main import main
from lockstep.storage.manifest import FileRecord, read_manifest
from lockstep.storage.tensor_file import decode, encode

SMALL = ["--hidden-size", "8", "--max-updates", "1", "--checkpoint-every", "128", "--device", "cpu"]


@pytest.fixture
def unlisted(tmp_path):
    """A run in the market `regime` whose positions do not know at which price their options were listed."""
    place = ["--runs-dir", str(tmp_path), "--run-name", "old"]
    assert main(["train", "trading", "--preset", "debug", *place, *SMALL]) == 0
    (checkpoint,) = (tmp_path / "old" / "checkpoints").glob("step-*")
    manifest = read_manifest(checkpoint)
    for path in (checkpoint / "lanes").iterdir():
        tensors = decode(path.read_bytes())
        del tensors["env.account.listed"]
        path.write_bytes(encode(tensors))
        manifest.files[f"lanes/{path.name}"] = FileRecord.of(path.read_bytes())
    (checkpoint / "manifest.json").write_bytes(manifest.render())
    return tmp_path / "old"


def test_a_run_without_listing_prices_says_in_one_line_how_to_go_on(unlisted, tmp_path, capsys):
    assert main(["resume", str(unlisted), "--max-updates", "2", "--device", "cpu"]) == 4
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "tensor env.account.listed is missing" in error
    assert "if an earlier version made it, a new run takes its weights: --load-model RUN" in error
    new = ["--runs-dir", str(tmp_path), "--run-name", "new", "--load-model", str(unlisted)]
    assert main(["train", "trading", "--preset", "debug", *new, *SMALL]) == 0
