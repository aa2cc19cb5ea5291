"""Test the commands of docs/gpu.md on a real Slurm: two virtual nodes on this machine's CPU.

    apt install slurmctld slurmd slurm-client munge    # as root, on a machine without Slurm
    python tests/bench/slurm.py                        # all, about ten minutes; prints a table
    python tests/bench/slurm.py array term             # only these

The script starts munged, slurmctld and two slurmd on loopback, with all files in a temporary
folder, and stops them at the end. Each test trains the embedded model with one command of the docs
and compares the logs, value by value, with the logs of uninterrupted runs. Missing problems and a
missing base model are made first. The script is not part of the test suite.
"""
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from core.log import read_log  # noqa: E402

CONF = """
ClusterName=two
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool.%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=1
MpiDefault=none
ReturnToService=2
KillWait=30
MinJobAge=3600
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={one} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={two} CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""
# two runs of about half a minute
SWEEP = dict(NS="4 16", BPS="12", C="8064", JOBS="2", PYTHON=sys.executable, GPUS_PER_RUN="")
WORDS = ["--eval_every=2016", "--save_every=0", "--samples=4"]
CLOCKS = {"wall_s", "gen_s", "train_s", "time", "loading_s", "config", "versions", "commit"}


def values(out):
    """Return {run: records of its log} of a sweep's folder, without times, folders and stops."""
    found = {}
    for path in sorted(Path(out).glob("Bp*/log.jsonl")):
        records = [r for r in read_log(path) if r.get("status") != "stopped"]
        found[path.parent.name] = [{k: v for k, v in r.items() if k not in CLOCKS} for r in records]
    return found


class Cluster:
    """munged, slurmctld and two slurmd, with all files in one temporary folder."""

    def __init__(self):
        self.home, self.daemons = Path(tempfile.mkdtemp(prefix="slurm.")), []
        self.home.chmod(0o755)
        ports = [find_port() for _ in range(3)]
        conf = CONF.format(host=socket.gethostname().split(".")[0], home=self.home, port=ports[0],
                           one=ports[1], two=ports[2])
        (self.home / "slurm.conf").write_text(conf)
        (self.home / "state").mkdir()
        os.environ["SLURM_CONF"] = str(self.home / "slurm.conf")

    def __enter__(self):
        key = self.home / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = [f"--{name}-file={self.home}/munge.{name}" for name in "pid log seed key".split()]
        self.start("munged", "--foreground", "--force", f"--socket={self.home}/munge.socket",
                   *files)
        wait_for((self.home / "munge.socket").exists, f"munged, see {self.home}", 60)
        self.start("slurmctld", "-D")
        for node in ("n1", "n2"):
            self.start("slurmd", "-D", "-N", node)
        wait_for(lambda: shell("sinfo -h -o %T", check=False).split() == ["idle"],
                 f"the nodes, see {self.home}", 60)
        return self

    def start(self, *words):
        with open(self.home / f"{words[0]}.{len(self.daemons)}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(words, stdout=out, stderr=out))

    def __exit__(self, kind, *_):
        subprocess.run(["scancel", "--user=root"], stderr=subprocess.DEVNULL)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait()
        if kind is None:
            shutil.rmtree(self.home)


def find_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def shell(line, check=True, **env):
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env={**os.environ, **env}, text=True,
                          capture_output=True)
    if check and done.returncode:
        raise SystemExit(f"{line}\n{done.stdout}{done.stderr}")
    return done.stdout


class Walk:
    """One command of the docs: submits its jobs, and reads their logs from one folder."""

    def __init__(self, name, home, words=()):
        self.out, self.log = home / name, home / f"{name}.%j.txt"
        self.env = dict(SWEEP, OUT=str(self.out))
        self.words = shlex.join([*WORDS, *words])

    def commands(self):
        """Write the training commands to a file, as in the docs, and return its path."""
        path = self.out.with_suffix(".commands")
        path.write_text(shell(f"DRY_RUN=1 bash run_sweep.sh easy {self.words}", **self.env))
        return path

    def submit(self, words):
        """Run sbatch with these words. Return the number of the job."""
        line = f"sbatch --parsable --output={self.log} {words}"
        return shell(line, **self.env).strip()

    def array(self):
        path = self.commands()
        lines = len(path.read_text().splitlines())
        return self.submit(f"--array=1-{lines} --cpus-per-task=1 --mem=0 --time=20 "
                           "--signal=B:TERM@60 --wrap 'line=$(sed -n ${SLURM_ARRAY_TASK_ID}p "
                           f"{path}); exec bash -c \"exec env ${{line:?}}\"'")

    def begun(self, runs=2, updates=8):
        """Wait until this many runs have made some updates."""
        wait_for(lambda: sum(len(r) > updates for r in values(self.out).values()) >= runs,
                 f"updates in {self.out}")

    def statuses(self):
        return sorted(read_log(p)[-1].get("status", "") for p in self.out.glob("Bp*/log.jsonl"))


def wait_for(what, name, seconds=400):
    """Poll until `what()` is true; exit with the state of all jobs after `seconds`."""
    end = time.time() + seconds
    while not what():
        if time.time() > end:
            jobs = shell("squeue; sacct 2>&1; scontrol show job", check=False)
            raise SystemExit(f"waited {seconds} s for {name}\n{jobs}")
        time.sleep(0.3)


def ended(job):
    """Wait until a job has ended. Return the states and exit codes of its tasks as a text."""
    def states():
        return re.findall(r"JobState=(\w+)", shell(f"scontrol show job {job}"))
    busy = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED"}
    wait_for(lambda: not busy & set(states()), f"the end of job {job}")
    codes = re.findall(r"ExitCode=(\d+:\d+)", shell(f"scontrol show job {job}"))
    return ", ".join(sorted({f"{s} {c}" for s, c in zip(states(), codes)}))


# --------------------------------------------------------------------------------------------------
# The tests. Each returns a text with the states of its jobs

def term(walk):
    """Send SIGTERM to the tasks of an array, as `--signal=B:TERM@600` does. Submit it again."""
    job = walk.array()
    walk.begun()
    shell(f"scancel --batch --signal=TERM {job}")
    seen = f"{ended(job)}, logs {set(walk.statuses())}"
    return f"{seen}; again: {ended(walk.array())}"


def requeue(walk):
    """Requeue a job: Slurm ends it with SIGTERM and SIGKILL and starts it again."""
    job = walk.array()
    walk.begun()
    for i in (1, 2):
        shell(f"scontrol requeue {job}_{i}")
    return ended(job)


def node(walk):
    """Submit the sweep as one job, stop it with SIGTERM, continue it; then sbatch run_sweep.sh."""
    words = "--cpus-per-task=2 --mem=0 --time=20 "
    job = walk.submit(f"{words}--signal=B:TERM@60 "
                      f"--wrap 'exec bash run_sweep.sh easy {walk.words}'")
    walk.begun()
    shell(f"scancel --batch --signal=TERM {job}")
    seen = f"{ended(job)}, logs {set(walk.statuses())}"
    job = walk.submit(f"{words}--signal=B:TERM@60 run_sweep.sh easy {walk.words}")
    return f"{seen}; again, by sbatch run_sweep.sh: {ended(job)}"


def steps(walk):
    """Start each run as a step of the job with LAUNCH. SIGTERM goes only to the steps."""
    walk.env["LAUNCH"] = "srun -N1 -n1 --exact --mem=0"
    words = (f"-N2 --ntasks-per-node=1 --cpus-per-task=1 --mem=0 --time=20 --signal=TERM@60 --wrap "
             f"'exec bash run_sweep.sh easy {walk.words}'")
    job = walk.submit(words)
    walk.begun()
    shell(f"scancel --signal=TERM {job}")
    return f"{ended(job)}, logs {set(walk.statuses())}; again: {ended(walk.submit(words))}"


def torchrun(walk):
    """Train one run on both nodes."""
    line = walk.commands().read_text().splitlines()[0]
    words = line[line.index("train_grpo.py"):]
    start = (f"{sys.executable} -m torch.distributed.run --nnodes=2 --nproc_per_node=1 "
             f"--rdzv_backend=c10d --rdzv_endpoint=127.0.0.1:{find_port()} --shutdown-timeout=600 "
             f"-- {words}")
    return ended(walk.submit("-N2 --ntasks-per-node=1 --cpus-per-task=1 --mem=0 --time=20 "
                             f"--wrap {shlex.quote(f'exec srun {start}')}"))


def undisturbed(walk, ranks=1):
    for line in walk.commands().read_text().splitlines():
        words = line[line.index("train_grpo.py"):]
        start = [sys.executable]
        if ranks > 1:
            start += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}",
                      "--"]
        shell(shlex.join(start) + " " + words)
        if ranks > 1:
            break
    return values(walk.out)


def main(names):
    walks = dict(array=lambda walk: ended(walk.array()), term=term, requeue=requeue, node=node,
                 steps=steps, torchrun=torchrun)
    for key in [key for key in os.environ if key.startswith("SLURM")]:
        del os.environ[key]
    home = Path(tempfile.mkdtemp(prefix="walks."))
    shell(f"{sys.executable} -m core.prepare easy --runs={home}/none", PYTHON=sys.executable)
    alone = undisturbed(Walk("alone", home))
    two = undisturbed(Walk("two", home), ranks=2) if not names or "torchrun" in names else {}
    bad = 0
    print("| walk | what became of it | logs |\n|---|---|---|", flush=True)
    with Cluster():
        for name in names or walks:
            walk, want = Walk(name, home), two if name == "torchrun" else alone
            seen, got = walks[name](walk), values(walk.out)
            same = sum(got.get(run) == records for run, records in want.items())
            bad += same < len(want)
            print(f"| {walks[name].__doc__ or name} | {seen} | {same} of {len(want)} equal |",
                  flush=True)
    if not bad:
        shutil.rmtree(home)
    return bad


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    sys.exit(main(sys.argv[1:]))
