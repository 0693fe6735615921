"""A Slurm cluster of two nodes on this host, for tests: its own ports, folders and key below a temporary folder, nothing of the system's."""
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "srun")
NODES = ("mill1", "mill2")
SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin"])


def missing():
    """Programs that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name, path=SEARCHED)]


def free_ports(count):
    """Ports of the local host that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Cluster:
    """Runs from start to close. `environment` is for programs that talk to it: sbatch, squeue, scontrol."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.processes = []
        self.environment = {**os.environ, "PATH": SEARCHED, "SLURM_CONF": str(self.folder / "slurm.conf")}
        for name in list(self.environment):
            if name.startswith(("SLURM_", "SBATCH_")) and name != "SLURM_CONF":
                del self.environment[name]

    def _spawn(self, name, words):
        log = open(self.folder / f"{name}.out", "wb")
        with log:
            self.processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment))

    def _wait(self, what, is_ready, seconds=60):
        until = time.monotonic() + seconds
        while not is_ready():
            for process in self.processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args[0]} ended with {process.returncode}\n{self.logs()}")
            if time.monotonic() > until:
                raise TimeoutError(f"{what}: not after {seconds} s\n{self.logs()}")
            time.sleep(0.05)

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(self.folder.glob("*.out")))

    def start(self):
        os.chmod(self.folder, 0o755)
        user = pwd.getpwuid(os.getuid()).pw_name
        key, door = self.folder / "munge.key", self.folder / "munge" / "socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        door.parent.mkdir(mode=0o755)
        # --force: the folder may lie below one that others can write, as /tmp.
        self._spawn("munged", [shutil.which("munged", path=SEARCHED), "--foreground", "--force", f"--key-file={key}", f"--socket={door}",
                               f"--pid-file={door.parent}/pid", f"--seed-file={door.parent}/seed", f"--log-file={door.parent}/log", "--num-threads=2"])
        self._wait("munge", door.exists)
        control, *ports = free_ports(1 + len(NODES))
        host = socket.gethostname().split(".")[0]
        try:  # at the host's own address alone, where its name has one
            socket.gethostbyname(host)
            listening = "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny"
        except OSError:
            listening = ""
        # PMIx makes folders of the same names below TmpFS on both nodes.
        for name in ("state", *(f"{kind}-{node}" for kind in ("spool", "tmp") for node in NODES)):
            (self.folder / name).mkdir()
        nodes = "\n".join(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=64 Gres=gpu:1 State=UNKNOWN"
                          for name, port in zip(NODES, ports))
        # The credential's lifetime is also how long a requeued job waits: two minutes by default.
        (self.folder / "slurm.conf").write_text(f"""ClusterName=millrace
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
MailProg=/bin/true
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={door},cred_expire=5
{listening}
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
TmpFS={self.folder}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
ReturnToService=2
KillWait=5
MessageTimeout=30
SchedulerParameters=sched_interval=1,batch_sched_delay=1,sched_min_interval=0
MaxArraySize=100
{nodes}
PartitionName=gpu Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP
""")
        (self.folder / "gres.conf").write_text("".join(f"NodeName={name} Name=gpu File=/dev/null\n" for name in NODES))
        self._spawn("slurmctld", [shutil.which("slurmctld", path=SEARCHED), "-D", "-c", "-f", self.environment["SLURM_CONF"]])
        for name in NODES:
            self._spawn(name, [shutil.which("slurmd", path=SEARCHED), "-D", "-N", name, "-f", self.environment["SLURM_CONF"]])
        self._wait("both nodes idle", lambda: self.run("sinfo", "-h", "-N", "-o", "%N %t").split() == ["mill1", "idle", "mill2", "idle"])
        return self

    def run(self, *words):
        """What a command of the cluster prints; what went wrong, too."""
        done = subprocess.run(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout

    def states(self):
        """How many jobs are in which state."""
        found = {}
        for state in self.run("squeue", "-h", "-r", "-t", "all", "-o", "%T").split():
            found[state] = found.get(state, 0) + 1
        return found

    def wait_for(self, what, is_ready, seconds=60):
        self._wait(what, is_ready, seconds)

    def close(self):
        if len(self.processes) > 1:
            self.run("scancel", "--state=RUNNING", f"--user={pwd.getpwuid(os.getuid()).pw_name}")
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
