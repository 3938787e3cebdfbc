"""Background runs of a component with two pods and a PostgreSQL server."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.cluster.cluster import Client, Namespace, side_by_side
from tests.helm.conftest import CHART, Manifest

from podwright import blueprints
from podwright_service.fleet import chart_values

PODS = Path(__file__).parent / "pods"
RUNS = 12
MODELS = {"draft": "slow-0.1", "review": "slow-0.1", "polish": "held"}
"""The steps of the workflow, and their models, of which the last one is asked when the pod is killed."""
URL = "http://fleet-flow:8000"
PROVIDER = "http://provider:8000"


def component() -> Manifest:
    """A workflow of three agents."""
    agents = {
        name: {
            "type": "Agent", "name": name, "instructions": "Answer.", "tools": [],
            "config": {"model": f"openai/{model}"},
        }
        for name, model in MODELS.items()
    }  # fmt: skip
    steps = [
        {"type": "agent_step", "name": name, "agent": name} for name in agents
    ]
    return {
        "blueprint": {
            "inline": {"type": "Workflow", "name": "flow", "steps": steps}
        },
        "files": {
            f"agents/{name}/blueprint.json": json.dumps(agent)
            for name, agent in agents.items()
        },
    }


def apps(*names: str) -> list[Manifest]:
    """The network policy peers with these labels `app`."""
    return [{"podSelector": {"matchLabels": {"app": name}}} for name in names]


@pytest.fixture(scope="module")
def values() -> Manifest:
    """Two components of which only one has background runs."""
    defaults = {
        "env": {
            "OPENAI_BASE_URL": "http://provider:8000/v1",
            "OPENAI_API_KEY": "x",
        },
        "networkPolicy": {
            "from": apps("client"),
            "egress": [{"to": apps("provider")}],
        },
        "resources": {"requests": {"cpu": "10m"}},
        **component(),
    }
    runs = {
        "store": "postgres",
        "postgres": {"secret": "database", "to": apps("database")},
    }
    # no pod has room for all of them
    settings = {"background_runs": RUNS * 2 // 3}
    flow = {"replicas": 2, "runs": runs, "settings": settings}
    return {"defaults": defaults, "components": {"flow": flow, "other": {}}}


@pytest.fixture(scope="module")
def namespace(
    make_namespace: Callable[..., Namespace], loaded_full: str, values: Manifest
) -> Namespace:
    """A namespace with the release, its database and a model provider."""
    namespace = make_namespace(loaded_full)
    namespace.start_database()
    namespace.serve("provider", PODS / "provider.py")
    namespace.install(values)
    return namespace


def test_runs_survive_their_pod(namespace: Namespace) -> None:
    """The runs of a pod that is killed are finished by the other one, and no finished call is made again."""
    # the one that made the tables is gone
    assert namespace.objects("jobs") == []
    client = Client.start(namespace)
    key = namespace.key("flow")

    def start(number: int) -> str:
        status, response = client.answer(
            "POST", f"{URL}/runs", key, {"input": str(number)}
        )
        assert status == 202, response
        return response["id"]

    def runs() -> list[Manifest] | None:
        """The runs of the component, or None if there is no connection to a pod, or from it to the database."""
        status, response = client.request(
            "GET", f"{URL}/runs?limit=200&fields=result", key
        )
        assert status in (0, 200, 503), response
        return response["runs"] if status == 200 else None

    def held_calls() -> int:
        """How often the provider was asked for the last step."""
        status, calls = client.answer("GET", f"{PROVIDER}/held")
        assert status == 200, calls
        return calls

    # a new pod is refused until the network policies know it, and the Service chooses one at random
    namespace.until(lambda: all(runs() == [] for _ in range(20)))
    started = side_by_side(start, range(RUNS))
    namespace.until(lambda: held_calls() == RUNS)
    # until the nodes have learned of it, the Service may choose the pod that is gone
    namespace.kubectl(
        "delete",
        "pod",
        namespace.pods("flow")[0],
        "--grace-period=0",
        "--force",
    )
    # that pod may have stopped gracefully, and would finish its runs if their calls were answered
    namespace.until(lambda: held_calls() > RUNS)
    assert client.answer("POST", f"{PROVIDER}/release") == (200, None)
    namespace.until(
        lambda: {run["status"] for run in runs() or []} == {"succeeded"}
    )
    ended = namespace.until(runs)
    assert {run["id"] for run in ended} == set(started)
    # a pod that is starved for as long as a lease lasts may lose its runs too
    assert max(run["attempt"] for run in ended) > 1
    assert {run["usage"]["model_calls"] for run in ended} == {len(MODELS)}
    assert set(ended[0]["result"]) >= {f"{name}_output" for name in MODELS}


def test_only_the_component_reaches_the_database(namespace: Namespace) -> None:
    """The network policies deny it to the other one; its URL is in no environment."""
    for name, reached in (("flow", ["database:5432"]), ("other", [])):
        (pod, *_) = namespace.pods(name)
        output = namespace.exec(
            pod,
            "python",
            "-c",
            (PODS / "reach.py").read_text(),
            '["database:5432"]',
        )
        assert json.loads(output) == reached
        assert "postgresql:" not in namespace.exec(
            pod, "python", "-c", "import os; print(os.environ)"
        )


def test_an_upgrade_keeps_the_runs(
    namespace: Namespace, values: Manifest
) -> None:
    """They are all there after it, and the autoscaler's query counts those that wait."""
    scaled = copy.deepcopy(values)
    scaled["components"]["flow"] |= {
        "autoscaling": {"type": "keda"},
        "settings": {"background_runs": 2, "workers": 2},
    }
    namespace.install(scaled)
    (trigger,) = namespace.get("scaledobject", "fleet-flow")["spec"]["triggers"]
    assert trigger["metadata"]["targetQueryValue"] == "4"
    (reference,) = namespace.get("triggerauthentication", "fleet-flow")["spec"][
        "secretTargetRef"
    ]
    assert (reference["name"], reference["key"]) == ("database", "url")
    assert namespace.query(trigger["metadata"]["query"]) == ["0"]
    namespace.query(
        "UPDATE podwright_runs SET status = 'queued', digest = 'of another blueprint'"
    )
    assert namespace.query(trigger["metadata"]["query"]) == [str(RUNS)]


@pytest.mark.parametrize("version", [3, 4])
def test_a_database_that_is_away(
    namespace: Namespace, values: Manifest, version: int
) -> None:
    """A failed migration says why in a line; `--no-hooks` upgrades without it; nothing of it outlives the release."""
    release = f"away{version}"
    url = "postgresql://user:password@nowhere.invalid/runs"
    metadata = {"name": release}
    namespace.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "stringData": {"url": url},
            }
        ]
    )
    away = copy.deepcopy(values)
    away["defaults"] |= {"replicas": 0, "migration": {"backoffLimit": 0, "ttlSecondsAfterFinished": 30}}  # fmt: skip
    away["components"]["flow"] |= {"replicas": 0}
    away["components"]["flow"]["runs"]["postgres"]["secret"] = release
    install = (namespace.cluster.find_helm(version), "upgrade", "--install", release, CHART)  # fmt: skip
    options = (f"--namespace={namespace.name}", "--values=-")
    text = yaml.safe_dump(namespace.values(away))
    failed = namespace.cluster.run(*install, *options, text=text)
    assert failed.returncode != 0
    selector = f"app.kubernetes.io/instance={release}"
    (job,) = namespace.objects("jobs", selector)
    name = job["metadata"]["name"]
    log = namespace.kubectl("logs", f"job/{name}")
    assert "nowhere.invalid" in log.splitlines()[0]
    assert len(log) < 1000
    if version == 4:
        assert "nowhere.invalid" in failed.stdout + failed.stderr
    namespace.helm(
        "upgrade",
        "--install",
        release,
        CHART,
        "--no-hooks",
        "--values=-",
        version=version,
        text=text,
    )
    namespace.helm("uninstall", release, version=version)
    namespace.until(
        lambda: (
            [
                each["metadata"]["name"]
                for kind in ("jobs", "pods")
                for each in namespace.objects(kind, selector)
            ]
            == []
        )
    )


def asking(folder: Path, step: str) -> Path:
    """The component folder of a workflow that asks a person, and then has an offline agent answer in a step."""
    agent = {
        "type": "Agent", "name": "echo", "instructions": "Answer.", "tools": [],
        "config": {"model": "offline/echo"},
    }  # fmt: skip
    steps = [
        {"type": "approval_step", "name": "ok", "message": f"Then {step}?"},
        {
            "type": "agent_step",
            "name": step,
            "agent": "echo",
            "output": f"{step}_output",
        },
    ]
    workflow = {"type": "Workflow", "name": "asking", "steps": steps}
    for path, blueprint in (("", workflow), ("agents/echo", agent)):
        (folder / path).mkdir(parents=True)
        (folder / path / "blueprint.json").write_text(json.dumps(blueprint))
    return folder


def test_an_approval_waits_through_upgrades(
    namespace: Namespace, values: Manifest, tmp_path: Path
) -> None:
    """A run that is approved after two upgrades finishes with the blueprint it began with, which the values keep.

    Without it, the notes of an upgrade say so. A run that an operator moves goes on with the new one.
    """
    release = copy.deepcopy(values)
    runs = release["components"]["flow"]["runs"]
    release["components"] = {"asking": {"runs": runs}}
    for key in component():
        del release["defaults"][key]
    folders = {
        step: asking(tmp_path / step / "asking", step)
        for step in ("first", "second", "third")
    }

    def upgrade(step: str) -> None:
        release.update(chart_values.update(release, [folders[step]], keep=2))
        namespace.install(release, "people")

    upgrade("first")
    client = Client.start(namespace, "person", {"app": "client"})
    key = namespace.key("asking", release="people")
    url = "http://people-asking:8000/runs"

    def request(method: str, path: str, body: object = None) -> Manifest | None:
        """The response, or None if there is no connection to a pod, or from it to the database."""
        status, response = client.request(method, f"{url}{path}", key, body)
        assert status in (0, 200, 202, 503), response
        return response if status in (200, 202) else None

    def start() -> str:
        run = namespace.until(lambda: request("POST", "", {"input": "moon"}))
        return f"/{run['id']}"

    def has(place: str, *statuses: str) -> Manifest | None:
        """The run if it has one of these."""
        run = request("GET", place)
        return run if run and run["status"] in statuses else None

    def approve(place: str) -> Manifest:
        """The result of a run."""
        decision = {"decision": "approve"}
        namespace.until(lambda: request("POST", f"{place}/approve", decision))
        run = namespace.until(lambda: has(place, "succeeded", "failed"))
        assert run["status"] == "succeeded", run
        return run["result"]

    stays, moves = start(), start()
    for place in (stays, moves):
        namespace.until(lambda place=place: has(place, "waiting_for_approval"))
    changed = chart_values.update(release, [folders["second"]])
    notes = namespace.helm(
        "upgrade", "people", CHART, "--values=-", "--dry-run=server",
        text=yaml.safe_dump(namespace.values(changed)),
    )  # fmt: skip
    began_with = blueprints.digest(
        blueprints.read_file(folders["first"] / "blueprint.json")
    )
    assert began_with[:19] in notes.partition("Warning")[2]
    upgrade("second")
    upgrade("third")
    for place in (stays, moves):
        namespace.until(lambda place=place: has(place, "waiting_for_approval"))
    present = blueprints.digest(
        blueprints.read_file(folders["third"] / "blueprint.json")
    )

    def is_moved() -> bool:
        """Whether the run has the new blueprint; a pod that is about to stop moves it to its own."""
        run = request("POST", f"{moves}/move")
        return run is not None and run["digest"] == present

    namespace.until(is_moved)
    assert "first_output" in approve(stays)
    assert "third_output" in approve(moves)


def test_a_volume_that_nobody_makes(
    namespace: Namespace, values: Manifest
) -> None:
    """A component that runs is not stopped for a volume of a storage class that the cluster does not have."""
    classes = namespace.cluster.get("/apis/storage.k8s.io/v1/storageclasses")
    stored = copy.deepcopy(values)
    stored["components"]["other"] = {"runs": {"store": "sqlite"}}
    command = [
        namespace.cluster.find_helm(4), "upgrade", "fleet", CHART, "--values=-", "--dry-run=server",
        f"--namespace={namespace.name}",
    ]  # fmt: skip

    def upgrade() -> subprocess.CompletedProcess[str]:
        text = yaml.safe_dump(namespace.values(stored))
        return namespace.cluster.run(*command, text=text)

    if not classes["items"]:
        refused = upgrade()
        assert refused.returncode != 0
        assert "components.other.runs.sqlite.storageClass" in refused.stderr
    stored["components"]["other"]["runs"]["sqlite"] = {"storageClass": "own"}
    accepted = upgrade()
    assert accepted.returncode == 0, accepted.stderr
