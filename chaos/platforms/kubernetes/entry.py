"""What the container of a member runs first: fills in what only the pod knows, says so, and becomes the member.

    python -I -S entry.py       (with job.json beside it, from the run's ConfigMap)

Its first line on standard output begins a life: the number of the life, clocks, process, addresses. Numbers of lives
grow with every start of a container, wherever: milliseconds of the wall clock. It is copied into the cluster as text,
so it imports the standard library only, and nothing of torchchaos.
"""

import fcntl
import json
import os
import re
import signal
import socket
import struct
import sys
import time

ENTERED = "member_entered"
SCRATCH = "/scratch"
NO_SUCH_COMMAND = 127
_SIOCGIFADDR = 0x8915


def main() -> None:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.json")) as file:
        job = json.load(file)
    member, address = job["members"][os.environ["TORCHCHAOS_POD"]], os.environ["TORCHCHAOS_ADDRESS"]
    incarnation = time.time_ns() // 1_000_000
    os.makedirs(f"{SCRATCH}/disk", exist_ok=True)
    os.chdir(SCRATCH)
    values = {
        "python": job["python"],
        "member": member,
        "incarnation": str(incarnation),
        "address": address,
        "host": socket.gethostname(),
        "data_interface": job["data_interface"],
        # The container's own output, from every process of the pod: its log is what the API server hands out.
        "events": f"/proc/{os.getpid()}/fd/1",
        "scratch": SCRATCH,
        **{f"host:{name}": host for name, host in job["hosts"].items()},
    }
    command = [re.sub(r"\{([^{}]*)\}", lambda match: values[match.group(1)], part) for part in job["commands"][member]]
    clocks = {"mono_s": time.monotonic(), "wall_s": time.time()}
    place = {"pid": os.getpid(), "address": address, "addresses": addresses()}
    print(json.dumps({"kind": ENTERED, **clocks, "member": member, "incarnation": incarnation, **place}), flush=True)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would hand that on.
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(NO_SUCH_COMMAND)


def addresses() -> dict[str, str]:
    """The IPv4 address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _number, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


if __name__ == "__main__":
    main()
