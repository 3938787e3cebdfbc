"""Runs a component once and prints the response, for `helm test`."""

import json
import os
import pathlib
import sys
import time
import urllib.error
import urllib.request

timeout = float(os.environ["TIMEOUT"])
ends_at = time.monotonic() + timeout
# Some networks reject the connections of a new pod until they know it.
connected_by = time.monotonic() + min(timeout, 30)
request = urllib.request.Request(os.environ["URL"], os.environ["BODY"].encode())
request.add_header("content-type", "application/json")
if "KEY_FILE" in os.environ:
    request.add_header(
        "authorization",
        f"Bearer {pathlib.Path(os.environ['KEY_FILE']).read_text()}",
    )


def succeed(outcome: str, response: str) -> None:
    """Print the response to a run that has succeeded."""
    print(f"{request.full_url} {outcome}:")
    print(json.dumps(json.loads(response), indent=2, ensure_ascii=False))


def waits_for_approval(text: str) -> bool:
    """Whether a problem says that the run has come to a person's decision, which it does only if all before it ran."""
    try:
        return json.loads(text)["code"] == "approval_required"
    except (ValueError, TypeError, KeyError):
        return False


while True:
    try:
        remaining = max(ends_at - time.monotonic(), 1)
        with urllib.request.urlopen(request, timeout=remaining) as response:
            run_id = response.headers["podwright-run-id"]
            succeed(f"completed run {run_id}", response.read().decode())
        break
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        if error.code == 409 and waits_for_approval(text):
            run_id = error.headers["podwright-run-id"]
            succeed(f"has run {run_id} up to an approval", text)
            break
        wait = float(error.headers["retry-after"] or "inf")
        # at capacity, as under load, the component is asked again
        if error.code != 503 or time.monotonic() + wait > ends_at:
            sys.exit(f"{request.full_url} answered {error.code}: {text}")
        time.sleep(wait)
    except urllib.error.URLError as error:  # the connection failed
        if time.monotonic() > connected_by:
            sys.exit(f"{request.full_url} cannot be reached: {error}")
        time.sleep(0.5)
    except OSError as error:
        sys.exit(f"{request.full_url} did not answer: {error}")
