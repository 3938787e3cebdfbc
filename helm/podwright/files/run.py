"""Runs a component once and prints the response, for `helm test`."""

import json
import os
import pathlib
import sys
import urllib.error
import urllib.request

request = urllib.request.Request(os.environ["URL"], json.dumps({"input": os.environ["INPUT"]}).encode())
request.add_header("content-type", "application/json")
if "KEY_FILE" in os.environ:
    request.add_header("authorization", f"Bearer {pathlib.Path(os.environ['KEY_FILE']).read_text()}")
try:
    with urllib.request.urlopen(request, timeout=float(os.environ["TIMEOUT"])) as response:
        print(f"{request.full_url} completed run {response.headers['podwright-run-id']}:")
        print(json.dumps(json.load(response), indent=2, ensure_ascii=False))
except urllib.error.HTTPError as error:
    sys.exit(f"{request.full_url} answered {error.code}: {error.read().decode()}")
except OSError as error:
    sys.exit(f"{request.full_url} cannot be reached: {error}")
