"""A vendor of models: it speaks Chat Completions, takes its time, and answers with how the instructions begin."""

import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Vendor(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {os.environ['KEY']}":
            self.answer(401, {"error": {"message": "no such key"}})
            return
        time.sleep(float(os.environ["DELAY"]))
        message = {"role": "assistant", "content": f"APPROVED: {body['messages'][0]['content'][:60]}"}
        usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.answer(200, {"id": "1", "model": body["model"], "choices": [choice], "usage": usage})

    def answer(self, status: int, data: object) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


Server(("0.0.0.0", 8000), Vendor).serve_forever()  # noqa: S104 - in a container
