"""Runs a component once and prints the response, for `helm test`."""

import json
import os
import pathlib
import sys
import time
import urllib.error
import urllib.request

timeout = float(os.environ["TIMEOUT"])
# Some networks reject the connections of a new pod until they know it.
connected_by = time.monotonic() + min(timeout, 30)
request = urllib.request.Request(
    os.environ["URL"], json.dumps({"input": os.environ["INPUT"]}).encode()
)
request.add_header("content-type", "application/json")
if "KEY_FILE" in os.environ:
    request.add_header(
        "authorization",
        f"Bearer {pathlib.Path(os.environ['KEY_FILE']).read_text()}",
    )
while True:
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            print(
                f"{request.full_url} completed run {response.headers['podwright-run-id']}:"
            )
            print(json.dumps(json.load(response), indent=2, ensure_ascii=False))
        break
    except urllib.error.HTTPError as error:
        sys.exit(
            f"{request.full_url} answered {error.code}: {error.read().decode()}"
        )
    except urllib.error.URLError as error:  # the connection failed
        if time.monotonic() > connected_by:
            sys.exit(f"{request.full_url} cannot be reached: {error}")
        time.sleep(0.5)
    except OSError as error:
        sys.exit(f"{request.full_url} did not answer: {error}")
