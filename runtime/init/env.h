/* Environment that is kept out of every configuration and command line: a file of the sandbox's
 * secrets. */
#ifndef BOUGH_RUNTIME_INIT_ENV_H
#define BOUGH_RUNTIME_INIT_ENV_H

/* Strings "K=V", each ended by NUL. */
#define INIT_ENV_FILE "/run/secrets/.env"
enum { INIT_ENV_MAX = 1 << 20 }; /* bytes of it that are read */

/* `env` with what the file has, which wins over entries of the same name; `env` itself where there
 * is no file. */
char **env_with_file(char **env);

#endif
