"""The image of the Dockerfile, in both flavours."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from tests.conftest import Checkov
from tests.helpers import NEWSROOM, ROOT, needs_ipv6, until
from tests.image.conftest import Start
from tests.image.containers import Layer, layers, tool_entry
from tests.image_support import BASE, Docker

from podwright import __version__

HARDENED = (
    "--read-only --cap-drop ALL --security-opt no-new-privileges --user 65532 --network none --memory 256m "
    "--pids-limit 128"
).split()
OFFLINE = {"PODWRIGHT_MODEL": "offline/echo"}


def mounted(folder: Path) -> str:
    return f"--volume={folder}:/component:ro"


@pytest.mark.parametrize(
    ("flavour", "megabytes"), [("slim", 100), ("full", 400)]
)
def test_size(
    docker: Docker, request: pytest.FixtureRequest, flavour: str, megabytes: int
) -> None:
    """A flavour adds a limited size to its base image."""
    image = request.getfixturevalue(flavour)
    assert (
        docker.inspect(image)["Size"] - docker.inspect(BASE)["Size"]
        <= megabytes * 1_000_000
    )


def test_hardened(image: str, start: Start) -> None:
    """Without network, capabilities and writable files, it is healthy, runs, and drains with exit code 0."""
    container = start(
        image, *HARDENED, mounted(NEWSROOM / "researcher"), **OFFLINE
    ).healthy()
    assert "the moon" in container.post_run({"input": "the moon"})["output"]
    assert container.stop() == 0
    assert "Traceback" not in container.logs()


FILL = """
import itertools
for number in itertools.count():
    with open(f"/dev/shm/other-{number}", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            break
"""
KILL_WORKERS = """
import os, pathlib, signal
parents = {}
for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
    pid, _, _, parent, *_ = file.read_text().split()
    parents[int(pid)] = int(parent)
for pid, parent in parents.items():
    if parents.get(parent) == 1:
        os.kill(pid, signal.SIGKILL)
"""
REQUEST_EVERYTHING = """
import http.client
for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
    for path in ("/run", "/run/stream", "/info", "/openapi.json", "/x", "/health", "/ready", "/metrics", "/docs"):
        for _ in range(3):
            connection = http.client.HTTPConnection("127.0.0.1", 8000)
            connection.request(method, path)
            print(connection.getresponse().status)
            connection.close()
"""


def test_a_full_folder_of_metrics(slim: str, start: Start) -> None:
    """When others fill the memory that metrics are in, running workers go on, new ones begin, and the log says it.

    A process that writes to mapped memory for which there is no room is ended by SIGBUS.
    """
    container = start(
        slim,
        *HARDENED,
        "--tmpfs=/tmp",
        "--shm-size=8m",
        mounted(NEWSROOM / "researcher"),
        **OFFLINE,
        PODWRIGHT_WORKERS="2",
    ).healthy()
    container.run("python", "-c", FILL)
    statuses = container.run("python", "-c", REQUEST_EVERYTHING).split()
    assert len(statuses) == 6 * 9 * 3
    # once for each worker
    assert 1 <= container.logs().count("new series are lost") <= 2
    container.run("python", "-c", KILL_WORKERS)
    lost = re.compile(r"the metrics of process \d+ are lost")
    until(lambda: len(lost.findall(container.logs())) == 2)
    for _ in range(20):
        assert "the moon" in container.post_run({"input": "the moon"})["output"]
    assert "SIGBUS" not in container.logs()
    assert container.stop() == 0


def test_a_page_cannot_rebind_its_name(slim: str, start: Start) -> None:
    """Without keys, a request for a public name is refused, although the container listens on all addresses."""
    container = start(
        slim, *HARDENED, mounted(NEWSROOM / "writer"), **OFFLINE
    ).healthy()
    code = (
        "import sys, http.client as h; c = h.HTTPConnection('127.0.0.1', 8000); "
        "c.request('GET', '/info', headers={'host': sys.argv[1]}); print(c.getresponse().status)"
    )
    statuses = {
        host: container.run("python", "-c", code, host).strip()
        for host in ("evil.example", "writer:8000")
    }
    assert statuses == {"evil.example": "400", "writer:8000": "200"}


ADD_ADDRESS = """
import fcntl, socket, struct
SIOCSIFADDR = 0x8916
address = socket.inet_pton(socket.AF_INET6, "2001:db8::7")
request = struct.pack("16sIi", address, 128, socket.if_nametoindex("lo"))
with socket.socket(socket.AF_INET6) as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFADDR, request)
"""
"""Gives a network namespace, which has nothing but the loopback interface, an IPv6 address."""
FROM_IPV6 = """
import http.client, json, sys
connection = http.client.HTTPConnection("2001:db8::7", 8000, source_address=("2001:db8::7", 0))
connection.request("POST", "/run", json.dumps({"input": "the moon"}), {"content-type": "application/json"})
response = connection.getresponse()
print(response.status, response.read().decode())
"""


@needs_ipv6
def test_ipv6_only(slim: str, docker: Docker, start: Start) -> None:
    """With no IPv4 address but that of loopback, it is healthy, and reached by clients and by callers of a remote."""
    container = start(
        slim,
        *HARDENED,
        "--sysctl=net.ipv6.conf.all.disable_ipv6=0",
        mounted(NEWSROOM / "researcher"),
        **OFFLINE,
    ).healthy()
    root = ("exec", "--privileged", "--user", "0")
    docker(*root, container.id, "python", "-c", ADD_ADDRESS)
    status, _, body = container.run("python", "-c", FROM_IPV6).partition(" ")
    assert status == "200", body
    assert "the moon" in body
    check = container.run("podwright", "check", "http://[2001:db8::7]:8000")
    assert "200" in check
    remote = (
        "from podwright import Remote; "
        "print(Remote('far', 'http://[2001:db8::7]:8000').run('the moon'))"
    )
    assert "the moon" in container.run("python", "-c", remote)


CLAUDE_AND_GEMINI = """
import http.server, json, threading
from podwright import Agent

class Provider(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        said = {"content": [{"type": "text", "text": "Ciao."}], "type": "message", "stop_reason": "end_turn"}
        if not self.path.endswith("/messages"):
            said = {"choices": [{"message": {"content": "Hallo."}, "finish_reason": "stop"}]}
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
for model in ("anthropic/claude-sonnet-5-5", "gemini/gemini-3-pro"):
    print(Agent("guide", "Help.", model, api_key="k", base_url=url).run("Hello?"))
"""


def test_claude_and_gemini(slim: str, start: Start) -> None:
    """The flavour without LiteLLM calls both."""
    container = start(
        slim, *HARDENED, mounted(NEWSROOM / "writer"), **OFFLINE
    ).healthy()
    assert container.run("python", "-c", CLAUDE_AND_GEMINI).split() == [
        "Ciao.",
        "Hallo.",
    ]


def test_any_user_and_several_processes(slim: str, start: Start) -> None:
    """It works the same under an unknown user, as some clusters choose one, and with WEB_CONCURRENCY=2."""
    options = (*HARDENED, "--user", "1234567:0", mounted(NEWSROOM / "writer"))
    container = start(slim, *options, WEB_CONCURRENCY="2", **OFFLINE).healthy()
    assert "the moon" in container.post_run({"input": "the moon"})["output"]
    processes = container.docker(
        "top", container.id, "-eo", "pid,args"
    ).splitlines()
    # a parent and two workers
    assert len([line for line in processes if "python" in line]) >= 3, processes
    assert container.stop() == 0


def test_background_runs(
    docker: Docker, slim: str, full: str, start: Start
) -> None:
    """The image `full` has what they need; `slim` says so."""
    options = (
        *HARDENED,
        "--tmpfs",
        "/data:mode=1777",
        mounted(NEWSROOM / "writer"),
    )
    database = {"PODWRIGHT_RUNS_DATABASE": "sqlite:////data/runs.db"}
    container = start(full, *options, **OFFLINE, **database).healthy()
    run_id = docker(
        "exec", container.id, "podwright", "runs", "start", "the moon"
    ).strip()
    assert "the moon" in docker(
        "exec", container.id, "podwright", "runs", "follow", run_id
    )
    assert container.stop() == 0
    refused = start(slim, *options, **OFFLINE, **database)
    until(lambda: not refused.state()["Running"])
    assert "Use the image 'full'" in refused.logs()


def test_orphaned_processes_are_reaped(
    slim: str, start: Start, tmp_path: Path
) -> None:
    """A process that a tool leaves behind leaves no zombie."""
    config = {"model": "offline/echo"}
    blueprint = {
        "name": "parent",
        "instructions": "Leave.",
        "config": config,
        "tools": [tool_entry("leave")],
    }
    (tmp_path / "blueprint.json").write_text(json.dumps(blueprint))
    (tmp_path / "tools.py").write_text(
        "import subprocess\n\n"
        "def leave() -> str:\n"
        '    """Leave."""\n'
        "    subprocess.run(['sh', '-c', 'sleep 0.2 & sleep 0.3 & sleep 100 &'], check=True)\n"
        "    return 'left'\n"
    )
    tmp_path.chmod(0o755)
    container = start(slim, *HARDENED, mounted(tmp_path)).healthy()
    assert "left" in container.post_run({"input": "go"})["output"]

    def orphans() -> list[str]:
        processes = container.docker(
            "top", container.id, "-eo", "pid,stat,args"
        ).splitlines()
        return [line for line in processes if "sleep" in line or " Z" in line]

    until(
        lambda: len(orphans()) == 1 and "sleep 100" in orphans()[0],
        report=orphans,
    )
    assert container.stop() == 0


def test_exit_codes(docker: Docker, slim: str, start: Start) -> None:
    """Without a component, the exit code is 1; an interrupted run has 130, as on the command line."""
    done = docker.run("run", "--rm", slim)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "blueprint" in done.stderr
    container = start(
        slim,
        "--interactive",
        mounted(NEWSROOM / "writer"),
        command=("run", "/component", "-"),
    )

    def handles_signals() -> bool:
        """Whether a process in the container handles SIGTERM: Python itself handles only SIGINT, and ends with 1."""
        masks = docker.run(
            "exec",
            container.id,
            "sh",
            "-c",
            "grep -h SigCgt /proc/[0-9]*/status",
        ).stdout
        return any(
            int(line.split()[1], 16) & 1 << signal.SIGTERM - 1
            for line in masks.splitlines()
        )

    until(handles_signals)
    docker("kill", "--signal", "INT", container.id)
    assert docker("wait", container.id).strip() == "130"


def test_two_lines(
    docker: Docker, slim: str, start: Start, tag: str, tmp_path: Path
) -> None:
    """Two lines of a Dockerfile add a component."""
    (tmp_path / "Dockerfile").write_text(
        f"FROM {slim}\nCOPY writer /component\n"
    )
    (tmp_path / "writer").mkdir()
    (tmp_path / "writer" / "blueprint.json").write_bytes(
        (NEWSROOM / "writer" / "blueprint.json").read_bytes()
    )
    docker("build", "--quiet", f"--tag={tag}", tmp_path)
    container = start(tag, **OFFLINE).healthy()
    assert container.post_run({"input": "the moon"})["output"].startswith(
        "Echo"
    )
    assert container.stop() == 0


def test_labels(docker: Docker, slim: str) -> None:
    """The image has labels for its version and base image, and runs as a numeric user."""
    config = docker.inspect(slim)["Config"]
    assert config["User"] == "65532:65532"
    assert config["Labels"]["org.opencontainers.image.version"] == "0"
    assert config["Labels"]["org.opencontainers.image.base.name"] == BASE
    assert config["Labels"]["podwright.flavour"] == "slim"
    assert docker("run", "--rm", slim, "--version").strip() == __version__


UNWANTED = re.compile(
    r"(^|/)s?bin/(pip3?|uv|uvx|npm|yarn|apk|apt|apt-get|dpkg|gcc|cc|ld|make|conda|poetry|hatchling)$"
    r"|(^|/)(pip|uv|hatchling|setuptools|ensurepip)(-[\d.]+\.dist-info)?/"
    r"|(^|/)\.(env|git|netrc|pypirc|aws|ssh|docker|cache|npm)(/|$)"
    r"|\.(key|p12|pfx)$|(^|/)id_(rsa|ed25519|ecdsa)$"
    r"|^(root|tmp|var/cache|var/lib/apt|var/tmp|wheels|source|tools)/."
    r"|\.(pth|egg-link|whl)$"
)
SECRET = re.compile(
    rb"BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|ghp_[0-9A-Za-z]{36}|sk-[0-9A-Za-z]{40}"
)

EXAMPLES = {
    "cryptography/hazmat/primitives/serialization/ssh.py",
    "boto3/examples/cloudfront.rst",
    "botocore/data/iam/2010-05-08/examples-1.json",
    "botocore/data/sts/2011-06-15/examples-1.json",
    "litellm/policy_templates_backup.json",
    "litellm/proxy/_experimental/out/_next/static/chunks/2uhncywq69ed4.js",
    "litellm/proxy/public_endpoints/provider_create_fields.json",
}
"""Published files with examples or markers of keys; any other file must be inspected before it is added."""


def test_contents_of_the_layers(docker: Docker, image: str) -> None:
    """Our layers have no installer, secret, cache or start-up hook, no setuid file, and none writable for others."""
    for layer in layers(docker, image, BASE):
        paths = [path for path in layer.entries if "/.wh." not in path]
        files = [entry for entry in layer.entries.values() if entry.isfile()]
        assert [path for path in paths if UNWANTED.search(path)] == []
        assert [entry.name for entry in files if entry.mode & 0o6022] == []
        assert [
            path
            for path, entry in layer.entries.items()
            if path.startswith("opt/") and entry.uid
        ] == []
        sources = {
            path: text
            for path, text in layer.contents.items()
            if not path.endswith(".pyc")
        }
        secrets = [
            path.rpartition("/site-packages/")[2]
            for path, text in sources.items()
            if SECRET.search(text)
        ]
        assert [path for path in secrets if path not in EXAMPLES] == []
    config = json.dumps(
        [
            docker.inspect(image)["Config"],
            docker("history", "--no-trunc", image),
        ]
    )
    assert not re.search(r"(KEY|TOKEN|SECRET|PASSWORD)=", config)


def test_contents_of_the_image(docker: Docker, image: str) -> None:
    """The whole image has no setuid or setgid file, no `.pth` file, no installer, and every module compiled."""
    installers = "import importlib.util as i; print([n for n in ('pip', 'ensurepip', 'setuptools') if i.find_spec(n)])"
    compiled = (
        "import importlib.util as i, pathlib, sysconfig as s;"
        "files = list(pathlib.Path(s.get_path('purelib')).rglob('*.py'));"
        "print(len(files), [str(file) for file in files if not pathlib.Path(i.cache_from_source(file)).exists()])"
    )
    script = f"""
        find / -xdev -type f \\( -perm /6000 -o -name '*.pth' \\) 2>/dev/null
        for name in pip pip3 uv gcc cc make; do command -v $name; done
        for python in python /usr/bin/python3; do $python -c "{installers}"; done
        python -c "{compiled}"
    """
    *found, last = docker.shell(image, script, "--user=0").splitlines()
    assert found == ["[]", "[]"]
    number, missing = last.split(maxsplit=1)
    assert int(number) > 1000
    assert missing == "[]"


def comparable(layer: Layer) -> dict[str, tuple[object, ...]]:
    """The entries of a layer, without the times of deletions, which the engine sets."""
    return {
        path: ("deleted",)
        if "/.wh." in path
        else (
            entry.mtime,
            entry.mode,
            entry.size,
            entry.linkname,
            layer.contents.get(path),
        )
        for path, entry in layer.entries.items()
    }


def test_a_second_build(docker: Docker, slim: str, tag: str) -> None:
    """A second build without cache gives the same files, and the same digest for the layer of our packages."""
    docker(
        "build",
        "--quiet",
        "--no-cache",
        f"--tag={tag}",
        "--build-arg=VERSION=0",
        ROOT,
    )
    first = layers(docker, slim, BASE)
    second = layers(docker, tag, BASE)
    assert [comparable(layer) for layer in first] == [
        comparable(layer) for layer in second
    ]
    [digest] = [
        layer.digest
        for layer in first
        if "opt/podwright/bin/podwright" in layer.entries
    ]
    assert digest in {layer.digest for layer in second}


def test_checkov(checkov: Checkov) -> None:
    """The Dockerfiles pass every check of checkov, except those that are skipped with a reason."""
    files = ["Dockerfile", "service/src/podwright_service/images/Dockerfile"]
    options = [
        "--framework=dockerfile",
        "--output=json",
        "--skip-download",
        "--file",
        *files,
    ]
    done = checkov(*options)
    checks = json.loads(done.stdout)["results"]
    assert [check["check_id"] for check in checks["failed_checks"]] == []
    assert {check["file_path"] for check in checks["passed_checks"]} == set(
        files
    )
    assert all(
        len(check["check_result"]["suppress_comment"]) > 20
        for check in checks["skipped_checks"]
    )
