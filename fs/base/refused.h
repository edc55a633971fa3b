/* Words that boughd and bough-pack, which share no other header of git's, refuse a repository with
 * that isn't whole. */
#ifndef BOUGH_FS_BASE_REFUSED_H
#define BOUGH_FS_BASE_REFUSED_H

#define REFUSED_SHALLOW                                                                     \
	"it is a shallow repository, its history is cut off: git fetch --unshallow there, " \
	"or add the one that it was cloned from"
#define REFUSED_PARTIAL \
	"it is a partial clone, objects are missing from it: add the one that it was cloned from"

#endif
