"""Where each workload stops scaling: what `lockstep bench WORKLOAD --predict N` predicts, as a table for documents.

python benchmarks/scaling.py [--predict 8] [--links 400:20,12.5:50] [--workloads NAME:PRESET,...] [word]...

Words go to every benchmark (`--ranks 1,2 --rounds 3 --seconds 4 --lanes 64`). A link is GB/s and microseconds of the
smallest exchange between two ranks. For the link between the ranks here the benchmark predicts; for others the same
measurements are used, since the seconds of an exchange go with the latency and against the bandwidth.
"""

import argparse
import json
import subprocess
import sys

WORKLOADS = "snake:small,snakes3v3:small,trading:small,control:small,cricket:small"


def measure(workload, preset, largest, words):
    """The JSON of one benchmark."""
    command = ["bench", workload, "--preset", preset, "--predict", str(largest), "--json", *words]
    print(f"lockstep {' '.join(command)}", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", "lockstep", *command], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["workloads"][0]


def efficiency(found, world, link):
    """The predicted efficiency of one world over another link."""
    here, one = found["prediction"]["link"], found["ranks"][0]["steps_per_second"]
    bandwidth, latency = link
    moving = world["bytes_seconds_per_step"] * here["gb_per_second"] / bandwidth
    waiting = world["latency_seconds_per_step"] * latency / here["latency_microseconds"]
    return 1 / (world["compute_seconds_per_step"] + moving + waiting) / one / world["ranks"]


def row(found, links):
    """One workload: what an update exchanges, the checks, and each world's efficiency over each link."""
    told = found["prediction"]
    each = told["exchanges_per_update"]
    cells = [
        f"{found['workload']} ({found['preset']})",
        f"{told['steps_per_update']:,.0f}",
        f"{each['sums'] + each['gathers']:,.0f}",
        f"{(each['sum_bytes'] + each['gather_bytes']) / 1e6:,.2f} MB",
        ", ".join(f"{check['ranks']} ranks {check['error']:+.0%}" for check in told["checks"]) or "none",
    ]
    for world in told["predicted"]:
        others = "".join(f", {efficiency(found, world, link):.0%}" for link in links)
        cells.append(f"{world['predicted_efficiency']:.0%}{others} ({world['limited_by']})")
    return [*cells, *("cannot (lanes)" for _ in told["not_possible"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", type=int, default=8)
    parser.add_argument("--links", default="")
    parser.add_argument("--workloads", default=WORKLOADS)
    options, words = parser.parse_known_args()
    links = [tuple(map(float, link.split(":"))) for link in options.links.split(",") if link]
    for number, named in enumerate(options.workloads.split(",")):
        found = measure(*named.split(":"), options.predict, words)
        if not number:
            link = found["prediction"]["link"]
            print(f"{found['device']}; link of the first: {link['source']}, {link['gb_per_second']:.3g} GB/s, ", end="")
            print(f"{link['latency_microseconds']:.3g} microseconds\n")
            sizes = [
                *(world["ranks"] for world in found["prediction"]["predicted"]),
                *found["prediction"]["not_possible"],
            ]
            worlds = [f"{size} ranks, predicted" for size in sizes]
            columns = ["workload", "steps per update", "collectives", "moved", "check", *worlds]
            print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        print(f"| {' | '.join(row(found, links))} |", flush=True)
        print(f"cores used by others: {found['cores_used_by_other_programs']:.1f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
