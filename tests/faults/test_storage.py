"""A disk that fills up while a run goes on."""

import subprocess

import pytest

PACED = "slow@at=0..9,attempt=0..,seconds=0.3"


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 8 MB; skipped where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(place)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no disk may be mounted here ({done.stderr.strip()})")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_costs_checkpoints_and_not_the_run(start, tools, undisturbed, small_disk):
    run, ballast = small_disk / "run", small_disk / "ballast"
    going = start(*tools.snake(small_disk, "run", "--ranks", "2"), faults=PACED)
    tools.wait_until(lambda: list((run / "checkpoints").glob("step-*")), what="a checkpoint")
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(1 << 12))
    tools.wait_until(lambda: "earlier checkpoints are untouched" in going.output, what="a warning")
    ballast.unlink()
    going.ends()
    assert tools.hash_of(run) == undisturbed


@pytest.mark.slow
def test_a_run_on_a_read_only_disk_is_refused_in_one_line_and_goes_on_once_it_can_write(
    start, tools, undisturbed, small_disk
):
    words = tools.snake(small_disk, "run", "--ranks", "2")
    start(*words, faults="terminate@rank=0,at=5").ends(75)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    output = start(*words).ends(2)
    assert output.startswith(f"lockstep: {small_disk}/run: cannot be written to (Read-only file system")
    assert len(output.splitlines()) == 1
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    start(*words).ends()
    assert tools.hash_of(small_disk / "run") == undisturbed
