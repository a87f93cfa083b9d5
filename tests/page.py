#!/usr/bin/env python3
"""page.py PAGE_SAMPLE [DIRECTORY]: opens pages in headless Chromium, with no network, and uses them as a person does.

PAGE_SAMPLE is the program that writes synthetic pages with their numbers. Chromium is driven through its DevTools protocol over a plain
websocket, so nothing but Python's standard library is needed. Pages are opened from file:// and every host name is mapped to nowhere.
With --page PAGE.html NUMBERS.json, checks a page that heed made against the JSON that heed made, instead of the synthetic ones."""

import base64
import contextlib
import json
import math
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Websocket:
    """The client half of RFC 6455, text frames only."""

    def __init__(self, url):
        where = urllib.parse.urlparse(url)
        self.socket = socket.create_connection((where.hostname, where.port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(4096)
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"no websocket: {head[:80]!r}")

    def take(self, count):
        while len(self.buffer) < count:
            more = self.socket.recv(1 << 20)
            if not more:
                raise RuntimeError("the browser closed the connection")
            self.buffer += more
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        length = bytes([0x80 | len(data)]) if len(data) < 126 else struct.pack(">BH", 0xFE, len(data)) if len(data) < 65536 else struct.pack(">BQ", 0xFF, len(data))
        self.socket.sendall(b"\x81" + length + mask + bytes(byte ^ mask[k % 4] for k, byte in enumerate(data)))

    def receive(self):
        text = b""
        while True:
            first, second = self.take(2)
            length = second & 127
            if length == 126:
                (length,) = struct.unpack(">H", self.take(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.take(8))
            data = self.take(length)
            if first & 15 in (0, 1):
                text += data
                if first & 0x80:
                    return text.decode()


class Browser:
    """One headless Chromium with one tab; collects what it complains about and what it asks the network for."""

    def __init__(self, program, profile):
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                   "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
                   f"--user-data-dir={profile}", "--remote-debugging-port=0", "--window-size=1366,768", "about:blank"]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.complaints, self.requests, self.serial = [], [], 0
        port_file, deadline = os.path.join(profile, "DevToolsActivePort"), time.time() + 60
        while not (os.path.exists(port_file) and open(port_file).read().count("\n")):
            if time.time() > deadline or self.process.poll() is not None:
                raise SystemExit(f"page: {program} does not start")
            time.sleep(0.05)
        port, path = open(port_file).read().split("\n")[:2]
        self.socket, self.session = Websocket(f"ws://127.0.0.1:{port}{path}"), None
        tab = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.serial += 1
        message = {"id": self.serial, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.receive())
            if answer.get("id") == self.serial:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.notice(answer)

    def notice(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, what):
        deadline = time.time() + 60
        while not self.evaluate(expression):
            if time.time() > deadline:
                raise SystemExit(f"page: waited a minute for {what}; {self.complaints[:3]}")
            time.sleep(0.02)

    def open(self, path, fragment=""):
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url="about:blank")
        self.requests.clear()
        self.call("Page.navigate", url="file://" + urllib.parse.quote(path) + fragment)
        self.wait("document.readyState === 'complete' && document.getElementById('title')?.textContent !== ''", f"{path} to draw itself")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y, modifiers=0):
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1, modifiers=modifiers)

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def box(self, identifier, block="center"):
        """left, top, width, height on the screen, the element (its middle, start or end) scrolled into it."""
        return self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(identifier)}); e.scrollIntoView({{block: '{block}'}}); const b = e.getBoundingClientRect();"
            " return [b.left, b.top, b.width, b.height]; })()"
        )

    def text(self, identifier):
        return self.evaluate(f"document.querySelector({json.dumps(identifier)}).textContent")

    def close(self):
        with contextlib.suppress(Exception):
            self.session = None
            self.call("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Failed(Exception):
    pass


def check(condition, sentence):
    if not condition:
        raise Failed(sentence)


def is_live(numbers, layer, i, j):
    _, _, queries, keys = numbers["shape"]
    position, window = i + keys - queries, numbers.get("window", [0] * len(numbers["layers"]))[layer]
    return (not numbers["causal"] or j <= position) and (not window or window > position or j > position - window)


def rounding(shown):
    """Half a unit of the last digit shown."""
    digits = re.fullmatch(r"(\d*)\.?(\d*)(e-?\d+)?", shown)
    check(digits, f"{shown!r} is not a number")
    return 0.5 * 10 ** -len(digits[2]) * 10 ** int((digits[3] or "e0")[1:])


def check_number(shown, weight, where):
    """The number on the page against the record: exact to its last digit, or right to √weight / 255 and its own rounding where the page says ≈."""
    if shown.startswith("less than"):
        check(weight < 0.0001, f"{where}: the page says {shown}, the record {weight}")
        return
    rough, figure = shown.startswith("≈"), shown.lstrip("≈ ")
    allowed = rounding(figure) * 1.001 + (math.sqrt(weight) / 255 + 1 / 510**2 if rough else math.sqrt(weight) / 65000 + 1e-9)
    check(abs(float(figure) - weight) <= allowed, f"{where}: the page says {shown}, the record {weight}")


def point_at_cell(browser, numbers, i, j):
    _, _, queries, keys = numbers["shape"]
    left, top, width, height = browser.box("#cells")
    browser.mouse("mouseMoved", left + (j + 0.5) * width / keys, top + (i + 0.5) * height / queries)


def read_cell(browser, numbers, layer, head, i, j):
    point_at_cell(browser, numbers, i, j)
    shown, where = browser.text("#readout b"), f"layer {layer} head {head} row {i} column {j}"
    check(f"row {i}, column {j}" in browser.text("#readout"), f"{where}: the page reads {browser.text('#readout')!r}")
    if is_live(numbers, layer, i, j) and numbers["weights"][layer][head][i][j] is not None:
        check_number(shown, numbers["weights"][layer][head][i][j], where)
    else:
        check(shown == "may not look", f"{where} is masked, but the page shows {shown!r}")
    return shown


def chosen(browser):
    given = urllib.parse.parse_qs(browser.evaluate("location.hash.slice(1)"))
    return int(given["layer"][0]), int(given["head"][0])


def sample_cells(numbers):
    """Corners, the diagonal, and a spread of others."""
    _, _, queries, keys = numbers["shape"]
    cells = {(0, 0), (queries - 1, 0), (queries - 1, keys - 1), (0, keys - 1), (queries // 2, keys // 2)}
    cells.update((i * 7 % queries, i * 5 % keys) for i in range(1, 6))
    return sorted(cells)


def numbers_are_right(browser, path, numbers):
    layers, heads = len(numbers["layers"]), len(numbers["heads"])
    for layer, head in {(0, 0), (layers - 1, heads - 1)}:
        browser.open(path, f"#layer={numbers['layers'][layer]}&head={numbers['heads'][head]}")
        cells = sample_cells(numbers)
        shown = [read_cell(browser, numbers, layer, head, i, j) for i, j in cells]
        # The largest of a row must be exact, not ≈.
        row = numbers["weights"][layer][head][-1]
        largest = read_cell(browser, numbers, layer, head, len(numbers["query_tokens"]) - 1, row.index(max(w for w in row if w is not None)))
        check(not largest.startswith("≈"), f"the largest weight of the last row is shown as {largest}")
        check(any(not s.startswith("≈") for s in shown), "no number is exact")


def arrows_move(browser, path, numbers):
    layers, heads = numbers["layers"], numbers["heads"]
    browser.open(path, f"#layer={layers[0]}&head={heads[0]}")
    for key, layer, head in (("ArrowRight", 0, 1), ("ArrowDown", 1, 1), ("ArrowLeft", 1, 0), ("ArrowLeft", 1, 0), ("ArrowUp", 0, 0), ("ArrowUp", 0, 0)):
        layer, head = min(layer, len(layers) - 1), min(head, len(heads) - 1)
        browser.key(key)
        check(chosen(browser) == (layers[layer], heads[head]), f"{key}: the fragment says {chosen(browser)}, not {layers[layer], heads[head]}")
        check(browser.text("#title") == f"Layer {layers[layer]}, head {heads[head]}", f"{key}: the title is {browser.text('#title')!r}")


def grid_is_right(browser, path, numbers):
    browser.open(path)
    layers, heads = len(numbers["layers"]), len(numbers["heads"])
    left, top, width, height = browser.box("#thumbnails", "end")
    layer, head = layers - 1, heads - 1
    x, y = left + (head + 0.5) * width / heads, top + (layer + 0.5) * height / layers
    browser.mouse("mouseMoved", x, y)
    name = f"layer {numbers['layers'][layer]}, head {numbers['heads'][head]}"
    check(browser.text("#about").startswith(name), f"pointing at {name} shows {browser.text('#about')!r}")
    browser.click(x, y)
    check(chosen(browser) == (numbers["layers"][layer], numbers["heads"][head]), f"clicking {name} chose {chosen(browser)}")
    if heads > 1:  # shift adds a head to the mean
        browser.click(left + 0.5 * width / heads, y, modifiers=8)
        check(browser.text("#title").startswith("Mean of 2 heads"), f"shift-click on a second head: the title is {browser.text('#title')!r}")
    pitch = min(width / heads, height / layers)
    check(pitch >= 14, f"a head has {pitch:.1f} pixels")


def toggles_work(browser, path, numbers):
    browser.open(path)
    browser.evaluate("document.querySelector('button[value=log]').click()")
    check("scale=log" in browser.evaluate("location.hash"), "the scale is not in the fragment")
    browser.evaluate("document.getElementById('hide-first').click()")
    check("first token hidden" in browser.text("#title"), f"hiding the first token: the title is {browser.text('#title')!r}")
    point_at_cell(browser, numbers, len(numbers["query_tokens"]) - 1, 0)
    check(browser.text("#readout b") == "may not look", f"the hidden first token still shows {browser.text('#readout b')!r}")
    last, keys = len(numbers["query_tokens"]) - 1, len(numbers["key_tokens"])
    layer, head = (numbers[name].index(value) for name, value in zip(("layers", "heads"), chosen(browser)))
    row = numbers["weights"][layer][head][last]
    if keys > 1 and is_live(numbers, layer, last, keys - 1):
        point_at_cell(browser, numbers, last, keys - 1)
        shown, expected = browser.text("#readout b"), row[-1] / (1 - row[0])
        if not shown.startswith("less"):
            check(abs(float(shown.lstrip("≈ ")) - expected) < 0.006 + 0.05 * expected, f"renormalised: the page says {shown}, not {expected}")
    browser.evaluate("document.getElementById('hide-first').click()")
    browser.evaluate("document.querySelector('button[value=mean]').click()")
    check(browser.text("#title").startswith("Mean of"), f"mean: the title is {browser.text('#title')!r}")
    layer, i = numbers["layers"].index(chosen(browser)[0]), len(numbers["query_tokens"]) - 1
    column = [head[i][-1] for head in numbers["weights"][layer]]
    if is_live(numbers, layer, i, len(numbers["key_tokens"]) - 1):
        for value, expected in (("mean", sum(column) / len(column)), ("max", max(column))):
            browser.evaluate(f"document.querySelector('button[value={value}]').click()")
            point_at_cell(browser, numbers, i, len(numbers["key_tokens"]) - 1)
            shown = browser.text("#readout b")
            check(shown.startswith("less") or abs(float(shown.lstrip("≈ ")) - expected) < 0.006, f"{value}: the page says {shown}, not {expected}")
            check(browser.text("#caveat") != "", f"{value} has no caveat")
    fragment = browser.evaluate("location.hash")
    browser.open(path, fragment)
    check(browser.evaluate("location.hash") == fragment and browser.text("#title").startswith("Maximum of"), f"{fragment} opens {browser.text('#title')!r}")


def tokens_can_be_kept(browser, path, numbers):
    browser.open(path, "#layer=%d&head=%d" % (numbers["layers"][0], numbers["heads"][0]))
    i = len(numbers["query_tokens"]) - 1
    left, top, width, height = browser.box(f".tokens .token[data-token='{i}']")
    browser.click(left + width / 2, top + height / 2)
    browser.mouse("mouseMoved", 2, 2)
    if len(numbers["key_tokens"]) == len(numbers["query_tokens"]):
        check(f"row={i}" in browser.evaluate("location.hash"), f"clicking token {i} gave {browser.evaluate('location.hash')}")
        check("looks at" in browser.text("#sentence"), f"the sentence is {browser.text('#sentence')!r}")
        browser.evaluate("document.getElementById('row-table').open = true")
        live = sum(is_live(numbers, 0, i, j) for j in range(len(numbers["key_tokens"])))
        browser.wait(f"document.querySelectorAll('#row-table tbody tr').length === {live}", f"a table of {live} rows")
        weights = [w for j, w in enumerate(numbers["weights"][0][0][i]) if is_live(numbers, 0, i, j)]
        cells = browser.evaluate("[...document.querySelectorAll('#row-table tbody td:last-child')].map(e => e.textContent)")
        for j, (cell, weight) in enumerate(zip(cells, weights)):
            check_number(cell, weight, f"table row {j}")
        if i > 0:  # shift adds the first token, and the sentence is about both
            left, top, width, height = browser.box(".tokens .token[data-token='0']")
            browser.click(left + width / 2, top + height / 2, modifiers=8)
            browser.mouse("mouseMoved", 2, 2)
            check(f"row={i},0" in browser.evaluate("location.hash"), f"shift-click gave {browser.evaluate('location.hash')}")
            total = numbers["weights"][0][0][i][0] + numbers["weights"][0][0][0][0]
            sentence = browser.text("#sentence")
            check(" look at " in sentence, f"the sentence about two tokens is {sentence!r}")
            check(total < 1 or f"{total:.2f}"[:3] in sentence, f"the sum {total:.3f} is not in {sentence!r}")
        browser.key("Escape")
        check(re.search(r"row=\d", browser.evaluate("location.hash")) is None, "Escape does not let go of the token")


def alpha_at(browser, x, y):
    """The opacity of a pixel of the matrix, read through a copy because Chromium warns about repeated reading from the screen's own canvas."""
    return browser.evaluate(
        "(() => { const c = document.getElementById('cells'), copy = new OffscreenCanvas(c.width, c.height).getContext('2d', {willReadFrequently: true});"
        f" copy.drawImage(c, 0, 0); return copy.getImageData({x}, {y}, 1, 1).data[3]; }})()"
    )


def page_is_whole(browser, path, numbers):
    browser.open(path)
    check("see docs/honesty" in browser.text("footer"), "the honesty sentence is missing")
    for name in ("model", "file", "command"):
        check(numbers[name] in browser.text("#small-print"), f"the small print lacks {name}")
    for scheme in ("dark", "light"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.wait("new Promise(done => requestAnimationFrame(() => done(true)))", "a frame")
        if is_live(numbers, 0, 0, 0):
            check(alpha_at(browser, 1, 1) == 255, f"{scheme}: a live cell is transparent")
    if not is_live(numbers, 0, 0, len(numbers["key_tokens"]) - 1):
        check(alpha_at(browser, "c.width - 2", 1) == 0, "a masked cell is not paper")
    wide = browser.evaluate("document.documentElement.scrollWidth - innerWidth")
    check(wide <= 0, f"the page is {wide} pixels wider than its window")


CHECKS = (page_is_whole, numbers_are_right, arrows_move, grid_is_right, toggles_work, tokens_can_be_kept)


def check_page(browser, name, path, numbers):
    failures = 0
    for test in CHECKS:
        started = time.time()
        try:
            test(browser, path, numbers)
            check(not browser.complaints, f"the browser complains: {browser.complaints[:3]}")
            abroad = [url for url in browser.requests if not url.startswith(("file:", "about:", "data:", "blob:"))]
            check(not abroad and sum(url.startswith("file:") for url in browser.requests) <= 1, f"the page asked for {browser.requests}")
            print(f"ok      {name}: {test.__name__} ({time.time() - started:.1f} s)", flush=True)
        except Failed as failure:
            print(f"FAILED  {name}: {test.__name__}: {failure}")
            failures += 1
    return failures


# name, layers, heads, queries, keys, window, flags
SAMPLES = (
    ("usual", 5, 8, 13, 13, 0, "causal"),
    ("one", 1, 1, 1, 1, 0, "causal"),
    ("window", 2, 3, 40, 40, 16, "causal,awkward"),
    ("pattern", 2, 2, 20, 20, 0, "causal,pattern"),
    ("across", 2, 2, 9, 20, 0, "none"),
    ("many", 48, 40, 16, 16, 0, "causal,plain"),
    ("long", 3, 2, 128, 128, 0, "causal"),
)


def main():
    browser_program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser_program:
        sys.exit("page: no Chromium here (tried %s); install it with the system's package manager, e.g. apt-get install chromium" % ", ".join(BROWSERS))
    failures = 0
    with tempfile.TemporaryDirectory(prefix="heed-page-") as directory:
        if sys.argv[1] == "--page":
            pages = [("page", os.path.abspath(sys.argv[2]), sys.argv[3])]
        else:
            pages = []
            for name, *shape, flags in SAMPLES:
                subprocess.run([sys.argv[1], directory, name, *map(str, shape), flags], check=True)
                pages.append((name, f"{directory}/{name}.html", f"{directory}/{name}.json"))
        browser = Browser(browser_program, os.path.join(directory, "profile"))
        try:
            for name, path, numbers in pages:
                with open(numbers, encoding="utf-8") as file:
                    failures += check_page(browser, name, path, json.load(file))
        finally:
            browser.close()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
