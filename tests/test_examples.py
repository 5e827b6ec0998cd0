"""The files in examples/, as far as they can be tried without a cluster."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from lockstep.cli.main import main
from lockstep.launch.machines import Machines

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("slurm/*.sbatch"))
JOB = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "a[1-2]", "SLURM_SUBMIT_DIR": "/s"}
TOOLS = """
scontrol() { if [ "$1" = show ]; then printf 'a1\\na2\\n'; else echo "scontrol $*"; fi; }
srun() { echo "srun $*"; return "$ENDS_WITH"; }
"""


def run_script(script, ends_with, *words):
    """Run a batch script with a cluster made of echoes."""
    text = TOOLS + script.read_text()
    environment = {**JOB, "ENDS_WITH": str(ends_with), "PATH": "/usr/bin:/bin"}
    return subprocess.run(["bash", "-c", text, str(script), *words], env=environment, capture_output=True, text=True)


def launches(words):
    """What a `lockstep train` command line means, resolved by `lockstep plan`; fails where it is wrong."""
    start = words.index("train")
    options = dict(zip(words[start + 2 :: 2], words[start + 3 :: 2], strict=True))
    assert main(["plan", *words[start + 1 :]]) == 0
    return Machines.parse(options["--nnodes"], options["--rdzv-endpoint"]), options


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_batch_scripts_start_one_launcher_a_node_and_are_queued_again_after_75(script, capsys):
    done = run_script(script, 75, "snake", "--preset", "debug")
    assert done.returncode == 75, done.stderr
    launched, requeued = done.stdout.splitlines()
    assert requeued == "scontrol requeue 4711"
    machines, options = launches(shlex.split(launched))
    assert (machines.most, machines.endpoint) == (2, "a1:24711")
    assert (options["--run-name"], options["--runs-dir"]) == ("job-4711", "/s/runs")
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", script.read_text(), re.M))
    assert asked["ntasks-per-node"] == "1" and asked["signal"] == "USR1@120" and "requeue" in asked


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_batch_scripts_end_as_the_run_does(script):
    done = run_script(script, 0, "snake")
    assert (done.returncode, "requeue" in done.stdout) == (0, False)
    assert run_script(script, 2, "snake").returncode == 2
    assert run_script(script, 0).returncode == 2
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0


def test_only_an_elastic_job_asks_for_machines_that_may_be_lost():
    fixed, elastic = (
        run_script(EXAMPLES / "slurm" / name, 0, "snake").stdout for name in ("train.sbatch", "elastic.sbatch")
    )
    assert "--nnodes 2 " in fixed and "--nnodes 1:2 " in elastic


def test_the_kubernetes_job_starts_a_launcher_in_every_pod(capsys):
    job = yaml.safe_load((EXAMPLES / "kubernetes" / "pytorchjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    # A Master replica would be given a RANK, and would then take itself for a rank.
    (kind,) = job["spec"]["pytorchReplicaSpecs"]
    workers = job["spec"]["pytorchReplicaSpecs"][kind]
    (container,) = workers["template"]["spec"]["containers"]
    assert (kind, container["name"]) == ("Worker", "pytorch")
    machines, options = launches(container["command"])
    policy = job["spec"]["elasticPolicy"]
    assert (machines.least, machines.most) == (policy["minReplicas"], policy["maxReplicas"]) == (1, workers["replicas"])
    assert machines.host == f"{job['metadata']['name']}-worker-0"
    assert machines.port == container["ports"][0]["containerPort"]
    assert options["--runs-dir"] in [mount["mountPath"] for mount in container["volumeMounts"]]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in workers["template"]["spec"]["volumes"]}
