"""Controls a browser without a window over a pipe, with Chromium's own protocol: JSON documents that end with a zero byte."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

from harness import patience

NAMES = ("chromium", "chromium-browser", "google-chrome")
# For a busy machine. These tests measure no time.
PATIENCE_S = patience(60)


def program():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page in one browser. Remembers the requests, and the errors on the console."""

    def __init__(self, folder):
        to_read, to_write = os.pipe(), os.pipe()
        command = [
            program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--no-proxy-server", "--hide-scrollbars", f"--user-data-dir={folder}",
            "--remote-debugging-pipe", "about:blank",
        ]
        # The browser reads 3 and writes 4.
        line = f'exec "$@" 3<&{to_read[0]} 4>&{to_write[1]}'
        self.log = open(f"{folder}.log", "wb")
        self.process = subprocess.Popen(
            ["bash", "-c", line, "bash", *command], pass_fds=(to_read[0], to_write[1]), stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log)
        os.close(to_read[0])
        os.close(to_write[1])
        self.input, self.output = to_read[1], to_write[0]
        self.rest, self.last, self.session = b"", 0, None
        self.requests, self.complaints, self.loads = [], [], 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self.input)
        os.close(self.output)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.input, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next(PATIENCE_S)
            if answer is None:
                raise AssertionError(f"the browser does not answer {method}")
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def next(self, patience_s):
        """Returns the next message, or None. Notes the events before it."""
        end = time.monotonic() + patience_s
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.output], [], [], left)[0]:
                return None
            piece = os.read(self.output, 1 << 16)
            if not piece:
                raise AssertionError("the browser has ended")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loads += 1
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} ({params['entry'].get('url', '')})")
        elif method == "Runtime.exceptionThrown" or method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(params))

    def wait_for_loads(self, count):
        end = time.monotonic() + PATIENCE_S
        while self.loads < count:
            if time.monotonic() > end:
                raise AssertionError(f"the page was loaded {self.loads} times, not {count}")
            self.next(1)

    def open(self, url):
        count = self.loads + 1
        self.call("Page.navigate", url=url)
        self.wait_for_loads(count)

    def look_like(self, width, height, scheme, is_phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
