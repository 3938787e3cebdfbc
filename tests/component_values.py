"""Values of a component and of `defaults`, and whether there is something to serve."""

from __future__ import annotations

from typing import Any

_INLINE = {"inline": {"type": "Agent", "name": "x", "instructions": "Help."}}
_CLAIM = {"persistentVolumeClaim": {"claimName": "folder"}}
_FOLDER = {"folder": {"mountPath": "/component", **_CLAIM}}
_MOUNT = {"name": "folder", "mountPath": "/component"}
_DIGEST = f"sha256:{'a' * 64}"

Case = tuple[dict[str, Any], dict[str, Any]]
"""The values of a component, and those of `defaults`."""

SERVED: dict[str, Case] = {
    "blueprint": ({"blueprint": _INLINE}, {}),
    "ConfigMap": ({"blueprint": {"configMap": "mine"}}, {}),
    "blueprint of the image": (
        {"blueprint": {"overlay": True, **_INLINE}},
        {},
    ),
    "file": ({"files": {"blueprint.yaml": "type: Agent"}}, {}),
    "files of two sources": (
        {"files": {"tools.py": ""}, "filesFrom": ["mine"]},
        {},
    ),
    "files of the defaults": (
        {"files": {"tools.py": ""}},
        {"filesFrom": ["mine"]},
    ),
    "repository": ({"image": {"repository": "team/x"}}, {}),
    "tag": ({"image": {"tag": "writer"}}, {}),
    "digest": ({"image": {"digest": _DIGEST}}, {}),
    "image of the chart": ({"image": {"repository": "podwright"}}, {}),
    "image of the defaults": (
        {"image": {"tag": "1"}},
        {"image": {"repository": "mirror/podwright", "tag": "1"}},
    ),
    "image of a fleet of one": ({}, {"image": {"repository": "team/x"}}),
    "volume": ({"volumes": _FOLDER}, {}),
    "volume of the defaults": ({}, {"volumes": _FOLDER}),
    "mount": (
        {"volumes": {"folder": _CLAIM}, "extraVolumeMounts": [_MOUNT]},
        {},
    ),
    "mount of the defaults": (
        {"volumes": {"folder": _CLAIM}},
        {"extraVolumeMounts": [_MOUNT]},
    ),
    "blueprint of the defaults": ({"image": {}}, {"blueprint": _INLINE}),
}
UNSERVED: dict[str, Case] = {
    "nothing": ({"replicas": 3}, {}),
    "files": ({"files": {"prices.yaml": ""}}, {}),
    "files from nowhere": (
        {"files": {"tools.py": ""}, "filesFrom": []},
        {"filesFrom": ["mine"]},
    ),
    "blueprint of an agent": (
        {"files": {"agents/writer/blueprint.json": "{}"}},
        {},
    ),
    "image of the fleet": (
        {"image": {"pullPolicy": "Always"}},
        {"image": {"repository": "mirror/podwright", "tag": "1"}},
    ),
    "tag of the chart": ({"image": {"tag": ""}}, {"image": {"tag": "1"}}),
    "no files of the defaults": (
        {"files": {"tools.py": ""}, "filesFrom": None},
        {"filesFrom": ["mine"]},
    ),
    "no files": ({"files": None}, {"files": {"blueprint.json": "{}"}}),
    "tag that is null": ({"image": {"tag": None}}, {"image": {"tag": "1"}}),
    "no blueprint": ({"blueprint": {"inline": None}}, {"blueprint": _INLINE}),
    "no volume": ({"volumes": {"folder": None}}, {"volumes": _FOLDER}),
    "volume elsewhere": (
        {"volumes": {"data": {"mountPath": "/data", **_CLAIM}}},
        {},
    ),
    "mount elsewhere": (
        {
            "volumes": {"data": _CLAIM},
            "extraVolumeMounts": [
                {"name": "data", "mountPath": "/component/data"}
            ],
        },
        {},
    ),
    "no mount": (
        {"volumes": {"folder": _CLAIM}, "extraVolumeMounts": []},
        {"extraVolumeMounts": [_MOUNT]},
    ),
}
