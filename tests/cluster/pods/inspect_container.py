"""Prints what a container is inside, as JSON."""

import json
import os
import pathlib
import tempfile


def is_writable(folder):
    try:
        pathlib.Path(folder, "x").write_text("")
    except OSError:
        return False
    return True


def files(folder):
    return {
        file.name: file.read_text()
        for file in pathlib.Path(folder).iterdir()
        if file.is_file()
    }


def limit(*files):
    """The numbers of the first file that exists: version 2 of cgroups has other files than version 1."""
    path = next(
        path
        for file in files
        if (path := pathlib.Path("/sys/fs/cgroup", file)).exists()
    )
    return [int(number) for number in path.read_text().split()]


status = dict(
    line.split(":\t", 1)
    for line in pathlib.Path("/proc/self/status").read_text().splitlines()
    if ":\t" in line
)
quota = limit("cpu.max", "cpu/cpu.cfs_quota_us")
period = quota[1:] or limit("cpu/cpu.cfs_period_us")
print(
    json.dumps(
        {
            "ids": [os.getuid(), os.getgid()],
            "capabilities": [
                int(status[name], 16) for name in ("CapEff", "CapBnd", "CapPrm")
            ],
            "restrictions": [int(status["NoNewPrivs"]), int(status["Seccomp"])],
            "writable": [
                *filter(
                    is_writable,
                    (
                        "/",
                        "/component",
                        "/run/podwright",
                        "/opt/podwright",
                        tempfile.gettempdir(),
                    ),
                )
            ],
            "component": files("/component"),
            "keys": files("/run/podwright"),
            "environment": dict(os.environ),
            "memory": limit("memory.max", "memory/memory.limit_in_bytes")[0],
            "cpus": quota[0] / period[0],
        }
    )
)
