"""Colours of verdicts stay apart under colour blindness, and keep the contrast that WCAG asks for.

The matrices are those of Machado, Oliveira and Fernandes, "A Physiologically-based Model for
Simulation of Color Vision Deficiency" (2009), for severity 1.0, on linear RGB. Distances are CIE76
in CIELAB, where about 2.3 is just noticeable. A sign goes with each colour.
"""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from compatgate.resources import package_dir

Rgb = tuple[float, ...]
SIGHT = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
GREY = (0.2126, 0.7152, 0.0722)
"""What red, green and blue add to the brightness."""
THEMES = ("light", "dark")
VERDICTS = ("pass", "warn", "fail", "unknown")
BARS = ("bar-pass", "bar-fail", "bar-unknown")
CSS = (package_dir() / "kit/ui/static/app.css").read_text()


def colour(name: str, theme: str) -> Rgb:
    """Return a colour of the style sheet in linear RGB."""
    found = re.search(rf"--{name}: light-dark\(#(\w{{6}}), #(\w{{6}})\)", CSS)
    assert found, name
    text = found[1 + THEMES.index(theme)]
    shares = [int(text[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    return tuple(s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)


def see(rgb: Rgb, sight: str) -> Rgb:
    rows = SIGHT[sight]
    return tuple(
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, rgb, strict=True)))) for row in rows
    )


def lightness_and_hue(rgb: Rgb) -> Rgb:
    """Return CIELAB of linear sRGB, for the white D65."""
    weights = (
        (0.4124564, 0.3575761, 0.1804375, 0.95047),
        (0.2126729, 0.7151522, 0.0721750, 1.0),
        (0.0193339, 0.1191920, 0.9503041, 1.08883),
    )
    x, y, z = (
        t ** (1 / 3) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29
        for *row, white in weights
        for t in [sum(a * b for a, b in zip(row, rgb, strict=True)) / white]
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(a: Rgb, b: Rgb) -> float:
    pairs = zip(lightness_and_hue(a), lightness_and_hue(b), strict=True)
    return sum((p - q) ** 2 for p, q in pairs) ** 0.5


def contrast(a: Rgb, b: Rgb) -> float:
    """Return the contrast ratio of WCAG 2.2."""
    dark, light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * u for r, g, u in (a, b))
    return (light + 0.05) / (dark + 0.05)


def nearest(names: tuple[str, ...], theme: str, sight: str) -> float:
    seen = [see(colour(name, theme), sight) for name in names]
    return min(distance(a, b) for a, b in combinations(seen, 2))


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", THEMES)
def test_words_of_different_verdicts_differ_in_colour(theme: str, sight: str) -> None:
    assert nearest(VERDICTS, theme, sight) >= 15


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", THEMES)
def test_bars_of_allowed_denied_and_undecided_differ_clearly(theme: str, sight: str) -> None:
    assert nearest(BARS, theme, sight) >= 30


@pytest.mark.parametrize("theme", THEMES)
def test_bars_differ_in_brightness_for_whoever_sees_no_colours(theme: str) -> None:
    greys = [
        (sum(w * part for w, part in zip(GREY, colour(one, theme), strict=True)),) * 3
        for one in BARS
    ]
    assert min(distance(a, b) for a, b in combinations(greys, 2)) >= 18


@pytest.mark.parametrize("theme", THEMES)
def test_words_have_a_contrast_of_four_and_a_half_wherever_they_stand(theme: str) -> None:
    for name in (*VERDICTS, "info", "muted"):
        grounds = ["bg", "surface", "raised", *([f"{name}-bg"] if name != "muted" else [])]
        for ground in grounds:
            assert contrast(colour(name, theme), colour(ground, theme)) >= 4.5, (name, ground)


@pytest.mark.parametrize("theme", THEMES)
def test_bars_have_a_contrast_of_three(theme: str) -> None:
    for name in BARS:
        assert contrast(colour(name, theme), colour("surface", theme)) >= 3, name


def test_the_simulation_tells_that_a_red_and_a_green_look_alike() -> None:
    red, green = (0.4508, 0.0144, 0.0103), (0.0070, 0.1413, 0.0284)  # #b3201a and #14692f
    assert distance(red, green) > 90
    assert distance(see(red, "protanopia"), see(green, "protanopia")) < 12
