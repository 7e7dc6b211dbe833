# make                 the library and the command         make help          these lines
# make test            the quick tests: every module and one live run of each kind, in three minutes on two cores
# make check           all tests, with all of their random cases: what must pass before a change is merged (twelve minutes on two cores)
# make demo            four unlike nodes learn digits      make bench         figures against peers
# make faults          every call of the OS that can fail fails once (minutes)
# make reproduce-gssp  GSSP and GDTopK on simulated clusters: a table and plots (hours)
# make pytorch         gradients and steps against PyTorch's, if a Python has it (BENCH_PYTHON)
# make install DESTDIR= PREFIX=/usr/local                  make uninstall, make clean
#
# V=1 shows commands. WERROR=1: warnings are errors. SAN=address,undefined or SAN=thread: sanitizers, in a folder of
# their own. STATIC=1: a command that needs no shared library (CPU only). CROSS_COMPILE=aarch64-linux-gnu- SYSROOT=/board: for
# another machine, with the headers and libraries of its own system. PROFILE=edge: an archive for small boards, made for size, without
# the command; BACKENDS="cpu ...": with no other kinds of devices. make libc: which C library asks for what was built.
# NVCC=, CLANG=: without the kernels that this compiler makes for CUDA.
# DOUBLE=1: all arithmetic in double, for the test of exactness; see ops/echi_real.h.
# make test ONLY=port runs the tests with that in their name; ECH_INSTALL=0 forbids it to install cmocka. A test has as much time as it
# needs: it is ended after TEST_IDLE=120 seconds without progress, or TEST_CPU=1800 seconds of processor time.
# CMOCKA=plain: tests of devices without cmocka, for tools/gpu-check; see test/plain.
# make fuzz FUZZ_SECONDS=60 ONLY=frame: fuzzes the parsers, guided by coverage, so long each; see test/fuzz/README.md
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# A CC or AR given by the user wins over CROSS_COMPILE; make's own default does not.
CROSS_COMPILE ?=
ifeq ($(origin CC),default)
  CC := $(CROSS_COMPILE)gcc
endif
ifeq ($(origin AR),default)
  AR := $(CROSS_COMPILE)ar
endif
ifeq ($(origin LD),default)
  LD := $(CROSS_COMPILE)ld
endif
ifneq ($(filter-out edge,$(PROFILE)),)
  $(error PROFILE=$(PROFILE) is not known: give edge, or leave it out)
endif
NM           ?= $(CROSS_COMPILE)nm
READELF      ?= $(CROSS_COMPILE)readelf
SIZE         ?= $(CROSS_COMPILE)size
SYSROOT      ?=
PROFILE      ?=
CFLAGS       ?= $(if $(PROFILE),-Os,-O2 -g)
LDFLAGS      ?=
DESTDIR      ?=
PREFIX       ?= /usr/local
INSTALL      ?= install
BASH         ?= bash
TEST_IDLE    ?= 120
TEST_CPU     ?= 1800
FUZZ_SECONDS ?= 60
ONLY         ?=
VERSION      := $(shell sed -n 's/.define ECH_VERSION "\(.*\)"/\1/p' lib/echelon.h)

# Objects of different kinds of build never meet.
comma := ,
KIND_OF_BUILD := $(if $(SAN),/san-$(subst $(comma),-,$(SAN)))$(if $(STATIC),/static)$(if $(DOUBLE),/double)
KIND_OF_BUILD := $(KIND_OF_BUILD)$(if $(PROFILE),/$(PROFILE))$(if $(SYSROOT),/sysroot)
B ?= build$(KIND_OF_BUILD)$(if $(CROSS_COMPILE),/$(patsubst %-,%,$(notdir $(CROSS_COMPILE))))
ifneq ($(V),1)
  Q := @
endif

# On 32-bit x86 floats are computed as floats too, as on every other machine, and not in x87's 80 bits.
MACHINE := $(shell $(CC) -dumpmachine)
MACHINE_CFLAGS := $(if $(filter i386-% i486-% i586-% i686-%,$(MACHINE)),-msse2 -mfpmath=sse)

WARN = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla $(if $(WERROR),-Werror)
# Programs run the library on threads of theirs, and musl gives a thread 128 KiB: test_small_stack runs a whole node in that. A frame of a
# file of the library takes a good third of it at most. Sanitizers put more on a stack.
STACK_WARN := $(if $(SAN),,-Wframe-larger-than=49152)
# What the project itself needs comes first; the user's CFLAGS last, so that they win.
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 $(WARN) -ffp-contract=off -fvisibility=hidden -pthread $(MACHINE_CFLAGS) \
             $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all) \
             $(if $(SYSROOT),--sysroot=$(SYSROOT)) $(if $(PROFILE),-ffunction-sections -fdata-sections) $(WITHOUT:%=-DECHI_WITHOUT_%) \
             $(if $(STATIC),-DECHI_STATIC) $(if $(DOUBLE),-DECHI_DOUBLE) $(CPPFLAGS) $(CFLAGS)
# gcc would look beside itself before it looks into a sysroot, so its folders are named: for the files that a program starts with, and
# for libraries. With a section for each function a linker that is told so leaves out what nobody calls.
MULTIARCH    := $(if $(SYSROOT),$(or $(shell $(CC) -print-multiarch 2>/dev/null),$(MACHINE)))
SYSROOT_LIBS := $(if $(SYSROOT),$(wildcard $(foreach d,usr/lib lib,$(addprefix $(SYSROOT)/$d,/$(MULTIARCH)/ 64/ /))))
ifneq ($(SYSROOT),)
ifeq ($(wildcard $(addsuffix libc.so*,$(SYSROOT_LIBS)) $(addsuffix libc.a,$(SYSROOT_LIBS))),)
  $(error SYSROOT=$(SYSROOT) has no C library in lib or usr/lib: give the root of a system, or leave it out)
endif
endif
LIBS = $(foreach d,$(SYSROOT_LIBS),-B$d -L$d) $(if $(PROFILE),-Wl$(comma)--gc-sections) -lm -ldl -lpthread

# A room sees its own headers and those of the rooms below it, inside lib/ those of the folders before it in this list: an include that
# points up, or to the right, does not compile.
INC_pure      := -Iport/pure
INC_port      := $(INC_pure) -Iport
INC_hal       := $(INC_port) -Ihal
INC_ops       := $(INC_hal) -Iops
INC_net       := $(INC_port) -Inet
INC_types     := $(INC_pure) -Ilib/core/types
INC_cost      := $(INC_types) -Ilib/core/cost
INC_planner   := $(INC_cost) -Ilib/core/planner
INC_sync      := $(INC_planner) -Ilib/core/sync
INC_exchange  := $(INC_sync) -Ilib/core/exchange
INC_roles     := $(INC_exchange) -Ilib/core/roles
INC_model     := $(INC_ops) -Ilib -Ilib/model
INC_data      := $(INC_ops) -Ilib -Ilib/data
INC_exec      := $(INC_model) -Ilib/data -Ilib/core/types -Ilib/exec
INC_job       := $(INC_exec) $(addprefix -Ilib/core/,cost planner sync exchange roles) -Ilib/job
INC_import    := $(INC_job) -Ilib/import
INC_replay    := $(INC_job) -Ilib/drive/replay
INC_live      := $(INC_replay) -Inet -Ilib/drive/live
INC_sim       := $(INC_live) -Ilib/drive/sim
INC_api       := $(INC_sim) -Ilib/import
INC_doctor    := $(INC_live) -Ilib/doctor
INC_tools     := $(INC_pure) -Ilib
INC_test      := $(INC_sim) -Ilib/import -Ilib/doctor -Itest $(if $(CMOCKA),-Itest/plain)
room = $(if $(filter port/pure/% lib/%,$1),$(notdir $(patsubst %/,%,$(dir $1))),$(firstword $(subst /, ,$1)))
inc  = $(INC_$(call room,$1))

SRC  := $(sort $(wildcard port/pure/*.c port/*.c hal/*.c hal/*/*.c ops/*.c ops/ref/*.c ops/cpu/*.c ops/gpu/*.c net/*.c \
                          lib/*/*.c lib/*/*/*.c))
ifdef DOUBLE   # neither the fast kernels nor the calls of echelon.h that take floats
SRC := $(filter-out ops/cpu/% ops/gpu/% $(addprefix lib/api/,train.c session.c forward.c replay_run.c simulate.c) lib/drive/sim/% \
                    lib/doctor/% lib/import/%,$(SRC))
endif
# What a board has no use for: simulated clusters, traces of others, replays, a doctor. No program of a user calls them.
ifneq ($(PROFILE),)
SRC := $(filter-out lib/drive/sim/% lib/doctor/% lib/import/% $(patsubst %,lib/drive/replay/%.c,replay recompute walk clocks chrome \
                     layer_table spent trace_text) $(patsubst %,lib/api/%.c,simulate recordings replay_run export_run),$(SRC))
endif
# Kinds of devices, each a folder of hal/. The CPU is always there. hal/backends.c asks for ECHI_WITHOUT_... of those left out.
KINDS    := $(filter-out cpu null,$(notdir $(patsubst %/,%,$(wildcard hal/*/))))
BACKENDS ?= cpu $(if $(PROFILE),,$(KINDS))
WITHOUT  := $(filter-out $(BACKENDS),$(KINDS))
SRC      := $(filter-out $(WITHOUT:%=hal/%/%) $(if $(filter opencl cuda,$(BACKENDS)),,ops/gpu/%),$(SRC))
ifneq ($(filter-out cpu null $(KINDS),$(BACKENDS)),)
  $(error BACKENDS=$(BACKENDS): there are $(strip cpu $(KINDS)))
endif
# ops/cpu/isa_*.c hold the fast kernels: the same text compiled once for each instruction set, chosen at run time.
# `fixed` is no instruction set but a promise: the same operations in the same order on every machine, which
# --deterministic needs. There, and in isa_flat.c, which promises the same bits too, products and sums are not fused.
ISA_SRC := $(filter ops/cpu/isa_%.c,$(SRC))
ISAS    := base fixed $(if $(findstring x86_64,$(MACHINE)),$(foreach i,avx2 avx512,$i $ix4 $ix2) avx512x8)
ISA_FLAGS_base   := -DECHI_ISA=base
ISA_FLAGS_fixed  := -DECHI_ISA=fixed -DECHI_FIXED
# prfchw: a line that is fetched to be written is taken from the other threads at once, not first for reading; a processor of that age
# that lacks the instruction does nothing instead.
ISA_WITH_avx2   := -mavx2 -mfma -mprfchw
ISA_WITH_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprfchw -mprefer-vector-width=512
ISA_HALF_avx512 := -DECHI_HALF=avx512x8
# Four (avx2x4) and two (avx2x2) floats wide with the same instructions, for the last samples of a batch, and eight for small ones:
# isa_packed.c.
$(foreach i,avx2 avx512,$(eval ISA_FLAGS_$i   := $(ISA_WITH_$i) $(ISA_HALF_$i) -DECHI_ISA=$i -DECHI_NARROW=$ix4)\
                        $(eval ISA_FLAGS_$ix4 := $(ISA_WITH_$i) -DECHI_ISA=$ix4 -DECHI_WIDE=$i -DECHI_NARROW=$ix2)\
                        $(eval ISA_FLAGS_$ix2 := $(ISA_WITH_$i) -DECHI_ISA=$ix2 -DECHI_WIDE=$i -DECHI_FOURS=$ix4))
ISA_FLAGS_avx512x8 := $(ISA_WITH_avx512) -DECHI_ISA=avx512x8 -DECHI_WIDE=avx512 -DECHI_EIGHTS -DECHI_NARROW=avx512x4
OBJ  := $(patsubst %.c,$(B)/%.o,$(filter-out $(ISA_SRC),$(SRC))) \
        $(foreach i,$(ISAS),$(patsubst %.c,$(B)/%.$i.o,\
            $(filter-out $(if $(filter %x4 %2x2,$i),%/isa_winograd.c,$(if $(filter %x8,$i),,%/isa_packed.c)),$(ISA_SRC))))
# What cannot include ops/echi_real.h is the same in double: its objects are those of the build that is named as ALIKE, and there already.
ifneq ($(ALIKE),)
OBJ  := $(foreach o,$(OBJ),$(if $(filter $(addprefix $(B)/,port/% hal/% net/% lib/core/%),$o),$(o:$(B)/%=$(ALIKE)/%),$o))
endif
# Products of bf16 numbers, used where the processor has them: never called elsewhere.
$(B)/ops/cpu/bf16_x86.o: private override CFLAGS += $(if $(findstring x86_64,$(MACHINE)),-O3 $(ISA_FLAGS_bf16))
ISA_FLAGS_bf16 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprfchw -mprefer-vector-width=512 -mavx512bf16 -mamx-tile -mamx-bf16
# A board's archive is made for size, one with sanitizers may be compiled in little time (-O1); but not where its time goes.
ifneq ($(PROFILE)$(SAN),)
$(B)/ops/%.o: private override CFLAGS += -O2
endif
# Tests with sanitizers watch what the library does; their own text would take five times as long to compile optimised.
ifneq ($(SAN),)
$(B)/test/%.o: private override CFLAGS += -O0
endif
# Kernels for CUDA travel in the archive as images, made of each text by what there is here. Of those in CUDA_TEXTS: NAME.fatbin, machine
# code for all that nvcc knows and PTX for what comes after, and NAME.ptx, by clang, which any driver since CUDA 9 takes and any card since
# sm_53. Of CARD_TEXTS, for some of NVIDIA's cards alone: NAME.fatbin, for the cards that CARD_CODE_NAME says, and beside it what ptxas says
# of each kernel, and the PTX (test/check/gpu_texts.sh reads them). ops/gpu/text.c shows how C gets at images. A compiler that is not here
# leaves its image empty. Images do not depend on how the rest is compiled: all kinds of builds share them.
CUDA_TEXTS  := $(if $(and $(filter cuda,$(BACKENDS)),$(filter ops/gpu/%,$(SRC))),$(if $(STATIC),,ops/gpu/kernels.cl))
CARD_TEXTS  := $(if $(CUDA_TEXTS),ops/gpu/products_f32.cu ops/gpu/products_sm80.cu ops/gpu/products_sm90.cu)
CARD_CODE_products_f32  := -gencode arch=compute_80,code=[sm_80,sm_90,compute_80]
CARD_CODE_products_sm80 := $(CARD_CODE_products_f32)
CARD_CODE_products_sm90 := -gencode arch=compute_90a,code=sm_90a
CUDA_IMAGES := $(foreach t,$(basename $(CUDA_TEXTS)),$t.fatbin $t.ptx) $(CARD_TEXTS:.cu=.fatbin)
ifneq ($(CUDA_TEXTS),)
NVCC        ?= $(firstword $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null))
CLANG       ?= $(firstword $(shell clang --print-targets 2>/dev/null | grep -q nvptx64 && echo clang))
OBJ         += $(CUDA_IMAGES:%=$(B)/%.o)
endif
IMAGES      := build/images$(if $(NVCC),,/no-nvcc)$(if $(CLANG),,/no-clang)
LIB  := $(B)/libechelon.a
TOOL := $(B)/echelon
TOOL_SRC := $(if $(DOUBLE)$(PROFILE),,$(sort $(wildcard tools/*.c)))
# Tests and benches of kernels that this build leaves out; and those that name every kind of device, where it leaves one out.
NO_GPU := $(if $(filter ops/gpu/%,$(SRC)),,test/ops/test_gpu_texts.c test/bench/bench_gpu_texts.c test/bench/card_gpu_texts.c) \
          $(if $(filter-out null,$(WITHOUT)),test/unit/test_hal.c $(addprefix test/ops/,test_device.c test_cuda.c) \
                                             $(addprefix test/bench/bench_,opencl.c conv_cuda.c))
# Choices are predictions of the cost engine, thousands of them, in memory that others watch: of test_predict and test_planner. What
# is predicted is compared with runs of the simulator, which test_sim has. What allocates is counted, in runs that others watch. None of
# them is tried with sanitizers.
NOT_HERE := $(if $(SAN),test/unit/test_choice.c test/unit/test_predict_sim.c test/cluster/test_alloc.c)
# A program without threads has no data races: ThreadSanitizer, the slowest of all, is for the others. Those of test/ops and test/fuzz
# compute on one thread, but for the one that holds several against it; what they are linked with could start more. Runs with an
# allocation, a disk or a clock that fails, hundreds of them, are those whose threads test_faults_os and test/cluster see. Simulated runs
# have no threads, options and crops need none; replayed ones compute on those of test_threads. Of the rest test/run.sh leaves out what can
# start none.
NOT_HERE += $(if $(filter thread,$(SAN)),$(filter-out %/test_threads.c,$(wildcard test/ops/test_*.c)) \
                $(addprefix test/faults/test_faults_,memory.c files.c clock.c tool.sh) \
                $(patsubst %,test/unit/test_%.c,placement config augment replay clocks trace sched_roles sched_local step_line))
TESTS := $(patsubst %.c,$(B)/%,$(filter-out $(NO_GPU) $(NOT_HERE),\
    $(sort $(if $(DOUBLE),test/cluster/test_exact.c,$(wildcard test/*/test_*.c)))))
# The test of exactness once more, against the archive in double; what a sanitizer sees there it sees in the other.
DOUBLE_TEST := $(if $(DOUBLE)$(SAN),,$(B)/double/test/cluster/test_exact)
# Checks of the objects themselves say nothing new about objects with sanitizers in them.
TEST_SCRIPTS := $(filter-out $(NOT_HERE),$(sort $(wildcard test/cluster/*.sh test/faults/test_*.sh test/seeds/test_*.sh \
                                  $(if $(SAN),,test/check/*.sh test/outside/run.sh))))
# One program of several files. COVERAGE=1 lets it see which way an input went: flags of the library's objects and the
# drivers', not of the files that watch.
FUZZ := $(B)/test/fuzz/test_fuzz
FUZZ_TEST := $(if $(filter thread,$(SAN)),,$(FUZZ))
FUZZ_COMMON := $(patsubst %.c,$(B)/%.o,$(sort $(wildcard test/fuzz/fuzz_*.c)) test/fuzz/common.c test/fuzz/heap.c)
FUZZ_OBJ := $(FUZZ_COMMON) $(patsubst %,$(B)/test/fuzz/%.o,main mutate cover)
FUZZ_WRAP := $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc posix_memalign free \
                 $(addprefix echi_wire_,post send sent lender drop bytes_sent address give_way) \
                 $(addprefix echi_lane_,submit take hold is_held call stay gradient rows))
BENCHES := $(patsubst %.c,$(B)/%,$(filter-out $(NO_GPU),$(sort $(wildcard test/bench/bench_*.c))))
GRADIENTS := $(B)/test/pytorch/gradients
SESSION_SO := $(B)/test/pytorch/session.so
# Tests of kernels that only a card runs: test/bench/gpu_texts.sh.
ON_CARD := $(patsubst %.c,$(B)/%,$(filter-out $(NO_GPU),test/bench/card_gpu_texts.c))

.PHONY: all lib libc clean help tests test check faults layers names demo bench reproduce-gssp fuzz libfuzzer pytorch install \
        uninstall FORCE
.SECONDARY:
all: $(LIB) $(if $(TOOL_SRC),$(TOOL))
lib: $(LIB)
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# Changes only when compiler or flags change, so that a new flag rebuilds everything; likewise the list of objects, so
# that a file taken away leaves the archive.
FLAGS := $(CC) $(ALL_CFLAGS) $(COVERAGE) $(LDFLAGS)
$(B)/flags: FORCE
	$(call keep,$(FLAGS))
$(B)/objects: FORCE
	$(call keep,$(OBJ))
define keep
@mkdir -p $(@D)
@echo '$1' | cmp -s - $@ || echo '$1' > $@
endef

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	@$(if $(Q),echo '  CC    $<')
	$(Q)$(CC) $(ALL_CFLAGS) $(if $(filter $@,$(OBJ)),$(STACK_WARN)) $(call inc,$<) -MMD -MP -c -o $@ $<
# Unrolled kernels parse nothing, and clang takes minutes to watch all of their steps, as gcc does for more than their addresses.
# Beyond 300 accesses in a function what looks at an address is called instead of written out: a third of the time to compile with gcc,
# three quarters with clang, which does so by itself beyond 7,000.
# clang fuses a product and its sum where both lie in one basic block, which the checks of addresses end here and there: it fuses none.
KERNEL_SAN := $(if $(findstring fuzzer,$(SAN)),-fno-sanitize=all,$(if $(findstring undefined,$(SAN)),-fno-sanitize=undefined) \
    $(if $(findstring address,$(SAN)),\
        $(if $(findstring clang,$(CC)),-ffp-contract=off -mllvm -asan-instrumentation-with-call-threshold=300,\
            --param asan-instrumentation-with-call-threshold=300)))
# gcc from 13 on leaves a sum of products unfused where it thinks that fused ones would wait for each other; kernels for many samples and
# for few would round differently then, and a sample must have the same gradients beside any others.
FUSE := $(if $(shell $(CC) -Werror --param=avoid-fma-max-bits=0 -E -x c /dev/null >/dev/null 2>&1 && echo yes),--param=avoid-fma-max-bits=0)
# With sanitizers a build is for tests on this machine: kernels for instructions that it lacks are compiled, but not optimised or watched.
HAS_avx2   := avx2
HAS_avx512 := avx512bw
LACKED := $(if $(SAN),$(foreach i,avx2 avx512,$(if $(shell grep -qw $(HAS_$i) /proc/cpuinfo || echo lacked),$i $ix4 $ix2 $ix8)))
define ISA_RULE
$(B)/%.$1.o: %.c $(B)/flags
	@mkdir -p $$(@D)
	@$(if $(Q),echo '  CC    $$< ($1)')
	$(Q)$(CC) $(ALL_CFLAGS) -O3 -fno-math-errno $$(if $$(filter fixed,$1)$$(filter %/isa_flat.c,$$<),,-ffp-contract=fast $(FUSE)) \
	    $(STACK_WARN) $(if $(filter $1,$(LACKED)),-O0 -fno-sanitize=all,$(KERNEL_SAN)) $(ISA_FLAGS_$1) $(INC_ops) -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call ISA_RULE,$i)))

# The GPUs' kernels are one text, which goes into the archive: every #include "..." in its place, each line a string of C.
GPU_TEXT  := $(B)/ops/gpu/kernels.inc
GPU_TEXTS := $(wildcard ops/gpu/*.cl ops/gpu/*.h)
$(GPU_TEXT): $(GPU_TEXTS)
	@mkdir -p $(@D)
	$(Q)awk 'function put(name, line) { while ((getline line < ("ops/gpu/" name)) > 0) \
	    if (split(line, part, "\"") == 3 && part[1] == "#include ") put(part[2]); else print line; \
	    close("ops/gpu/" name) } BEGIN { put("kernels.cl") }' | sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n"/' > $@
$(B)/ops/gpu/text.o: $(GPU_TEXT)
$(B)/ops/gpu/text.o: private override CPPFLAGS += -I$(B)/ops/gpu

CUDA_TOOLS := nvcc: $(or $(NVCC),none) clang: $(or $(CLANG),none)
$(IMAGES)/cuda-tools: FORCE
	$(call keep,$(CUDA_TOOLS))
CUDA_NEEDS := $(IMAGES)/cuda-tools $(wildcard $(patsubst %,%*.cl,$(dir $(CUDA_TEXTS))) $(patsubst %,%*.h,$(dir $(CUDA_TEXTS))))
# $(call machine_code,ARCHITECTURES,COMPILE): an nvcc older than one of them refuses them all, dry as well: the image is left out. No list
# tells: --list-gpu-code came with CUDA 11, and lacks sm_90a.
define machine_code
$(Q)if [ -z "$(NVCC)" ]; then echo '  CUDA  $<: no machine code: there is no nvcc here'; : > $@; \
    elif ! $(NVCC) -x cu --dryrun -fatbin $1 -o $@ $< >/dev/null 2>&1; then \
        echo '  CUDA  $<: left out: $(NVCC) does not know $1'; : > $@; \
    else echo '  CUDA  $<: machine code by $(NVCC)'; $2; fi
endef
$(IMAGES)/%.fatbin: %.cl $(CUDA_NEEDS)
	@mkdir -p $(@D)
	$(call machine_code,-arch=all,$(NVCC) -x cu -fatbin -arch=all -Xfatbin=-compress-all -Wno-deprecated-gpu-targets -o $@ $<)
CARD_CODE = $(CARD_CODE_$(basename $(notdir $<)))
$(IMAGES)/%.fatbin: %.cu $(CUDA_NEEDS) $(wildcard ops/gpu/*.cuh)
	@mkdir -p $(basename $@).kept
	$(call machine_code,$(CARD_CODE),$(NVCC) -fatbin $(CARD_CODE) -Xfatbin=-compress-all -Xptxas=-v \
	    -keep -keep-dir $(basename $@).kept -o $@ $< >$(basename $@).said 2>&1 || { cat $(basename $@).said; exit 1; })
$(IMAGES)/%.ptx: %.cl $(CUDA_NEEDS)
	@mkdir -p $(@D)
	@echo '  CUDA  $<: $(if $(CLANG),PTX by $(CLANG),no PTX: there is no clang here that makes it)'
	$(Q)$(if $(CLANG),$(CLANG) -x cuda --cuda-device-only --cuda-gpu-arch=sm_53 -Xclang -target-feature -Xclang +ptx60 -nocudainc -nocudalib \
	    --cuda-path=/nonexistent -O3 -include ops/gpu/bare_cuda.h -S -o $@ $<,: > $@)
$(CUDA_IMAGES:%=$(B)/%.o): $(B)/%.o: $(IMAGES)/% hal/cuda/image.S $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -DNAME=$(subst .,_,$(notdir $<)) -DFILE='"$<"' -c -o $@ hal/cuda/image.S

# Of an archive or a program, where that is what it was made for.
define tell_size
@[ -z "$(PROFILE)" ] || echo "  SIZE  $@: $$(wc -c < $@) bytes, $$($(SIZE) -t $@ | awk 'END { print $$1 }') of them text"
endef
$(LIB): $(OBJ) $(B)/objects
	@$(if $(Q),echo '  AR    $@ (devices: cpu $(filter-out $(WITHOUT),$(KINDS)))')
	$(Q)rm -f $@ && $(AR) qcs $@ $(OBJ)
	$(tell_size)
$(TOOL): $(TOOL_SRC:%.c=$(B)/%.o) $(LIB)
	@$(if $(Q),echo '  LINK  $@')
	$(Q)$(CC) $(ALL_CFLAGS) $(if $(STATIC),-static) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
$(TESTS) $(ON_CARD): %: %.o $(LIB)
	@$(if $(Q),echo '  LINK  $@')
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(WRAPS) -o $@ $(filter %.o,$^) $(LIB) $(if $(CMOCKA),,-lcmocka) $(LIBS)
# A GPU that is slow moves its clock on.
$(B)/test/ops/test_device: private LDFLAGS += -Wl,--wrap=echi_now,--wrap=echi_sleep_until
# It watches the tasks of live nodes, and puts them on the in-process transport.
$(B)/test/cluster/test_exact: private LDFLAGS += -Wl,--wrap=echi_exec_run,--wrap=echi_measure,--wrap=echi_wire_open
# It counts what kernels are called for.
$(B)/test/ops/test_stack: private LDFLAGS += -Wl,--wrap=echi_kernels
# They leave layers to the reference.
$(B)/test/ops/test_parity $(B)/test/unit/test_fallback: private LDFLAGS += -Wl,--wrap=echi_cpu_op
# It sees small pieces of work shared out, in any order.
$(B)/test/ops/test_threads: private LDFLAGS += -Wl,--wrap=echi_cpu_share_out,--wrap=echi_team_run
# It runs kernels of NVIDIA's cards on this processor.
$(B)/test/ops/test_gpu_texts: $(addprefix $(B)/test/ops/,simt.o switch.o texts.o)
# Its processor may have fewer instructions than this one.
$(B)/test/unit/test_config: private LDFLAGS += -Wl,--wrap=echi_cpu_level
# Its processor claims to be a card.
$(B)/test/unit/test_hal: private LDFLAGS += -Wl,--wrap=echi_backend_at
# It puts wrong kernels in the place of right ones.
$(B)/test/ops/test_known_answer: private LDFLAGS += -Wl,--wrap=echi_kernels
# Its layers take known times.
$(B)/test/unit/test_unit_times: private LDFLAGS += $(addprefix -Wl$(comma)--wrap=,echi_now echi_sleep_until echi_thread_cpu echi_team_cpu \
    echi_cpu_quota echi_stack_create echi_stack_input echi_stack_forward echi_stack_backward)
# One of its nodes becomes slow, and what that changes need not last.
$(B)/test/cluster/test_replay_shares: private LDFLAGS += -Wl,--wrap=echi_exec_run,--wrap=echi_measure,--wrap=echi_plan_request_from
# It takes places away, to see a simulated cluster get stuck.
$(B)/test/cluster/test_alloc: private LDFLAGS += -Wl,--wrap=echi_measure
$(B)/test/cluster/test_sim: private LDFLAGS += -Wl,--wrap=echi_sim_post
$(DOUBLE_TEST): FORCE | $(B)/test-needs $(LIB)
	$(Q)$(MAKE) DOUBLE=1 B=$(B)/double ALIKE=$(B) $@
$(BENCHES) $(GRADIENTS): %: %.o $(LIB)
	@$(if $(Q),echo '  LINK  $@')
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)
# For ctypes: what it calls has no header.
$(SESSION_SO): test/pytorch/session.c $(LIB)
	@$(if $(Q),echo '  LINK  $@')
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(INC_tools) -Wno-missing-prototypes -fPIC -shared $(LDFLAGS) -o $@ $< $(LIB) $(LIBS)
# A card of NVIDIA's, by its driver.
$(ON_CARD) $(B)/test/bench/bench_gpu_texts: $(B)/test/ops/card.o
$(ON_CARD).o: | $(B)/test-needs

$(B)/double/test/pytorch/gradients: FORCE | $(LIB)
	$(Q)$(MAKE) DOUBLE=1 B=$(B)/double ALIKE=$(B) $@

# Programs of test/faults: calls of the C library are led through inject.c, which can make them fail.
FAULTS := $(filter $(B)/test/faults/%,$(TESTS))
$(FAULTS): $(B)/test/faults/inject.o
$(FAULTS): WRAPS := $(shell sed -n 's/^WRAPPED.[^,]*, \([a-z0-9_]*\),.*/-Wl,--wrap=\1/p' test/faults/inject.c)

ifeq ($(COVERAGE),1)
  $(OBJ): CPPFLAGS += -fsanitize-coverage=trace-pc
endif
$(FUZZ): $(FUZZ_OBJ) $(LIB)
	@$(if $(Q),echo '  LINK  $@')
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(FUZZ_WRAP) -o $@ $(FUZZ_OBJ) $(LIB) $(LIBS)

# A CUDA driver and an NVRTC without a card behind them, of kernels compiled for the host: test/fake. Their tests do without where there
# is no C++ compiler for this processor.
# They do not depend on how the rest is compiled: all kinds of builds for a machine have copies of one.
CXX_HERE := $(CROSS_COMPILE)g++
FAKES    := build/fake$(if $(CROSS_COMPILE),/$(patsubst %-,%,$(notdir $(CROSS_COMPILE))))
FAKE     := $(if $(and $(CUDA_TEXTS),$(filter x86_64-% aarch64-%,$(MACHINE)),$(shell command -v $(CXX_HERE))),\
                 $(addprefix $(B)/test/fake/,libcuda.so.1 libnvrtc.so.13 names.inc))
CXXFLAGS_FAKE := -std=c++14 -O2 -g -fPIC -shared -fvisibility=hidden -Wall -Wextra -Wno-unknown-pragmas -Wno-misleading-indentation \
                 $(if $(WERROR),-Werror) -Iops/gpu -I$(FAKES)
$(FAKES)/names.inc: test/fake/host_cuda.h $(GPU_TEXTS)
	@mkdir -p $(@D)
	$(Q)$(CXX_HERE) -E -x c++ -Iops/gpu -include test/fake/host_cuda.h ops/gpu/kernels.cl | \
	    sed -n 's/.*extern "C" *void \([a-z_0-9]*\)(.*/X(\1)/p' > $@
# The texts that only cards have run in it as in test_gpu_texts.
$(FAKES)/%.o: test/ops/%.c $(addprefix test/ops/,simt.h simt_run.h switch.h texts.h) \
                    $(wildcard ops/gpu/*.cu ops/gpu/*.cuh ops/gpu/*.h)
	@mkdir -p $(@D)
	$(Q)$(CROSS_COMPILE)gcc -std=c11 -D_GNU_SOURCE -O2 -g -fPIC -fvisibility=hidden -Iops -Iops/gpu -c -o $@ $<
$(FAKES)/libcuda.so.1: test/fake/cuda.cpp test/fake/kernels.cpp test/fake/fake_cuda.h hal/cuda/echi_cuda_api.h \
                             $(FAKES)/names.inc $(addprefix $(FAKES)/,simt.o switch.o texts.o)
	@$(if $(Q),echo '  FAKE  $@')
	$(Q)$(CXX_HERE) $(CXXFLAGS_FAKE) -Wl,-soname,$(@F) -o $@ $(filter %.cpp %.o,$^)
$(FAKES)/libnvrtc.so.13: test/fake/nvrtc.cpp hal/cuda/echi_cuda_api.h
	@mkdir -p $(@D)
	@$(if $(Q),echo '  FAKE  $@')
	$(Q)$(CXX_HERE) $(CXXFLAGS_FAKE) -Wl,-soname,$(@F) -o $@ $<
$(FAKE): $(B)/test/fake/%: $(FAKES)/%
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(TESTS): | $(FAKE)

# What test programs are compiled with. Probed, and installed when it may be, before the first of them.
$(B)/test-needs: test/needs.sh
	@mkdir -p $(@D)
	@$(if $(CMOCKA),: > $@,CC="$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)" $(BASH) test/needs.sh $@)
$(TESTS:=.o): | $(B)/test-needs

# A complete installation, for the tests that see Echelon as a user does.
STAGE := $(abspath $(B)/stage)
SCRIPT_ENV = MAKE="$(MAKE)" CC="$(CC)" NM="$(NM)" SAN="$(SAN)" B="$(B)" IMAGES="$(IMAGES)" OBJ="$(OBJ)" LIB="$(LIB)" \
             ECHELON="$(abspath $(TOOL))" STAGE="$(STAGE)"
# Those that compute the longest do not begin last, when a processor would have nothing else to do.
LONGEST := $(FUZZ_TEST) $(filter %/test_parity %/test_seeds %/test_faults_memory %/test_sched_roles %/test_predict_sim %/test_faults_os \
                            %/test_threads %/test_net_faults %/test_exact %/test_sim %/test_placement %/test_data_cifar %/test_device \
                            %/test_matrix %/test_world %/test_session_head,$(TESTS))
# With a sanitizer nobody runs benches: all that is to be had of them is a compiler's warnings, and of the one for addresses.
UNTESTED := $(if $(filter thread,$(SAN)),,$(BENCHES) $(GRADIENTS) $(ON_CARD))
tests: $(TESTS) $(DOUBLE_TEST) $(FUZZ_TEST) $(if $(SAN),$(UNTESTED:=.seen),$(UNTESTED))
$(B)/%.seen: %.c $(B)/flags
	@mkdir -p $(@D)
	@$(if $(Q),echo '  SEE   $<')
	$(Q)$(CC) $(ALL_CFLAGS) $(call inc,$<) -MMD -MP -MF $@.d -MT $@ -fsyntax-only $< && : > $@
RUN_TESTS = $(SCRIPT_ENV) TEST_IDLE="$(TEST_IDLE)" TEST_CPU="$(TEST_CPU)" ONLY="$(ONLY)" $(BASH) test/run.sh
test check: all $(TESTS) $(DOUBLE_TEST) $(FUZZ_TEST) $(B)/test-needs
	@$(call install_into,,$(STAGE))
	@QUICK=$(if $(filter test,$@),1) $(RUN_TESTS) $(TEST_SCRIPTS) $(LONGEST) $(filter-out $(LONGEST),$(TESTS)) $(DOUBLE_TEST)

# Every call that can fail fails once: minutes, where the tests of test/faults alone try a part.
faults: all $(FAULTS)
	@FAULTS_TRIED=all $(RUN_TESTS) $(FAULTS) $(wildcard test/faults/test_*.sh)

# A program of a user's, a node that trains, as it would be linked on this machine.
WORKER := $(B)/worker
$(WORKER): $(B)/test/outside/whole.o $(LIB)
	@$(if $(Q),echo '  LINK  $@')
	$(Q)$(CC) $(ALL_CFLAGS) $(if $(STATIC),-static) $(LDFLAGS) -o $@ $< $(LIB) $(LIBS)
	$(tell_size)
libc: all $(WORKER)
	@READELF="$(READELF)" $(BASH) tools/needs-libc $(if $(TOOL_SRC),$(TOOL)) $(WORKER)

layers names: $(LIB)
	@$(SCRIPT_ENV) $(BASH) test/check/$@.sh

demo: $(TOOL)
	$(Q)ECHELON=$(TOOL) $(BASH) tools/demo.sh
bench: all $(BENCHES)
	$(Q)$(SCRIPT_ENV) $(BASH) test/bench/run.sh
reproduce-gssp: $(TOOL) $(B)/test/bench/bench_ring
	$(Q)$(SCRIPT_ENV) ONLY="$(ONLY)" $(BASH) test/bench/reproduce_gssp.sh

# Long runs in folders of their own. What they find new ways with is kept in build/fuzz/found.
fuzz:
	+$(Q)$(MAKE) B=build/fuzz SAN=address,undefined COVERAGE=1 build/fuzz/test/fuzz/test_fuzz
	$(Q)build/fuzz/test/fuzz/test_fuzz --seconds $(FUZZ_SECONDS) --keep build/fuzz/found \
	    --seed $(or $(FUZZ_SEED),$(shell date +%s)) $(if $(ONLY),--only $(ONLY))
# The same drivers under clang's own fuzzer; ONLY says which.
libfuzzer:
	+$(Q)$(MAKE) CC=clang B=build/libfuzzer SAN=address,undefined,fuzzer-no-link build/libfuzzer/test/fuzz/libfuzzer
	$(Q)mkdir -p build/libfuzzer/found/$(ONLY)
	$(Q)FUZZ_DRIVER=$(ONLY) build/libfuzzer/test/fuzz/libfuzzer -max_total_time=$(FUZZ_SECONDS) \
	    build/libfuzzer/found/$(ONLY) $(wildcard test/fuzz/corpus/$(ONLY))
$(B)/test/fuzz/libfuzzer: $(FUZZ_COMMON) $(B)/test/fuzz/libfuzzer.o $(LIB)
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $(LDFLAGS) $(FUZZ_WRAP) -o $@ $(filter %.o,$^) $(LIB) $(LIBS)

# $(call install_into,DESTDIR,PREFIX). The archive is static: link with pkg-config --static.
LIBS_OF_USERS = $(if $(SAN),-fsanitize=$(SAN) )-pthread $(if $(PROFILE),-Wl$(comma)--gc-sections )-lm -ldl -lpthread
define install_into
set -e; root="$1$2"; \
$(INSTALL) -d "$$root/bin" "$$root/lib/pkgconfig" "$$root/include/echelon"; \
$(INSTALL) -m 644 $(LIB) "$$root/lib"; \
$(INSTALL) -m 644 lib/echelon.h port/pure/ech_status.h "$$root/include/echelon"; \
sed -e 's|@PREFIX@|$2|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(LIBS_OF_USERS)|' lib/echelon.pc.in \
    > "$$root/lib/pkgconfig/echelon.pc"; \
$(if $(TOOL_SRC),$(INSTALL) -m 755 $(TOOL) "$$root/bin";) \
$(if $(wildcard tools/echelon.1),$(INSTALL) -d "$$root/share/man/man1"; $(INSTALL) -m 644 tools/echelon.1 "$$root/share/man/man1";)
endef
# Gradients, losses and steps against PyTorch's, where a Python has it: see test/pytorch/.
pytorch: $(TOOL) $(GRADIENTS) $(B)/double/test/pytorch/gradients $(SESSION_SO)
	$(Q)B="$(abspath $(B))" ECHELON="$(abspath $(TOOL))" $(BASH) test/pytorch/run.sh || [ $$? = 77 ]
install: all
	$(Q)$(call install_into,$(DESTDIR),$(PREFIX))
uninstall:
	$(Q)cd "$(DESTDIR)$(PREFIX)" && rm -f lib/libechelon.a lib/pkgconfig/echelon.pc include/echelon/echelon.h \
	    include/echelon/ech_status.h bin/echelon share/man/man1/echelon.1
	$(Q)if [ -d "$(DESTDIR)$(PREFIX)/include/echelon" ]; then rmdir "$(DESTDIR)$(PREFIX)/include/echelon"; fi

clean:
	rm -rf build

-include $(OBJ:.o=.d) $(TOOL_SRC:%.c=$(B)/%.d) $(TESTS:=.d) $(FUZZ_OBJ:.o=.d) $(BENCHES:=.d) $(GRADIENTS:=.d) $(ON_CARD:=.d) \
         $(if $(SAN),$(UNTESTED:=.seen.d)) $(B)/test/outside/whole.d $(B)/test/faults/inject.d
