"""What a person sees: a finding leads to its evidence, nothing is cut, in light and dark, on a phone and on paper.

With TORCHCHAOS_SCREENSHOTS=FOLDER pictures of every page are kept, to be looked at.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.report import compare, record
from chaos.report.serve import LOOPBACK, Server

WIDTHS = {"desktop": 1280, "phone": 390}
CONTRAST_MIN = 4.5
"""What WCAG asks of text."""

CUT = """() => [...document.querySelectorAll('body *')].filter(one => {
  if (![...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) return false;
  if (!one.checkVisibility()) return false;
  const range = document.createRange();
  range.selectNodeContents(one);
  const box = range.getBoundingClientRect();
  return box.left < -1 || box.right > innerWidth + 1 ||
    (getComputedStyle(one).overflow !== 'visible' && one.scrollWidth > one.clientWidth + 1);
}).map(one => one.className + ': ' + one.textContent.trim().slice(0, 60))"""
"""Texts that reach over the edge of the page, or of a box that hides what is too long for it."""

CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = one => {
    for (; one; one = one.parentElement) {
      const found = rgb(getComputedStyle(one).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const worst = {};
  for (const one of document.querySelectorAll('body *')) {
    if (![...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
    if (!one.checkVisibility()) continue;
    const [a, b] = [light(rgb(getComputedStyle(one).color)), light(behind(one))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const name = one.tagName + '.' + one.className;
    worst[name] = Math.min(worst[name] ?? 99, ratio);
  }
  return worst;
}"""
"""The lowest contrast of text with what is behind it, for each kind of element."""


@pytest.fixture(scope="module")
def urls(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Every kind of page: reports and a comparison as files, the list over HTTP."""
    two = tmp_path_factory.mktemp("compared") / "two.html"
    folders = {folder.name.split("-", 2)[2]: folder for folder in runs.iterdir()}
    compare.write(compare.Comparison(*(record.read(folders[name]) for name in ("replica-lost", "process-freeze"))), two)
    with Server(runs, LOOPBACK, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield {
            **{name: (folder / "report.html").as_uri() for name, folder in folders.items()},
            "comparison": two.as_uri(),
            "list": server.url,
        }
        server.shutdown()
        thread.join()


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def view(browser: Any, complaints: list[str]) -> Iterator[Any]:
    """Opens a page at a width and in a scheme; whatever the browser complains of is kept."""
    contexts = []

    def view(url: str, width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        page.goto(url)
        return page

    yield view
    for context in contexts:
        context.close()


PAGES = ["replica-lost", "toy-storm", "process-freeze", "comparison", "list"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", list(WIDTHS))
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_and_all_text_can_be_read(
    name: str,
    device: str,
    scheme: str,
    urls: dict[str, str],
    view: Any,
    complaints: list[str],
    screenshots: Path | None,
) -> None:
    page = view(urls[name], WIDTHS[device], scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[device]
    assert page.evaluate(CUT) == []
    faint = {kind: ratio for kind, ratio in page.evaluate(CONTRASTS).items() if ratio < CONTRAST_MIN}
    assert faint == {}
    assert complaints == []
    if screenshots:
        page.screenshot(path=screenshots / f"{name}-{device}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("device", list(WIDTHS))
def test_a_click_on_a_finding_lands_on_its_evidence(device: str, urls: dict[str, str], view: Any) -> None:
    page = view(urls["replica-lost"], WIDTHS[device])
    link = page.locator("#finding-replicas_rejoin .evidence a").last
    seq = link.inner_text()
    row = page.locator(f"#event-{seq}")
    plain = row.evaluate("one => getComputedStyle(one).backgroundColor")
    link.click()
    assert page.url.endswith(f"#event-{seq}")
    box = row.bounding_box()
    assert box["y"] >= 0 and box["y"] + box["height"] <= 844
    assert row.evaluate("one => getComputedStyle(one).backgroundColor") != plain
    assert "committed step" in row.inner_text()
    row.get_by_text("as recorded").click()
    assert f'"seq":{seq}' in row.locator("pre").inner_text()
    row.get_by_role("link", name="replicas_rejoin").click()
    assert page.url.endswith("#finding-replicas_rejoin")


def test_a_reason_and_a_fault_lead_on_as_well(urls: dict[str, str], view: Any) -> None:
    page = view(urls["process-freeze"])
    page.locator("header li a").first.click()
    assert page.locator(":target").get_attribute("class") == "finding"
    page.locator(".chart .badge").first.click()
    assert "process.freeze on replica-2" in page.locator(":target").inner_text()


def test_states_of_lanes_differ_in_more_than_colour(urls: dict[str, str], view: Any) -> None:
    """In height or pattern, and alike from light to dark."""
    page = view(urls["toy-storm"])
    looks = page.eval_on_selector_all(
        ".legend i .span",
        "all => all.map(one => [one.className, one.getBoundingClientRect().height, "
        "getComputedStyle(one).backgroundImage.slice(0, 34), getComputedStyle(one).backgroundColor])",
    )
    shapes = {name: (round(height), image) for name, height, image, _ in looks}
    assert len({(*shapes[name], colour) for name, _, _, colour in looks}) == len(looks)
    for one, other in (("training", "healing"), ("training", "down"), ("training", "silent"), ("training", "waiting")):
        assert shapes[f"span {one}"] != shapes[f"span {other}"]


def test_it_prints(urls: dict[str, str], view: Any, tmp_path: Path) -> None:
    page = view(urls["replica-lost"], scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_the_list_opens_a_report_and_compares_two(urls: dict[str, str], view: Any, complaints: list[str]) -> None:
    page = view(urls["list"])
    page.get_by_role("link", name="replica-lost").last.click()
    assert page.title() == "PASS: replica-lost"
    page.go_back()
    boxes = page.get_by_role("checkbox")
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.get_by_role("button").click()
    assert page.locator("h1").inner_text() == "Two runs side by side"
    assert re.search(r"/compare\?run=.*&run=", page.url)
    assert complaints == []
