/* This program under other names: what git runs for us while it moves data, and what runs where
 * there is no git. main() asks first thing whether it is one of those:
 *
 *     int status;
 *     if (gitops_errand(argc, argv, &status))
 *             return status;
 *
 *   bough-credential get    a credential helper of git: answers with the secret, which it reads
 *                           from descriptor CHILD_KEPT, when protocol and host are the right ones
 *   bough-ssh …             GIT_SSH: runs ssh with the key and known hosts that boughd holds
 *   bough-transfer …        fetch, push and ls-remote by libgit2, in git's words
 *   bough-jail PROGRAM …    runs a program on hostile data (jail.c)
 *
 * The secret's form on the descriptor: lines "protocol", "host", "user", "password". */
#ifndef BOUGH_GITOPS_ERRAND_H
#define BOUGH_GITOPS_ERRAND_H

#include <stdbool.h>

#define ERRAND_CREDENTIAL "bough-credential"
#define ERRAND_SSH        "bough-ssh"
#define ERRAND_TRANSFER   "bough-transfer"
#define ERRAND_JAIL       "bough-jail"
/* Where bough-ssh finds the files: set in its environment, as /proc/PID/fd/N. */
#define ERRAND_SSH_KEY     "BOUGH_SSH_KEY"
#define ERRAND_KNOWN_HOSTS "BOUGH_SSH_KNOWN_HOSTS"
/* The addresses ("A,B,…") to connect to one of instead of looking the host up, and as which host it
 * is known. */
#define ERRAND_SSH_ADDRESS "BOUGH_SSH_ADDRESS"
#define ERRAND_SSH_ALIAS   "BOUGH_SSH_ALIAS"

/* True: it was one of them, and is done; *status is its exit code. */
bool gitops_errand(int argc, char **argv, int *status);

/* bough-transfer (errand_transfer.c). */
int errand_transfer(int argc, char **argv);
/* bough-jail (jail.c): returns only where the program can't be run. */
int errand_jail(int argc, char **argv);

#endif
