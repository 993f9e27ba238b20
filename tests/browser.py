"""Pages opened in a real, headless browser."""

import html
import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH")

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"),
]


def opened(path, profile, *flags):
    """The DOM after five virtual seconds, and what the console said; a request that a page's policy forbids is said there too."""
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *flags, path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


# Runs inside the frame, where a page's own policy may forbid it, so the copy has none.
PROBE = """<script>setTimeout(() => parent.postMessage(JSON.stringify({
  requests: performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:")),
  widths: [innerWidth, document.documentElement.scrollWidth],
  pictures: [...document.images].map((image) => image.naturalWidth),
  text: document.body.innerText,
}), "*"), 500)</script></body>"""


def in_frame(page, width, folder):
    """What a page is like at ``width`` pixels: its requests, its widths (own and wanted), its pictures' widths, its text."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    (folder / "inner.html").write_text(text.replace("</body>", PROBE))
    outer = folder / "outer.html"  # a window cannot be made this narrow, a frame can
    outer.write_text(f"""<body><p>nothing</p><script>
      addEventListener("message", (event) => {{ document.querySelector("p").textContent = event.data; }});
      </script><iframe src="inner.html" style="width: {width}px; height: 800px; border: 0"></iframe></body>""")
    dom, console = opened(outer, folder / f"profile-{width}")
    assert console == []
    return json.loads(html.unescape(re.search(r"<p>(.*?)</p>", dom, re.S)[1]))
