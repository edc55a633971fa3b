"""Bough's client: workspaces for AI agents, chats and CI, over boughd's HTTP API.

    import bough

    with bough.Client() as client, client.workspaces.temporary("try", source="base") as ws:
        ws.files.write("hello.txt", "hello\\n")
        print(ws.save("greeting").id)
"""

from ._http import Body
from .admin import Exports, Quotas, Repositories, Teams, Tokens, Users, Webhooks
from .client import Client, default_socket
from .errors import (AnswerCut, ApiError, BadAnswer, BoughError, Busy, Changed, Conflict,
                     ConnectionFailed, Forbidden, Gone, Invalid, NoSpace, NotFound, TooLarge,
                     TooMany, Unauthenticated, Unavailable)
from .events import Event, EventStream
from .files import SnapshotFiles, WorkspaceFiles, entry_name, summary
from .jobs import Job
from .sandboxes import Exec, Sandbox, Sandboxes
from .terminal import Terminal
from .uploads import Upload
from .workspaces import Snapshot, Snapshots, Workspace, Workspaces

__version__ = "0.1.0"
__all__ = [
    "AnswerCut", "ApiError", "BadAnswer", "Body", "BoughError", "Busy", "Changed", "Client",
    "Conflict", "ConnectionFailed", "Event", "EventStream", "Exec", "Exports", "Forbidden", "Gone",
    "Invalid", "Job", "NoSpace", "NotFound", "Quotas", "Repositories", "Sandbox", "Sandboxes",
    "Snapshot", "SnapshotFiles", "Snapshots", "Teams", "Terminal", "Tokens", "TooLarge", "TooMany",
    "Unauthenticated", "Unavailable", "Upload", "Users", "Webhooks", "Workspace",
    "WorkspaceFiles", "Workspaces", "default_socket", "entry_name", "summary",
]
