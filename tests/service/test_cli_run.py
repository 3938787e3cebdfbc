"""`podwright run` and `replay`."""

from __future__ import annotations

import ast
import base64
import json
import os
import pty
import shlex
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.forked import run_forked
from tests.helpers import environment
from tests.service.support import (
    AGENT,
    Command,
    Shell,
    check_end,
    wait_for_line,
)

from podwright import ExecutionResult
from podwright.testing import assert_events

MODULE = (
    "import asyncio\n"
    "from podwright import Agent, AgentStep, ApprovalStep, FunctionModel, FunctionStep\n"
    "from podwright import ScriptedModel, Workflow\n"
    "first = Agent('first', 'Do.', 'offline/echo')\n"
    "last = Agent('last', 'Do.', 'offline/echo')\n"
    "broken = Agent('broken', 'Do.', FunctionModel(lambda request: 1 / 0))\n"
    "async def wait(request):\n    print('called', flush=True)\n    await asyncio.sleep(60)\n"
    "slow = Agent('slow', 'Do.', FunctionModel(wait))\n"
    "gated = Workflow('gated', [first, ApprovalStep('Publish?', 'ask'), last])\n"
    "failing = Workflow('failing', [first, broken])\n"
    "waiting = Workflow('waiting', [first, slow])\n"
    "inputs = {'customer': {'type': 'string', 'description': 'Who asks.'},\n"
    "          'count': {'type': 'integer'}, 'tags': {'type': 'array', 'default': []}}\n"
    "def show(count, comment):\n    return f'{count} {comment}'.strip()\n"
    "edit = {'count': {'type': 'integer'}, 'word': {'type': 'string'}}\n"
    "options = ['go', 'redo', 'reject']\n"
    "review = ApprovalStep('Go?', 'review', options=options, edit=edit, on_reject=[])\n"
    "shown = FunctionStep(show, {'count': '{count}', 'comment': '{review.comment}'})\n"
    "chosen = Workflow('chosen', [review, shown], inputs={'count': {'type': 'integer'},\n"
    "                  'word': {'type': 'string', 'default': ''}})\n"
    "schema = {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n']}\n"
    "counter = Agent('counter', 'Count.', ScriptedModel('{\"n\":1}'), response_model=schema)\n"
    "step = AgentStep(first, input='{customer} {count} {tags}')\n"
    "typed = Workflow('typed', [step, AgentStep(counter)], inputs=inputs)\n"
)
CONTROL_CODES = "\x1b]0;title\x07\x1b[2J\x9b31m"
"""Set a terminal's title, clear it, and turn its text red."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module of components."""
    (tmp_path / "made.py").write_text(MODULE)
    return tmp_path


def test_only_the_output_is_on_standard_output(
    shell: Shell, folder: Path
) -> None:
    """The output is on standard output, the steps are on standard error without colours, unless `--quiet`."""
    done = shell("run", "made:first", "the moon")
    assert (done.returncode, done.stdout) == (0, "Echo: the moon\n")
    assert "first" in done.stderr
    assert "\x1b" not in done.stderr
    assert shell("run", "made:first", "the moon", "--quiet").stderr == ""


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_the_input_from_a_pipe(
    shell: Shell, folder: Path, arguments: list[str]
) -> None:
    """Without INPUT, or with `-`, the input is standard input."""
    assert (
        shell(
            "run", "made:first", *arguments, "-q", stdin="from a pipe\n"
        ).stdout
        == "Echo: from a pipe\n"
    )


def test_named_inputs(shell: Shell, folder: Path) -> None:
    """`--inputs` is an object or a file, next to INPUT; the context of a workflow is printed as JSON."""
    context = json.loads(
        shell(
            "run",
            "made:gated",
            "--inputs",
            '{"input": "a"}',
            "--resume-path",
            "2",
            "-q",
        ).stdout
    )
    assert context["last_output"] == "Echo: a"
    (folder / "inputs.json").write_text('{"style": "dry"}')
    done = shell(
        "run", "made:first", "the moon", "--inputs", "@inputs.json", "-q"
    )
    assert (done.returncode, "the moon" in done.stdout) == (0, True), (
        done.stderr
    )


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
SEEN = (
    "from podwright import Agent, FunctionModel, Pipeline, Workflow\n"
    "def show(request):\n"
    "    content = request.messages[-1].content\n"
    "    return str(content if isinstance(content, str) else list(content))\n"
    "agent = Agent('agent', 'Help.', FunctionModel(show))\n"
    "flow = Workflow('flow', [agent])\n"
    "line = Pipeline('line', [agent])\n"
)


@pytest.mark.parametrize("component", ["agent", "flow", "line"])
def test_images(shell: Shell, tmp_path: Path, component: str) -> None:
    """Files and URLs become parts after the text, for each kind of component; the steps show no data of an image."""
    (tmp_path / "seen.py").write_text(SEEN)
    (tmp_path / "my photo.PNG").write_bytes(PNG)
    (tmp_path / "b.webp").write_bytes(PNG)
    done = shell(
        *("run", f"seen:{component}", "What is it?"),
        *("--image", "my photo.PNG", "--image", "b.webp"),
        *("--image", "https://example.org/c.jpg"),
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    if component == "flow":
        shown = json.loads(done.stdout)["agent_output"]
    text, *images = ast.literal_eval(shown.strip())
    assert text == {"type": "text", "text": "What is it?"}
    urls = [image["image_url"]["url"] for image in images]
    assert urls[2] == "https://example.org/c.jpg"
    for url, media_type in zip(urls, ("png", "webp"), strict=False):
        head, _, data = url.partition(",")
        assert head == f"data:image/{media_type};base64"
        assert base64.b64decode(data) == PNG
    started = done.stderr.splitlines()[0]
    assert "What is it?" in started
    assert "base64" not in started


def test_files(shell: Shell, tmp_path: Path) -> None:
    """The name of a file says what it is; a URL is that of a document. The steps show no data."""
    (tmp_path / "seen.py").write_text(SEEN)
    for name in ("may.pdf", "b.md", "c.mp3", "d.png"):
        (tmp_path / name).write_bytes(b"abc")
    done = shell(
        *("run", "seen:agent", "What is it?"),
        *("--file", "may.pdf", "--file", "b.md", "--file", "c.mp3"),
        *("--file", "d.png", "--file", "https://example.org/e.pdf"),
    )
    assert done.returncode == 0, done.stderr
    _, pdf, text, audio, image, link = ast.literal_eval(done.stdout.strip())
    assert pdf["file"] == {
        "filename": "may.pdf",
        "file_data": "data:application/pdf;base64,YWJj",
    }
    assert text["file"]["file_data"] == "data:text/markdown;base64,YWJj"
    assert audio["input_audio"] == {"data": "YWJj", "format": "mp3"}
    assert image["image_url"]["url"] == "data:image/png;base64,YWJj"
    assert link["file"] == {"file_data": "https://example.org/e.pdf"}
    started = done.stderr.splitlines()[0]
    assert "base64" not in started


@pytest.mark.parametrize(
    "source", ["nameless", "http://example.org/a.pdf", "missing.pdf", "bad.txt"]
)
def test_wrong_files(shell: Shell, tmp_path: Path, source: str) -> None:
    """The error names the file or the option, and no model is called."""
    (tmp_path / "seen.py").write_text(SEEN)
    (tmp_path / "nameless").write_bytes(b"abc")
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    done = shell("run", "seen:agent", "x", "--file", source, "-q")
    assert done.returncode == 1
    assert done.stdout == ""
    if source != "bad.txt":
        assert source in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--inputs", '{"input": "a", "style": "dry"}'], ["a", "dry"]),
        (["-i", "style=dry"], ["dry"]),
        (["-"], []),
    ],
    ids=["named input", "no input", "empty"],
)
def test_an_image_beside_other_inputs(
    shell: Shell, tmp_path: Path, arguments: list[str], expected: list[str]
) -> None:
    """With named inputs the image belongs to `input`; an empty text is left out."""
    (tmp_path / "seen.py").write_text(SEEN)
    url = "https://example.org/c.jpg"
    done = shell(
        "run", "seen:agent", *arguments, "--image", url, "-q", stdin=""
    )
    assert done.returncode == 0, done.stderr
    parts = ast.literal_eval(done.stdout.strip())
    assert parts[-1] == {"type": "image_url", "image_url": {"url": url}}
    texts = "".join(part["text"] for part in parts[:-1])
    for text in expected:
        assert text in texts
    if not expected:
        assert len(parts) == 1


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("notes.txt", "input_invalid"),
        ("nameless", "input_invalid"),
        ("missing.png", "configuration_invalid"),
        ("http://example.org/c.png", "input_invalid"),
    ],
)
def test_what_is_no_image(
    shell: Shell, folder: Path, source: str, code: str
) -> None:
    """Other files, missing ones and other URLs are refused before a model is called."""
    (folder / "notes.txt").write_text("x")
    (folder / "nameless").write_text("x")
    done = shell("run", "made:first", "x", "--image", source, "-q")
    assert done.returncode == 1
    assert code in done.stderr
    if source.startswith("http:"):
        assert "--image" in done.stderr
        assert "https" in done.stderr


@pytest.mark.parametrize(
    ("schema", "takes"),
    [
        ({"type": "string"}, False),
        ({"type": ["string", "null"]}, False),
        ({"type": ["string", "array"]}, True),
        ({}, True),
    ],
    ids=["text", "types", "array", "any"],
)
def test_an_image_for_an_input_that_takes_none(
    shell: Shell, tmp_path: Path, schema: dict[str, Any], takes: bool
) -> None:
    """An image for an input whose type allows none is refused by the name of the option."""
    blueprint = {
        "type": "Agent",
        "version": "1",
        "name": "teller",
        "instructions": "Tell.",
        "config": {"model": "offline/echo"},
        "inputs": {"input": schema},
    }
    (tmp_path / "teller.json").write_text(json.dumps(blueprint))
    url = "https://example.org/c.jpg"
    done = shell("run", "teller.json", "x", "--image", url, "-q")
    assert (done.returncode == 0) == takes, done.stderr
    assert ("Invalid --image: the input 'input'" in done.stderr) != takes


def test_a_file_that_is_no_blueprint(shell: Shell, tmp_path: Path) -> None:
    """A file of a component folder leads to the folder, another file to the endings of blueprint files."""
    shell("new", "sums")
    (tmp_path / "notes.txt").write_text("{")
    for source, expected in (
        ("sums/tools.py", "Give the component folder: 'sums'."),
        ("notes.txt", "ends in .json, .yaml or .yml"),
    ):
        done = shell("run", source, "x")
        assert done.returncode == 1
        assert "is not a blueprint file" in done.stderr
        assert expected in done.stderr


def test_an_agent_that_is_missing(shell: Shell, tmp_path: Path) -> None:
    """The error for a missing agent tells of agents that run elsewhere."""
    blueprint = {
        "type": "Workflow",
        "version": "1",
        "name": "flow",
        "steps": [{"type": "agent_step", "name": "a", "agent": "writer"}],
    }
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow/blueprint.json").write_text(json.dumps(blueprint))
    done = shell("run", "flow", "x")
    assert done.returncode == 1
    assert "PODWRIGHT_AGENTS" in done.stderr


MODELS = """
from podwright import Agent, Conductor, FunctionModel, Pipeline, Workflow, register_provider

def make(name, _):
    return FunctionModel(lambda request: f"{name}: {request.component}", name=f"own/{name}")

register_provider("own", make)
writer = Agent("writer", "Write.", "own/a")
critic = Agent("critic", "Judge.", "own/b")
flow = Workflow("flow", [writer, critic])
"""
"""Agents that answer with the names of their models."""


@pytest.mark.parametrize(
    ("options", "variable", "outputs"),
    [
        ([], "", ["a: writer", "b: critic"]),
        (["writer=own/c"], "", ["c: writer", "b: critic"]),
        (["writer=own/c", "own/d"], "", ["c: writer", "d: critic"]),
        (["writer=own/c,critic=own/d"], "", ["c: writer", "d: critic"]),
        ([], "critic=own/e,own/f", ["f: writer", "e: critic"]),
        (["writer=own/c"], "critic=own/e", ["c: writer", "b: critic"]),
    ],
    ids=["none", "one", "one and all", "commas", "variable", "both"],
)
def test_models_of_single_agents(
    shell: Shell,
    tmp_path: Path,
    options: list[str],
    variable: str,
    outputs: list[str],
) -> None:
    """`--model NAME=MODEL` is the model of one agent, `--model MODEL` that of the others; it replaces the variable."""
    (tmp_path / "made.py").write_text(MODELS)
    arguments = [f"--model={option}" for option in options]
    done = shell(
        *("run", "made:flow", "x", "-q", *arguments), PODWRIGHT_MODEL=variable
    )
    assert done.returncode == 0, done.stderr
    context = json.loads(done.stdout)
    assert [context["writer_output"], context["critic_output"]] == outputs


@pytest.mark.parametrize(
    "command",
    [
        ["run", "made:flow", "x"],
        ["chat", "made:flow"],
        ["settings", "made:flow", "--check"],
        ["serve", "made:flow", "--port", "0"],
        ["validate", "made:flow"],
    ],
    ids=["run", "chat", "settings", "serve", "validate"],
)
def test_a_model_for_an_agent_that_does_not_exist(
    shell: Shell, tmp_path: Path, command: list[str]
) -> None:
    """Every command that takes models refuses one for an unknown agent, and names those that exist."""
    (tmp_path / "made.py").write_text(MODELS)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    file = secrets / "podwright_model"
    variables = {"PODWRIGHT_SECRETS_DIR": str(secrets)}
    for place, arguments, variable in (
        ("--model", ["--model", "reader=own/c"], "own/d"),
        ("PODWRIGHT_MODEL", [], "own/d,reader=own/c"),
        (str(file), [], ""),
    ):
        if place == str(file):
            file.write_text("reader=own/c")
        done = shell(
            *command, *arguments, PODWRIGHT_MODEL=variable, **variables
        )
        printed = done.stdout + done.stderr
        assert done.returncode == 1
        assert f"'{place}' has a model for 'reader'" in printed
        assert "Known names: critic, writer." in printed


def test_declared_inputs(shell: Shell, folder: Path) -> None:
    """A value is JSON where the input is not a text; structured answers are printed as JSON."""
    done = shell(
        *("run", "made:typed", "-q", "--inputs", '{"customer": "7"}'),
        *("--input", "count=3", "-i", 'tags=["a", 1]'),
    )
    context = json.loads(done.stdout)
    assert context["first_output"] == 'Echo: 7 3 ["a", 1]'
    assert (context["counter_output"], context["count"]) == ({"n": 1}, 3)
    done = shell(
        *("run", "made:typed", "-q"),
        *("-i", "customer=7", "-i", "count=3"),
    )
    assert json.loads(done.stdout)["first_output"] == "Echo: 7 3 []"
    assert json.loads(shell("run", "made:counter", "x", "-q").stdout) == {
        "n": 1
    }


def test_wrong_inputs(shell: Shell, folder: Path) -> None:
    """All that is missing or wrong is told at once, with what the component takes, and standard input is not read."""
    for arguments, places in (
        ([], ["/customer", "/count"]),
        (["-i", "count=many"], ["/customer", "/count"]),
        (["-i", "count=1", "-i", "cuont=1"], ["/customer", "/cuont"]),
    ):
        done = shell("run", "made:typed", *arguments)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert "[inputs_invalid]" in done.stderr
        lines = [line.strip() for line in done.stderr.splitlines()]
        assert [
            line.partition(":")[0].removeprefix("- ")
            for line in lines
            if line.startswith("- /")
        ] == places
        for described in (
            "customer (string, required)",
            "count (integer, required)",
            "tags (array, default [])",
        ):
            assert described in done.stderr


def test_the_inputs_of_a_component(shell: Shell, folder: Path) -> None:
    """`inputs` prints name, type, default and description, or the schemas."""
    lines = shell("inputs", "made:typed").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["input", "type", "default", "description"],
        ["customer", "string", "required", "Who", "asks."],
        ["count", "integer", "required"],
        ["tags", "array", "[]"],
    ]
    schemas = json.loads(shell("inputs", "made:typed", "--json").stdout)
    assert schemas["customer"]["description"] == "Who asks."
    done = shell("inputs", "made:first")
    assert (done.returncode, done.stdout) == (0, "")
    assert "'first'" in done.stderr


def test_unused_keys_are_logged_once(shell: Shell, tmp_path: Path) -> None:
    """A key of `config` that is not used has a line with its place when a blueprint is loaded to run."""
    blueprint = {**AGENT, "config": {**AGENT["config"], "top_k": 1, "x": 2}}
    path = tmp_path / "writer.json"
    path.write_text(json.dumps(blueprint))
    (tmp_path / "made.py").write_text(
        "import json\nfrom podwright import Agent, Workflow\n"
        "writer = Agent.from_blueprint(json.load(open('writer.json')))\n"
        "flow = Workflow('flow', [writer, writer])\n"
    )
    for component in (str(path), "made:flow"):
        done = shell("run", component, "x", "-q")
        assert done.returncode == 0
        lines = done.stderr.splitlines()
        assert len(lines) == 2
        for line, pointer in zip(
            lines, ["/config/top_k", "/config/x"], strict=True
        ):
            assert "'writer'" in line
            assert pointer in line


def test_a_trace_is_written_and_replayed(shell: Shell, folder: Path) -> None:
    """`--trace` writes what `replay` prints and the library reads."""
    assert (
        shell(
            "run", "made:first", "the moon", "--trace", "t.json", "-q"
        ).returncode
        == 0
    )
    trace = (folder / "t.json").read_text()
    result = ExecutionResult.from_dict(json.loads(trace))
    assert result.value == "Echo: the moon"
    assert_events(result, "run_started", "model_call_finished", "run_finished")
    for arguments, text in (
        (["t.json", "--delay", "0.01"], ""),
        (["-"], trace),
    ):
        done = shell("replay", *arguments, stdin=text)
        assert (done.returncode, done.stderr) == (0, "")
        assert "the moon" in done.stdout.splitlines()[0]
    assert (
        "Invalid delay inf"
        in shell("replay", "t.json", "--delay", "inf").stderr
    )


def test_a_failed_run(shell: Shell, folder: Path) -> None:
    """A failed run has exit code 1, a trace with the failure, and the context to resume it."""
    done = shell(
        "run",
        "made:failing",
        "x",
        "--trace",
        "t.json",
        "--context",
        "c.json",
        "-q",
    )
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (
        1,
        "",
        False,
    )
    assert "ZeroDivisionError" in done.stderr
    assert_events(
        ExecutionResult.from_dict(json.loads((folder / "t.json").read_text())),
        "run_started",
        "run_failed",
    )
    assert (
        "podwright run made:failing --inputs @c.json --resume-path 1\n"
        in done.stderr
    )
    assert (
        json.loads((folder / "c.json").read_text())["first_output"] == "Echo: x"
    )


def test_a_run_that_does_not_stop_writes_no_context(
    shell: Shell, folder: Path
) -> None:
    """A complete run does not write the file of `--context`."""
    done = shell(
        "run",
        "made:gated",
        "x",
        "--resume-path",
        "2",
        "--context",
        "c.json",
        "-q",
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "c.json").exists()


def test_a_workflow_that_waits_for_approval_resumes(
    shell: Shell, folder: Path
) -> None:
    """A pause has exit code 3; the printed command resumes after the approval."""
    done = shell(
        "run", "made:gated", "the moon", "--context", "state of it.json", "-q"
    )
    assert (done.returncode, done.stdout) == (3, "")
    [line] = [
        line for line in done.stderr.splitlines() if ": podwright run" in line
    ]
    resumed = shell(*shlex.split(line.partition(": podwright ")[2]))
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["last_output"].endswith(
        "first_output Echo: the moon"
    )
    assert "[first]" not in resumed.stderr


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--decision", "reject"], "0"),
        (["--decision", "redo", "--comment", "Why?"], "0 Why?"),
        (["--decision", "go", "--value", "count=3"], "3"),
        (["--decision", "go", "--value", "word=3"], "0"),
    ],
)
def test_a_decision_on_the_command_line(
    shell: Shell, folder: Path, options: list[str], shown: str
) -> None:
    """The printed command says where the decision goes; values are data if the schema says so."""
    done = shell("run", "made:chosen", "--input", "count=0", "--context", "c")
    assert done.returncode == 3
    assert "Decide one of: go, redo, reject" in done.stderr
    _, _, line = done.stderr.partition("To resume: podwright ")
    command = shlex.split(line)
    position = command.index("DECISION") - 1
    command[position : position + 2] = options
    decided = shell(*command, "-q")
    assert decided.returncode == 0, decided.stderr
    assert json.loads(decided.stdout)["show_output"] == shown


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--decision", "approve"], "Unknown decision 'approve'"),
        (["--decision", "go", "--value", "count=x"], "/values/count"),
        (["--decision", "go", "--value", "count"], "--value NAME=VALUE"),
    ],
)
def test_a_wrong_decision_on_the_command_line(
    shell: Shell, folder: Path, options: list[str], reason: str
) -> None:
    """It is refused; the question stays open."""
    shell("run", "made:chosen", "--input", "count=0", "--context", "c", "-q")
    done = shell(
        "run", "made:chosen", "--inputs", "@c", "--resume-path", "0", *options
    )
    assert done.returncode == 1
    assert reason in done.stderr
    assert shell("run", "made:first", "x", *options).returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_run(
    command: Command, folder: Path, number: signal.Signals
) -> None:
    """An interrupted run has exit code 130 and can resume."""
    process = command(
        "run", "made:waiting", "x", "--context", "c.json", cwd=folder
    )
    wait_for_line(process, "called")
    process.send_signal(number)
    assert "--resume-path 1" in check_end(process, 130)
    assert (
        json.loads((folder / "c.json").read_text())["first_output"] == "Echo: x"
    )


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_before_the_run(
    command: Command, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """A signal while the component is loaded ends the command with the usual exit code, without a traceback."""
    (tmp_path / "slow.py").write_text(
        "import time\nprint('loading', flush=True)\ntime.sleep(30)\n"
    )
    process = command("run", "slow:agent", "x", cwd=tmp_path)
    wait_for_line(process, "loading")
    process.send_signal(number)
    assert check_end(process, code) == ""


def test_the_limits_of_the_settings(shell: Shell, folder: Path) -> None:
    """`run` has the limits of the PODWRIGHT_RUN_ settings."""
    done = shell("run", "made:first", "x", "-q", PODWRIGHT_RUN_MODEL_CALLS="0")
    assert (done.returncode, "limit_exceeded" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "made:frist", "x"], "configuration_invalid"),
        (["run", "made:first", "--inputs", "{"], "input_invalid"),
        (["run", "made:first", "--inputs", '{"input": NaN}'], "input_invalid"),
        (
            ["run", "made:first", "--inputs", "@nowhere.json"],
            "configuration_invalid",
        ),
        (
            ["run", "made:first", "x", "--inputs", '{"input": "y"}'],
            "input_invalid",
        ),
        (["run", "made:first", "-i", "x"], "input_invalid"),
        (["run", "made:first", "-i", "a=1", "-i", "a=2"], "input_invalid"),
        (["run", "made:first", "x", "-i", "input=y"], "input_invalid"),
        (["run", "made:first", "x", "--resume-path", "1"], "input_invalid"),
        (
            ["run", "made:gated", "x", "--resume-path", "9"],
            "resume_path_invalid",
        ),
        (
            ["run", "made:first", "x", "--trace", "no/where.json"],
            "configuration_invalid",
        ),
        (
            ["run", "made:first", "x", "--model", "offline/ecco"],
            "model_unknown",
        ),
        (["replay", "made.py"], "trace_invalid"),
        (["replay", "nowhere.json"], "configuration_invalid"),
    ],
)
def test_mistakes(
    shell: Shell, folder: Path, arguments: list[str], code: str
) -> None:
    """A mistake is one error with its code on standard error, and exit code 1."""
    done = shell(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert f"[{code}]" in done.stderr
    assert done.stderr.count("Suggestion:") == 1
    assert "Traceback" not in done.stderr


def test_a_full_disk(shell: Shell, folder: Path) -> None:
    """The output is printed even if its trace cannot be written."""
    done = shell("run", "made:first", "x", "--trace", "/dev/full", "-q")
    assert (done.returncode, done.stdout) == (1, "Echo: x\n")
    assert "/dev/full" in done.stderr


def on_terminal(folder: Path, *arguments: str, **variables: str) -> str:
    """Run `podwright` on a terminal, and return what it prints there."""
    screen_file, terminal = pty.openpty()
    name = os.ttyname(terminal)
    output = b""
    with (
        os.fdopen(screen_file, "rb", buffering=0) as screen,
        ThreadPoolExecutor() as pool,
    ):
        done = pool.submit(
            run_forked,
            arguments,
            folder,
            environment(**variables),
            (name, name, name),
        )
        done.add_done_callback(lambda _: os.close(terminal))
        try:
            while chunk := screen.read(65536):
                output += chunk
        except OSError:  # Linux reports the closed terminal so
            pass
    done.result()
    return output.decode(errors="replace")


ON_TERMINAL: dict[str, tuple[list[str], dict[str, str]]] = {
    "an output": (["run", "a.json", CONTROL_CODES], {}),
    "a change": (["diff", "a.json", "changed.json"], {}),
    "a problem": (["validate", "key.json"], {}),
    "an error": (["schema", CONTROL_CODES], {}),
    "a setting": (["settings"], {"PODWRIGHT_TITLE": CONTROL_CODES}),
}


@pytest.mark.parametrize(
    ("arguments", "variables"), ON_TERMINAL.values(), ids=ON_TERMINAL
)
def test_control_characters_are_replaced_on_a_terminal(
    tmp_path: Path, arguments: list[str], variables: dict[str, str]
) -> None:
    """Text of models, blueprints, settings and arguments cannot control the terminal."""
    changed = {
        **AGENT,
        "name": f"a{CONTROL_CODES}",
        "instructions": CONTROL_CODES,
    }
    for name, blueprint in (
        ("a", AGENT),
        ("changed", changed),
        ("key", {**AGENT, CONTROL_CODES: 1}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(blueprint))
    output = on_terminal(tmp_path, *arguments, **variables)
    assert output
    assert not [
        code for code in ("\x1b]", "\x07", "\x1b[2J", "\x9b") if code in output
    ], output
