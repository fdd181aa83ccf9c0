"""As much of S3 as reading objects takes, on this machine."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock


@contextmanager
def s3_server(objects: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Serve `bucket/key` to bytes, with the environment saying so; yields the requests: method and path."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, with_body: bool) -> None:
            asked.append(f"{self.command} {self.path}")
            content = objects.get(self.path.lstrip("/").split("?")[0])
            status, body, headers = 404, b"<Error><Code>NoSuchKey</Code></Error>", {"Content-Type": "application/xml"}
            if content is not None:
                status, body, headers = 200, content, {"ETag": '"1"', "Accept-Ranges": "bytes"}
                if wanted := self.headers.get("Range"):
                    first, _, last = wanted.removeprefix("bytes=").partition("-")
                    body = content[int(first) : int(last) + 1]
                    status, headers["Content-Range"] = 206, f"bytes {first}-{last}/{len(content)}"
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    try:
        with mock.patch.dict("os.environ", environment):
            yield asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def in_a_process(folder: Path, code: str) -> str:
    """What `code` prints in a process of its own, where `sys.argv[1]` is `folder`.

    The AWS SDK inside of DALI reads its environment once a process, so that is where what needs a server has to run.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code, str(folder)], capture_output=True, text=True,
        check=False, cwd=Path(__file__).parents[1], timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
