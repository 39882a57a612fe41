"""A page in headless Chromium, driven by its DevTools protocol over a pipe, without a library."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARROWS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, **_ARROWS}  # numbers of keys without a letter


def find_chromium():
    """The path of the browser, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextlib.contextmanager
def open_page(file, width=1100, height=800):
    """Open a file in a new browser; yield a `Page`.

    Raises:
        FileNotFoundError: If there is no Chromium.
    """
    browser = find_chromium()
    if browser is None:
        raise FileNotFoundError(f"expected one of {', '.join(_NAMES)} on the PATH, got none.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        to_read, written = os.pipe()
        read, to_write = os.pipe()

        def place():  # Chromium reads commands from 3 and answers on 4
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        process = subprocess.Popen(
            [
                browser,
                "--headless=new",
                "--no-sandbox",  # tests may run as root
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--force-color-profile=srgb",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            preexec_fn=place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        try:
            with open(read, "rb", buffering=0) as answers, open(written, "wb", buffering=0) as asks:
                page = Page(asks, answers)
                page.open(file, width, height)
                yield page
        finally:
            process.kill()
            process.wait()


class Page:
    """One tab. `problems` has every error, warning and message of the console, and requests."""

    def __init__(self, asks, answers):
        self._asks, self._answers = asks, answers
        self._rest, self._count, self._session = b"", 0, None
        self.problems, self._events = [], []

    def open(self, file, width, height):
        [target] = [
            one["targetId"]
            for one in self.call("Target.getTargets")["targetInfos"]
            if one["type"] == "page"
        ]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._events.clear()
        self.call("Page.navigate", url=Path(file).resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._read()

    def call(self, method, **parameters):
        """Call a method of the protocol; return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._asks.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self):
        while b"\0" not in self._rest:
            part = self._answers.read(1 << 20)
            assert part, "the browser ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        method = message.get("method", "")
        self._events.append(method)
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.problems.append(message["params"])
        if method == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith("file:"):
                self.problems.append(url)
        return message

    def js(self, expression):
        """Evaluate an expression, also a promise; return its value."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def settle(self):
        """Wait until what was changed is drawn."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, *keys):
        """Press keys one after another, such as "Enter" or "l"."""
        for key in keys:
            event = {"key": key, "modifiers": 8 * (len(key) == 1 and key.isupper())}
            event["windowsVirtualKeyCode"] = _KEYS.get(key) or ord(key.upper())
            if len(key) == 1:
                event["text"] = key
            elif key == "Enter":
                event["text"] = "\r"
            self.call("Input.dispatchKeyEvent", type="keyDown", **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)
        self.settle()

    def point(self, selector):
        """Move the mouse onto the first element that matches."""
        place = json.dumps(selector)
        x, y = self.js(
            f"(box => [box.x + box.width / 2, box.y + box.height / 2])"
            f"(document.querySelector({place}).getBoundingClientRect())"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, selector):
        """Click on the first element that matches."""
        self.js(f"document.querySelector({json.dumps(selector)}).click()")
        self.settle()

    def prefer(self, scheme):
        """Set what the system prefers, "dark" or "light"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.settle()

    def screenshot(self, file):
        """Write the visible part as a PNG."""
        content = self.call("Page.captureScreenshot", format="png")["data"]
        Path(file).write_bytes(base64.b64decode(content))
