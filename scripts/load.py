"""Put load on the API from many clients and print what they saw.

Without ``--url`` a server is started for it on a free port of this machine, with a fresh
database, and stopped afterwards. The run is bounded in time; only loopback addresses are taken.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT_S = 60.0


def free_port() -> int:
    """A TCP port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(workers: int) -> Iterator[str]:
    """A server of its own with a fresh SQLite file; yields its URL."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "DATABASE_URL": f"sqlite:///{folder}/load.sqlite"}
        for command in ("db upgrade", "catalog load"):
            subprocess.run([sys.executable, "-m", "flask", "--app", "app", *command.split()],
                           cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        port = free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--workers",
             str(workers), "--threads", "4", "--no-control-socket", "--log-level", "warning",
             "app:create_app()"],
            cwd=ROOT, env=environment)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(url)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=30)


def wait_until_ready(url: str) -> None:
    """Return when /readyz answers 200; raise after ``START_LIMIT_S``."""
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit(f"{url} was not ready after {START_LIMIT_S:.0f} s")


class Clients:
    """Threads that post one document again and again until the time is up."""

    def __init__(self, url: str, body: bytes, seconds: float) -> None:
        self.url, self.body = url, body
        self.stop_at = time.monotonic() + seconds
        self.times_s: list[float] = []
        self.outcomes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def run(self, count: int) -> None:
        """Start ``count`` threads and wait for them."""
        threads = [threading.Thread(target=self._client) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self) -> None:
        while time.monotonic() < self.stop_at:
            start = time.perf_counter()
            outcome = self._post()
            with self._lock:
                self.times_s.append(time.perf_counter() - start)
                self.outcomes[outcome] += 1

    def _post(self) -> str:
        request = urllib.request.Request(
            f"{self.url}/api/v1/plans", self.body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                response.read()
                return str(response.status)
        except urllib.error.HTTPError as error:
            return str(error.code)
        except OSError as error:
            return type(error).__name__


def report(clients: Clients, seconds: float) -> int:
    """Print rate, percentiles and outcomes; 1 when a request failed."""
    if not clients.times_s:
        print("no request finished")
        return 1
    cuts = statistics.quantiles(clients.times_s, n=100) if len(clients.times_s) > 1 else [0.0] * 99
    print(f"{len(clients.times_s)} requests, {len(clients.times_s) / seconds:.1f} per second; "
          f"p50 {cuts[49] * 1e3:.0f} ms, p95 {cuts[94] * 1e3:.0f} ms, p99 {cuts[98] * 1e3:.0f} ms")
    print("outcomes: " + ", ".join(f"{k}: {v}" for k, v in sorted(clients.outcomes.items())))
    return int(any(not outcome.startswith("2") for outcome in clients.outcomes))


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Put load on POST /api/v1/plans.")
    parser.add_argument("--url", help="a running server on this machine")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=2, help="of the server started for it")
    parser.add_argument("--plan", type=Path, default=ROOT / "examples" / "chat.json")
    options = parser.parse_args()
    body = options.plan.read_bytes()
    if options.url:
        if urllib.parse.urlsplit(options.url).hostname not in {"127.0.0.1", "localhost", "::1"}:
            parser.error("only a server on this machine can be loaded")
        return measure(options.url.rstrip("/"), body, options)
    with server(options.workers) as url:
        return measure(url, body, options)


def measure(url: str, body: bytes, options: argparse.Namespace) -> int:
    """Run the clients against one server and report."""
    start = time.monotonic()
    clients = Clients(url, body, options.seconds)
    clients.run(options.clients)
    return report(clients, time.monotonic() - start)


if __name__ == "__main__":
    raise SystemExit(main())
