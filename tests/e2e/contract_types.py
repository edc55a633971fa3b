"""The clients' types of answers against the contract: each has the same fields, and promises none that
may be missing. contract_types.py OPENAPI [INDEX.D.TS]: the Python client's, or those of that file. TAP."""
import json
import re
import sys
import typing

SCHEMAS = json.load(open(sys.argv[1]))["components"]["schemas"]
# Those that aren't called as the contract's, with "Info" behind that.
OTHERS = {"DiffEntry": ("Difference", "GitChange", "Warning"), "Entry": ("Entry",),
          "MergeInfo": ("Merged",), "UsageInfo": ("Usage/items",), "MemberInfo": ("Team/members",),
          "LimitsInfo": ("Sandbox/limits",), "AttachedInfo": ("Sandbox/workspaces",),
          "OutputInfo": ("Exec/stdout",)}
OURS = {"EventInfo"}  # what the client makes of a line


def schema(path):
    name, *rest = path.split("/")
    s = SCHEMAS[name]
    for part in rest:
        s = s["properties"][part]
        s = s.get("items", s)
    return s


def of_python():
    """Of each type its fields, and those that it promises."""
    from bough import types
    for name, cls in vars(types).items():
        if isinstance(cls, type) and issubclass(cls, dict) and not name.startswith("_"):
            yield name, set(typing.get_type_hints(cls)), set(cls.__required_keys__), False


def of_javascript(text):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    for m in re.finditer(r"export interface (\w+) \{", text):
        depth, end = 1, m.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        body = text[m.end():end - 1]
        while "{" in body:
            body = re.sub(r"\{[^{}]*\}", "", body)
        found = re.findall(r"(\w+)(\??):", body)
        yield m[1], {f for f, _ in found}, {f for f, may in found if not may}, True


n = 0
for name, fields, promised, exact in (of_javascript(open(sys.argv[2]).read()) if sys.argv[2:]
                                      else of_python()):
    if name in OURS or not (name in OTHERS or name.endswith("Info")):
        continue
    of = [schema(path) for path in OTHERS.get(name, (name[:-4],))]
    want = {f for s in of for f in s["properties"]}
    always = set.intersection(*({*s.get("required", ())} for s in of))
    wrong = ["it lacks " + f for f in want - fields] + ["there is no " + f for f in fields - want]
    wrong += [f + " may be missing" for f in promised - always]
    wrong += [f + " is always there" for f in always - promised if exact]
    n += 1
    print("%sok %d - the type %s is the contract's" % ("not " if wrong else "", n, name))
    for line in sorted(wrong):
        print("# " + line)
n += 1
print("%sok %d - %d types" % ("" if n > 30 else "not ", n, n - 1))
