"""The Jobs of `helm test` and of migrations: names, values of their own, and how long they stay."""

from __future__ import annotations

from typing import Any

from tests.helm.conftest import Helm, Manifest, jobs_of
from tests.helm.test_chart import validate

RUNS: Manifest = {"store": "postgres", "postgres": {"secret": "runs-database"}}
POD: Manifest = {
    "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "128Mi"}},
    "affinity": {"podAffinity": {}},
    "tolerations": [{"key": "jobs", "operator": "Exists"}],
    "nodeSelector": {"pool": "jobs"},
}
OWN: Manifest = {
    **POD,
    "ttlSecondsAfterFinished": 60,
    "labels": {"team": "platform", "build": 20261125},
    "annotations": {"helm.sh/hook-weight": 5, "example.com/owner": "platform"},
    "podLabels": {"build": 20261125},
    "podAnnotations": {"sidecar.istio.io/inject": False},
}
"""Values of a Job."""


def both(helm: Helm, **component: Any) -> list[Manifest]:
    """The Job of the migration and the one of the test of a component."""
    manifests = helm({"components": {"x": {"runs": RUNS, **component}}})
    jobs = jobs_of(manifests, "migration") + jobs_of(manifests, "test")
    assert len(jobs) == 2
    for job in jobs:
        validate(job)
    return jobs


def test_a_failed_job_is_deleted_in_time(helm: Helm) -> None:
    """Each Job has a time to live after its end and a deadline before it; null leaves it for ever."""
    for job in both(helm):
        assert job["spec"]["ttlSecondsAfterFinished"] == 3600
        assert job["spec"]["activeDeadlineSeconds"] < 300
    kept = {"ttlSecondsAfterFinished": None}
    for job in both(helm, migration=kept, test=kept):
        assert "ttlSecondsAfterFinished" not in job["spec"]


def test_values_of_a_job(helm: Helm) -> None:
    """A Job's own values count for it, and its labels and annotations are added to those of the component."""
    component = {
        "podLabels": {"team": "news"},
        "podAnnotations": {"sidecar.istio.io/inject": True, "a": "b"},
        "tolerations": [{"key": "agents", "operator": "Exists"}],
    }
    jobs = both(helm, migration=OWN, test=OWN, **component)
    for job in jobs:
        assert job["spec"]["ttlSecondsAfterFinished"] == 60
        assert (
            job["metadata"]["labels"].items()
            >= {
                "team": "platform",
                "build": "20261125",
            }.items()
        )
        annotations = job["metadata"]["annotations"]
        assert annotations["helm.sh/hook-weight"] == "5"
        assert annotations["example.com/owner"] == "platform"
        template = job["spec"]["template"]
        assert (
            template["metadata"]["labels"].items()
            >= {
                "team": "news",
                "build": "20261125",
            }.items()
        )
        assert template["metadata"]["annotations"] == {
            "sidecar.istio.io/inject": "false",
            "a": "b",
        }
        pod = template["spec"]
        (container,) = pod["containers"]
        assert container["resources"]["limits"]["memory"] == "128Mi"
        assert {name: pod[name] for name in POD if name in pod} == {
            name: value for name, value in POD.items() if name != "resources"
        }


def test_jobs_are_scheduled_as_the_component_is(helm: Helm) -> None:
    """Without own values a Job has the component's, except the affinity to other pods; an empty value is an own one."""
    node = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    component = {
        "affinity": {"nodeAffinity": node, "podAntiAffinity": {}},
        "tolerations": [{"key": "agents", "operator": "Exists"}],
        "nodeSelector": {"pool": "agents"},
        "priorityClassName": "agents",
    }
    for job in both(helm, **component):
        pod = job["spec"]["template"]["spec"]
        assert pod["affinity"] == {"nodeAffinity": node}
        for name in ("tolerations", "nodeSelector", "priorityClassName"):
            assert pod[name] == component[name]
    nothing = {"affinity": {}, "tolerations": [], "nodeSelector": {}}
    for job in both(helm, migration=nothing, test=nothing, **component):
        assert not nothing.keys() & job["spec"]["template"]["spec"].keys()


def test_names_of_jobs(helm: Helm) -> None:
    """A migration is named after its database's Secret; no two Jobs have one name, and none is too long."""
    names: list[str] = []
    for release, secrets in (
        ("fleet", ["eu-database", "db.news", "db-news"]),
        ("fleet-eu", ["database"]),
        ("f" * 40, ["s" * 100, "s" * 101]),
    ):
        components = {
            f"{'c' * 16}-{number}": {
                "runs": {"store": "postgres", "postgres": {"secret": secret}}
            }
            for number, secret in enumerate(secrets)
        }
        manifests = helm({"components": components}, release)
        for secret, job in zip(secrets, jobs_of(manifests, "migration"), strict=True):  # fmt: skip
            assert secret.replace(".", "-")[:20] in job["metadata"]["name"]
        jobs = [each for each in manifests if each["kind"] == "Job"]
        names += [job["metadata"]["name"] for job in jobs]
    assert len(names) == len(set(names)) == 12
    assert max(map(len, names)) <= 63


def test_ids_of_openshift(helm: Helm) -> None:
    """Ids of any size, and the group 0, are integers in each pod; the user 0 is refused elsewhere."""
    user = {"runAsUser": 1000680000, "runAsGroup": 0, "fsGroup": 1000680001}
    for job in both(helm, user=user):
        context = job["spec"]["template"]["spec"]["securityContext"]
        assert {name: context[name] for name in user} == user
        assert all(isinstance(context[name], int) for name in user)
