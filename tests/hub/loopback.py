"""A Hub on loopback: real HTTP, two origins, the protocol that huggingface_hub speaks, and faults on demand.

::

    with LoopbackHub(folder) as hub:
        hub.endpoint                                  # http://127.0.0.1:...
        hub.fail("POST", r"/commit/", drop="after")   # the commit happens, the answer is lost

``protocol.py`` says what each request does, ``repos.py`` what is kept, ``wire.py`` how it travels. Two origins, because
a client follows a redirect within one origin and the real Hub redirects to another. Not modelled: pages of listings,
merging pull requests, renamed repositories, signed addresses that expire, TLS.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from .protocol import answer
from .repos import Store
from .wire import CDN, HUB, Answer, Request


@dataclass
class Fault:
    """What goes wrong with requests of one kind, a number of times."""

    method: str
    path: re.Pattern[str]
    times: int = 1
    after: int = 0  # so many of these requests go well first
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drop: Literal["before", "after", "half"] | None = None  # the connection: before acting, after it, amid the body
    rewrite: Callable[[Answer], Answer] | None = None
    action: Callable[[], Any] | None = None  # something that happens just before


@dataclass(frozen=True)
class Logged:
    """A request that came."""

    origin: str
    method: str
    path: str
    authorized: bool
    headers: dict[str, str]


def corrupted(given: Answer) -> Answer:
    """The same answer, with one bit of the body turned."""
    body = bytearray(given.content())
    body[len(body) // 2] ^= 1
    return replace(given, body=bytes(body), stretch=None)


class LoopbackHub:
    """The server. Its settings may be changed while it runs.

    Args:
        root: an empty folder for what is pushed.
        multipart_over: larger objects go up in parts of ``part_size`` bytes.
        xet: hand out tokens for the Xet store in ``root``.
    """

    def __init__(
        self, root: Path, *, multipart_over: int = 8 << 20, part_size: int = 5 << 20, xet: bool = False
    ) -> None:
        self.store = Store(Path(root))
        self.multipart_over, self.part_size, self.xet = multipart_over, part_size, xet
        self.tokens = {"hf_writer": ("writer", "write"), "hf_reader": ("reader", "read")}  # -> name, role
        self.allowed = {"writer"}  # who may read private and gated repositories
        self.faults: list[Fault] = []
        self.log: list[Logged] = []
        self._lock = threading.Lock()
        self._servers = {origin: _Server(self, origin) for origin in (HUB, CDN)}

    def __enter__(self) -> LoopbackHub:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    @property
    def endpoint(self) -> str:
        return self._servers[HUB].url

    @property
    def cdn(self) -> str:
        return self._servers[CDN].url

    def fail(self, method: str, path: str, **how: Any) -> Fault:
        """Let the next requests of a method, to a path that holds this expression, go wrong."""
        fault = Fault(method, re.compile(path), **how)
        self.faults.append(fault)
        return fault

    def requests(self, method: str, path: str) -> list[Logged]:
        """The requests of a kind that came so far."""
        return [one for one in self.log if one.method == method and re.search(path, one.path)]

    def fault_for(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, if any; used up by asking."""
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and fault.method == method and fault.path.search(path):
                    if fault.after > 0:
                        fault.after -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: LoopbackHub, origin: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub, self.origin = hub, origin
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of the server's."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go out one after the other
    server: _Server

    def log_message(self, *args: object) -> None:
        """Nothing on the terminal; ``hub.log`` has it."""

    def _serve(self) -> None:
        hub, address = self.server.hub, urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        hub.log.append(Logged(self.server.origin, self.command, self.path, token is not None, dict(self.headers)))
        fault = hub.fault_for(self.command, self.path) or Fault(self.command, re.compile(""))
        time.sleep(fault.delay)
        if fault.action:
            fault.action()
        body = self._receive(length)
        if fault.drop == "before":
            return self._hang_up()
        query = {name: values[0] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        request = Request(
            self.server.origin, self.command, address.path, query, dict(self.headers.items()), token, body
        )
        given = answer(hub, request) if fault.status is None else Answer.error(fault.status, "injected")
        if fault.rewrite:
            given = fault.rewrite(given)
        if fault.drop == "after":
            return self._hang_up()
        return self._send(replace(given, headers={**given.headers, **fault.headers}), half=fault.drop == "half")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815  # names that http.server looks for

    def _receive(self, length: int) -> Path | bytes:
        """The body: small ones in memory, large ones in a file."""
        if length <= 1 << 20:
            return self.rfile.read(length)
        arriving = self.server.hub.store.scratch()
        with arriving.open("wb") as file:
            while length:
                piece = self.rfile.read(min(length, 1 << 20))
                if not piece:
                    break
                file.write(piece)
                length -= len(piece)
        return arriving

    def _send(self, given: Answer, *, half: bool) -> None:
        self.send_response(given.status)
        for name, value in given.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(given.size))
        self.end_headers()
        if self.command == "HEAD":
            return
        left = given.size // 2 if half else given.size
        for piece in given.pieces():
            self.wfile.write(piece[:left])
            left -= len(piece)
            if left <= 0:
                break
        if half:
            self.wfile.flush()
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
