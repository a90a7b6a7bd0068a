"""Runs the page of a service in headless Chromium: page.py PROGRAM PICTURES. `scripts/prove page` calls it.

The page must show who is refused by which rule and why, what an operator must know, and hostile values as text. Nothing
may be written to the console, which is where a browser reports what the page's policy forbids.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

FILE = """domain: web
descriptors:
  - {key: client, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: path, value: /admin, rate_limit: {unit: hour, requests_per_unit: 0}}
"""
HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
SIZES = {"light": (1200, 1200, "1"), "dark": (1200, 1200, "0"), "phone": (500, 1600, "1")}


def ask(port, key, value):
    body = json.dumps({"domain": "web", "descriptors": [{"entries": [{"key": key, "value": value}]}]}).encode()
    try:
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/json", body)).read()
    except urllib.error.HTTPError as refused:
        assert refused.code == 429, refused


def chromium(profile, url, size, *arguments):
    """Runs the page for some seconds of its time. Returns the document, and what it wrote to the console."""
    width, height, scheme = SIZES[size]
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    command += [f"--user-data-dir={profile}", f"--window-size={width},{height}", "--virtual-time-budget=9000"]
    command += [f"--blink-settings=preferredColorScheme={scheme}", "--enable-logging=stderr", *arguments, url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return ran.stdout, [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]


def main(program, pictures):
    os.makedirs(pictures, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        limits = os.path.join(directory, "limits.yaml")
        with open(limits, "w", encoding="utf-8") as file:
            file.write(FILE)
        # Port 0 is a free port; the log says which.
        environment = {**os.environ, "GRPC_PORT": "0", "PORT": "0", "PAGE_PORT": "0", "HOST": "127.0.0.1"}
        service = subprocess.Popen([program, limits], env=environment, stderr=subprocess.PIPE, text=True)
        try:
            url = port = None
            while not (url and port):
                line = service.stderr.readline()
                assert line, "the service ended"
                url = url or next(iter(re.findall(r"the page is at (\S+)", line)), None)
                port = port or next(iter(re.findall(r"HTTP on \S+:(\d+)", line)), None)
            for value in [HOSTILE] * 5 + ["a\0b\n"] * 4 + ["x" * 900_000] * 3 + ["calm"]:
                ask(port, "client", value)
            ask(port, "path", "/admin")
            with open(limits, "a", encoding="utf-8") as file:
                file.write("descripters: []\n")
            time.sleep(3)
            for size in SIZES:
                picture = os.path.join(pictures, f"{size}.png")
                _, console = chromium(directory, url, size, f"--screenshot={picture}")
                assert not console and os.path.exists(picture), console
            document, console = chromium(directory, url, "phone", "--dump-dom")
            assert not console, console
            shown = re.sub(r"<script.*?</script>|<style.*?</style>", "", document, flags=re.S)
            for text in [
                "<title>(7 refused) tollgate-service</title>",
                "7 requests refused in the last 5 minutes, most by web.client: limit used up; and by 1 other rule",
                "2 per hour",
                "limits.yaml:3",
                "requests_per_unit is 0",
                "&lt;img src=x onerror",
                "a␀b␊",
                "The configuration on disk was not accepted",
                "did you mean `descriptors`?",
                'class="count some"',
            ]:
                assert text in shown, f"{text!r} is not in\n{shown}"
            assert "<img" not in shown and "calm" not in shown, shown
        finally:
            service.terminate()
            service.wait(timeout=40)
        print(f"the page shows what it should; pictures are in {pictures}")


main(*sys.argv[1:])
