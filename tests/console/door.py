"""A door for tests: an HTTP server on loopback that answers what it is told to."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Door(ThreadingHTTPServer):
    """Answers by method and path; remembers what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers = {}  # (method, path) -> (status, object or bytes), or a list of them, one for each time
        self.asked = []  # (method, path, headers, object)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_):
        """A client that left is what some tests are about."""


class _Answer(BaseHTTPRequestHandler):
    def _answer(self):
        size = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        answer = self.server.answers[self.command, self.path]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if answer is None:  # gone without a word
            self.connection.close()
            return
        status, said = answer
        text = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = _answer  # noqa: N815 - the library's names

    def log_message(self, *_):
        """Nothing on stderr."""


@contextmanager
def open_door():
    """One that serves until the block ends."""
    door = Door()
    thread = threading.Thread(target=door.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield door
    finally:
        door.shutdown()
        thread.join()
        door.server_close()
