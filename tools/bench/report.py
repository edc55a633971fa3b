"""The results: rows and curves, printed as tables, written as JSON, drawn by chart.py."""

import math
import os
import time

from goals import judge
from harness import median, say, usage_median

ORDER = ["bough", "ext4", "overlayfs", "fuse-overlayfs", "btrfs", "xfs", "worktree", "clone --shared",
         "restic", "borg", "casync", "ostree"]


def number(v):
    if v is None:
        return "-"
    if isinstance(v, int) or abs(v) >= 1000:
        return f"{v:.0f}"
    return f"{v:.3g}"


def slope(xs, ys):
    """The exponent of the power law nearest to the points: 0 is flat, 1 is linear."""
    points = [(math.log(x), math.log(y)) for x, y in zip(xs, ys) if x > 0 and y and y > 0]
    if len(points) < 2:
        return None
    mx, my = (sum(p[i] for p in points) / len(points) for i in (0, 1))
    over = sum((x - mx) ** 2 for x, _ in points)
    return sum((x - mx) * (y - my) for x, y in points) / over if over else None


class Report:
    def __init__(self):
        self.rows, self.curves, self.parts, self.part = [], [], {}, None

    # ---- parts

    def begin(self, part):
        self.part = part
        self.parts[part] = dict(load=os.getloadavg()[0], began=time.time())
        say(f"{part} (load {self.parts[part]['load']:.1f})")

    def end(self, failed=None):
        about = self.parts[self.part]
        about["seconds"] = round(time.time() - about.pop("began"), 1)
        if failed:
            about["failed"] = failed
            say(f"{self.part} failed: {failed}")
        say(f"{self.part}: {about['seconds']:.0f} s")

    # ---- figures

    def row(self, id_, name, unit, values, usage=None, note=""):
        """values: for each place one figure, or a list of which the median counts; usage: for each
        place the Usage of its runs."""
        lists = {k: v if isinstance(v, list) else [v] for k, v in values.items()}
        lists = {k: v for k, v in lists.items() if v}
        one = dict(part=self.part, id=id_, name=name, unit=unit, note=note,
                   values={k: median(v) for k, v in lists.items()}, all=lists,
                   usage={k: usage_median(v).as_dict() for k, v in (usage or {}).items() if v})
        self.rows.append(one)
        verdicts = judge(one)
        missed = [v["goal"] for v in verdicts if v["met"] is False]
        say(f"  {name}: " + ", ".join(f"{k} {number(one['values'][k])}" for k in self._places([one]))
            + f" {unit}" + (f"  MISSED {'; '.join(missed)}" if missed else "") + (f" [{note}]" if note else ""))
        return one

    def curve(self, id_, name, x_name, xs, series, unit="ms"):
        """series: {name: ys}; y is None where there is no figure."""
        slopes = {k: slope(xs, ys) for k, ys in series.items()}
        self.curves.append(dict(part=self.part, id=id_, name=name, x=x_name, xs=list(xs), unit=unit,
                                series=series, slopes=slopes))
        for k, ys in series.items():
            say(f"  {name}, {k}: " + ", ".join(f"{x}: {number(y)}" for x, y in zip(xs, ys))
                + f" {unit}; slope {number(slopes[k])}")

    # ---- as text

    @staticmethod
    def _places(rows):
        seen = {k for r in rows for k in r["values"]}
        return [p for p in ORDER if p in seen] + sorted(seen - set(ORDER))

    @staticmethod
    def _print(table, left=1):
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        for row in table:
            print("  ".join(c.ljust(w) if i < left else c.rjust(w)
                            for i, (c, w) in enumerate(zip(row, widths))).rstrip())

    def print(self):
        for part in self.parts:
            rows = [r for r in self.rows if r["part"] == part]
            if rows:
                self._print_part(part, rows)
        for c in self.curves:
            print(f"\n{c['name']} ({c['unit']})")
            table = [[c["x"], *[number(x) for x in c["xs"]], "slope"]]
            table += [[k, *[number(y) for y in ys], number(c["slopes"][k])]
                      for k, ys in c["series"].items()]
            self._print(table)
        self._print_goals()

    def _print_part(self, part, rows):
        places = self._places(rows)
        print(f"\n{part} (load {self.parts[part]['load']:.1f})")
        table = [["", "unit", *places, "requests", "CPU s", "ext4's", "MiB", "ext4's"]]
        for r in rows:
            ours, theirs = r["usage"].get("bough"), r["usage"].get("ext4")

            def cell(u, key, form):
                return form(u[key]) if u else ""
            table.append([
                r["name"], r["unit"], *[number(r["values"][p]) if p in r["values"] else "" for p in places],
                cell(ours, "requests", lambda q: str(sum(q.values()))),
                cell(ours, "cpu_s", number), cell(theirs, "cpu_s", number),
                cell(ours, "written_bytes", lambda b: number(b / 2**20)),
                cell(theirs, "written_bytes", lambda b: number(b / 2**20))])
        self._print(table, left=2)
        for r in rows:
            q = r["usage"].get("bough", {}).get("requests")
            if q:
                print(f"    {r['name']}: " + " ".join(f"{k} {v}" for k, v in list(q.items())[:7]))

    def _print_goals(self):
        table = [["goal of", "goal", "measured", ""]]
        for r in self.rows:
            for v in judge(r):
                table.append([r["name"], v["goal"], number(v["value"]),
                              {None: "not measured", True: "met", False: "MISSED"}[v["met"]]])
        if len(table) > 1:
            print()
            self._print(table)

    def missed(self):
        return [r["name"] for r in self.rows if any(v["met"] is False for v in judge(r))]

    def as_dict(self):
        rows = [dict(r, goals=judge(r)) for r in self.rows]
        return dict(parts=self.parts, rows=rows, curves=self.curves)
