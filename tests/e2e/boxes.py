"""Sandboxes, and what is in them, by ask.py."""
from ask import must

def post(status, target, body={}, key=None):
    return must(status, "POST", "sandboxes" + target, body, key)

def make(name, **more):
    return post(201, "", dict(more, name=name))

def status(name):
    return must(200, "GET", "sandboxes/" + name)["status"]

def files(name):
    """Where its root is mounted."""
    return must(200, "GET", "workspaces/" + must(200, "GET", "sandboxes/" + name)["root"])["path"]

def write(path, text):
    with open(path, "w") as f:
        f.write(text)

def inside(name, *command):
    e = post(201, "/%s/exec" % name, {"command": list(command)})["id"]
    return must(200, "GET", "sandboxes/%s/exec/%s?wait=60" % (name, e))["exit_code"]
