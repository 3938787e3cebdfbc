"""Sends one request, given as JSON, and prints the status and the body of the response as JSON."""

import http.client
import json
import sys
import urllib.error
import urllib.request

ask = json.loads(sys.argv[1])
headers = {"content-type": "application/json"}
if ask["key"]:
    headers["authorization"] = f"Bearer {ask['key']}"
data = None if ask["body"] is None else json.dumps(ask["body"]).encode()
request = urllib.request.Request(ask["url"], data, headers, method=ask["method"])  # noqa: S310 - a test's URL
try:
    with urllib.request.urlopen(request, timeout=ask["timeout"]) as response:  # noqa: S310 - a test's URL
        status, text = response.status, response.read().decode()
except urllib.error.HTTPError as error:
    status, text = error.code, error.read().decode()
except (OSError, http.client.HTTPException) as error:
    status, text = 0, repr(error)
try:
    body = json.loads(text)
except ValueError:
    body = text
print(json.dumps([status, body]))
