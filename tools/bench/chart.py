"""Charts as SVG, of a few shapes and little text: `bars` and `lines` give a document."""

import math
from html import escape

COLOURS = ["#1f6f8b", "#9aa5b1", "#d98e04", "#b5539c", "#5a9e4b", "#c0504d", "#6b5b95", "#7f7f7f"]
STYLE = ("text{font:12px sans-serif;fill:#24292f}.t{font-weight:bold;font-size:14px}"
         ".s{fill:#57606a;font-size:11px}.g{stroke:#d0d7de;stroke-width:1}")


def short(v):
    if v >= 1e6:
        return f"{v / 1e6:g}M"
    if v >= 1000:
        return f"{v / 1000:.3g}k"
    return f"{v:.3g}"


def document(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}">\n<style>{STYLE}</style>\n'
            f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n")


def text(x, y, what, cls="", anchor="start"):
    cls = f' class="{cls}"' if cls else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{cls} text-anchor="{anchor}">{escape(what)}</text>'


def bars(title, subtitle, rows, places):
    """rows: (name, {place: value}); on a scale of powers of ten, since they differ by that."""
    rows = [(name, {p: v for p, v in by.items() if v and v > 0}) for name, by in rows]
    values = [v for _, by in rows for v in by.values()]
    low = 10 ** math.floor(math.log10(min(values)))
    high = max(values) * 1.3
    left, width, thick = 170, 720, 13
    span = width - left - 70

    def at(v):
        return left + span * (math.log10(v) - math.log10(low)) / (math.log10(high) - math.log10(low))

    body = [text(10, 20, title, "t"), text(10, 37, subtitle, "s")]
    x = 10
    for i, place in enumerate(places):
        body.append(f'<rect x="{x}" y="47" width="11" height="11" fill="{COLOURS[i % 8]}"/>')
        body.append(text(x + 15, 57, place))
        x += 32 + 7 * len(place)
    y = 74
    marks = len(body)
    for name, by in rows:
        shown = [p for p in places if by.get(p)]
        body.append(text(left - 8, y + thick * len(shown) / 2 + 4, name, anchor="end"))
        for p in shown:
            body.append(f'<rect x="{left}" y="{y}" width="{max(1.0, at(by[p]) - left):.1f}" '
                        f'height="{thick - 2}" fill="{COLOURS[places.index(p) % 8]}"/>')
            body.append(text(at(by[p]) + 4, y + thick - 3, short(by[p]), "s"))
            y += thick
        y += 9
    grid, v = [], low
    while v <= high:
        grid.append(f'<line class="g" x1="{at(v):.1f}" x2="{at(v):.1f}" y1="66" y2="{y}"/>')
        grid.append(text(at(v), y + 13, short(v), "s", "middle"))
        v *= 10
    body[marks:marks] = grid
    return document(width, int(y + 22), body)


def lines(title, curves):
    """One small panel a curve, both axes by powers of ten."""
    wide, high, columns = 350, 210, 2
    body = [text(10, 20, title, "t")]
    for i, c in enumerate(curves):
        body += panel(c, 10 + i % columns * wide, 34 + i // columns * high, wide - 20, high - 20)
    rows = (len(curves) + columns - 1) // columns
    return document(columns * wide + 10, 34 + rows * high, body)


def shows(x, y):
    """Only what is above zero has a place on an axis by powers of ten."""
    return y is not None and x > 0 and y > 0


def panel(c, x0, y0, wide, high):
    points = [(x, y) for ys in c["series"].values() for x, y in zip(c["xs"], ys) if shows(x, y)]
    if not points:
        return []
    lx = [math.log10(min(p[0] for p in points)), math.log10(max(p[0] for p in points))]
    ly = [math.floor(math.log10(min(p[1] for p in points))),
          math.ceil(math.log10(max(p[1] for p in points)) + 0.01)]
    left, top, bottom = x0 + 34, y0 + 18, y0 + high - 30
    right = x0 + wide - 84

    def at(x, y):
        fx = (math.log10(x) - lx[0]) / ((lx[1] - lx[0]) or 1)
        fy = (math.log10(y) - ly[0]) / ((ly[1] - ly[0]) or 1)
        return left + fx * (right - left), bottom - fy * (bottom - top)

    out = [text(x0, y0 + 8, f"{c['name']} ({c['unit']})")]
    for e in range(ly[0], ly[1] + 1):
        y = at(c["xs"][-1], 10.0 ** e)[1]
        out.append(f'<line class="g" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(text(left - 4, y + 4, short(10.0 ** e), "s", "end"))
    for x in c["xs"]:
        if x > 0:
            out.append(text(at(x, 10.0 ** ly[0])[0], bottom + 13, short(x), "s", "middle"))
    out.append(text((left + right) / 2, bottom + 26, c["x"], "s", "middle"))
    ends = []
    for i, (name, ys) in enumerate(c["series"].items()):
        line = [at(x, y) for x, y in zip(c["xs"], ys) if shows(x, y)]
        if not line:
            continue
        colour = COLOURS[i % 8]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in line]
        y = line[-1][1] + 4
        while any(abs(y - other) < 12 for other in ends):
            y += 12
        ends.append(y)
        s = c["slopes"].get(name)
        label = text(right + 6, y, name + ("" if s is None else f" {s:+.2f}"), "s")
        out.append(label.replace("<text", f'<text style="fill:{colour}"', 1))
    return out


def times(title, subtitle, panels):
    """Panels below each other with one axis of minutes: (name, {series: [(minutes, value)]}), from 0."""
    wide, high, left, right = 760, 120, 60, 640
    end = max((x for _, series in panels for ps in series.values() for x, _ in ps), default=0) or 1
    body = [text(10, 20, title, "t"), text(10, 37, subtitle, "s")]
    for i, (name, series) in enumerate(panels):
        top, bottom = 62 + i * high, 62 + i * high + high - 40
        most = max((y for ps in series.values() for _, y in ps), default=0) or 1
        body.append(text(10, top - 6, name))
        for part in (0, 0.5, 1):
            y = bottom - part * (bottom - top)
            body.append(f'<line class="g" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            body.append(text(left - 4, y + 4, short(part * most), "s", "end"))
        for k, (who, points) in enumerate(series.items()):
            colour = COLOURS[k % 8]
            path = " ".join(f"{left + x / end * (right - left):.1f},{bottom - y / most * (bottom - top):.1f}"
                            for x, y in points)
            body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            body.append(f'<rect x="{right + 8}" y="{top + 14 * k}" width="9" height="9" fill="{colour}"/>')
            body.append(text(right + 21, top + 14 * k + 9, who, "s"))
    foot = 62 + len(panels) * high
    body += [text(left, foot - 22, "0", "s", "middle"), text(right, foot - 22, f"{end:.0f} min", "s", "middle")]
    return document(wide, foot, body)
