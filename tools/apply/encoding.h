/* working-tree-encoding (gitattributes(5)), which libgit2 doesn't know, as one of its filters:
 * files are written in that encoding and compared as UTF-8, as git does. What can't be converted
 * stays as it is. */
#ifndef BOUGH_TOOLS_APPLY_ENCODING_H
#define BOUGH_TOOLS_APPLY_ENCODING_H

/* Once, behind git_libgit2_init; in effect until the shutdown. 0, or libgit2's error. */
int encoding_register(void);

#endif
