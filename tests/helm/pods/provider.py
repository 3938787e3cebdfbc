"""A model provider: a Chat Completions endpoint that responds after a delay with the start of the instructions."""

import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {os.environ['KEY']}":
            self.respond(401, {"error": {"message": "Invalid API key."}})
            return
        time.sleep(float(os.environ["DELAY"]))
        message = {"role": "assistant", "content": f"APPROVED: {body['messages'][0]['content'][:60]}"}
        usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.respond(200, {"id": "1", "model": body["model"], "choices": [choice], "usage": usage})

    def respond(self, status: int, data: object) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


Server(("0.0.0.0", 8000), Provider).serve_forever()  # noqa: S104 - in a container
