#!/usr/bin/env python3
"""An agent's task: a scoped checkout as a real folder, an edit by whatever program, a commit.

    agent.py REPOSITORY SCOPE BRANCH -- COMMAND…

Mounts the part SCOPE of a repository that boughd mirrors (REPOSITORY is its name, or a URL, which is then
added), runs COMMAND in it as the agent would, and commits what it changed to BRANCH. The workspace is
gone at the end; the commit is in the mirror. What fails leaves no commit. COMMAND is a program of this
machine, with its caller's rights: what nobody has read belongs into a sandbox on the workspace."""

import subprocess
import sys
import uuid

import bough


def repository(client, wanted):
    for repo in client.repos.list():
        if wanted in (repo["name"], repo.get("url")):
            if repo.get("url"):  # one that came from a path is as its owner last sent it
                client.repos.fetch(repo["name"])
            return repo["name"]
    return client.repos.add(wanted)["name"]


def main():
    if len(sys.argv) < 6 or sys.argv[4] != "--":
        sys.exit(__doc__)
    wanted, scope, branch, command = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[5:]
    with bough.Client() as client:
        git = {"repo": repository(client, wanted), "scopes": [scope], "branch": branch}
        name = "agent-" + uuid.uuid4().hex[:8]
        with client.workspaces.temporary(name, git=git, ttl_s=3600) as ws:
            print("works in %s" % ws.path)
            if subprocess.run(command, cwd=ws.path).returncode != 0:
                sys.exit("the task failed: nothing is committed")
            print(ws.diff_text("stat").read().decode(), end="")
            commit = ws.commit("agent: " + " ".join(command),
                               author="Agent <agent@example.org>")
            if commit.get("unchanged"):
                sys.exit("the task changed nothing")
            print("%s on %s" % (commit["commit"], commit["branch"]))


try:
    main()
except bough.BoughError as e:
    sys.exit("agent.py: %s" % e)
