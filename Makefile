# Bough: copy-on-write workspaces. `make help` lists the targets; on a fresh machine
# each of them first does whatever set-up is missing.

VERSION := 0.1.0

# Each variant (release, asan, tsan, fuzz) has its own folder, so switching never rebuilds.
VARIANT ?= release
B       := build/$(VARIANT)
DEPS    := build/deps
GEN     := build/gen
ifeq ($(origin CC),default)
CC      := $(if $(filter fuzz,$(VARIANT)),clang,gcc)
endif
PREFIX  ?= /usr/local
UNITDIR ?= $(PREFIX)/lib/systemd/system

# As many jobs as cores, unless told otherwise; V=1 shows the commands.
ifeq ($(filter -j% --jobs%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif
comma := ,
Q := $(if $(V),,@)
say = $(if $(V),@:,@printf '  %-4s %s\n' $(1) '$(2)')

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-parameter \
        -Wno-enum-compare
WARN += $(if $(filter true,$(CI)),-Werror)
CFLAGS_release := -O2 -g -D_FORTIFY_SOURCE=2 -fstack-protector-strong
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
                  -fno-omit-frame-pointer -DBOUGH_DEBUG
CFLAGS_tsan    := -O1 -g -fsanitize=thread -fno-omit-frame-pointer -DBOUGH_DEBUG
CFLAGS_fuzz    := $(CFLAGS_asan) -fsanitize=fuzzer-no-link
LDFLAGS_release := -Wl,-z,relro,-z,now
LDFLAGS_asan   := -fsanitize=address,undefined
LDFLAGS_tsan   := -fsanitize=thread
LDFLAGS_fuzz   := $(LDFLAGS_asan) -fsanitize=fuzzer
CPPFLAGS_ALL = -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DBOUGH_VERSION='"$(VERSION)"' -I. -I$(GEN) \
               -DFSMONITOR_PROGRAM='"$(B)/bough-fsmonitor"' \
               -include fs/base/banned.h $(PKG_CFLAGS) $(CPPFLAGS)
CFLAGS_ALL   = -std=gnu17 $(WARN) $(CFLAGS_$(VARIANT)) -pthread -MMD -MP $(CPPFLAGS_ALL) $(CFLAGS)
LDFLAGS_ALL  = -pthread -Wl,--as-needed $(LDFLAGS_$(VARIANT)) $(LDFLAGS)

PKGS := libcurl libzstd libxxhash libcrypto libdeflate zlib lmdb sqlite3 libarchive libmicrohttpd jansson libgit2 \
        libseccomp libprotobuf-c
PKG_CONFIG := PKG_CONFIG_PATH="$(CURDIR)/$(DEPS)/lib/pkgconfig:$$PKG_CONFIG_PATH" pkg-config
# pkg-config runs once per make, when the first compile needs it: after the set-up.
PKG_CFLAGS = $(eval PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags fuse3 $(PKGS)))$(PKG_CFLAGS)
libs = $(shell $(PKG_CONFIG) --libs $(1))
L_FUSE  = $(call libs,--static fuse3)
L_STORE = $(call libs,libzstd libxxhash libcrypto libdeflate zlib lmdb jansson)
L_RUNTIME = $(call libs,libseccomp libprotobuf-c jansson)
L_ALL   = $(L_FUSE) $(call libs,$(PKGS))

SRC_LIB   := $(wildcard fs/base/*.c fs/store/*.c fs/image/*.c fs/work/*.c)
SRC_MOUNT := $(wildcard fs/mount/*.c)
SRC_HOLD  := $(wildcard fs/hold/*.c)
SRC_GIT   := $(wildcard gitops/*.c)
SRC_RT    := $(wildcard runtime/*.c)
SRC_IO    := $(wildcard runtime/io/*.c)
SRC_INIT  := $(wildcard runtime/init/*.c)
PROTO     := $(wildcard runtime/proto/*.proto)
SRC_SNAPD := $(wildcard snapd/*.c)
SRC_TOOL  := $(wildcard tools/bough/*.c)
SRC_PACK  := $(wildcard tools/pack/*.c)
SRC_FSMON := $(wildcard tools/fsmonitor/*.c)
SRC_APPLY := $(wildcard tools/apply/*.c)
SRC_TLS   := $(wildcard tools/tls/*.c)
SRC_BENCH := $(wildcard tools/bench/*.c)
SRC_UNIT  := $(wildcard tests/unit/test_*.c)
SRC_FUZZ  := $(wildcard tests/fuzz/fuzz_*.c)
SRC_CRASH := $(wildcard tests/crash/*.c)
SRC_MODEL := $(wildcard tests/model/*.c)
SRC_E2E   := $(wildcard tests/e2e/*.c)
# What protoc-c makes of the messages of the shims; never edited, never committed.
PROTO_C   := $(PROTO:%.proto=$(GEN)/%.pb-c.c)
obj     = $(patsubst %.c,$(B)/o/%.o,$(1))
no_main = $(filter-out %/main.o,$(call obj,$(1)))
# Programs of one source each, in a folder of build/ named after theirs.
each = $(patsubst $(1)/%.c,$(B)/$(notdir $(1))/%,$(2))

LIB  := $(B)/libbough.a
# What a test may link besides the library: all of the programs but their main().
LIBS := $(B)/libsnapd.a $(B)/libio.a $(B)/libruntime.a $(B)/libgitops.a $(B)/libmount.a $(B)/libtool.a $(B)/libpack.a $(LIB)
PROGRAMS := $(addprefix $(B)/,bough boughd bough-fs bough-hold bough-pack bough-apply bough-tls \
            bough-io bough-init)
UNIT  := $(call each,tests/unit,$(SRC_UNIT))
FUZZERS := $(call each,tests/fuzz,$(SRC_FUZZ))
CRASH := $(call each,tests/crash,$(SRC_CRASH))
MODEL := $(call each,tests/model,$(SRC_MODEL))
E2E   := $(call each,tests/e2e,$(SRC_E2E))
BENCH := $(call each,tools/bench,$(SRC_BENCH))
MAN   := $(patsubst tools/man/%.rst,build/man/%,$(wildcard tools/man/*.rst))

# ---- build

.PHONY: all
all: $(PROGRAMS) $(B)/runtimes $(B)/bough-runsc ## build the programs (the default)

# The set-up counts as done for one state of its script on one release of Debian.
SETUP := build/setup/done-$(shell cat tools/setup/setup.sh /etc/os-release | cksum | cut -d' ' -f1)
$(SETUP):
	$(Q)tools/setup/setup.sh
	$(Q)rm -f build/setup/done-* && touch $@

.PHONY: setup
setup: ## install packages and build libfuse, where missing; quick when nothing is
	$(Q)tools/setup/setup.sh
	$(Q)touch $(SETUP)

# What set-up fetched lies beside the programs, as `make install` puts it.
$(B)/runtimes: $(SETUP)
	$(Q)mkdir -p $(@D) && for p in $(DEPS)/bin/*; do \
		[ ! -e "$$p" ] || ln -sfn "../deps/bin/$${p##*/}" "$(B)/$${p##*/}"; done; touch $@

$(B)/bough-runsc: runtime/runsc.sh
	$(Q)mkdir -p $(@D) && install $< $@

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h: %.proto | $(SETUP)
	$(call say,GEN,$<)
	$(Q)mkdir -p $(GEN) && protoc-c --c_out=$(GEN) $<
.PHONY: generated
generated: $(PROTO_C)

$(B)/o/%.o: %.c | $(SETUP) $(PROTO_C)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -c -o $@ $<

$(B)/o/%.pb-c.o: $(GEN)/%.pb-c.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -c -o $@ $<

# The archive is made anew, since a deleted source must not live on in it.
define archive
	$(call say,AR,$@)
	@mkdir -p $(@D) && rm -f $@
	$(Q)ar rcs $@ $^
endef
define link
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o %.a,$^) $(1)
endef

$(LIB): $(call obj,$(SRC_LIB))
	$(archive)
$(B)/libmount.a: $(call no_main,$(SRC_MOUNT))
	$(archive)
$(B)/libsnapd.a: $(call no_main,$(SRC_SNAPD))
	$(archive)
$(B)/libgitops.a: $(call no_main,$(SRC_GIT))
	$(archive)
$(B)/libruntime.a: $(call obj,$(SRC_RT) $(PROTO_C:$(GEN)/%=%))
	$(archive)
$(B)/libio.a: $(call no_main,$(SRC_IO))
	$(archive)
$(B)/libtool.a: $(call no_main,$(SRC_TOOL))
	$(archive)
$(B)/libpack.a: $(call no_main,$(SRC_PACK))
	$(archive)
$(B)/libapply.a: $(call no_main,$(SRC_APPLY))
	$(archive)

$(B)/bough-fs: $(B)/o/fs/mount/main.o $(B)/libmount.a $(LIB)
	$(call link,$(L_FUSE) $(L_STORE) $(call libs,libseccomp))
# What keeps the mounts should need nothing that can break.
$(B)/bough-hold: $(call obj,$(SRC_HOLD)) $(LIB)
	$(call link)
$(B)/boughd: $(B)/o/snapd/main.o $(B)/libsnapd.a $(B)/libgitops.a $(B)/libruntime.a $(LIB)
	$(call link,$(L_STORE) $(L_RUNTIME) $(call libs,libcurl zlib sqlite3 libarchive libmicrohttpd libgit2))
# One for each sandbox: small, and without libraries.
$(B)/bough-io: $(B)/o/runtime/io/main.o $(B)/libio.a $(B)/libruntime.a $(LIB)
	$(call link)
# What runs in workspaces and containers, whatever is in them: no libraries, no start files, no
# sanitizers. boughd carries bough-fsmonitor as bytes and puts it into each .git; bough-init is
# bound into each sandbox.
CFLAGS_BARE := -std=gnu17 $(WARN) -Os -ffreestanding -nostdlib -static -fno-pie -no-pie -s \
                -fno-stack-protector -fno-asynchronous-unwind-tables \
                -Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,noseparate-code
$(B)/bough-fsmonitor: $(SRC_FSMON) $(wildcard tools/fsmonitor/*.h) | $(SETUP)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_BARE) -I. -o $@ $(SRC_FSMON)
$(B)/bough-init: $(SRC_INIT) $(wildcard runtime/init/*.h) | $(SETUP)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_BARE) -I. -o $@ $(SRC_INIT)
$(B)/o/gitops/helper.o: $(B)/bough-fsmonitor
# Only what it needs: it starts once for every fork, and each library costs its loading.
$(B)/bough: $(B)/o/tools/bough/main.o $(B)/libtool.a $(LIB)
	$(call link,$(call libs,jansson))
$(B)/bough-pack: $(B)/o/tools/pack/main.o $(B)/libpack.a $(LIB)
	$(call link,$(call libs,libarchive libcrypto libxxhash))
$(B)/bough-apply: $(B)/o/tools/apply/main.o $(B)/libapply.a $(B)/libgitops.a $(LIB)
	$(call link,$(call libs,libgit2 jansson libcrypto libxxhash))
# For https:// alone, so that bough itself needs no such library.
$(B)/bough-tls: $(call obj,$(SRC_TLS)) $(LIB)
	$(call link,$(call libs,libssl libcrypto))
# Unit and crash tests can let the n-th allocation fail: tests/unit/oom.h.
WRAP := $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc reallocarray posix_memalign \
        strdup strndup mmap64)
# And calls that mount, link or ask a device: tests/unit/sys_fault.h.
WRAP_SYS := $(addprefix -Wl$(comma)--wrap=,mount umount2 open_tree move_mount mount_setattr \
            link linkat ioctl)
$(B)/unit/test_server_faults $(B)/e2e/box_driver: $(B)/o/tests/unit/sys_fault.o
$(B)/unit/test_server_faults $(B)/e2e/box_driver: WRAP += $(WRAP_SYS)
$(UNIT): $(B)/unit/%: $(B)/o/tests/unit/%.o $(B)/o/tests/unit/oom.o $(LIBS)
	$(call link,$(WRAP) $(L_ALL) $(call libs,cmocka))
# libFuzzer brings its own main(); driver.c is ours, for replaying a corpus.
FUZZ_MAIN := $(if $(filter fuzz,$(VARIANT)),,$(B)/o/tests/fuzz/driver.o)
$(FUZZERS): $(B)/fuzz/%: $(B)/o/tests/fuzz/%.o $(FUZZ_MAIN) $(LIBS)
	$(call link,$(L_ALL))
$(CRASH): $(B)/crash/%: $(B)/o/tests/crash/%.o $(B)/o/tests/unit/oom.o $(LIBS)
	$(call link,$(WRAP) $(L_ALL) $(call libs,cmocka))
$(MODEL): $(B)/model/%: $(B)/o/tests/model/%.o $(LIBS)
	$(call link,$(L_ALL) $(call libs,cmocka))
$(E2E): $(B)/e2e/%: $(B)/o/tests/e2e/%.o $(B)/libruntime.a $(LIB)
	$(call link,$(if $(filter %/box_driver,$@),$(WRAP_SYS)) $(L_FUSE) $(L_STORE) $(L_RUNTIME) \
		$(if $(filter %/libgit2_status,$@),$(call libs,libgit2)))
$(BENCH): $(B)/bench/%: $(B)/o/tools/bench/%.o $(LIBS)
	$(call link,$(L_ALL))

-include $(shell find $(B)/o -name '*.d' 2>/dev/null)
.SECONDARY:
.DELETE_ON_ERROR:

# ---- tests

RUN = B=$(B) VARIANT=$(VARIANT) CC='$(CC)' CPPFLAGS='$(subst ','\'',$(CPPFLAGS_ALL))' tests/run.sh
TESTS := $(UNIT) $(FUZZERS) $(CRASH) $(MODEL) $(E2E) $(B)/bench/load

.PHONY: helpers
helpers: $(E2E) # what the e2e tests run, for tools/vm
.PHONY: check check-npm check-unit check-fuzz check-crash check-model check-e2e check-asan check-tsan
check: all $(TESTS) ## run every test
	@$(RUN) lint unit fuzz crash model e2e
check-unit: $(UNIT) ## run the unit tests
	@$(RUN) unit
check-fuzz: $(FUZZERS) ## replay the fuzzers' corpus
	@$(RUN) fuzz
check-crash: all $(CRASH) ## run the kill and torn-tail tests
	@$(RUN) crash
check-model: all $(MODEL) ## run random operations against a plain directory
	@$(RUN) model
check-npm: all ## try uploads with tus-js-client and types with TypeScript, fetched from npm
	@BOUGH_BIN=$(CURDIR)/$(B) tests/tus-js.sh && BOUGH_BIN=$(CURDIR)/$(B) tests/types-js.sh
check-e2e: all $(E2E) $(B)/bench/load ## run the tests of the programs, on real mounts
	@$(RUN) e2e
# Each report of a sanitizer, of any process, fails the test that it was made in, and stands in its
# log; nothing is suppressed. The end names what failed, and the exit status says whether anything did.
check-asan: ## run every test with the address and undefined sanitizers: an hour or more
	@$(MAKE) VARIANT=asan check-sanitized
check-tsan: ## run every test but the fuzzers with the thread sanitizer: an hour or more
	@$(MAKE) VARIANT=tsan check-sanitized

.PHONY: check-sanitized
check-sanitized: all $(if $(filter asan,$(VARIANT)),$(TESTS),$(filter-out $(FUZZERS),$(TESTS)))
	@$(RUN) unit $(if $(filter asan,$(VARIANT)),fuzz) crash model e2e

.PHONY: check-lint check-headers check-layers cppflags
check-lint: | $(SETUP) $(PROTO_C) ## check what holds for all sources: headers, layers, text
	@$(RUN) lint
check-headers: | $(SETUP) $(PROTO_C) ## see that each header compiles alone
	@$(RUN) lint/headers
check-layers: | $(SETUP) $(PROTO_C) ## see that folders include only what they may
	@$(RUN) lint/layers
cppflags: | $(SETUP) $(PROTO_C)
	$(info $(CPPFLAGS_ALL))@:

# ---- format and fuzz (with clang)

SOURCES = $(sort $(foreach d,fs/* snapd gitops runtime runtime/* tools/* tests/*,$(wildcard $(d)/*.[ch])))
.PHONY: clang format check-format fuzz
clang:
	$(Q)tools/setup/setup.sh clang
format: clang ## lay out all sources by .clang-format
	$(Q)clang-format -i $(SOURCES)
check-format: clang ## see that `make format` would change nothing
	$(Q)clang-format --dry-run --Werror $(SOURCES)
fuzz: clang ## search for new failures: make fuzz [FUZZ=image] [SECONDS=60]
	$(Q)$(MAKE) VARIANT=fuzz fuzz-run
SECONDS ?= 60
.PHONY: fuzz-run
fuzz-run: $(if $(FUZZ),$(B)/fuzz/fuzz_$(FUZZ),$(FUZZERS))
	@tests/fuzz/run.sh $(B)/fuzz $(SECONDS) $(^F)

# ---- demo, figures

.PHONY: demo bench bench-quick
demo: all ## do the main job from end to end, and print what each step took
	@BOUGH_BIN=$(CURDIR)/$(B) tools/demo/demo.sh
bench: all $(BENCH) ## measure beside ext4, overlayfs and others: make bench [ARGS="--only fio"]
	@BOUGH_BIN=$(CURDIR)/$(B) tools/bench/run.sh $(ARGS)
bench-quick: all $(BENCH) ## the same on a small tree, in two minutes
	@BOUGH_BIN=$(CURDIR)/$(B) tools/bench/run.sh --quick $(ARGS)

.PHONY: bench-sandbox
bench-sandbox: all ## measure sandboxes beside runc and tar: make bench-sandbox [ARGS="--alive 300"]
	@BOUGH_BIN=$(CURDIR)/$(B) tools/bench/sandbox.sh $(ARGS)
.PHONY: bench-neighbour
bench-neighbour: all ## what a sandbox feels of its neighbour's bombs: p99 of a stat, alone and beside
	@BOUGH_BIN=$(CURDIR)/$(B) tools/bench/neighbour.sh $(ARGS)

.PHONY: cycles
cycles: CYCLES ?= 200
cycles: ALIVE ?= 40
cycles: all ## sandboxes made and destroyed, nothing is left: make cycles [CYCLES=200 ALIVE=300]
	@BOUGH_BIN=$(CURDIR)/$(B) CYCLES=$(CYCLES) ALIVE=$(ALIVE) bash tests/e2e/cycles.t

.PHONY: soak
soak: all ## mixed work with kills: make soak [MINUTES=120], writes build/soak.json and .svg
	@BOUGH_BIN=$(CURDIR)/$(B) PYTHONDONTWRITEBYTECODE=1 tests/soak/soak.py --minutes $(MINUTES) --out build/soak
MINUTES ?= 120

.PHONY: load
load: all $(B)/bench/load ## measure boughd under 200 clients: make load [ARGS="--many 2000"]
	@BOUGH_BIN=$(CURDIR)/$(B) tools/bench/load.sh $(ARGS)

# ---- install

$(MAN): build/man/%: tools/man/%.rst tools/man/fill.sh $(PROGRAMS)
	@mkdir -p $(@D)
	$(call say,MAN,$@)
	$(Q)tools/man/fill.sh $< $(B) >$@.rst
	$(Q)rst2man --halt=2 $@.rst $@ && rm $@.rst
.PHONY: man install uninstall
man: $(MAN)
D = $(DESTDIR)$(PREFIX)
# Of the runtimes those that set-up had to fetch, since the machine has none.
LIBEXEC = bough-hold bough-pack bough-apply bough-tls bough-runsc bough-io bough-init \
          $(notdir $(wildcard $(DEPS)/bin/*))
install: all man ## install under PREFIX (/usr/local), below DESTDIR
	install -d $(D)/bin $(D)/libexec/bough $(D)/share/bash-completion/completions
	install -d $(D)/share/man/man1 $(D)/share/man/man8 $(DESTDIR)$(UNITDIR)
	install $(B)/bough $(B)/boughd $(B)/bough-fs $(D)/bin
	install $(addprefix $(B)/,$(LIBEXEC)) $(D)/libexec/bough
	install -m 644 tools/install/bough.bash $(D)/share/bash-completion/completions/bough
	sed 's|@PREFIX@|$(PREFIX)|g' tools/install/boughd.service >$(DESTDIR)$(UNITDIR)/boughd.service
	chmod 644 $(DESTDIR)$(UNITDIR)/boughd.service
	install -m 644 tools/install/bough.slice $(DESTDIR)$(UNITDIR)/bough.slice
	$(foreach m,$(MAN),install -m 644 $(m) $(D)/share/man/man$(subst .,,$(suffix $(m)));)
uninstall: ## remove what install put there; state and workspaces stay
	rm -f $(addprefix $(D)/bin/,bough boughd bough-fs)
	rm -f $(addprefix $(D)/libexec/bough/,$(LIBEXEC))
	rm -f $(D)/share/bash-completion/completions/bough $(addprefix $(DESTDIR)$(UNITDIR)/,boughd.service bough.slice)
	rm -f $(foreach m,$(MAN),$(D)/share/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m)))

.PHONY: openapi
openapi: $(B)/boughd ## write snapd/openapi.json anew, after a route has changed
	$(B)/boughd --routes | python3 snapd/openapi.py >$(B)/openapi.json
	mv $(B)/openapi.json snapd/openapi.json
$(B)/o/snapd/openapi.o: snapd/openapi.json

.PHONY: clean help
clean: ## remove what was built, but libfuse
	rm -rf $(addprefix build/,release asan tsan fuzz man gen)
help: ## list the targets
	@echo 'usage: make [TARGET] [VARIANT=release|asan|tsan] [V=1]'
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 18
