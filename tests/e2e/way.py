# python3 way.py SOCKET WAY
#
# A way to boughd on which a connection stalls, or breaks, behind so many bytes to it (in) or from it:
# the file WAY says "pass", "stall in BYTES" or, once, "cut out BYTES".
# Its port is in WAY.port, and WAY.stalled comes when a connection has stalled.
import os, select, socket, sys, threading
sock, way = sys.argv[1:]
def serve(client):
    mode, side, most = (open(way).read().split() + ["", "0"])[:3]
    server = socket.socket(socket.AF_UNIX)
    server.connect(sock)
    most = {client: int(most) if side == "in" else 1 << 60, server: int(most) if side == "out" else 1 << 60}
    other, sent, stalled = {client: server, server: client}, {client: 0, server: 0}, False
    while True:
        for s in select.select([client] if stalled else [client, server], [], [])[0]:
            data = s.recv(65536)
            if stalled and data:
                continue
            if not data:
                client.close(), server.close()
                return
            data = data[:most[s] - sent[s]]
            sent[s] += len(data)
            other[s].sendall(data)
            if sent[s] < most[s]:
                continue
            if mode == "cut":
                open(way, "w").write("pass")
                client.close(), server.close()
                return
            stalled = True
            open(way + ".stalled", "w").close()
def run(client):
    try:
        serve(client)
    except OSError:
        client.close()
l = socket.create_server(("127.0.0.1", 0))
open(way + ".port", "w").write(str(l.getsockname()[1]) + "\n")
while True:
    threading.Thread(target=run, args=(l.accept()[0],), daemon=True).start()
