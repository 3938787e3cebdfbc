"""Prints what a component has of the containers beside it and of the variables with sources, as JSON."""

import json
import os
import pathlib
import urllib.request

NAMES = ("NODE", "TOKEN", "GREETING", "FLAG_A")
with urllib.request.urlopen("http://127.0.0.1:9000/made") as response:
    served = response.read().decode()
found = {
    "variables": {name: os.environ.get(name) for name in NAMES},
    "made": pathlib.Path("/data/made").read_text(),
    "served": served,
    "cache": pathlib.Path("/cache").is_dir(),
}
print(json.dumps(found))
