"""A small web server in front of `git http-backend`, for tests: it can also misbehave.

    git_http.py FOLDER PORT-FILE

/REPO              as it is
/auth/REPO         wants the user x-access-token (or robot) with the password in FOLDER/token
/stall/REPO        answers the first question, then never again
/drip/REPO         sends the pack a few bytes a second
/cut/REPO          closes the connection in the middle of the pack
/flip/REPO         changes a byte of the pack
/moved/HOST:PORT/REPO   sends the client to another server
FOLDER/requests gets a line for each request: method, path, and "auth" where one came.
"""
import base64
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FOLDER = os.path.abspath(sys.argv[1])
MODES = ("auth", "stall", "drip", "cut", "flip", "moved")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *args):
        pass

    def note(self):
        auth = " auth" if self.headers.get("Authorization") else ""
        with open(FOLDER + "/requests", "a") as f:
            f.write(f"{self.command} {self.path}{auth}\n")

    def allowed(self):
        with open(FOLDER + "/token") as f:
            token = f.read().strip()
        given = self.headers.get("Authorization", "")
        users = ("x-access-token", "robot")
        return given in ["Basic " + base64.b64encode(f"{u}:{token}".encode()).decode() for u in users]

    def answer(self):
        self.note()
        parts = self.path.split("?")[0].strip("/").split("/")
        mode = parts[0] if parts[0] in MODES else ""
        parts = parts[1:] if mode else parts
        query = self.path.partition("?")[2]
        if mode == "moved":
            self.send_response(302)
            self.send_header("Location", f"http://{parts[0]}/{'/'.join(parts[1:])}?{query}")
            self.end_headers()
            return
        if mode == "auth" and not self.allowed():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = self.backend(mode, "/" + "/".join(parts), query, body)
        head, _, rest = data.partition(b"\r\n\r\n")
        status = 200
        lines = []
        for line in head.decode().split("\r\n"):
            key, _, value = line.partition(": ")
            if key == "Status":
                status = int(value.split()[0])
            else:
                lines.append((key, value))
        self.send_response(status)
        for key, value in lines:
            self.send_header(key, value)
        self.end_headers()
        self.send(mode if b"PACK" in rest else "", rest)

    def backend(self, mode, path, query, body):
        if mode == "stall" and self.command == "POST" and b"command=ls-refs" not in body:
            time.sleep(3600)
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": FOLDER,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "http.receivepack",
            "GIT_CONFIG_VALUE_0": "true",
            "GIT_CONFIG_KEY_1": "safe.directory",
            "GIT_CONFIG_VALUE_1": "*",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_USER": "tester",
        }
        return subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True).stdout

    def send(self, mode, rest):
        begin = max(rest.find(b"PACK"), 0)
        middle = begin + (len(rest) - begin) // 2 if mode == "cut" else begin + 40
        if mode == "cut":
            rest = rest[:middle]
        elif mode == "flip":
            rest = rest[:middle] + bytes([rest[middle] ^ 255]) + rest[middle + 1:]
        elif mode == "drip":
            for i in range(0, len(rest), 2000):
                self.wfile.write(rest[i:i + 2000])
                self.wfile.flush()
                time.sleep(0.05)
            return
        self.wfile.write(rest)

    do_GET = do_POST = answer


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(sys.argv[2] + ".new", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(sys.argv[2] + ".new", sys.argv[2])
server.serve_forever()
