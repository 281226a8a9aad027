"""What axe-core finds on an open page, with as little work as proves the same.

Nearly all of its time goes to the contrast of each piece of text. In dark mode, only one piece of
each look is measured: of those with the same colours and grounds, of which one passes if all do.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules that look at colours: only they can find another thing in dark mode."""
SIZES = ["scrollable-region-focusable", "target-size"]
"""The rules that look at how much room there is; axe-core leaves out the second one by default."""
_OURS = """
{
  const { Color } = axe.commons.color, known = new Map(), parse = Color.prototype.parseString;
  Color.prototype.parseString = function (text) {  // few colours, read thousands of times
    if (!known.has(text)) {
      parse.call(this, text);
      known.set(text, new Color(this));
    }
    const { r, g, b, alpha } = known.get(text);
    return Object.assign(this, { r, g, b, alpha });
  };
}
axe.addReporter("ours", (results, _, done) => {
  const seen = (rule) => [...rule.passes, ...rule.incomplete, ...rule.violations];
  axe.measured ??= new Map();
  for (const rule of results.filter((one) => one.id === "color-contrast")) {
    for (const one of seen(rule)) {
      const { fgColor, bgColor } = one.any[0]?.data ?? {};
      axe.measured.set(one.node.element, `${fgColor} ${bgColor}`);
    }
  }
  done(results.filter((rule) => ["serious", "critical"].includes(rule.impact)).flatMap((rule) =>
    rule.violations.map((one) => `${rule.id}: ${rule.help}: ${one.node.source.slice(0, 160)}`)));
});
"""
_MARK = """
(looks) => {  // a piece of each look if any, and what has not been measured
  const grounds = new Map();
  const ground = (one) => {
    if (one === null) return "";
    if (!grounds.has(one)) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(one);
      const own = [backgroundColor, backgroundImage, opacity].join(" ");
      grounds.set(one, `${ground(one.parentElement)}/${own}`);
    }
    return grounds.get(one);
  };
  for (const one of document.body.querySelectorAll("*")) {
    let wanted = !axe.measured.has(one);
    if (!wanted && looks !== null) {
      const { color, fontSize, fontWeight, textShadow } = getComputedStyle(one);
      const parts = [axe.measured.get(one), color, fontSize, fontWeight, textShadow, ground(one)];
      const look = parts.join();
      wanted = !looks.has(look);
      looks.add(look);
    }
    one.toggleAttribute("data-measured-now", wanted);
  }
}
"""
_RUN = f"""
([what, options]) => {{
  if (what) ({_MARK})(what === "looks" ? new Set() : null);
  const selector = what ? "[data-measured-now]" : "*";
  axe.configure({{ rules: [{{ id: "color-contrast", selector }}] }});
  return axe.run(document, {{ ...options, reporter: "ours" }});
}}
"""


@cache
def axe_script() -> str:
    """Return what a page has to run once before it is looked at."""
    return Axe().axe_script + _OURS


def violations(page: Page) -> list[str]:
    """Find what is serious or critical, as lines."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(f"{axe_script()}; 0")
    return _run(page, "", {})


def dark_violations(page: Page) -> list[str]:
    """Find what colours make wrong now, of a page on which all text was measured in light mode."""
    return _run(page, "looks", {"runOnly": COLOURS})


def narrow_violations(page: Page) -> list[str]:
    """Find what another width makes wrong, of a page on which what else is shown was measured."""
    return _run(page, "new", {"runOnly": [*COLOURS, *SIZES]})


def _run(page: Page, what: str, options: dict[str, Any]) -> list[str]:
    return page.evaluate(_RUN, [what, options])  # type: ignore[no-any-return]
