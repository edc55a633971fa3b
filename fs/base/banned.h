/* Functions that must not be used: they can't be called safely, or share a static
 * buffer between threads. The build includes this file before each source, so a call
 * of one of them doesn't compile. After git's banned.h. */
#ifndef BOUGH_BASE_BANNED_H
#define BOUGH_BASE_BANNED_H

/* The real declarations come first; their own guards keep them from coming again. */
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BANNED(name) banned_function_##name()

/* No bound on what is written: snprintf, memcpy. */
#undef strcpy
#define strcpy(d, s) BANNED(strcpy)
#undef stpcpy
#define stpcpy(d, s) BANNED(stpcpy)
#undef strcat
#define strcat(d, s) BANNED(strcat)
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef gets
#define gets(s) BANNED(gets)

/* A bound that leaves the string without its end, or that is easily wrong. */
#undef strncpy
#define strncpy(d, s, n) BANNED(strncpy)
#undef stpncpy
#define stpncpy(d, s, n) BANNED(stpncpy)
#undef strncat
#define strncat(d, s, n) BANNED(strncat)

/* A static buffer: the _r forms. */
#undef strtok
#define strtok(s, d) BANNED(strtok)
#undef gmtime
#define gmtime(t) BANNED(gmtime)
#undef localtime
#define localtime(t) BANNED(localtime)
#undef ctime
#define ctime(t) BANNED(ctime)
#undef asctime
#define asctime(t) BANNED(asctime)

/* No error: strtoul and its kin. */
#undef atoi
#define atoi(s) BANNED(atoi)
#undef atol
#define atol(s) BANNED(atol)
#undef atoll
#define atoll(s) BANNED(atoll)

/* Stack that nobody bounds; a name that somebody else may take first. */
#undef alloca
#define alloca(n) BANNED(alloca)
#undef strdupa
#define strdupa(s) BANNED(strdupa)
#undef mktemp
#define mktemp(s) BANNED(mktemp)
#undef tmpnam
#define tmpnam(s) BANNED(tmpnam)
#undef tempnam
#define tempnam(d, p) BANNED(tempnam)

#endif
