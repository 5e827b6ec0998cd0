"""Learning curves of runs as one picture.

python benchmarks/plot_runs.py RUN [RUN ...] --output curve.png [--tag TAG ...] [--minutes] [--line 33.28=published]
"""

import argparse
import json
from datetime import datetime
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def points(run, tag, minutes):
    """What to draw of one run: (x, y) lists."""
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    started = json.loads((Path(run) / "system.json").read_text())["started"]
    start = datetime.strptime(started, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    chosen = [line for line in lines if line.get(tag) is not None]
    return [(line["time"] - start) / 60 if minutes else line["step"] / 1e6 for line in chosen], [
        line[tag] for line in chosen
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--output", required=True)
    parser.add_argument("--tag", nargs="+", default=["eval/return_mean"])
    parser.add_argument("--minutes", action="store_true")
    parser.add_argument("--line", nargs="*", default=[], help="VALUE=LABEL, a horizontal line")
    args = parser.parse_args()
    figure, axes = pyplot.subplots(figsize=(7, 3.5), dpi=120)
    for run in args.runs:
        for tag in args.tag:
            axes.plot(*points(run, tag, args.minutes), label=f"{Path(run).name}: {tag}", linewidth=1.5)
    for line in args.line:
        value, _, label = line.partition("=")
        axes.axhline(float(value), linestyle="--", color="grey", linewidth=1)
        axes.annotate(label, (0.01, float(value)), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
    axes.set_xlabel("minutes" if args.minutes else "million environment steps")
    axes.set_ylabel("mean return")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(args.output)


if __name__ == "__main__":
    main()
