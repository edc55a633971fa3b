#!/usr/bin/env python3
"""An agent's task: a scoped checkout in a sandbox, what runs there as it happens, a patch, a commit.

    agent.py [--patch FILE] REPOSITORY SCOPE BRANCH -- COMMAND…

Mounts the part SCOPE of a repository that boughd mirrors (REPOSITORY is its name, or a URL, which is then
added) as /workspace of a sandbox that has this machine's programs to read and run: no network, no
credential, no other file. COMMAND runs there, as the agent would have it; what it prints comes at once.
What it changed is shown, written as a patch to FILE, and committed to BRANCH, a new one, from outside.
Sandbox and workspace are gone at the end; the commit is in the mirror. What fails leaves no commit."""

import argparse
import shutil
import sys
import uuid

import bough

LIMITS = {"memory_bytes": 1 << 30, "cpu_milli": 1000, "pids": 256}
LIFE = {"ttl_s": 3600, "on_expiry": "delete"}  # whatever becomes of us


def repository(client, wanted):
    for repo in client.repos.list():
        if wanted in (repo["name"], repo.get("url")):
            if repo.get("url"):  # one that came from a path is as its owner last sent it
                client.repos.fetch(repo["name"])
            return repo["name"]
    return client.repos.add(wanted)["name"]


def is_taken(repo, branch):
    """Told before the task is done, not after."""
    return any(branch == one["name"] for one in repo["branch_list"])


def run(box, command):
    """To its end, in front of whoever looks on; its exit code."""
    task = box.exec(command, cwd="/workspace", timeout_ms=1800 * 1000)
    for stream, data in task.stream():
        to = getattr(sys, stream).buffer
        to.write(data)
        to.flush()
    return task.info["exit_code"]


def arguments():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--patch")
    for name in ("repository", "scope", "branch"):
        p.add_argument(name)
    p.add_argument("command", nargs="+")
    return p.parse_args()


def main():
    args = arguments()
    with bough.Client() as client:
        repo = client.repos.get(repository(client, args.repository))
        if is_taken(repo, args.branch):
            sys.exit("there is a branch %s already: BRANCH is a new one" % args.branch)
        git = {"repo": repo["name"], "scopes": [args.scope],
               "branch": args.branch, "seen_at": "/workspace"}
        name = "agent-" + uuid.uuid4().hex[:8]
        with client.workspaces.temporary(name, git=git, **LIFE) as ws:
            with client.sandboxes.temporary(name, workspaces=[{"workspace": ws.id}],
                                            **LIMITS, **LIFE) as box:
                code = run(box, args.command)
            if code != 0:
                sys.exit("the task failed (%d): nothing is committed" % code)
            print(ws.diff_text("stat").read().decode(), end="")
            if args.patch:
                with ws.diff_text("patch") as patch, open(args.patch, "wb") as f:
                    shutil.copyfileobj(patch, f)
            commit = ws.commit("agent: " + " ".join(args.command),
                               author="Agent <agent@example.org>")
            if commit.get("unchanged"):
                sys.exit("the task changed nothing")
            print("%s on %s" % (commit["commit"], commit["branch"]))


try:
    main()
except (bough.BoughError, OSError) as e:
    sys.exit("agent.py: %s" % e)
