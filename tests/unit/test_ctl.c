/* The control protocol: what is accepted, what is answered, and a whole conversation with a
 * server; mounted where that is possible. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "fs/base/frame.h"
#include "fs/base/io.h"
#include "fs/mount/ctl.h"
#include "fs/mount/ctl_msg.h"
#include "fs/mount/ctl_ops.h"
#include "fs/mount/mnt.h"
#include "fs/mount/server.h"
#include "tests/unit/oom.h"

static char folder[512];

static int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(folder, sizeof(folder), "%s/test_ctl.XXXXXX", tmp ? tmp : "/tmp");
	sigset_t ends;
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &ends, NULL);
	return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	return io_remove_tree(AT_FDCWD, folder, NULL);
}

/* ---- parsing ---- */

static void good_requests(void **state)
{
	static const struct {
		const char *text;
		enum ctl_op op;
	} table[] = {
		{ "{\"op\":\"hello\"}", CTL_HELLO },
		{ " {\"op\" : \"create\", \"id\":\"a\", \"uid\":0, \"gid\":4294967294}",
		  CTL_CREATE },
		{ "{\"id\":\"ws_09az\",\"op\":\"mount\",\"path\":\"/x\"}", CTL_MOUNT },
		{ "{\"op\":\"limits\",\"id\":\"a\",\"bytes\":9223372036854775807,\"inodes\":0}",
		  CTL_LIMITS },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[{\"id\":\"b\"}]}", CTL_FORK },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":1,\"name\":\"ff20\",\"file\":2}", CTL_PUT },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":1,\"name\":\"61\",\"file\":2,\"mode\":4095,"
		  "\"as_is\":true,\"exist\":false,\"match\":[\"1.0.a\",\"2.1.b\"],"
		  "\"unless\":[\"1.0.0\"]}",
		  CTL_PUT },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":1,\"name\":\"61\",\"upload\":[\"u\",7],"
		  "\"mode\":384,\"tag\":1}",
		  CTL_PUT },
		{ "{\"op\":\"take\",\"id\":\"a\",\"dir\":1,\"name\":\"61\"}", CTL_TAKE },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[{\"id\":\"b\",\"xattrs\":true}]}",
		  CTL_FORK },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[{\"id\":\"b\",\"heir\":true}]}",
		  CTL_FORK },
		{ "{\"op\":\"create\",\"id\":\"a\",\"uid\":0,\"gid\":0,\"xattrs\":false}",
		  CTL_CREATE },
		{ "{\"op\":\"sweep\",\"known\":[]}", CTL_SWEEP },
		{ "{\"op\":\"list\"}", CTL_LIST },
		{ "{\"op\":\"list\",\"after\":\"a\"}", CTL_LIST },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		struct ctl_request q;
		struct err err;
		assert_int_equal(ctl_parse(table[i].text, strlen(table[i].text), &q, &err), 0);
		assert_int_equal(q.op, table[i].op);
		ctl_request_done(&q);
	}
}

static void bad_requests(void **state)
{
	static const struct {
		const char *text, *says;
	} table[] = {
		{ "", "not JSON" },
		{ "x", "not JSON" },
		{ "{\"op\":\"hello\"} x", "not JSON" },
		{ "{\"op\":\"hello\",\"op\":\"quit\"}", "not JSON" },
		{ "[]", "\"op\"" },
		{ "\"hello\"", "not JSON" },
		{ "{}", "\"op\"" },
		{ "{\"op\":1}", "\"op\"" },
		{ "{\"op\":\"Hello\"}", "unknown op" },
		{ "{\"op\":\"hello\",\"id\":\"a\"}", "unknown field id" },
		{ "{\"op\":\"umount\"}", "id is missing" },
		{ "{\"op\":\"umount\",\"id\":1}", "id:" },
		{ "{\"op\":\"umount\",\"id\":\"\"}", "id:" },
		{ "{\"op\":\"umount\",\"id\":\"A\"}", "id:" },
		{ "{\"op\":\"umount\",\"id\":\"../a\"}", "id:" },
		{ "{\"op\":\"umount\",\"id\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
		  "id:" },
		{ "{\"op\":\"mount\",\"id\":\"a\",\"path\":\"x\"}", "path:" },
		{ "{\"op\":\"mount\",\"id\":\"a\",\"path\":\"\"}", "path:" },
		{ "{\"op\":\"mount\",\"id\":\"a\",\"path\":\"/a\\u0000b\"}", "not JSON" },
		{ "{\"op\":\"limits\",\"id\":\"a\",\"bytes\":-1,\"inodes\":0}", "bytes:" },
		{ "{\"op\":\"limits\",\"id\":\"a\",\"bytes\":1.0,\"inodes\":0}", "bytes:" },
		{ "{\"op\":\"limits\",\"id\":\"a\",\"bytes\":9223372036854775808,\"inodes\":0}",
		  "not JSON" },
		{ "{\"op\":\"create\",\"id\":\"a\",\"uid\":4294967295,\"gid\":0}", "uid:" },
		{ "{\"op\":\"create\",\"id\":\"a\",\"uid\":0}", "gid is missing" },
		{ "{\"op\":\"create\",\"id\":\"a\",\"uid\":0,\"gid\":0,\"xattrs\":0}", "xattrs:" },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[{\"id\":\"b\",\"heir\":1}]}",
		  "heir:" },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[{\"id\":\"b\",\"xattrs\":1}]}",
		  "xattrs:" },
		{ "{\"op\":\"create\",\"id\":\"a\",\"uid\":0,\"gid\":0,\"stack\":\"00\"}",
		  "stack:" },
		{ "{\"op\":\"restore\",\"id\":\"a\",\"stack\":\"0g\"}", "stack:" },
		{ "{\"op\":\"restore\",\"id\":\"a\",\"stack\":\"0\"}", "stack:" },
		{ "{\"op\":\"restore\",\"id\":\"a\",\"stack\":7}", "stack:" },
		{ "{\"op\":\"restore\",\"id\":\"a\",\"expect\":7}", "expect:" },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[]}", "children:" },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":{}}", "children:" },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[1]}", "children:" },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[{}]}", "id of a child" },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[{\"id\":\"b\",\"x\":1}]}",
		  "unknown field" },
		{ "{\"op\":\"fork\",\"id\":\"a\",\"children\":[{\"id\":\"b\",\"path\":7}]}",
		  "path:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":1,\"name\":\"61\"}", "is needed" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":1,\"name\":\"61\",\"file\":2,"
		  "\"upload\":[\"u\",7]}",
		  "is needed" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"upload\":\"u\"}", "upload:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"upload\":[7,\"u\"]}", "upload:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"upload\":[\"u\",-1]}", "upload:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"upload\":[\"u\",1,2]}", "upload:" },
		{ "{\"op\":\"take\",\"id\":\"a\",\"upload\":[\"u\",1]}", "unknown field" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":1,\"file\":2,\"name\":\"\"}", "name:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":1,\"file\":2,\"name\":\"6\"}", "name:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":1,\"file\":2,\"name\":\"6g\"}", "name:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":-1,\"file\":2,\"name\":\"61\"}", "dir:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"dir\":281474976710656,\"file\":2,"
		  "\"name\":\"61\"}",
		  "dir:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"mode\":4096}", "mode:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"as_is\":1}", "as_is:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"exist\":1}", "exist:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"match\":[]}", "match:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"match\":[1]}", "match:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"match\":[\"x\"]}", "match:" },
		{ "{\"op\":\"put\",\"id\":\"a\",\"unless\":\"1.0.0\"}", "unless:" },
		{ "{\"op\":\"sweep\"}", "known is missing" },
		{ "{\"op\":\"sweep\",\"known\":\"a\"}", "known:" },
		{ "{\"op\":\"sweep\",\"known\":[\"a\",\"\"]}", "known:" },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		struct ctl_request q;
		struct err err = { 0 };
		int r = ctl_parse(table[i].text, strlen(table[i].text), &q, &err);
		if (r != -EINVAL || err.code != r || !strstr(err.text, table[i].says))
			fail_msg("%s gave %d %s", table[i].text, r, err.text);
	}
}

static void known_ids(void **state)
{
	static const char text[] = "{\"op\":\"sweep\",\"known\":[\"m\",\"b\",\"z_9\",\"b\"]}";
	struct ctl_request q;
	assert_int_equal(ctl_parse(text, strlen(text), &q, NULL), 0);
	assert_true(ctl_knows(&q, "m") && ctl_knows(&q, "b") && ctl_knows(&q, "z_9"));
	assert_false(ctl_knows(&q, "a") || ctl_knows(&q, "z") || ctl_knows(&q, ""));
	ctl_request_done(&q);
}

static void parsing_out_of_memory(void **state)
{
	static const char text[] = "{\"op\":\"fork\",\"id\":\"a\",\"children\":[{\"id\":\"b\"}]}";
	for (uint64_t n = 1;; n++) {
		struct ctl_request q;
		oom_at(n);
		int r = ctl_parse(text, strlen(text), &q, NULL);
		bool hit = oom_hit();
		assert_int_equal(r, hit ? -ENOMEM : 0);
		if (!hit) {
			ctl_request_done(&q);
			break;
		}
	}
}

static void fuse_conf(void **state)
{
	assert_true(mnt_conf_allows_other("user_allow_other"));
	assert_true(mnt_conf_allows_other("# x\n  user_allow_other \t\r\nmount_max = 5\n"));
	assert_false(mnt_conf_allows_other(""));
	assert_false(mnt_conf_allows_other("#user_allow_other\n"));
	assert_false(
		mnt_conf_allows_other("user_allow_others\nuser_allow_othe\nx user_allow_other"));
}

/* ---- a conversation ---- */

static struct server *open_server(const char *name)
{
	auto_free char *root = NULL;
	assert_true(asprintf(&root, "%s/%s", folder, name) > 0);
	struct server_options opt = { .root = root };
	struct server *s;
	struct err err;
	if (server_open(&s, &opt, &err) < 0)
		fail_msg("%s", err.text);
	return s;
}

static struct peer peer = { .number = 1 }; /* who asks */

/* The answer to one request, checked to be `ok` or the error; the caller gives it back. */
static json_t *talk(struct server *s, int error, const char *fmt, ...)
{
	char text[4096];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++) /* so that the tests stay readable */
		if (*p == '\'')
			*p = '"';
	auto_buf out = { 0 };
	enum ctl_end end = CTL_GO_ON;
	assert_int_equal(ctl_answer(s, &peer, text, strlen(text), -1, &out, &end), 0);
	json_t *j = json_loadb((char *)out.data, out.len, 0, NULL);
	assert_non_null(j);
	int got = (int)json_integer_value(json_object_get(json_object_get(j, "error"), "errno"));
	if (got != error || json_is_true(json_object_get(j, "ok")) != (error == 0))
		fail_msg("%s -> %.*s", text, (int)out.len, (char *)out.data);
	return j;
}

static void tell(struct server *s, int error, const char *fmt, const char *a, const char *b)
{
	char text[4096];
	(void)snprintf(text, sizeof(text), fmt, a, b);
	json_decref(talk(s, error, "%s", text));
}

/* What a process that is gone had sent isn't done any more. */
static void settles(void **state)
{
	struct server *s = open_server("settles");
	tell(s, 0, "{'op':'create','id':'%s','uid':0,'gid':0}", "a", NULL);
	peer.number = 5;
	tell(s, 0, "{'op':'settle'}", NULL, NULL);
	tell(s, 0, "{'op':'seal','id':'%s'}", "a", NULL);
	peer.number = 4;
	tell(s, ECONNRESET, "{'op':'seal','id':'%s'}", "a", NULL);
	tell(s, ECONNRESET, "{'op':'delete','id':'%s'}", "a", NULL);
	tell(s, ECONNRESET, "{'op':'usage','id':'%s'}", "a", NULL);
	peer.number = 6; /* the next one */
	tell(s, 0, "{'op':'delete','id':'%s'}", "a", NULL);
	peer.number = 1;
	assert_int_equal(server_close(s, NULL), 0);
}

static void lives(void **state)
{
	struct server *s = open_server("lives");
	json_t *j = talk(s, 0, "{'op':'hello'}");
	assert_int_equal(json_integer_value(json_object_get(j, "pid")), getpid());
	assert_string_equal(json_string_value(json_object_get(j, "transport")), "dev");
	json_decref(j);
	tell(s, ENOENT, "{'op':'usage','id':'%s'}", "none", NULL);
	tell(s, ENOENT, "{'op':'delete','id':'%s'}", "none", NULL);
	tell(s, 0, "{'op':'close','id':'%s'}", "none", NULL);
	tell(s, 0, "{'op':'create','id':'%s','uid':0,'gid':0,'bytes':1048576}", "a", NULL);
	tell(s, EEXIST, "{'op':'create','id':'%s','uid':0,'gid':0}", "a", NULL);
	tell(s, 0, "{'op':'limits','id':'%s','bytes':5000000,'inodes':77}", "a", NULL);
	j = talk(s, 0, "{'op':'usage','id':'a'}");
	assert_int_equal(json_integer_value(json_object_get(j, "limit_bytes")), 5000000);
	assert_int_equal(json_integer_value(json_object_get(j, "limit_inodes")), 77);
	assert_true(json_is_false(json_object_get(j, "mounted")));
	assert_true(json_is_null(json_object_get(j, "path")));
	json_decref(j);
	j = talk(s, 0,
		 "{'op':'fork','id':'a','children':[{'id':'b'},{'id':'c','inodes':5,"
		 "'xattrs':false}]}");
	assert_true(json_is_integer(json_object_get(j, "pause_ns")));
	json_decref(j);
	j = talk(s, 0, "{'op':'usage','id':'b'}");
	assert_true(json_is_true(json_object_get(j, "xattrs")));
	assert_int_equal(json_integer_value(json_object_get(j, "limit_inodes")), 0);
	json_decref(j);
	j = talk(s, 0, "{'op':'usage','id':'c'}");
	assert_true(json_is_false(json_object_get(j, "xattrs")));
	assert_int_equal(json_integer_value(json_object_get(j, "limit_inodes")), 5);
	json_decref(j);
	tell(s, EEXIST, "{'op':'fork','id':'a','children':[{'id':'%s'},{'id':'b'}]}", "d", NULL);
	tell(s, ENOENT, "{'op':'usage','id':'%s'}", "d", NULL);
	tell(s, EINVAL, "{'op':'fork','id':'a','children':[{'id':'%s'},{'id':'d'}]}", "d", NULL);
	tell(s, EEXIST, "{'op':'fork','id':'a','children':[{'id':'%s'}]}", "a", NULL);
	j = talk(s, 0, "{'op':'list'}");
	json_t *list = json_object_get(j, "workspaces");
	assert_int_equal(json_array_size(list), 3);
	static const char *const order[] = { "a", "b", "c" };
	for (size_t i = 0; i < 3; i++)
		assert_string_equal(json_string_value(
					    json_object_get(json_array_get(list, i), "id")),
				    order[i]);
	json_decref(j);
	j = talk(s, 0, "{'op':'list','after':'b'}");
	assert_int_equal(json_array_size(json_object_get(j, "workspaces")), 1);
	json_decref(j);
	/* A sealed stack goes out and comes back. */
	j = talk(s, 0, "{'op':'seal','id':'a'}");
	auto_free char *stack = strdup(json_string_value(json_object_get(j, "stack")));
	json_decref(j);
	j = talk(s, 0, "{'op':'stack','id':'a'}");
	assert_string_equal(json_string_value(json_object_get(j, "stack")), stack);
	json_decref(j);
	j = talk(s, 0, "{'op':'restore','id':'a','stack':'%s'}", stack);
	assert_int_equal(json_integer_value(json_object_get(j, "names")), 0);
	json_decref(j);
	tell(s, 0, "{'op':'create','id':'e','uid':1,'gid':2,'stack':'%s'}", stack, NULL);
	tell(s, 0, "{'op':'sync','id':'%s'}", "a", NULL);
	tell(s, EBUSY, "{'op':'sweep','known':['%s']}", "a", NULL);
	tell(s, 0, "{'op':'trim'%s}", "", NULL);
	tell(s, 0, "{'op':'delete','id':'%s'}", "b", NULL);
	tell(s, ENOENT, "{'op':'usage','id':'%s'}", "b", NULL);
	tell(s, 0, "{'op':'close','id':'%s'}", "a", NULL);
	tell(s, 0, "{'op':'usage','id':'%s'}", "a", NULL); /* opened again by the question */
	struct err err;
	if (server_close(s, &err) < 0)
		fail_msg("%s", err.text);
	/* The next server finds what there was, and sweeps what isn't known. */
	s = open_server("lives");
	tell(s, 0, "{'op':'sweep','known':['%s','%s']}", "a", "e");
	tell(s, 0, "{'op':'usage','id':'%s'}", "a", NULL);
	tell(s, ENOENT, "{'op':'usage','id':'%s'}", "c", NULL);
	assert_int_equal(server_close(s, NULL), 0);
}

/* Every allocation fails once: an operation is done whole, or an error and nothing of it. */
static void out_of_memory(void **state)
{
	static const struct {
		const char *text;
		size_t makes;
	} ops[] = {
		{ "{\"op\":\"create\",\"id\":\"new\",\"uid\":0,\"gid\":0}", 1 },
		{ "{\"op\":\"fork\",\"id\":\"a\","
		  "\"children\":[{\"id\":\"new\"},{\"id\":\"new2\"}]}",
		  2 },
	};
	struct server *s = open_server("oom");
	tell(s, 0, "{'op':'create','id':'%s','uid':0,'gid':0}", "a", NULL);
	bool hit = true;
	uint64_t n = 0;
	for (size_t i = 0; i < 2; i += !hit) {
		n = hit ? n + 1 : 1;
		auto_buf out = { 0 };
		enum ctl_end end;
		oom_at(n);
		int r = ctl_answer(s, &peer, ops[i].text, strlen(ops[i].text), -1, &out, &end);
		hit = oom_hit();
		buf_u8(&out, 0);
		const char *answer = (char *)out.data;
		json_t *j = talk(s, 0, "{'op':'list'}");
		size_t made = json_array_size(json_object_get(j, "workspaces")) - 1;
		json_decref(j);
		if (r == 0 && strstr(answer, "\"ok\":true"))
			assert_int_equal(made, ops[i].makes);
		else if (r == 0 && !strstr(answer, "\"done, but"))
			assert_int_equal(made, 0);
		assert_true(made == 0 || made == ops[i].makes);
		assert_true(hit || made);
		tell(s, made ? 0 : ENOENT, "{'op':'delete','id':'%s'}", "new", NULL);
		tell(s, made > 1 ? 0 : ENOENT, "{'op':'delete','id':'%s'}", "new2", NULL);
	}
	assert_int_equal(server_close(s, NULL), 0);
}

static bool can_mount(void)
{
	return geteuid() == 0 && access("/dev/fuse", R_OK | W_OK) == 0;
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static bool is(const char *path, const char *text)
{
	auto_free void *data = NULL;
	size_t len;
	return io_slurp(NULL, AT_FDCWD, path, 4096, &data, &len, NULL) == 0 &&
	       strcmp(data, text) == 0;
}

static void mounted(void **state)
{
	if (!can_mount()) {
		print_message("skip: needs root and /dev/fuse\n");
		skip();
	}
	struct server *s = open_server("mounted");
	char a[600], b[600], file[700];
	(void)snprintf(a, sizeof(a), "%s/mnt_a", folder);
	(void)snprintf(b, sizeof(b), "%s/mnt_b", folder);
	tell(s, 0, "{'op':'create','id':'a','uid':0,'gid':0,'path':'%s'}", a, NULL);
	tell(s, 0, "{'op':'mount','id':'a','path':'%s'}", a, NULL); /* already */
	tell(s, EBUSY, "{'op':'mount','id':'a','path':'%s'}", b, NULL);
	(void)snprintf(file, sizeof(file), "%s/f", a);
	put(file, "before");
	tell(s, 0, "{'op':'fork','id':'a','children':[{'id':'b','path':'%s'}]}", b, NULL);
	put(file, "after the fork");
	(void)snprintf(file, sizeof(file), "%s/f", b);
	assert_true(is(file, "before"));
	json_t *j = talk(s, 0, "{'op':'seal','id':'b'}");
	auto_free char *stack = strdup(json_string_value(json_object_get(j, "stack")));
	json_decref(j);
	put(file, "changed");
	(void)snprintf(file, sizeof(file), "%s/new", b);
	put(file, "new");
	/* In place, mounted, with what the kernel has cached of it. */
	char gone[700];
	(void)snprintf(gone, sizeof(gone), "%s/f", b);
	int stale = open(gone, O_RDONLY | O_CLOEXEC);
	assert_true(stale >= 0);
	j = talk(s, 0, "{'op':'restore','id':'b','stack':'%s'}", stack);
	assert_true(json_integer_value(json_object_get(j, "names")) >= 1);
	json_decref(j);
	assert_int_equal(access(file, F_OK), -1);
	(void)snprintf(file, sizeof(file), "%s/f", b);
	assert_true(is(file, "before"));
	char byte;
	assert_int_equal(pread(stale, &byte, 1, 0), -1); /* what it was open on is no more */
	assert_int_equal(errno, ESTALE);
	close(stale);
	/* A busy one is detached, and who has it open goes on. */
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	j = talk(s, 0, "{'op':'umount','id':'b'}");
	assert_true(json_is_true(json_object_get(j, "busy")));
	json_decref(j);
	char buf[8];
	assert_int_equal(pread(fd, buf, 6, 0), 6);
	j = talk(s, 0, "{'op':'usage','id':'b'}");
	assert_true(json_is_false(json_object_get(j, "mounted")));
	json_decref(j);
	/* Mounted again, the old one ends: one superblock a workspace. */
	tell(s, 0, "{'op':'mount','id':'b','path':'%s'}", b, NULL);
	assert_true(is(file, "before"));
	struct stat st;
	assert_int_equal(fstat(fd, &st), -1);
	close(fd);
	/* Taken away by hand. */
	assert_int_equal(mnt_umount(b, NULL), 0);
	j = talk(s, 0, "{'op':'usage','id':'b'}");
	assert_true(json_is_false(json_object_get(j, "mounted")));
	json_decref(j);
	tell(s, 0, "{'op':'mount','id':'b','path':'%s'}", b, NULL);
	tell(s, 0, "{'op':'umount','id':'%s'}", "b", NULL);
	tell(s, EBUSY, "{'op':'mount','id':'b','path':'%s'}", a, NULL); /* a's place */
	(void)snprintf(file, sizeof(file), "%s/none/x", folder);
	tell(s, ENOENT, "{'op':'mount','id':'b','path':'%s'}", file, NULL);
	tell(s, ENOENT, "{'op':'fork','id':'a','children':[{'id':'c'},{'id':'d','path':'%s'}]}",
	     file, NULL);
	tell(s, ENOENT, "{'op':'usage','id':'%s'}", "c", NULL); /* none is left */
	j = talk(s, 0, "{'op':'stats'}");
	assert_true(json_integer_value(json_object_get(json_object_get(j, "opcodes"), "MKNOD")) >=
		    2);
	assert_true(json_integer_value(json_object_get(j, "requests")) > 10);
	assert_non_null(json_object_get(json_object_get(j, "mounts"), "a"));
	json_decref(j);
	tell(s, 0, "{'op':'delete','id':'%s'}", "a", NULL);
	assert_int_equal(access(a, F_OK), -1); /* nobody can write where it was */
	assert_int_equal(errno, ENOENT);
	struct err err;
	if (server_close(s, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(access(b, F_OK), -1);
	assert_int_equal(errno, ENOENT);
}

struct running {
	struct ctl *ctl;
	int result;
};

static void *run(void *arg)
{
	struct running *r = arg;
	r->result = ctl_run(r->ctl, NULL);
	return NULL;
}

static void *end_by_thread(struct server *s, const char *path, void (*end)(const char *path))
{
	struct running r;
	struct err err;
	if (ctl_open(&r.ctl, s, path, &err) < 0)
		fail_msg("%s", err.text);
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, run, &r), 0);
	end(path);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(r.result, 0);
	ctl_close(r.ctl);
	assert_int_equal(access(path, F_OK), -1);
	return NULL;
}

static bool answers(int fd, const char *text, const char *want)
{
	struct frame f = { 0 };
	buf_printf(&f.text, "%s", text);
	assert_int_equal(frame_send(fd, &f, NULL), 0);
	assert_int_equal(frame_recv(fd, &f, NULL), 1);
	buf_u8(&f.text, 0);
	bool as_wanted = strstr((char *)f.text.data, want);
	if (!as_wanted)
		print_message("%s -> %s\n", text, (char *)f.text.data);
	frame_done(&f);
	return as_wanted;
}

static void exchange(int fd, const char *text, const char *want)
{
	assert_true(answers(fd, text, want));
}

static void end_by_quit(const char *path)
{
	struct err err;
	auto_fd idle = frame_connect(path, NULL);
	auto_fd fd = frame_connect(path, &err);
	assert_true(idle >= 0 && fd >= 0);
	exchange(fd, "{\"op\":\"hello\"}", "\"ok\":true");
	exchange(fd, "nonsense", "not JSON");
	exchange(fd, "{\"op\":\"hello\"}", "\"ok\":true"); /* the connection goes on */
	/* Too long for a message: an error too. */
	auto_free char *big = malloc(FRAME_MAX + 1000);
	memset(big, ' ', FRAME_MAX + 1000);
	assert_true(send(fd, big, FRAME_MAX + 1000, MSG_NOSIGNAL) > 0 || errno == EMSGSIZE);
	struct frame f = { 0 };
	assert_int_equal(frame_recv(fd, &f, NULL), 1);
	frame_done(&f);
	exchange(fd, "{\"op\":\"quit\"}", "\"ok\":true");
}

#define OK "\"ok\":true"
#define HOLD(tag, bytes) \
	"{\"op\":\"hold\",\"id\":\"held\",\"tag\":" #tag ",\"bytes\":" #bytes ",\"inodes\":0}"

/* What a process holds is free when its last connection has ended, and not before. */
static void end_behind_holds(const char *path)
{
	auto_fd first = frame_connect(path, NULL), second = frame_connect(path, NULL);
	assert_true(first >= 0 && second >= 0);
	exchange(first,
		 "{\"op\":\"create\",\"id\":\"held\",\"uid\":0,\"gid\":0,\"bytes\":1000}",
		 OK);
	exchange(first, HOLD(5, 900), OK);
	exchange(second, "{\"op\":\"settle\"}", OK);
	exchange(first, HOLD(5, 800), "settled"); /* it is good for nothing any more */
	close(steal_fd(&first));
	usleep(100000);
	exchange(second, HOLD(6, 101), "\"errno\":122");
	exchange(second, HOLD(6, 100), OK);
	close(steal_fd(&second));
	/* The server sees that in a moment; one that came before would keep it. */
	auto_fd third = -1;
	for (int tries = 500; third < 0; tries--) {
		assert_true(tries > 0);
		usleep(20000);
		third = frame_connect(path, NULL);
		assert_true(third >= 0);
		if (!answers(third, HOLD(7, 1000), OK))
			close(steal_fd(&third));
	}
	exchange(third, "{\"op\":\"delete\",\"id\":\"held\"}", OK);
	exchange(third, "{\"op\":\"quit\"}", OK);
}

static void end_by_removal(const char *path)
{
	usleep(20000);
	assert_int_equal(unlink(path), 0);
}

static void end_by_signal(const char *path)
{
	assert_int_equal(kill(getpid(), SIGTERM), 0);
}

static void ends(void **state)
{
	struct server *s = open_server("ends");
	char path[600];
	(void)snprintf(path, sizeof(path), "%s/sock", folder);
	end_by_thread(s, path, end_by_quit);
	end_by_thread(s, path, end_behind_holds);
	end_by_thread(s, path, end_by_removal);
	end_by_thread(s, path, end_by_signal);
	assert_int_equal(server_close(s, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_requests), cmocka_unit_test(bad_requests),
		cmocka_unit_test(known_ids),     cmocka_unit_test(parsing_out_of_memory),
		cmocka_unit_test(fuse_conf),     cmocka_unit_test(lives),
		cmocka_unit_test(settles),
		cmocka_unit_test(out_of_memory), cmocka_unit_test(mounted),
		cmocka_unit_test(ends),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
