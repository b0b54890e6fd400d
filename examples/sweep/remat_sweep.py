# SPDX-License-Identifier: BSL-1.0
"""A sweep of remat-plan on the workers of dask.distributed.

    python remat_sweep.py GRAPH.json... --budget 0.8,0.5 --work 100000 --out DIR [--scheduler ADDRESS | --workers N]

Takes the arguments of `remat-plan sweep`, and those below. Each piece is a task that runs the program; the dearest begin
first. Pieces are kept in DIR as they end, so a second start does those that are missing, and `remat-plan merge` writes the
results at the end. Without a scheduler's address, the workers are processes on this machine. Other machines need the
program, the graphs and DIR under the same paths.
"""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

try:
    import dask
    from distributed import Client, LocalCluster, as_completed
except ImportError:
    sys.exit("remat_sweep.py: needs the Python package distributed; bash examples/sweep/run.sh installs it")


def die_with_parent():
    """Lets the system end the program of a worker that is killed (Linux): nobody waits for it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def solve_piece(program, arguments, piece, folder, log):
    """Runs on a worker. Returns the last event of the piece, {"event": "kept" or "found", …}."""
    os.chdir(folder)
    command = [program, "sweep", *arguments, "--piece", piece, "--json"]
    before = die_with_parent if sys.platform == "linux" else None
    with open(os.path.join(log, piece + ".jsonl"), "a+b") if log else tempfile.TemporaryFile("w+b") as out:
        out.write(b"\n" if out.tell() else b"")  # whoever wrote before may have been killed in the middle of a line
        out.flush()
        start = out.tell()
        ran = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False, preexec_fn=before)
        out.seek(start)
        lines = out.read().decode().splitlines()
    events = [json.loads(line) for line in lines] if ran.returncode in (0, 1) else []
    if events and events[-1]["event"] in ("kept", "found"):  # if the program's status is 1, the answer is an error
        return events[-1]
    raise RuntimeError(ran.stderr.strip() or f"{program} ended with status {ran.returncode}")


class Table:
    """One line for each graph, drawn again in place on a terminal; otherwise a line for each piece that ends."""

    def __init__(self, pieces):
        self.rows = {}
        self.lines = 0
        self.began = time.monotonic()
        self.live = sys.stdout.isatty()
        for piece in pieces:
            row = self.rows.setdefault(piece["graph"], {"pieces": 0, "done": 0, "solved": 0, "overhead": None, "failed": 0})
            row["pieces"] += 1
            if piece["event"] == "found":
                self.count(row, piece["result"])
        self.total = len(pieces)
        self.ended = sum(row["done"] for row in self.rows.values())
        self.draw()

    @staticmethod
    def count(row, result):
        row["done"] += 1
        if result["overhead"] is not None:
            row["solved"] += 1
            row["overhead"] = max(row["overhead"] or 0, result["overhead"])

    def add(self, piece, event, failure=""):
        row = self.rows[piece["graph"]]
        self.ended += 1
        text = f"{piece['graph']}, {piece['solver']} within {piece['budget_bytes']} bytes, seed {piece['seed']}: "
        if failure:
            row["failed"] += 1
            text += f"failed: {failure}"
        else:
            result = event["result"]
            self.count(row, result)
            text += result["status"]
            if result["overhead"] is not None:
                text += f", overhead {100 * result['overhead']:.2f} %"
        if not self.live:
            print(f"{self.ended}/{self.total} {text}", flush=True)
        self.draw()

    def draw(self):
        if not self.live:
            return
        width = max(len(name) for name in self.rows)
        lines = [f"{'graph':{width}}  done    of  solved  most overhead  failed"]
        for name, row in self.rows.items():
            overhead = "–" if row["overhead"] is None else f"{100 * row['overhead']:.2f} %"
            lines.append(f"{name:{width}}  {row['done']:4}  {row['pieces']:4}  {row['solved']:6}  {overhead:>13}  "
                         f"{row['failed'] or '–':>6}")
        lines.append(f"{self.ended} of {self.total} pieces after {time.monotonic() - self.began:.0f} s")
        if self.lines:
            sys.stdout.write(f"\033[{self.lines}A")
        columns = shutil.get_terminal_size().columns - 1
        sys.stdout.write("".join(f"\033[K{line[:columns]}\n" for line in lines))
        sys.stdout.flush()
        self.lines = len(lines)


def find_program(given):
    beside = pathlib.Path(__file__).resolve().parents[2] / "build/release/examples/remat-plan"
    for path in (given, os.environ.get("REMAT_PLAN"), shutil.which("remat-plan"), beside):
        if path and os.access(path, os.X_OK):
            return str(pathlib.Path(path).resolve())
    sys.exit("remat_sweep.py: remat-plan is missing; expected its path as --program or in REMAT_PLAN")


def connect(args):
    """The client of the cluster that the arguments name, or of one on this machine."""
    if not args.scheduler:
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10s"})
        return Client(LocalCluster(n_workers=args.workers, threads_per_worker=1, dashboard_address=args.dashboard,
                                   memory_limit=None))
    if args.scheduler.endswith(".json"):
        return Client(scheduler_file=args.scheduler)
    return Client(args.scheduler)


def keep_workers(cluster, number):
    """Replaces workers that are lost for good: Dask restarts those that die, but not those that die while they start."""
    while cluster.status.name == "running":
        cluster.scale(number)
        time.sleep(1)


def main():
    parser = argparse.ArgumentParser(
        prog="remat_sweep.py", allow_abbrev=False, description="Runs `remat-plan sweep` on the workers of dask.distributed.",
        epilog="All other arguments are those of remat-plan sweep: graphs, --budget, --solver, --seed, --work, --out, …")
    parser.add_argument("--out", metavar="DIR", required=True, help="the folder of the sweep")
    parser.add_argument("--program", help="the path of remat-plan, on every machine")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster that runs, such as tcp://host:8786, or the "
                        "file that it writes, NAME.json (dask scheduler --scheduler-file)")
    parser.add_argument("--workers", type=int, metavar="N", default=os.cpu_count(),
                        help="processes on this machine; by default one for each processor")
    parser.add_argument("--threads", default="1", metavar="N", help="threads of each solve, 1 by default")
    parser.add_argument("--retries", type=int, default=3, metavar="N", help="how often a piece is tried again when it fails or "
                        "its worker dies, 3 by default")
    parser.add_argument("--dashboard", default=":0", metavar="ADDRESS", help="of the dashboard of a cluster on this machine, "
                        "such as :8787; by default a port that is free")
    parser.add_argument("--log", metavar="DIR", help="keep what the program prints for each piece there")
    args, rest = parser.parse_known_args()
    for word in ("--shard", "--shards", "--piece", "--list", "--json"):
        if any(text == word or text.startswith(word + "=") for text in rest):
            parser.error(f"{word}: this program deals the pieces by itself; leave it out")
    program = find_program(args.program)
    arguments = [*rest, "--out", args.out, "--threads", args.threads]

    listed = subprocess.run([program, "sweep", *arguments, "--list", "--json"], stdout=subprocess.PIPE, text=True, check=False)
    if listed.returncode != 0:
        return listed.returncode  # it has said why
    pieces = [json.loads(line) for line in listed.stdout.splitlines()]
    missing = sorted((p for p in pieces if p["event"] != "found"), key=lambda p: -p["estimated_seconds"])
    print(f"{len(pieces)} piece{'s' * (len(pieces) != 1)}, {len(pieces) - len(missing)} found in {args.out}", flush=True)

    failed = 0
    if missing:
        # A worker that dies may not be the fault of the piece that it had.
        dask.config.set({"distributed.scheduler.allowed-failures": args.retries})
        try:
            client = connect(args)
        except (OSError, ValueError) as error:
            sys.exit(f"remat_sweep.py: --scheduler {args.scheduler}: {error}")
        with client:
            if not args.scheduler:
                threading.Thread(target=keep_workers, args=(client.cluster, args.workers), daemon=True).start()
            print(f"dashboard: {client.dashboard_link}", flush=True)
            table = Table(pieces)
            if args.log:
                os.makedirs(args.log, exist_ok=True)
            futures = {}
            for rank, piece in enumerate(missing):
                key = f"{piece['graph']} {piece['solver']}-{piece['piece']}"  # the dashboard groups by what is before the hash
                future = client.submit(solve_piece, program, arguments, piece["piece"], os.getcwd(), args.log, key=key,
                                       priority=-rank, retries=args.retries, pure=False)
                futures[future] = piece
            for future, result in as_completed(list(futures), with_results=True, raise_errors=False):
                piece = futures.pop(future)
                if future.status == "finished":
                    table.add(piece, result)
                else:
                    failed += 1
                    error = result[1] if isinstance(result, tuple) else result
                    table.add(piece, None, str(error).replace("\n", " "))
                future.release()
            if not args.scheduler:
                client.cluster.close()
    if failed:
        print(f"remat_sweep.py: {failed} piece{'s' * (failed != 1)} failed; the same command tries them again", file=sys.stderr)
        return 1
    return subprocess.run([program, "merge", args.out], check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("remat_sweep.py: ended; finished pieces are kept, and the same command goes on from there", file=sys.stderr)
        sys.exit(130)
