"""`podwright validate`, `diff`, `schema`, `graph`, `new` and `settings`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.service.support import AGENT, Shell

import podwright
from podwright.evaluation.suite_schema import suite_schema
from podwright_service.variables import LIBRARY

TOOL = {
    "name": "t",
    "schema": {
        "type": "function",
        "function": {"name": "t", "parameters": {"type": "object"}},
    },
}


def write(path: Path, blueprint: object) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        blueprint if isinstance(blueprint, str) else json.dumps(blueprint)
    )
    return str(path)


def test_the_client_of_each_model(shell: Shell, newsroom: Path) -> None:
    """A valid blueprint says how its model is called, and why."""
    path = str(newsroom / "researcher" / "blueprint.json")
    for name, client, reason in (
        (
            "anthropic/claude-sonnet-5-5",
            "anthropic",
            "anthropic speaks the Messages protocol",
        ),
        ("azure/ours", "openai", "azure speaks Chat Completions"),
        (
            "bedrock/amazon.nova-pro-v1:0",
            "litellm",
            "no other client knows its provider",
        ),
    ):
        keys = {
            "ANTHROPIC_API_KEY": "k",
            "AZURE_API_KEY": "k",
            "AZURE_API_BASE": "https://ours.example",
        }
        done = shell("validate", path, PODWRIGHT_MODEL=name, **keys)
        assert (
            done.stdout.splitlines()[-1]
            == f"{path}: {name}: client '{client}', because {reason}"
        ), done.stderr


def test_valid_blueprints(shell: Shell, newsroom: Path) -> None:
    """Valid files and folders of all kinds have a line each with kind, name and digest, and exit code 0."""
    paths = [
        str(newsroom / name)
        for name in ("newsroom", "desk", "press", "researcher/blueprint.json")
    ]
    done = shell("validate", *paths, PODWRIGHT_MODEL="offline/echo")
    assert (done.returncode, done.stderr) == (0, "")
    kinds = ("workflow", "conductor", "pipeline", "agent")
    lines = [
        line for line in done.stdout.splitlines() if ": client " not in line
    ]
    for path, line, kind in zip(paths, lines, kinds, strict=True):
        assert line.startswith(f"{path}: valid {kind} '")
        assert "sha256:" in line
    assert (
        json.loads(
            shell("validate", "--json", paths[0], OPENAI_API_KEY="k").stdout
        )[0]["kind"]
        == "workflow"
    )


def test_every_problem_of_every_blueprint(shell: Shell, tmp_path: Path) -> None:
    """Every problem of every path has a line with its JSON pointer, and so it has with `--json`."""
    write(tmp_path / "bare" / "blueprint.json", {**AGENT, "tools": [TOOL]})
    until = {
        "name": "all",
        "args": {
            "conditions": [
                {"name": "equals", "args": {"value": "a"}},
                {"name": "ours"},
            ]
        },
    }
    step = {"type": "agent_step", "agent": "unknown", "name": "s"}
    loop = {
        "type": "loop_step",
        "name": "l",
        "steps": [step],
        "until": until,
        "max_iterations": 2,
    }
    paths = [
        write(tmp_path / "wrong.json", {"name": "a", "instruction": 1}),
        write(tmp_path / "broken.json", "{"),
        "bare",
        write(
            tmp_path / "flow.json",
            {"type": "Workflow", "name": "f", "steps": [loop]},
        ),
        "nowhere.json",
        str(tmp_path),
    ]
    done = shell("validate", *paths)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[0].startswith(f"{paths[0]}:/")
    reports = json.loads(shell("validate", "--json", *paths).stdout)
    pointers = {
        report["path"]: {problem["pointer"] for problem in report["problems"]}
        for report in reports
    }
    assert pointers == {
        paths[0]: {"", "/instruction"},
        paths[1]: {""},
        "bare": {"/tools/0"},
        paths[3]: {"/steps/0/until/args/conditions/0/args"},
        "nowhere.json": {""},
        paths[5]: {""},
    }
    assert all(
        f"{path}:{pointer or '/'}:" in done.stdout
        for path in pointers
        for pointer in pointers[path]
    )


def test_unknown_keys_of_config_are_warnings(
    shell: Shell, tmp_path: Path
) -> None:
    """A key of `config` that is not used is a warning, in the text and in the JSON, and the exit code is 0."""
    path = write(
        tmp_path / "a.json",
        {
            **AGENT,
            "config": {"model": "offline/echo", "top_k": 5},
            "metadata": {"a": 1},
        },
    )
    done = shell("validate", path)
    assert (
        done.returncode,
        done.stdout.splitlines()[0].startswith(
            f"{path}:/config/top_k: warning: "
        ),
    ) == (0, True)
    (report,) = json.loads(shell("validate", "--json", path).stdout)
    assert (
        report["valid"],
        [warning["pointer"] for warning in report["warnings"]],
    ) == (
        True,
        ["/config/top_k"],
    )


def test_names_that_nothing_fills(shell: Shell, tmp_path: Path) -> None:
    """Such a name in a step is a problem, one that may be an input is not."""
    agent = {
        **AGENT,
        "name": "writer",
        "instructions": "Be {tone}.",
        "config": {"model": "offline/echo"},
    }
    (tmp_path / "agents" / "writer").mkdir(parents=True)
    write(tmp_path / "agents" / "writer" / "blueprint.json", agent)
    steps = [
        {
            "type": "agent_step",
            "agent": "writer",
            "name": name,
            "input": "{topic}",
        }
        for name in ("a", "b")
    ]
    write(
        tmp_path / "blueprint.json",
        {"type": "Workflow", "name": "flow", "steps": steps},
    )
    assert shell("validate", ".").returncode == 0
    steps[1]["input"] = "{wrtier_output}"
    write(
        tmp_path / "blueprint.json",
        {"type": "Workflow", "name": "flow", "steps": steps},
    )
    done = shell("validate", ".")
    assert (
        done.returncode,
        done.stdout.splitlines()[0].partition(": ")[0],
    ) == (
        1,
        ".:/steps/1/input",
    )
    assert "'writer_output'" in done.stdout


WORD = {"word": {"type": "string"}}
CALL = {
    "type": "function_step",
    "name": "f",
    "function": "look",
    "arguments": {"word": "{word}"},
}


def test_declared_inputs_and_functions(shell: Shell, tmp_path: Path) -> None:
    """A file is checked as far as its data say, a folder with its functions; no problem is listed twice."""
    closed = {"type": "Workflow", "name": "flow", "inputs": WORD}
    tells = {"type": "approval_step", "name": "a", "message": "{wrod} {x}"}
    broken = {"x": {"type": "integer", "default": "y"}}
    blueprints = {
        "names": {**closed, "steps": [CALL, tells]},
        "inputs": {**closed, "inputs": broken, "steps": [tells]},
        "fields": {
            **closed,
            "steps": [CALL, {**CALL, "arguments": {"word": "{word.x}"}}],
        },
        "right": {**closed, "steps": [CALL]},
        "agent": {**AGENT, "instructions": "Be {tone}.", "inputs": WORD},
    }
    places = {
        "names": ["/steps/1/message", "/steps/1/message"],
        "inputs": ["/inputs/x"],
        "fields": ["/steps/1/arguments/word"],
        "right": [],
        "agent": ["/instructions"],
    }
    paths: dict[str, list[str]] = {}
    for name, blueprint in blueprints.items():
        paths[write(tmp_path / f"{name}.json", blueprint)] = places[name]
        write(tmp_path / name / "blueprint.json", blueprint)
        code = "def look(word: str) -> str:\n    return word\n"
        write(tmp_path / name / "functions.py", code)
        paths[name] = places[name]
    write(tmp_path / "missing" / "blueprint.json", blueprints["right"])
    write(tmp_path / "missing" / "functions.py", "def loook(word): ...\n")
    paths["missing"] = ["/steps/0/function"]
    done = shell("validate", "--json", *paths, PODWRIGHT_MODEL="offline/echo")
    assert {
        report["path"]: [problem["pointer"] for problem in report["problems"]]
        for report in json.loads(done.stdout)
    } == paths


def test_invalid_settings_are_not_a_problem_of_a_blueprint(
    shell: Shell, tmp_path: Path
) -> None:
    """Invalid settings, and short API keys of the service, are an error of the command."""
    path = write(tmp_path / "good" / "blueprint.json", AGENT)
    for source, name, value in (
        ("good", "PODWRIGHT_PRT", "1"),
        (path, "PODWRIGHT_API_KEYS", "short"),
    ):
        done = shell("validate", "--json", source, **{name: value})
        assert (done.returncode, done.stdout) == (1, "")
        assert name in done.stderr


UNUSABLE: list[tuple[str, dict[str, str], str]] = [
    # the model, variables, and what is told
    ("openai/m", {}, "OPENAI_API_KEY"),
    ("hosted_vllm/m", {}, "HOSTED_VLLM_API_BASE"),
    (
        "openai/m",
        {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "localhost:80"},
        "base URL",
    ),
    (
        "openai/m",
        {"PODWRIGHT_MODEL_BASE_URL": "//host"},
        "PODWRIGHT_MODEL_BASE_URL",
    ),
    ("opneai/m", {}, "'opneai/m'"),
    ("offline/echo", {"PODWRIGHT_MODEL": "gpt-4o"}, "<provider>/gpt-4o"),
]


@pytest.mark.parametrize(("model", "variables", "text"), UNUSABLE)
def test_models_that_cannot_be_called(
    shell: Shell,
    tmp_path: Path,
    model: str,
    variables: dict[str, str],
    text: str,
) -> None:
    """`validate` of a file or a folder tells why each run would fail, and so does `settings --check`."""
    path = write(
        tmp_path / "a" / "blueprint.json", {**AGENT, "config": {"model": model}}
    )
    done = shell("validate", path, "a", **variables)
    pointer = "/" if "PODWRIGHT_MODEL" in variables else "/config/model"
    for source, line in zip((path, "a"), done.stdout.splitlines(), strict=True):
        assert line.startswith(f"{source}:{pointer}: ")
        assert text in line
    assert done.returncode == 1
    checked = shell("settings", "a", "--check", **variables)
    assert (checked.returncode, text in checked.stderr) == (1, True)


def test_models_that_can_be_called(shell: Shell, tmp_path: Path) -> None:
    """A key, an endpoint of one's own, or an offline model for all make the same blueprint valid."""
    write(
        tmp_path / "a" / "blueprint.json",
        {**AGENT, "config": {"model": "openai/gpt-4o-mini"}},
    )
    for name, value in (
        ("OPENAI_API_KEY", "k"),
        ("OPENAI_BASE_URL", "http://x"),
        ("PODWRIGHT_MODEL", "offline/echo"),
    ):
        for command in (["validate", "a"], ["settings", "a", "--check"]):
            assert shell(*command, **{name: value}).returncode == 0
    (tmp_path / "prices.json").write_text("{")
    done = shell(
        "settings",
        "a",
        "--check",
        OPENAI_API_KEY="k",
        PODWRIGHT_PRICES=str(tmp_path / "prices.json"),
    )
    assert (done.returncode, "prices.json" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PODWRIGHT_API_KEYS", "short"),
        ("PODWRIGHT_ALLOWED_MODELS", "gpt-4o"),
        ("PODWRIGHT_COMPONENT", "nowhere"),
        ("PODWRIGHT_RUNS_DATABASE", "mysql://host/runs"),
        ("PODWRIGHT_RUNS_DATABASE", "sqlite:////nowhere/runs.db"),
    ],
)
def test_settings_that_do_not_serve(
    shell: Shell, name: str, value: str
) -> None:
    """`settings --check` tells what `settings` alone does not check."""
    done = shell("settings", "--check", **{name: value})
    assert (
        done.returncode,
        "Suggestion" in done.stderr,
        "PODWRIGHT_PORT" in done.stdout,
    ) == (
        1,
        True,
        True,
    )
    assert shell("settings", **{name: value}).returncode == 0


def test_settings_that_may_surprise(shell: Shell) -> None:
    """Keys that see their own runs only, and contexts that are believed, are told of; the code is 0 as before."""
    keys = [
        f"run@ann:{'a' * 20}",
        f"run+runs:all@eve:{'e' * 20}",
        f"read@scraper:{'m' * 20}",
        "k" * 20,
    ]
    variables = {
        "PODWRIGHT_API_KEYS": ",".join(keys),
        "PODWRIGHT_RUNS_DATABASE": "sqlite:///runs.db",
        "PODWRIGHT_TRUST_CONTEXTS": "true",
    }
    done = shell("settings", "--check", **variables)
    owners, contexts = done.stderr.splitlines()
    assert (done.returncode, owners.split(". ")[0].rpartition(": ")[2]) == (
        0,
        "ann",
    )
    assert contexts.startswith("PODWRIGHT_TRUST_CONTEXTS: ")
    assert not any("a" * 20 in line for line in (owners, contexts))


def test_states_that_end_with_the_process(shell: Shell) -> None:
    """With API keys, and so callers elsewhere, the check tells that states are sealed with a key of the process."""
    variables = {"PODWRIGHT_API_KEYS": f"run@ann:{'a' * 20}"}
    done = shell("settings", "--check", **variables)
    assert (done.returncode, done.stderr.split()[0]) == (
        0,
        "PODWRIGHT_STATE_KEYS",
    )
    variables["PODWRIGHT_STATE_KEYS"] = "k" * 32
    assert not shell("settings", "--check", **variables).stderr


def test_differences(shell: Shell, tmp_path: Path) -> None:
    """Each change is a line that says whether it is breaking; `--exit-code` makes that an exit code."""
    old = write(tmp_path / "old.json", AGENT)
    text = write(
        tmp_path / "text.json", {**AGENT, "instructions": "Write well."}
    )
    tool = write(tmp_path / "tool.json", {**AGENT, "tools": [TOOL]})
    done = shell("diff", old, text, "--exit-code")
    assert (done.returncode, done.stdout) == (
        0,
        "compatible: /instructions changed: 'Write.' -> 'Write well.'\n",
    )
    done = shell("diff", old, tool, "--exit-code")
    assert (
        done.returncode,
        done.stdout.startswith("breaking: /tools/t added: "),
    ) == (
        1,
        True,
    )
    done = shell("diff", old, tool, "--json")
    assert (done.returncode, json.loads(done.stdout)[0]["breaking"]) == (
        0,
        True,
    )
    broken = write(tmp_path / "broken.json", "{")
    done = shell("diff", old, broken)
    assert (done.returncode, done.stdout) == (1, "")
    assert broken in done.stderr


def test_schemas(shell: Shell) -> None:
    """`schema` prints the JSON Schema of one kind, of all, or of suites; a misspelt kind has a suggestion."""
    assert (
        json.loads(shell("schema", "Agent").stdout)
        == podwright.blueprints.file_schema()["agent"]
    )
    assert (
        json.loads(shell("schema").stdout) == podwright.blueprints.file_schema()
    )
    assert json.loads(shell("schema", "evals").stdout) == suite_schema()
    done = shell("schema", "agnet")
    assert (done.returncode, "'agent'" in done.stderr) == (1, True)


def test_a_suite_is_validated(shell: Shell, tmp_path: Path) -> None:
    """A folder's suite is checked after its blueprint, and its problems name the suite's file."""
    folder = tmp_path / "writer"
    write(folder / "blueprint.json", AGENT)
    suite = {"cases": [{"name": "moon", "inputs": "the moon"}]}
    file = folder / "evals" / "evals.json"
    write(file, suite)
    model = {"PODWRIGHT_MODEL": "offline/echo"}
    done = shell("validate", str(folder), **model)
    assert (done.returncode, done.stderr) == (0, "")
    write(file, {**suite, "repeet": 3})
    done = shell("validate", str(folder), **model)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{file}:/repeet: ")
    (report,) = json.loads(
        shell("validate", "--json", str(folder), **model).stdout
    )
    assert not report["valid"]
    (problem,) = report["problems"]
    assert problem["file"] == "evals/evals.json"
    assert problem["pointer"] == "/repeet"
    write(folder / "blueprint.json", {**AGENT, "confg": {}})
    done = shell("validate", str(folder), **model)
    assert "/confg" in done.stdout
    assert "/repeet" not in done.stdout
    write(folder / "blueprint.json", AGENT)
    write(file.with_suffix(".yaml"), "cases: []")
    done = shell("validate", str(folder), **model)
    assert done.returncode == 1
    assert f"{folder / 'evals'}:/: " in done.stdout


def test_the_settings(shell: Shell, tmp_path: Path) -> None:
    """`settings` prints value, source and description of each setting, and no secret."""
    (tmp_path / "podwright_agent_keys").write_text('{"writer": "sk-writer"}')
    variables = {
        "PODWRIGHT_API_KEYS": "sk-one,sk-two",
        "PODWRIGHT_SECRETS_DIR": str(tmp_path),
        "PODWRIGHT_MODEL_API_KEY": "sk-model",
        "PODWRIGHT_AGENTS": '{"writer": "http://user:sk-url@writer:8000"}',
    }
    done = shell("settings", "--port", "9000", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    lines = {
        line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()
    }
    assert lines["PODWRIGHT_PORT"][:3] == ["9000", "option", "--port"]
    assert set(LIBRARY) <= set(lines)

    listed = shell("settings", "--port", "9000", "--json", **variables)
    rows = {row["variable"]: row for row in json.loads(listed.stdout)}
    assert list(rows) == list(lines)[1:]  # without the heading
    assert (
        rows["PODWRIGHT_PORT"]["value"],
        rows["PODWRIGHT_HOST"]["source"],
    ) == (
        9000,
        "default",
    )
    assert (
        rows["PODWRIGHT_AGENT_KEYS"]["source"]
        == f"file {tmp_path / 'podwright_agent_keys'}"
    )
    assert rows["PODWRIGHT_AGENTS"]["source"] == "environment"
    assert "writer:8000" in rows["PODWRIGHT_AGENTS"]["value"]["writer"]
    assert all(row["description"] for row in rows.values())
    assert "sk-" not in done.stdout + listed.stdout


def test_a_model_without_a_price(shell: Shell, newsroom: Path) -> None:
    """It is a warning, before the first bill: the blueprint is valid."""
    path = str(newsroom / "researcher" / "blueprint.json")
    local = {
        "PODWRIGHT_MODEL": "hosted_vllm/ours",
        "HOSTED_VLLM_API_BASE": "http://127.0.0.1:1/v1",
    }
    done = shell("validate", path, **local)
    assert done.returncode == 0
    assert (
        f"{path}:/: warning: The price of 'hosted_vllm/ours' is unknown"
        in done.stdout
    )
    assert (
        "price"
        not in shell(
            "validate",
            path,
            PODWRIGHT_MODEL="openai/gpt-4o",
            OPENAI_API_KEY="k",
        ).stdout
    )


def test_models_of_single_agents(shell: Shell, newsroom: Path) -> None:
    """`validate --model NAME=MODEL` checks that model in place of the agent's; the others need their own keys."""
    paths = [
        str(newsroom / name)
        for name in ("newsroom", "desk", "press", "researcher/blueprint.json")
    ]
    own = ["--model", "researcher=openai/gpt-4o", "--model", "offline/echo"]
    done = shell("validate", *paths, *own, OPENAI_API_KEY="k")
    assert done.returncode == 0, done.stdout
    clients = [
        line.split()[1] for line in done.stdout.splitlines() if "client" in line
    ]
    assert set(clients) == {"offline/echo:", "openai/gpt-4o:"}
    done = shell("validate", *paths, *own)
    assert "openai/gpt-4o" in done.stdout
    assert done.returncode == 1
    one = ["--model", "researcher=offline/echo"]
    assert shell("validate", paths[3], *one).returncode == 0
    missing = shell("validate", "--json", paths[0], *one)
    problems = json.loads(missing.stdout)[0]["problems"]
    assert any("API key" in problem["detail"] for problem in problems)
    unknown = shell(
        "validate", paths[3], "--model=offline/echo", "--model=nobody=a/b"
    )
    assert unknown.returncode == 1
    assert "'nobody'" in unknown.stderr
    assert "researcher" in unknown.stderr


@pytest.mark.parametrize("kind", ["conductor", "pipeline"])
def test_models_of_members_in_a_file(
    shell: Shell, tmp_path: Path, kind: str
) -> None:
    """In a file, members with a model of their own are known by their names; the team's model is also others'."""
    member = {"type": "Agent", "instructions": "a"}
    key = "skills" if kind == "conductor" else "steps"
    blueprint = {
        "name": "team",
        "type": kind.capitalize(),
        "config": {"model": "openai/team"},
        key: [
            {**member, "name": "own", "config": {"model": "openai/own"}},
            {**member, "name": "other"},
        ],
    }
    if kind == "conductor":
        blueprint["instructions"] = "Lead."
    path = tmp_path / "team.json"
    write(path, blueprint)
    done = shell(
        *("validate", str(path), "--model=own=offline/echo"),
        OPENAI_API_KEY="k",
    )
    assert done.returncode == 0, done.stdout
    clients = {
        line.split()[1] for line in done.stdout.splitlines() if "client" in line
    }
    assert clients == {"offline/echo:", "openai/team:"}


def test_prices(shell: Shell, tmp_path: Path) -> None:
    """Each list has a row; the exit code tells whether all models have a price."""
    (tmp_path / "prices.json").write_text(
        '{"openai/gpt-4o": {"input": 1, "output": 10}}'
    )
    own = {"PODWRIGHT_PRICES": str(tmp_path / "prices.json")}
    done = shell("prices", "openai/gpt-4o", **own)
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [(row[0], row[1], row[-1]) for row in rows[:2]] == [
        ("openai/gpt-4o", "override", "counts"),
        ("openai/gpt-4o", "genai-prices", "cache_write_1h"),
    ]
    done = shell("prices", "--json", "openai/gpt-4o", "hosted_vllm/ours", **own)
    listed = json.loads(done.stdout)
    assert (done.returncode, listed["hosted_vllm/ours"]) == (1, [])
    assert listed["openai/gpt-4o"][0]["rates"]["input"] == 1
