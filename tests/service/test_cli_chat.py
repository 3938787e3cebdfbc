"""`podwright chat`, on a pseudo-terminal and with piped input."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import COMMAND, environment, until
from tests.service.support import Gate, Serve, Shell

from podwright import Agent, ExecutionResult, FunctionModel, Workflow, tool
from podwright.testing import ModelRequest, ToolCall

MODULE = '''
import asyncio
from podwright import Agent, Conductor, FunctionModel, RunContext, ScriptedModel, Usage, Workflow, tool
from podwright.testing import ModelResponse, ToolCall

def add(a: int, b: int, context: RunContext) -> int:
    """Add."""
    context.report("adding")
    return a + b

async def respond(request):
    texts = [message.text for message in request.messages if message.role == "user"]
    if texts[-1] == "wait":
        print("the model is called", flush=True)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            print("the model call is cancelled", flush=True)
            raise
    if texts[-1] == "fail":
        raise ValueError("no answer")
    if texts[-1] == "add" and request.messages[-1].role == "user":
        return ToolCall("1", "add", '{"a": 2, "b": 3}')
    if texts[-1] == "price":
        return ModelResponse("dear", usage=Usage(1000, 20, 300, cost=0.25))
    return f"{len(texts)} questions: {', '.join(texts)}"

agent = Agent("helper", "Help.", FunctionModel(respond), tools=[add])
plain = Agent("plain", "Help.", FunctionModel(respond))
flow = Workflow("flow", [agent])
plan = '{"steps": [{"skill": "helper", "task": "Say it."}]}'
needy = Agent("needy", "Help {customer}.", FunctionModel(respond), inputs={"customer": {"type": "string"}})
schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
counter = Agent("counter", "Count.", FunctionModel(lambda request: '{"n":1}'), response_model=schema)
def pay(request):
    if request.messages[-1].role == "tool":
        return request.messages[-1].text
    return ToolCall("1", "spend", '{"amount": 5}')

@tool(approval=True)
def spend(amount: int) -> str:
    """Spend."""
    return f"spent {amount}"

def sort(request):
    if request.messages[-1].role == "user" and request.component == "desk":
        return ModelResponse("One moment.", (ToolCall("1", "transfer_to_till", "{}"),))
    return "till speaks"

till = Agent("till", "Bill.", FunctionModel(sort))
desk = Agent("desk", "Sort.", FunctionModel(sort), handoffs=[till])
payer = Agent("payer", "Pay.", FunctionModel(pay), tools=[spend])
lead = Conductor("lead", "Lead.", ScriptedModel(
    plan, ToolCall("1", "helper", '{"task": "Say it."}'), "The end."), [agent], planning=True)
'''
KEY = "a-key-of-a-service-0123456789"
ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Runs a command with its standard input as its controlling terminal, where Ctrl-C is a signal."""
INTERRUPT = "\x03"
END = "\x04"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module of components."""
    (tmp_path / "made.py").write_text(MODULE)
    return tmp_path


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        self.file, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, COMMAND, *arguments], stdin=terminal, stdout=terminal, stderr=terminal,
            cwd=folder, env=environment(TERM="xterm-256color", **variables), start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self.output = ""
        self._seen = 0

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.file, keys.encode())

    def until(self, pattern: str) -> str:
        """Wait until something new on the screen matches, and return what is new up to its end."""
        return until(lambda: self.shows(pattern), report=lambda: self.output)

    def shows(self, pattern: str) -> str:
        """What is new on the screen up to the end of a match; empty if nothing matches."""
        if select.select([self.file], [], [], 0.1)[0]:
            self.output += (
                os.read(self.file, 65536).decode().replace("\r\n", "\n")
            )
        match = re.search(pattern, self.output[self._seen :])
        if match is None:
            return ""
        shown = self.output[self._seen : self._seen + match.end()]
        self._seen += match.end()
        return shown

    def turn(
        self, line: str, pattern: str = r"conversation: .*USD|\n.*cost unknown"
    ) -> str:
        """Enter a line, and return what is shown up to a pattern, by default the last line of a turn."""
        self.type(f"{line}\n")
        shown = self.until(pattern)
        self.until("> $")
        return shown


@contextlib.contextmanager
def on_terminal(
    folder: Path, *arguments: str, **variables: str
) -> Iterator[Terminal]:
    terminal = Terminal(folder, *arguments, **variables)
    try:
        yield terminal
    finally:
        with contextlib.suppress(ProcessLookupError):
            terminal.process.kill()
        terminal.process.wait(timeout=60)
        os.close(terminal.file)


def test_a_conversation(folder: Path, shell: Shell) -> None:
    """A turn sees the turns before it, except cancelled and failed ones; `/save` writes it, `/reset` forgets it."""
    with on_terminal(folder, "chat", "made:agent") as terminal:
        terminal.until(r"helper(.|\n)*> $")
        assert "1 questions: first\n" in terminal.turn("first")
        assert "2 questions: first, second\n" in terminal.turn("second")

        terminal.type("wait\n")
        terminal.until("the model is called")
        terminal.type(INTERRUPT)
        terminal.until("the model call is cancelled")
        terminal.until(r"Cancelled(.|\n)*conversation: (.|\n)*> $")
        assert "no answer" in terminal.turn("fail")
        terminal.type("half a line")
        terminal.until("half a line")
        until(
            lambda: terminal.type(INTERRUPT) or terminal.shows("/quit"),
            pause=0.5,
        )  # Python may miss one in between
        terminal.until("> $")
        assert "3 questions: first, second, third\n" in terminal.turn("third")

        dim = terminal.turn("add")
        assert re.search(
            r"\x1b\[2m\[helper\] calling add\(.*\)\x1b\[0m\n"
            r"\x1b\[2m\[helper\] adding\x1b\[0m\n"
            r"\x1b\[2m\[helper\] add returned: 5\x1b",
            dim,
        )
        assert "4 questions: first, second, third, add\n" in dim
        assert (
            "1000 input (300 cached), 20 output tokens, 0.25 USD; conversation: "
            in terminal.turn("price")
        )
        assert "Did you mean '/save'?" in terminal.turn(
            "/sav trace.json", "suggest|mean.*"
        )
        terminal.turn("/save /nowhere/trace.json", r"Cannot write")
        terminal.turn("/save trace.json", "Saved")
        terminal.turn("/reset", "forgotten")
        shown = terminal.turn("anew")
        assert "1 questions: anew\n" in shown
        turn, conversation = shown.split("turn: ")[1].split("; conversation: ")
        assert turn == conversation.removesuffix("\x1b[0m")
        terminal.type(END)
        assert terminal.process.wait(timeout=60) == 0

    saved = ExecutionResult.from_dict(
        json.loads((folder / "trace.json").read_text())
    )
    asked = [
        message["content"]
        for message in saved.messages
        if message["role"] == "user"
    ]
    assert asked == ["first", "second", "third", "add", "price"]
    assert saved.messages[-1] == {"role": "assistant", "content": "dear"}
    replayed = shell("replay", "trace.json")
    assert (replayed.returncode, "started: price" in replayed.stdout) == (
        0,
        True,
    )


def waits(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process sleeps: before readline waits for a key, a signal is noticed with the next key only."""
    state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2]
    return state.split()[0] == "S"


def test_the_url_of_a_service(folder: Path, serve: Serve) -> None:
    """A service is found by its URL, called with the API key of its name, and a cancelled turn is cancelled there."""
    gate = Gate()
    url = str(serve(gate.agent(), api_keys=KEY).base_url)
    variables = {
        "PODWRIGHT_AGENTS": json.dumps({"aide": url}),
        "PODWRIGHT_AGENT_KEYS": json.dumps({"aide": KEY}),
    }
    with on_terminal(folder, "chat", url, **variables) as terminal:
        terminal.until(r"'aide' \(agent\)(.|\n)*> $")
        terminal.type("first\n")
        until(gate.called.is_set)
        terminal.type(INTERRUPT)
        terminal.until(r"Cancelled(.|\n)*> $")
        until(gate.cancelled.is_set)
        gate.opened.set()
        assert "\ndone\n" in terminal.turn("second")
        terminal.turn("third")
        terminal.turn("/save trace.json", "Saved")
        until(lambda: waits(terminal.process))
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(timeout=60) == 143
    messages = json.loads((folder / "trace.json").read_text())["messages"]
    assert [message["content"] for message in messages] == [
        "second",
        "done",
        "third",
        "done",
    ]


def test_keys_of_services(folder: Path, shell: Shell, serve: Serve) -> None:
    """The key is in an option or a file; without one every turn is an error, and the chat goes on."""
    url = str(
        serve(Agent("echo", "Echo.", "offline/echo"), api_keys=KEY).base_url
    )
    (folder / "key").write_text(f"{KEY}\n")
    assert (
        shell("chat", url, "--api-key", "@key", stdin="one\n").stdout
        == "Echo: one\n"
    )
    files = {"PODWRIGHT_AGENT_KEY_FILES": '{"127.0.0.1": "key"}'}
    assert shell("chat", url, stdin="one\n", **files).stdout == "Echo: one\n"
    refused = shell("chat", url, stdin="one\ntwo\n")
    assert (
        refused.returncode,
        refused.stdout,
        refused.stderr.count("answered 401"),
    ) == (0, "", 2)


SEEN = """
from podwright import Agent, FunctionModel, Workflow

def show(request):
    users = [message for message in request.messages if message.role == "user"]
    if users[-1].text == "fail":
        raise ValueError("no answer")
    return " ".join("text" if isinstance(user.content, str) else
                    "+".join(part["type"] for part in user.content) for user in users)

agent = Agent("agent", "Help.", FunctionModel(show))
flow = Workflow("flow", [agent])
"""


@pytest.mark.parametrize("component", ["agent", "flow", "URL"])
def test_images(
    tmp_path: Path,
    shell: Shell,
    serve: Serve,
    component: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`/image` adds images to the next turn that succeeds; /reset drops them; the chat goes on after a wrong one."""
    (tmp_path / "seen.py").write_text(SEEN)
    (tmp_path / "a.png").write_bytes(b"png")
    path = f"seen:{component}"
    if component == "URL":
        monkeypatch.syspath_prepend(tmp_path)
        path = str(serve(importlib.import_module("seen").agent).base_url)
    lines = [
        *("/image a.png", "/image https://example.org/b.jpg", "fail", "one"),
        *("/image", "/image nothing.txt", "two", "/image a.png", "/reset"),
        "three",
    ]
    done = shell("chat", path, stdin="\n".join(lines) + "\n")
    assert done.returncode == 0
    both = "text+image_url+image_url"
    first, second, third = done.stdout.splitlines()
    assert first == both
    assert third == "text"
    if component == "flow":
        assert second == "text"
    else:
        assert second == f"{both} text"
    assert done.stderr.count("part of the next turn") == 3
    assert "Name a file or an https URL" in done.stderr
    assert "'nothing.txt' is not an image" in done.stderr


def test_files(tmp_path: Path, shell: Shell) -> None:
    """`/file` adds documents and audio to the next turn; the chat goes on after a wrong one."""
    (tmp_path / "seen.py").write_text(SEEN)
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    (tmp_path / "b.wav").write_bytes(b"RIFF")
    lines = [
        *("/file a.pdf", "/file", "/file nameless", "/file b.wav"),
        *("one", "/file a.pdf", "/reset", "two"),
    ]
    done = shell("chat", "seen:agent", stdin="\n".join(lines) + "\n")
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["text+file+input_audio", "text"]
    assert done.stderr.count("part of the next turn") == 3
    assert "Name a file or an https URL" in done.stderr
    assert "'nameless'" in done.stderr


def test_piped_input(folder: Path, shell: Shell) -> None:
    """Without a terminal, each line of the input is a turn; only answers are on standard output, without colours."""
    done = shell(
        "chat",
        "made:plain",
        "--model",
        "offline/echo",
        stdin="one\n\n/help\ntwo",
        FORCE_COLOR="1",
    )
    assert (done.returncode, done.stdout) == (0, "Echo: one\nEcho: two\n")
    assert "/save FILE" in done.stderr
    assert done.stderr.count("turn: ") == 2
    assert "\x1b" not in done.stderr


def test_a_person_is_asked(folder: Path, serve: Serve) -> None:
    """On a terminal, `run` and `chat` ask what a run waits for; wrong decisions are asked for again."""

    def decide(terminal: Terminal, *lines: str) -> None:
        for line in lines:
            terminal.until(r"(Decide|another value|Comment)[^\n]*: $")
            terminal.type(f"{line}\n")

    with on_terminal(folder, "run", "made:payer", "hi") as terminal:
        decide(terminal, "perhaps", "approve", "much", "", "approve", "3")
        decide(terminal, "")
        terminal.until("spent 3")
        assert terminal.process.wait(timeout=60) == 0

    @tool(approval=True)
    def spend(amount: int) -> str:
        """Spend."""
        return f"spent {amount}"

    def pay(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return request.messages[-1].text
        return ToolCall.of("spend", amount=5)

    payer = Agent("payer", "Pay.", FunctionModel(pay), tools=[spend])
    for partner in ("made:payer", str(serve(payer).base_url)):
        with on_terminal(folder, "chat", partner) as terminal:
            terminal.until("> $")
            terminal.type("hi\n")
            decide(terminal, "reject", "Too much.")
            terminal.until("The person says: Too much.")
            terminal.until("> $")
            terminal.type(END)
            assert terminal.process.wait(timeout=60) == 0


def test_a_conductor(folder: Path, shell: Shell) -> None:
    """Of a conductor, only its own answer is printed as one; plan and skills are lines about the turn."""
    done = shell("chat", "made:lead", stdin="go\n")
    assert (done.returncode, done.stdout) == (0, "The end.\n")
    assert "plan: 1. helper: Say it." in done.stderr


def test_a_workflow(folder: Path, shell: Shell, serve: Serve) -> None:
    """A workflow answers with its last output, here and in a service."""
    flow = Workflow("flow", [Agent("echo", "Echo.", "offline/echo")])
    url = str(serve(flow).base_url)
    for partner, prefix in (("made:flow", "1 questions"), (url, "Echo")):
        done = shell("chat", partner, stdin="one\ntwo\n")
        assert (done.returncode, done.stdout) == (
            0,
            f"{prefix}: one\n{prefix}: two\n",
        ), done


def test_options_without_an_effect(
    folder: Path, shell: Shell, serve: Serve
) -> None:
    """Options that are for the other sort of partner are refused."""
    url = str(serve(Agent("echo", "Echo.", "offline/echo")).base_url)
    for arguments in (
        [url, "--model", "offline/echo"],
        ["made:agent", "--api-key", KEY],
    ):
        done = shell("chat", *arguments, stdin="one\n")
        assert (
            done.returncode,
            done.stdout,
            "input_invalid" in done.stderr,
        ) == (
            1,
            "",
            True,
        ), done


def test_what_needs_inputs(folder: Path, shell: Shell, serve: Serve) -> None:
    """A component with an input that has no default is refused at once, here and in a service, with its name."""
    needy = Agent(
        "needy",
        "Help {customer}.",
        "offline/echo",
        inputs={"customer": {"type": "string"}},
    )
    for partner in ("made:needy", str(serve(needy).base_url)):
        done = shell("chat", partner, stdin="one\n")
        assert (done.returncode, done.stdout) == (1, "")
        assert "[inputs_invalid]" in done.stderr
        assert "'customer'" in done.stderr


def test_a_structured_answer_is_printed_once(
    folder: Path, shell: Shell
) -> None:
    """Its streamed text is its JSON already."""
    done = shell("chat", "made:counter", stdin="one\n")
    assert (done.returncode, done.stdout) == (0, '{"n":1}\n'), done


def test_an_agent_that_hands_over(folder: Path, shell: Shell) -> None:
    """What both say is printed as it arrives, once; the next turn is the other one's."""
    done = shell("chat", "made:desk", stdin="price?\nand?\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "One moment.\ntill speaks\ntill speaks\n"
    assert "hands over to till" in done.stderr
