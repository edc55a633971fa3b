# Bough: copy-on-write workspaces. `make help` lists the targets.

# Each variant (release, asan, tsan) has its own folder, so switching never rebuilds.
VARIANT ?= release
B       := build/$(VARIANT)
DEPS    := build/deps
ifeq ($(origin CC),default)
CC      := gcc
endif

PKGS      := libzstd libxxhash libcrypto lmdb sqlite3 libarchive libmicrohttpd jansson
PKG_CONFIG := PKG_CONFIG_PATH="$(CURDIR)/$(DEPS)/lib/pkgconfig:$$PKG_CONFIG_PATH" pkg-config

VERSION   := 0.1.0
WARN      := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-parameter
CFLAGS_release := -O2 -g -D_FORTIFY_SOURCE=2 -fstack-protector-strong
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
                  -fno-omit-frame-pointer -DBOUGH_DEBUG
CFLAGS_tsan    := -O1 -g -fsanitize=thread -fno-omit-frame-pointer -DBOUGH_DEBUG
LDFLAGS_asan   := -fsanitize=address,undefined
LDFLAGS_tsan   := -fsanitize=thread
ALL_CFLAGS = -std=gnu17 $(WARN) $(CFLAGS_$(VARIANT)) -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
             -DBOUGH_VERSION='"$(VERSION)"' -I. -pthread -MMD -MP $(PKG_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = -pthread $(LDFLAGS_$(VARIANT)) $(LDFLAGS)

# pkg-config runs once per make, when the first compile needs it.
PKG_CFLAGS = $(eval PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags fuse3 $(PKGS)))$(PKG_CFLAGS)
libs = $(shell $(PKG_CONFIG) --libs $(1))

SRC_LIB   := $(wildcard fs/base/*.c fs/store/*.c fs/image/*.c fs/work/*.c)
SRC_MOUNT := $(wildcard fs/mount/*.c)
SRC_SNAPD := $(wildcard snapd/*.c)
SRC_TOOL  := $(wildcard tools/bough/*.c)
SRC_PACK  := $(wildcard tools/pack/*.c)
SRC_UNIT  := $(wildcard tests/unit/test_*.c)
SRC_FUZZ  := $(wildcard tests/fuzz/fuzz_*.c)
SRC_CRASH := $(wildcard tests/crash/*.c)
SRC_E2E   := $(wildcard tests/e2e/*.c)
obj = $(patsubst %.c,$(B)/o/%.o,$(1))

LIB       := $(B)/libbough.a
# What a test may link besides the library: everything of the programs but their main().
LIB_MOUNT := $(B)/libmount.a
LIB_SNAPD := $(B)/libsnapd.a
PROGRAMS  := $(B)/bough $(B)/boughd $(B)/bough-fs $(B)/bough-pack
UNIT      := $(patsubst tests/unit/%.c,$(B)/unit/%,$(SRC_UNIT))
FUZZ      := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(SRC_FUZZ))
CRASH     := $(patsubst tests/crash/%.c,$(B)/crash/%,$(SRC_CRASH))
E2E       := $(patsubst tests/e2e/%.c,$(B)/e2e/%,$(SRC_E2E))

L_BASE  := libzstd libxxhash libcrypto lmdb

.PHONY: all
all: $(PROGRAMS)

$(B)/o/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(LIB): $(call obj,$(SRC_LIB))
	@rm -f $@ && ar rcs $@ $^
$(LIB_MOUNT): $(filter-out %/main.o,$(call obj,$(SRC_MOUNT)))
	@rm -f $@ && ar rcs $@ $^
$(LIB_SNAPD): $(filter-out %/main.o,$(call obj,$(SRC_SNAPD)))
	@rm -f $@ && ar rcs $@ $^

$(B)/bough-fs: $(B)/o/fs/mount/main.o $(LIB_MOUNT) $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call libs,--static fuse3) $(call libs,$(L_BASE) jansson)
$(B)/boughd: $(B)/o/snapd/main.o $(LIB_SNAPD) $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call libs,$(L_BASE) sqlite3 libarchive libmicrohttpd jansson)
$(B)/bough: $(call obj,$(SRC_TOOL)) $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call libs,jansson)
$(B)/bough-pack: $(call obj,$(SRC_PACK)) $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call libs,libarchive)
$(B)/unit/%: $(B)/o/tests/unit/%.o $(LIB_SNAPD) $(LIB_MOUNT) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call libs,--static fuse3) \
	  $(call libs,$(PKGS) cmocka)
$(B)/fuzz/%: $(B)/o/tests/fuzz/%.o $(B)/o/tests/fuzz/driver.o $(LIB_SNAPD) $(LIB_MOUNT) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call libs,--static fuse3) $(call libs,$(PKGS))
$(B)/crash/%: $(B)/o/tests/crash/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call libs,$(L_BASE) jansson)
$(B)/e2e/%: $(B)/o/tests/e2e/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call libs,$(L_BASE) jansson)

-include $(shell find $(B)/o -name '*.d' 2>/dev/null)
.SECONDARY:

.PHONY: clean
clean:
	rm -rf build/release build/asan build/tsan
