#include "snapd/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"

static int read_key(int dir, uint8_t key[SEAL_KEY], struct err *err)
{
	struct stat st;
	auto_fd fd = openat(dir, "secrets.key", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT : err_sys(err, -errno, "open secrets.key");
	if (fstat(fd, &st) < 0)
		return err_sys(err, -errno, "secrets.key");
	if (st.st_uid != geteuid() || (st.st_mode & 077))
		return err_set(err, -EPERM, "secrets.key: others could read it");
	ssize_t n = read(fd, key, SEAL_KEY);
	return n == SEAL_KEY ? 0 : err_set(err, -EBADMSG, "secrets.key isn't %d bytes", SEAL_KEY);
}

int seal_key(const char *root, uint8_t key[SEAL_KEY], struct err *err)
{
	auto_fd dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open %s", root);
	int r = read_key(dir, key, err);
	if (r != -ENOENT)
		return r;
	random_bytes(key, SEAL_KEY);
	r = io_publish(&io_host, dir, "secrets.key", key, SEAL_KEY, true, err);
	return r < 0 ? err_prefix(err, r, "make secrets.key") : read_key(dir, key, err);
}

int seal(struct buf *out, const uint8_t key[SEAL_KEY], const char *name, const void *text,
	 size_t len, struct err *err)
{
	uint8_t nonce[SEAL_NONCE], tag[SEAL_TAG];
	int n = 0;
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	random_bytes(nonce, sizeof(nonce));
	buf_reset(out);
	buf_add(out, nonce, sizeof(nonce));
	buf_add(out, text, len);
	bool ok = c && buf_error(out) == 0 &&
		  EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, nonce) &&
		  EVP_EncryptUpdate(c, NULL, &n, (const uint8_t *)name, (int)strlen(name)) &&
		  EVP_EncryptUpdate(c, out->data + SEAL_NONCE, &n, text, (int)len) &&
		  EVP_EncryptFinal_ex(c, tag, &n) &&
		  EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, SEAL_TAG, tag);
	EVP_CIPHER_CTX_free(c);
	buf_add(out, tag, sizeof(tag));
	return ok && buf_error(out) == 0 ? 0 : err_no_memory(err);
}

int unseal(struct buf *out, const uint8_t key[SEAL_KEY], const char *name, const void *data,
	   size_t len, struct err *err)
{
	const uint8_t *p = data;
	uint8_t tag[SEAL_TAG];
	int n = 0;
	if (len < SEAL_MORE || len > INT32_MAX)
		return err_set(err, -EBADMSG, "a secret is damaged");
	size_t text = len - SEAL_MORE;
	buf_reset(out);
	buf_add(out, p + SEAL_NONCE, text);
	if (buf_error(out))
		return err_no_memory(err);
	memcpy(tag, p + len - SEAL_TAG, sizeof(tag));
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	bool ok = c && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, p) &&
		  EVP_DecryptUpdate(c, NULL, &n, (const uint8_t *)name, (int)strlen(name)) &&
		  EVP_DecryptUpdate(c, out->data, &n, p + SEAL_NONCE, (int)text) &&
		  EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, SEAL_TAG, tag) &&
		  EVP_DecryptFinal_ex(c, tag, &n);
	EVP_CIPHER_CTX_free(c);
	if (!ok) {
		explicit_bzero(out->data, out->len);
		buf_reset(out);
		return err_set(err, -EBADMSG, "a secret is damaged, or of another secrets.key");
	}
	return 0;
}
