-- A catalog of version 17, when teams had no ids; with two teams.
PRAGMA user_version = 17;
CREATE TABLE attached (sandbox TEXT NOT NULL, target TEXT NOT NULL,
 workspace TEXT NOT NULL, read_only INTEGER NOT NULL, exclusive INTEGER NOT NULL,
 caller TEXT, own INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (sandbox,
 target)) WITHOUT ROWID;
CREATE TABLE audit (seq INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL,
 owner TEXT NOT NULL, token TEXT, source TEXT NOT NULL, method TEXT NOT NULL,
 path TEXT NOT NULL, object TEXT, status INTEGER NOT NULL, about TEXT);
CREATE TABLE deliveries (seq INTEGER PRIMARY KEY AUTOINCREMENT,
 id TEXT NOT NULL, hook TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL,
 created INTEGER NOT NULL, next INTEGER, tries INTEGER NOT NULL,
 status INTEGER, delivered INTEGER NOT NULL, error TEXT);
CREATE TABLE execs (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
 sandbox TEXT NOT NULL, caller TEXT NOT NULL, spec TEXT NOT NULL,
 status INTEGER NOT NULL, reason TEXT, exit_code INTEGER, pid INTEGER,
 created INTEGER NOT NULL, started INTEGER, ended INTEGER);
CREATE TABLE jobs (id TEXT PRIMARY KEY, owner TEXT NOT NULL, object TEXT,
 state TEXT NOT NULL, path TEXT NOT NULL, answer TEXT, status INTEGER,
 created INTEGER NOT NULL, ended INTEGER, again TEXT, begun INTEGER NOT NULL DEFAULT 0);
CREATE TABLE members (team TEXT NOT NULL, owner TEXT NOT NULL,
 role INTEGER NOT NULL, PRIMARY KEY (team, owner)) WITHOUT ROWID;
CREATE TABLE owners (owner TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE quotas (owner TEXT PRIMARY KEY, workspaces INTEGER,
 snapshots INTEGER, bytes INTEGER) WITHOUT ROWID;
CREATE TABLE repeats (owner TEXT NOT NULL, method TEXT NOT NULL,
 path TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, time INTEGER NOT NULL,
 effect TEXT, status INTEGER, answer TEXT, job TEXT, sum BLOB,
 PRIMARY KEY (owner, method, path, key));
CREATE TABLE "repos" ( number INTEGER PRIMARY KEY AUTOINCREMENT,
 name TEXT NOT NULL, url TEXT NOT NULL, is_path INTEGER NOT NULL,
 is_global INTEGER NOT NULL, owner TEXT NOT NULL, created INTEGER NOT NULL,
 fetched INTEGER NOT NULL, head TEXT, UNIQUE (owner, name));
CREATE TABLE sandboxes ( seq INTEGER PRIMARY KEY AUTOINCREMENT,
 id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, created INTEGER NOT NULL,
 owner TEXT NOT NULL, visibility INTEGER NOT NULL, team TEXT, expires INTEGER,
 on_expiry INTEGER NOT NULL, labels TEXT, description TEXT, status INTEGER NOT NULL,
 problem TEXT, reason TEXT, exit_code INTEGER, root TEXT, spec TEXT NOT NULL,
 policy TEXT, pid INTEGER, id_base INTEGER UNIQUE, started INTEGER,
 ended INTEGER, active INTEGER NOT NULL, made INTEGER NOT NULL,
 starting INTEGER NOT NULL DEFAULT 0, UNIQUE (owner, name));
CREATE TABLE "snapshot_names" ( owner TEXT NOT NULL, name TEXT NOT NULL,
 snapshot TEXT NOT NULL, pos INTEGER NOT NULL, PRIMARY KEY (owner,
 name)) WITHOUT ROWID;
CREATE TABLE snapshots ( seq INTEGER PRIMARY KEY AUTOINCREMENT,
 id TEXT NOT NULL UNIQUE, created INTEGER NOT NULL, workspace TEXT,
 parent TEXT, manifest BLOB NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,
 stored_bytes INTEGER NOT NULL, message TEXT, labels TEXT, git TEXT,
 owner TEXT NOT NULL DEFAULT '', visibility INTEGER NOT NULL DEFAULT 0,
 team TEXT, expires INTEGER, on_expiry INTEGER NOT NULL DEFAULT 0,
 image TEXT);
CREATE TABLE teams (name TEXT PRIMARY KEY, created INTEGER NOT NULL);
CREATE TABLE tokens (id TEXT PRIMARY KEY, hash BLOB NOT NULL,
 owner TEXT NOT NULL, name TEXT, scope TEXT NOT NULL, read_only INTEGER NOT NULL,
 created INTEGER NOT NULL, expires INTEGER, used INTEGER, path TEXT);
CREATE TABLE users (name TEXT PRIMARY KEY, uid INTEGER UNIQUE,
 admin INTEGER NOT NULL, created INTEGER NOT NULL, owner TEXT);
CREATE TABLE webhooks (id TEXT PRIMARY KEY, owner TEXT NOT NULL,
 everybody INTEGER NOT NULL, active INTEGER NOT NULL, url TEXT NOT NULL,
 events TEXT, secret BLOB NOT NULL, created INTEGER NOT NULL, anywhere INTEGER NOT NULL DEFAULT 0);
CREATE TABLE "workspaces" ( seq INTEGER PRIMARY KEY AUTOINCREMENT,
 id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, created INTEGER NOT NULL,
 base TEXT, head TEXT, parent TEXT, quota_bytes INTEGER NOT NULL,
 quota_inodes INTEGER NOT NULL, mount INTEGER NOT NULL, broken TEXT,
 labels TEXT, head_stack BLOB, git TEXT, owner TEXT NOT NULL DEFAULT '',
 visibility INTEGER NOT NULL DEFAULT 0, team TEXT, expires INTEGER,
 on_expiry INTEGER NOT NULL DEFAULT 0, description TEXT, sandbox TEXT,
 removed INTEGER, purge INTEGER, was TEXT, UNIQUE (owner, name));
CREATE INDEX attached_workspace ON attached(workspace);
CREATE INDEX audit_object ON audit(object);
CREATE INDEX deliveries_hook ON deliveries(hook);
CREATE INDEX deliveries_next ON deliveries(next) WHERE next IS NOT NULL;
CREATE INDEX execs_sandbox ON execs(sandbox);
CREATE INDEX jobs_owner ON jobs(owner);
CREATE INDEX repeats_job ON repeats(job) WHERE job IS NOT NULL;
CREATE INDEX repeats_time ON repeats(time);
CREATE INDEX repos_name ON repos(name);
CREATE INDEX sandboxes_expires ON sandboxes(expires) WHERE expires IS NOT NULL;
CREATE INDEX sandboxes_name ON sandboxes(name);
CREATE INDEX snapshot_names_name ON snapshot_names(name);
CREATE INDEX snapshot_names_snapshot ON snapshot_names(snapshot);
CREATE INDEX snapshots_expires ON snapshots(expires) WHERE expires IS NOT NULL;
CREATE INDEX snapshots_image ON snapshots(image) WHERE image IS NOT NULL;
CREATE INDEX snapshots_parent ON snapshots(parent);
CREATE INDEX snapshots_workspace ON snapshots(workspace);
CREATE INDEX workspaces_expires ON workspaces(expires) WHERE expires IS NOT NULL;
CREATE INDEX workspaces_head ON workspaces(head);
CREATE INDEX workspaces_name ON workspaces(name);
CREATE INDEX workspaces_purge ON workspaces(purge) WHERE purge IS NOT NULL;
INSERT INTO teams VALUES ('web', 11), ('ops', 12);
INSERT INTO members VALUES ('web', 'uid:7', 2), ('web', 'uid:3', 1), ('ops', 'uid:9', 0),
 ('gone', 'uid:9', 2);
INSERT INTO workspaces (id, name, created, quota_bytes, quota_inodes, mount, owner,
 visibility, team) VALUES ('ws_aaaaaaaaaa', 'a', 1, 0, 0, 0, 'uid:5', 1, 'web');
INSERT INTO workspaces (id, name, created, quota_bytes, quota_inodes, mount, owner,
 visibility, team) VALUES ('ws_bbbbbbbbbb', 'b', 1, 0, 0, 0, 'uid:5', 1, 'gone');
INSERT INTO workspaces (id, name, created, quota_bytes, quota_inodes, mount, owner,
 visibility, team) VALUES ('ws_cccccccccc', 'c', 1, 0, 0, 0, 'uid:5', 2, NULL);
INSERT INTO snapshots (id, created, manifest, files, bytes, stored_bytes, owner, visibility,
 team) VALUES ('sn_aaaaaaaaaa', 1, zeroblob(32), 1, 1, 1, 'uid:5', 1, 'web');
INSERT INTO sandboxes (id, name, created, owner, visibility, team, on_expiry, status, spec,
 active, made) VALUES ('sb_aaaaaaaaaa', 's', 1, 'uid:5', 1, 'web', 0, 0, '{}', 1, 1),
 ('sb_bbbbbbbbbb', 't', 1, 'uid:5', 1, 'gone', 0, 0, '{}', 1, 1);
