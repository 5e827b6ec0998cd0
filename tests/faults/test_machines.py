"""Runs that span machines: they come, go and are cut off, and the run ends in the weights of the run on one rank."""

import json
import os
import socket
import subprocess
import sys

import pytest

PACED = "slow@at=0..20,attempt=0..,seconds=0.5"
"""Updates slow enough for something to happen meanwhile."""


def size(run, tools):
    """How many ranks took part in the newest log point; 0 where there is none."""
    return max([0, *(tools.ranks_of(point) for point in tools.logged(run)[-1:])])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow  # more than a minute; make faults counts it, too
def test_a_run_that_grows_from_one_machine_to_three_and_loses_one_ends_in_the_hash_of_one(start, tools, tmp_path):
    run, steps = tmp_path / "grown", ["--total-timesteps", "7680"]
    elastic = ["--nnodes", "1:3", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--ranks", "1"]
    words = tools.snake(tmp_path, "grown", *steps, *elastic)
    first = start(*words, faults=PACED)
    tools.wait_until(lambda: tools.logged(run))
    others = [start(*words, faults=PACED) for _ in range(2)]
    tools.wait_until(lambda: size(run, tools) == 3, what="three ranks")
    others[1].kill()
    first.ends()
    others[0].ends()
    sizes = [tools.ranks_of(point) for point in tools.logged(run)]
    assert (sizes[0], sizes[-1]) == (1, 2)
    assert [point["step"] for point in tools.logged(run)] == [256 * update for update in range(1, 31)]
    start(*tools.snake(tmp_path, "alone", *steps)).ends()
    assert tools.hash_of(run) == tools.hash_of(tmp_path / "alone")


@pytest.fixture
def machines(start, network, tools, tmp_path):
    """Start the same run on machine 0, 1, ... of a network: `machines(number)`."""
    words = tools.snake(tmp_path, "run", "--ranks", "1", "--nnodes", "1:3", "--timeout", "60")

    def on(number, faults=PACED, **variables):
        endpoint = ["--rdzv-endpoint", f"{network.address(0)}:29500"]
        return start(*words, *endpoint, faults=faults, prefix=network.on(number), **variables)

    return on


def test_machines_that_were_given_different_settings_are_refused_in_one_line_each(start, tools, tmp_path):
    together = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--ranks", "1", "--timeout", "100"]
    words = tools.snake(tmp_path, "run", *together)
    for machine in [start(*words, "--gamma", gamma) for gamma in ("0.9", "0.8")]:
        output = machine.ends(2)
        assert output.count("lockstep: rank 1 was given gamma 0.") == 1, output
        assert "Traceback" not in output
    assert not (tmp_path / "run/config.yaml").exists()


@pytest.mark.slow
def test_a_machine_is_lost_and_another_one_comes(machines, network, tools, undisturbed, tmp_path):
    run = tmp_path / "run"
    first, second = machines(0), machines(1)
    tools.wait_until(lambda: size(run, tools) == 2, what="two ranks")
    second.kill()
    third = machines(2)
    first.ends()
    third.ends()
    assert tools.hash_of(run) == undisturbed


@pytest.mark.slow
def test_of_a_run_that_is_cut_in_two_one_side_goes_on_and_the_other_comes_back(
    machines, network, tools, undisturbed, tmp_path
):
    run = tmp_path / "run"
    first, second = machines(0), machines(1)
    tools.wait_until(lambda: size(run, tools) == 2, what="two ranks")
    network.cut(1)
    tools.wait_until(lambda: size(run, tools) == 1, what="one rank")
    network.mend(1)
    first.ends()
    second.process.wait(120)
    assert "10.77.0.1:29500 no longer answers" in second.output
    assert tools.hash_of(run) == undisturbed
    assert [point["step"] for point in tools.logged(run)] == [256 * update for update in range(1, 11)]


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"loss": 0.2}, {"delay": 0.3}], ids=["loss", "delay"])
def test_a_bad_link_makes_a_run_slower_and_nothing_else(machines, network, tools, undisturbed, tmp_path, how):
    network.disturb(1, **how)
    first, second = machines(0, faults=""), machines(1, faults="")
    first.ends(within=500)
    second.ends(within=60)
    assert tools.hash_of(tmp_path / "run") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["fast", "exact"])
def test_machines_that_were_given_different_settings_are_refused(start, network, tools, tmp_path, sync):
    words = tools.snake(tmp_path, "run", "--ranks", "1", "--nnodes", "2", "--timeout", "60", "--sync", sync)
    endpoint = ["--rdzv-endpoint", f"{network.address(0)}:29500"]
    both = [start(*words, *endpoint, "--gamma", gamma, prefix=network.on(n)) for n, gamma in enumerate(("0.99", "0.5"))]
    outputs = [one.ends(2, within=90) for one in both]
    told = "rank 1 was given gamma 0.5, rank 0 0.99"
    other = "rank 1 was given gamma 0.99, rank 0 0.5"
    assert any(told in output or other in output for output in outputs)
    assert not (tmp_path / "run/config.yaml").exists(), "no run began"


STRANGER = """
import contextlib, json, os, pickle, socket, struct, sys, time
class Payload:
    def __reduce__(self):
        return (os.system, (f"touch {sys.argv[1]}",))
address, end, kept, answers = sys.argv[2], time.monotonic() + float(sys.argv[3]), [], []
body = pickle.dumps(Payload())
framed = [struct.pack(">I", len(text)) + text for text in (body, b"{}", b"[" * 900)]
messages = [b"", b"\\xff" * 65536, struct.pack(">I", 2**31), *framed]
while time.monotonic() < end:
    for port in (29500, *range(32768, 61000, 997)):
        for message in messages if port == 29500 else messages[:1]:
            one = socket.socket()
            one.settimeout(0.05)
            with contextlib.suppress(OSError):
                one.connect((address, port))
                one.sendall(message)
                answers.append(one.recv(4096).decode(errors="replace"))
            kept = [*kept, one][-200:]
print(json.dumps([answer for answer in answers if answer and "challenge" not in answer]))
"""


@pytest.mark.slow
def test_a_stranger_on_the_network_runs_nothing_and_changes_nothing(machines, network, tools, undisturbed, tmp_path):
    canary = tmp_path / "canary"
    first, second = machines(0), machines(1)
    run = tmp_path / "run"
    tools.wait_until(lambda: size(run, tools) == 2, what="two ranks")
    attacks = [
        subprocess.Popen(
            [*network.on(2), sys.executable, "-c", STRANGER, str(canary), network.address(number), "8"],
            env=os.environ, stdout=subprocess.PIPE, text=True,
        )
        for number in (0, 1)
    ]  # fmt: skip
    assert [json.loads(attack.communicate(timeout=120)[0]) for attack in attacks] == [[], []], "a challenge, no more"
    assert "turned away a connection from 10.77.0.3" in first.ends()
    second.ends()
    assert not canary.exists()
    assert tools.hash_of(run) == undisturbed
