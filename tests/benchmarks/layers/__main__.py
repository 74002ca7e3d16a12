"""What each layer of the core costs while nothing fails: one job, trained by TorchTitan alone and by what is around it.

    python -m tests.benchmarks.layers [--layer NAME ...] [--rounds 5] [--steps 120] [--replicas 2] [--csv FILE]
                                      [--recipe cpu-debug] [--set KEY=VALUE ...] [--no-parts]
    python -m tests.benchmarks.layers --read CSV [CSV ...]

Run by hand on a quiet machine, from the repository's root; `taskset -c 0,1` before it gives every layer two cores.
`torchrun` is TorchTitan under torchrun, with its own data parallelism; `monarch` the same with its ranks as Monarch
actors; `core` the job as it is shipped (controller, lighthouse, TorchFT, a process to fork from), without whoever
watches it (see `overhead`); `core upstream` the same with the timers of the libraries. Model, data, rates and the
number of ranks are the same, so are loss and gradient norm, up to the order in which gradients are summed and divided.
Each round runs all layers, every other one in reverse. Prints a table in Markdown; a rate is from the step `--skip` to
the last. Of a CPU the peak is what it does in a product of matrices with as many processes at once. The parts of a step
come from one more run of `torchrun` and `core` each; on a GPU they say where the main thread waits. `--read` makes one
table of several files, of rounds that ran at once on cores of their own.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.benchmarks.layers.plain import LOG_EVERY
from tests.benchmarks.overhead import mean_and_confidence
from training import process, recipes, workload
from training.progress import EventFiles
from training.settings import Job

LOOK_EVERY_S = 0.5
RUN_S_MAX = 1200.0
SPANS = Path(__file__).parent / "spans"
GIB = 1 << 30
COLUMNS = (
    "round", "layer", "status", "steps_per_s", "to_torchrun", "tokens_per_s", "tflops", "mfu", "loss", "grad_norm",
    "rss_gib", "pss_gib", "gpu_gib", "first_step_s", "load",
)  # fmt: skip
Row = dict[str, Any]


def ranks(*starter: str) -> Callable[[Job, Path], list[str]]:
    def command(job: Job, folder: Path) -> list[str]:
        words = [word.format(replicas=job.replicas) for word in starter]
        return [sys.executable, "-m", *words, msgspec.json.encode(job).decode(), str(folder)]

    return command


def core(*profile: str) -> Callable[[Job, Path], list[str]]:
    """The job as people start it, but that no step is made before all are there."""

    def command(job: Job, folder: Path) -> list[str]:
        flags = workload._flags(job)
        return [sys.executable, "-m", "training", "run", "--out", str(folder), *flags, *profile]

    return command


TORCHRUN, CORE = "torchrun", "core"
LAYERS = {
    TORCHRUN: ranks(
        "torch.distributed.run", "--standalone", "--nproc-per-node={replicas}", "-m", "tests.benchmarks.layers.plain"
    ),
    "monarch": ranks("tests.benchmarks.layers.under_monarch"),
    CORE: core(),
    "core upstream": core("--set", "profile=upstream"),
}


class Memory:
    """The most memory that all processes of a run had at once."""

    def __init__(self, pid: int, on_gpu: bool) -> None:
        self._pid = pid
        self._on_gpu = on_gpu
        self.rss = self.pss = self.gpu = 0

    def look(self) -> None:
        there = list(tree(self._pid))
        self.rss = max(self.rss, sum(number(pid, "status", "VmRSS:") for pid in there))
        if self._on_gpu:
            asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
            told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
            self.gpu = max(self.gpu, sum(map(int, told)) << 20)

    def look_closely(self) -> None:
        """What processes share counted once; that takes a while."""
        self.pss = sum(number(pid, "smaps_rollup", "Pss:") for pid in tree(self._pid))


def tree(pid: int) -> Iterator[int]:
    yield pid
    for child in process.children(pid):
        yield from tree(child)


def number(pid: int, file: str, name: str) -> int:
    """Bytes, from a file about a process; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/{file}").read_text().partition(name)[2].split()[0]) << 10
    except (OSError, IndexError):
        return 0


def run(layer: str, job: Job, skip: int, env: dict[str, str]) -> tuple[Row, Row]:
    """One run of a layer: its row, and what it told of the model."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, told = Path(temporary, "run"), []
        log = Path(temporary, "log")
        with log.open("wb") as said:
            began_s = time.monotonic()
            child = subprocess.Popen(LAYERS[layer](job, folder), env=env, stdout=said, stderr=said)
        memory = Memory(child.pid, recipes.find(job.recipe).device == "cuda")
        files = EventFiles(folder / "events")
        try:
            while child.poll() is None and time.monotonic() - began_s < RUN_S_MAX:
                memory.look()
                told += files.new()
                if not memory.pss and any(event.get("step") == skip // 2 for event in told):
                    memory.look_closely()
                time.sleep(LOOK_EVERY_S)
        finally:
            end(child)
        told += files.new()
        steps = [event for event in told if event["kind"] == "step" and event.get("committed", True)]
        row: Row = {"layer": layer, "status": status(child, steps, job), "load": os.getloadavg()[0]}
        if row["status"] != "done":
            print(log.read_text(errors="replace")[-3000:], file=sys.stderr)
            return row, {}
        last = [event for event in steps if event["step"] == job.steps]
        times_s = {event["step"]: event["mono_s"] for event in steps if event["member"] == "replica-0"}
        row["steps_per_s"] = (job.steps - skip) / (times_s[job.steps] - times_s[skip])
        row["first_step_s"] = times_s[1] - began_s
        row["loss"] = statistics.mean(event["loss"] for event in last)
        row["grad_norm"] = last[0]["grad_norm"]
        row["rss_gib"], row["pss_gib"], row["gpu_gib"] = memory.rss / GIB, memory.pss / GIB, memory.gpu / GIB
        return row, next((event for event in told if event["kind"] == "built"), {})


def status(child: subprocess.Popen[bytes], steps: list[Row], job: Job) -> str:
    if child.returncode:
        return f"exit {child.returncode}"
    missing = job.replicas - len({event["member"] for event in steps if event["step"] == job.steps})
    return f"{missing} of {job.replicas} not done" if missing else "done"


def end(child: subprocess.Popen[bytes]) -> None:
    """In order if it can; otherwise all that it started."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            for pid in reversed(list(tree(child.pid))):
                os.kill(pid, 9)
            child.wait()


def completed(row: Row, reference: Row, model: Row, job: Job, peak_flops: float) -> Row:
    """With what follows from the rate."""
    if row["status"] != "done" or "steps_per_s" not in reference:
        return row
    each_tokens_per_s = row["steps_per_s"] * job.settings.batch * job.settings.seq_len
    flops = each_tokens_per_s * model["flops_per_token"]
    return row | {
        "to_torchrun": row["steps_per_s"] / reference["steps_per_s"],
        "tokens_per_s": each_tokens_per_s * job.replicas,
        "tflops": flops / 1e12,
        "mfu": flops / (model["peak_flops"] or peak_flops),
    }


def cpu_peak_flops(processes: int) -> float:
    """Of each of so many processes at once."""
    command = [sys.executable, "-m", "tests.benchmarks.layers.peak"]
    there = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return statistics.mean(float(one.communicate()[0]) for one in there)


def table(found: list[Row], layers: list[str]) -> Iterator[str]:
    """Medians, but for the ratio, which is the mean of the rounds."""
    yield (
        "| layer | runs | steps/s | to torchrun | tokens/s | TFLOP/s a rank | MFU | loss | gradient norm "
        "| memory GiB, shared once | GPU GiB | first step s |"
    )
    yield "|" + "---|" * 12
    for layer in layers:
        rows = [row for row in found if row["layer"] == layer]
        if not rows:
            continue
        done = [row for row in rows if row["status"] == "done"]
        cells = [layer, f"{len(done)}" if len(done) == len(rows) else f"{len(done)} of {len(rows)}"]
        if done:

            def median(name: str, form: str, done: list[Row] = done) -> str:
                return format(statistics.median(row[name] for row in done), form)

            cells += [
                median("steps_per_s", ".3f"),
                spread([row["to_torchrun"] for row in done if "to_torchrun" in row]),
            ]
            cells += [median("tokens_per_s", ".0f"), median("tflops", ".4g"), median("mfu", ".2%")]
            cells += [median("loss", ".9g"), median("grad_norm", ".9g")]
            cells += [f"{median('rss_gib', '.2f')}, {median('pss_gib', '.2f')}", median("gpu_gib", ".2f")]
            cells += [median("first_step_s", ".1f")]
        yield "| " + " | ".join(cells) + " |"


def stored(files: list[Path]) -> Iterator[Row]:
    words = ("round", "layer", "status")
    for path in files:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                yield {name: told if name in words else float(told) for name, told in row.items() if told}


def spread(ratios: list[float]) -> str:
    """The mean with its 95 % confidence."""
    if len(ratios) < 2:
        return "".join(f"{ratio:.2%}" for ratio in ratios)
    mean, half = mean_and_confidence(ratios)
    return f"{mean:.2%} ± {half:.2%}"


def parts(layer: str, job: Job, skip: int) -> dict[str, float]:
    """Milliseconds of a step by its parts, the mean of all ranks."""
    with tempfile.TemporaryDirectory() as folder:
        env = environment(job)
        env |= {"SPANS": folder, "SPANS_SKIP": str(skip), "PYTHONPATH": f"{SPANS}{os.pathsep}{env['PYTHONPATH']}"}
        row, _ = run(layer, job, skip, env)
        if row["status"] != "done":
            return {}
        told = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
    sums_ms: dict[str, float] = defaultdict(float)
    for one in told:
        for part, seconds in one["seconds"].items():
            sums_ms[part] += 1000 * seconds / one["steps"] / len(told)
    return sums_ms


def parts_table(by_layer: dict[str, dict[str, float]]) -> Iterator[str]:
    named = {part: None for spent in by_layer.values() for part in sorted(spent, key=lambda one: -spent[one])}
    yield f"| part of a step, ms | {' | '.join(by_layer)} |"
    yield "|" + "---|" * (1 + len(by_layer))
    for part in named:
        yield f"| {part} | " + " | ".join(f"{spent.get(part, 0):.2f}" for spent in by_layer.values()) + " |"
    yield "| all | " + " | ".join(f"{sum(spent.values()):.2f}" for spent in by_layer.values()) + " |"


def environment(job: Job) -> dict[str, str]:
    """Of all layers: what members of the job have, and how to find this package."""
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    ours = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "PYTHONPATH": path}
    return os.environ | workload.environment(job) | ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layer", nargs="+", choices=LAYERS, default=list(LAYERS), help="torchrun is run anyway")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--skip", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--recipe", default="cpu-debug")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the job")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--no-parts", action="store_true")
    parser.add_argument("--read", nargs="+", type=Path, metavar="CSV")
    args = parser.parse_args()
    if args.read:
        print("\n".join(table(list(stored(args.read)), list(LAYERS))))
        return
    if args.steps % LOG_EVERY:
        parser.error(f"--steps {args.steps}: TorchTitan tells its loss at every {LOG_EVERY}th step; type --steps 120")
    job = recipes.make_job(
        args.recipe, replicas=args.replicas, min_replicas=args.replicas, steps=args.steps, seed=None, changes=args.set
    )
    recipes.require_device(job.recipe)
    layers = [layer for layer in LAYERS if layer == TORCHRUN or layer in args.layer]
    peak_flops = cpu_peak_flops(job.replicas) if recipes.find(job.recipe).device == "cpu" else 0.0
    found: list[Row] = []
    for round_ in range(1, args.rounds + 1):
        rows: dict[str, Row] = {}
        model: Row = {}
        for layer in layers if round_ % 2 else layers[::-1]:
            rows[layer], told = run(layer, job, args.skip, environment(job))
            model = told or model
            print(rows[layer], file=sys.stderr, flush=True)
        reference = rows[TORCHRUN]
        found += [{"round": round_, **completed(row, reference, model, job, peak_flops)} for row in rows.values()]
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(found)
    print("\n".join(table(found, layers)))
    if not args.no_parts:
        split = [layer for layer in layers if layer in (TORCHRUN, CORE)]
        print("\n" + "\n".join(parts_table({layer: parts(layer, job, args.skip) for layer in split})))


if __name__ == "__main__":
    main()
