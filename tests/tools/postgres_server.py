"""A PostgreSQL server for tests: in a folder of its own, on a socket there, without a network port."""
import os
import pathlib
import shutil
import subprocess


def programs():
    """Where Debian's package has them; None when it is not installed."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


class Server:
    """Runs from start to stop."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres")
        self._run("initdb", "--no-sync", "-A", "trust", "-U", "postgres", "-D", self.folder / "data")

    def _run(self, name, *words):
        # The server refuses to run as root.
        prefix = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        with open(self.folder / "commands.log", "ab") as log:
            subprocess.run([*prefix, programs() / name, *words], cwd=self.folder, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self):
        self._run("pg_ctl", "-w", "-D", self.folder / "data", "-l", self.folder / "data" / "log",
                  "-o", f"-k {self.folder} -c listen_addresses= -c fsync=off", "start")

    def stop(self):
        """As a crash would: no connection is told."""
        self._run("pg_ctl", "-w", "-m", "immediate", "-D", self.folder / "data", "stop")

    def new_database(self, name):
        """Its URL."""
        self._run("createdb", "-h", self.folder, "-U", "postgres", name)
        return f"postgresql:///{name}?host={self.folder}&user=postgres"

    @staticmethod
    def query(url, sql):
        """The rows of the last statement, as texts."""
        done = subprocess.run([programs() / "psql", "-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", sql, url], text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return [line.split("\t") for line in done.stdout.splitlines()]
