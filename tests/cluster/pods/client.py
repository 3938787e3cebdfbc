"""Sends a request for each one that it gets: GET with `ask` as JSON, which it answers with status and body as JSON.

So tests send requests from inside the cluster through its API server, without starting a process for each.
"""

import http.client
import http.server
import json
import urllib.error
import urllib.parse
import urllib.request


def send(ask):
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
    return status, body


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        content = json.dumps([send(json.loads(ask)) for ask in query.get("ask", [])]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
