"""`make demo`: train Snake on this machine until it visibly plays, evaluate it beside two baselines, and film it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lockstep.launch import resources

LOCKSTEP = [sys.executable, "-m", "lockstep"]
# A short schedule of preset small: the snake plays after two minutes; the preset itself takes ten and plays well.
TRAINING = ["--preset", "small", "--total-timesteps", "196608", "--eval-every", "65536"]


def lockstep(*words: str) -> None:
    print(f"\n$ lockstep {' '.join(words)}", flush=True)
    subprocess.run([*LOCKSTEP, *words], check=True)


def mean_of(*words: str) -> tuple[float, float]:
    """Mean return and mean snake length of an evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.json"
        subprocess.run([*LOCKSTEP, "eval", *words, "--output", str(output)], check=True, stdout=subprocess.DEVNULL)
        results = json.loads(output.read_text())
    return results["return_mean"], results["snake_length_mean"]


def main() -> None:
    name = f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    start = time.monotonic()
    # Two processes of one thread are faster than one of two; where there is a GPU, one process has it to itself.
    ranks = "2" if (os.cpu_count() or 1) >= 2 and not resources.visible_gpus() else "1"
    lockstep("train", "snake", *TRAINING, "--ranks", ranks, "--run-name", name)
    print(f"\ntrained in {time.monotonic() - start:.0f} s; 100 greedy episodes each:")
    rows = {
        "random": mean_of("snake", "--policy", "random", "--preset", "small", "--episodes", "100"),
        "scripted expert": mean_of("snake", "--policy", "scripted", "--preset", "small", "--episodes", "100"),
        "trained": mean_of(name, "--episodes", "100"),
    }
    for who, (score, length) in rows.items():
        print(f"  {who:16} mean return {score:6.2f}   mean final length {length:5.1f} of 64 cells")
    lockstep("play", name, "--video", "demo.gif")
    print(
        "\ndemo.gif shows one of its games. What to try next:\n"
        f"  lockstep play {name}                      watch it in this terminal\n"
        "  lockstep train snake --preset small                    ten minutes: it beats the scripted expert by far\n"
        "  lockstep train snake --preset small --ranks 2          the same experiment on two processes\n"
        "  lockstep verify snake --ranks 1,2,4                    proof that it is the same\n"
        "  lockstep train snake                                   12 x 12, on all GPUs that are visible"
    )


if __name__ == "__main__":
    main()
