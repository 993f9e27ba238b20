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
PROBE = """<script>
const channels = (colour) => (colour.match(/[\\d.]+/g) || [0, 0, 0]).map(Number);
const bright = (colour) => channels(colour).slice(0, 3)
  .map((value) => value / 255).map((value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor, alpha = channels(colour)[3];
    if (alpha === undefined || alpha > 0.5) return colour;
  }
  return "rgb(255, 255, 255)";
};
const contrast = (element) => {
  const style = getComputedStyle(element), text = element.closest("svg") ? style.fill : style.color;
  const [dark, light] = [bright(text), bright(ground(element))].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
};
const spoken = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
const shown = (element) => element.getClientRects().length > 0;
// What must lie inside: words in their figure, everything in the page, but for what scrolls by itself.
const outside = (element) => {
  const frame = (element.ownerSVGElement || document.documentElement).getBoundingClientRect();
  const box = element.getBoundingClientRect();
  if (element.parentElement && element.parentElement.closest(".scroll") || element.closest("defs")) return false;
  if (element.ownerSVGElement && element.tagName !== "text") return false;
  return box.width > 0 && (box.left < frame.left - 2 || box.right > frame.right + 2
    || element.ownerSVGElement && (box.top < frame.top - 2 || box.bottom > frame.bottom + 2));
};
const name = (element) => element.tagName + ": " + element.textContent.trim().slice(0, 60);
setTimeout(() => {
  const folded = document.documentElement.scrollHeight;
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  const every = [...document.body.querySelectorAll("*")].filter((element) => !element.closest("script") && shown(element));
  parent.postMessage(JSON.stringify({
    requests: performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:")),
    widths: [innerWidth, document.documentElement.scrollWidth],
    heights: [folded, document.documentElement.scrollHeight],
    pictures: [...document.images].map((image) => image.naturalWidth),
    drawings: [...document.querySelectorAll("figure > svg")].map((drawing) => drawing.getBoundingClientRect().width),
    empty: [
      ...[...document.querySelectorAll("table")].filter((table) => table.rows.length < 3).map(name),
      ...[...document.querySelectorAll("details")].filter((part) => part.children.length < 2).map(name),
    ],
    outside: every.filter(outside).map(name),
    faint: every.filter((element) => spoken(element) && contrast(element) < 4.5).map(name),
    text: document.body.innerText,
  }), "*");
}, 500)</script></body>"""


def in_frame(page, width, folder, *flags):
    """What a page is like at ``width`` pixels with all its parts unfolded: requests, widths (own and wanted), heights (folded and
    not), widths of pictures and drawings, text; and what is empty, lies outside its frame or is too faint to read.
    """
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    (folder / "inner.html").write_text(text.replace("</body>", PROBE))
    outer = folder / "outer.html"  # a window cannot be made this narrow, a frame can
    outer.write_text(f"""<body><p>nothing</p><script>
      addEventListener("message", (event) => {{ document.querySelector("p").textContent = event.data; }});
      </script><iframe src="inner.html" style="width: {width}px; height: 800px; border: 0"></iframe></body>""")
    dom, console = opened(outer, folder / f"profile-{width}", *flags)
    assert console == []
    return json.loads(html.unescape(re.search(r"<p>(.*?)</p>", dom, re.S)[1]))


DARK = "--force-dark-mode"
# Every width of the issue, light and dark, in as few visits as that takes.
VISITS = [(390, ()), (800, (DARK,)), (1400, ()), (1400, (DARK,))]


def sound(page, folder):
    """What is measurable about a page that is worth showing, at every width, in light and dark; the last of the visits."""
    for width, flags in VISITS:
        seen = in_frame(page, width, folder, *flags)
        assert seen["requests"] == []
        assert seen["widths"] == [width, width], "the page does not scroll sideways"
        wrong = {what: seen[what] for what in ("outside", "empty", "faint")}
        assert not any(wrong.values()), (width, flags, wrong)
        assert min([*seen["pictures"], *seen["drawings"]], default=1) > 0
    return seen
