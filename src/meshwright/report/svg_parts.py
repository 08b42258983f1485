"""Pieces of an SVG picture: numbers, escaped texts, shapes. The same input gives the same bytes."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from meshwright.errors import without_controls


def number(value: float) -> str:
    """Return a coordinate with at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def attributes(**values: str | float) -> str:
    """Return attributes: ``stroke_width=1`` gives `` stroke-width="1"``; ``class_`` is ``class``."""
    parts = []
    for name, value in values.items():
        text = value if isinstance(value, str) else number(value)
        parts.append(f" {name.strip('_').replace('_', '-')}={quoteattr(without_controls(text))}")
    return "".join(parts)


def text_at(x: float, y: float, text: str, **more: str | float) -> str:
    """Return a line of text; ``y`` is its base line."""
    return f"<text{attributes(x=x, y=y, **more)}>{escape(without_controls(text))}</text>"


def box(x: float, y: float, width: float, height: float, **more: str | float) -> str:
    """Return a rectangle."""
    return f"<rect{attributes(x=x, y=y, width=width, height=height, **more)}/>"


def path(points: str, **more: str | float) -> str:
    """Return a path of SVG path data."""
    return f"<path{attributes(d=points, **more)}/>"


def picture(width: float, height: float, title: str, body: list[str]) -> str:
    """Return the whole file: a picture with a name that screen readers say."""
    head = attributes(
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        role="img",
        aria_label=title,
        font_family="system-ui, 'DejaVu Sans', Verdana, sans-serif",
    )
    name = f"<title>{escape(without_controls(title))}</title>"
    return "\n".join([f"<svg{head}>", name, *body, "</svg>", ""])
