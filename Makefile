# Thin on purpose: what to run is here, how it is built is in meson.build.
#   make demo    the product at work on a real cluster, without a GPU
#   make test    all tests
#   make help    the rest

BUILD  ?= build
FOR_ARM64 = gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static
PREFIX ?= /usr/local
NINJA   = ninja -C $(BUILD)

.PHONY: all demo test test-arm64 test-crio test-foreign test-own chaos bench bench-dra bench-install bench-intercept bench-look bench-node bench-packing bench-scale bench-web test-gpu gpu-kit optimized optimized-arm64 release images packages install asan tsan fuzz analyze format check-format clean setup help

all: $(BUILD)/build.ninja  ## build everything
	@$(NINJA)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

setup:  ## install missing Debian packages (never removes any)
	@scripts/setup

$(BUILD)/build.ninja: | setup
	@meson setup $(BUILD) --prefix $(PREFIX) >$(BUILD).log 2>&1 && rm -f $(BUILD).log \
		|| { cat $(BUILD).log; exit 1; }

demo: $(BUILD)/build.ninja  ## pods share a GPU on a real Kubernetes cluster (KEEP=1 leaves it up)
	@python3 demo/demo.py --build $(BUILD)

test:  ## all tests, end-to-end ones included
	@scripts/setup clang-format-14 chromium chromium-driver
	@python3 tests/run.py --build $(BUILD)

test-arm64:  ## a cross-build for arm64; its unit tests, those of the simulator in C, the torture and the packages under qemu-user
	@scripts/setup $(FOR_ARM64) patchelf rpm
	@python3 tests/arm64.py --build $(BUILD)-arm64

test-crio:  ## the end-to-end test with CRI-O in place of containerd, with runc and with crun
	@scripts/setup conmon crun skopeo
	@python3 tests/run.py --build $(BUILD) --foreign --only test_crio

test-foreign:  ## the tests with unmodified programs, libraries and headers of other projects, all of them (make test leaves long ones out)
	@scripts/setup chromium chromium-driver conmon crun libseccomp-dev patchelf rpm skopeo
	@python3 tests/run.py --build $(BUILD) --foreign

chaos: all  ## scheduler, API server, etcd and network killed at random under load, then an audit (SECONDS=600 SEED=1 SCHEDULER=own CLAIMS=1)
	@python3 tests/e2e/chaos.py --build $(BUILD) --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) --scheduler $(or $(SCHEDULER),extender) $(if $(CLAIMS),--claims)

OWN = $(addprefix tests/e2e/test_,forgery.py churn.py gates.py preemption.py)

test-own: all  ## forgery, churn, gates, preemption and a minute of chaos with a kube-scheduler of Aliquot's own
	@ALIQUOT_E2E_SCHEDULER=own ALIQUOT_BUILD=$(abspath $(BUILD)) $$(scripts/test-venv)/bin/python -m pytest -p no:cacheprovider $(OWN)
	@python3 tests/e2e/chaos.py --build $(BUILD) --seconds 60 --scheduler own

bench: all  ## measurements, printed with the machine's name
	@python3 tests/bench/bench.py --build $(BUILD)

bench-dra: all  ## shares by ResourceClaims beside plain pods, the extender and kube-scheduler's own allocation (ARGS="--part queue")
	@$$(scripts/test-venv)/bin/python tests/bench/dra.py --build $(BUILD) $(ARGS)

bench-install: all  ## what an operator waits for, in both modes: install, upgrade and rollback, memory, takeover (ARGS="--part helm")
	@$$(scripts/test-venv)/bin/python tests/bench/install.py --build $(BUILD) $(ARGS)

bench-scale: all  ## the scheduler at 5,000 nodes x 8 GPUs and 20,000 bound pods, on a real API server (NODES=500: a tenth; ARGS="--peer ..."; ARGS=--own: both modes)
	@python3 tests/bench/scale.py --build $(BUILD) --nodes $(or $(NODES),5000) $(ARGS)

bench-intercept: all  ## what interception costs (PEERS="--peer NAME=LIBRARY.so[,VARIABLE=VALUE...]" beside others)
	@python3 tests/bench/intercept.py --build $(BUILD) $(PEERS)

bench-look: all  ## what a user waits for who looks at a cluster of 1,000 nodes (NODES=100: a tenth)
	@$$(scripts/test-venv)/bin/python tests/bench/look.py --build $(BUILD) --nodes $(or $(NODES),1000)

bench-web: all  ## the page of 5,000 nodes of 8 cards in Chromium, and ten viewers (ARGS="--nodes 500")
	@scripts/setup chromium chromium-driver
	@$$(scripts/test-venv)/bin/python tests/bench/web.py --build $(BUILD) $(ARGS)

bench-node: all  ## the agent on a node of 8 cards: faults, repartition, memory, requests at rest (ARGS="--peer PROGRAM")
	@$$(scripts/test-venv)/bin/python tests/bench/node.py --build $(BUILD) $(ARGS)

bench-packing: all  ## how well the policies pack a trace (OPENB=DIRECTORY of nodes and pods as CSV)
	@OPENB="$(OPENB)" python3 tests/bench/packing.py --build $(BUILD)

test-gpu: all  ## tests on a real GPU, skipped where there is none (ARGS=--write: results into docs/measurements.md)
	@python3 tests/gpu/run.py --build $(BUILD) $(ARGS)

gpu-kit: all  ## pack a folder that asks a machine with a GPU all that is open: gpu-kit/run there (docs/gpu-kit.md)
	@python3 tests/gpu/pack.py --build $(BUILD)

RELEASE = --prefix $(PREFIX) -Doptimization=2 -Ddebug=false -Db_ndebug=true

$(BUILD)-release/build.ninja: | setup
	@meson setup $(BUILD)-release $(RELEASE) \
		>$(BUILD)-release.log 2>&1 && rm -f $(BUILD)-release.log || { cat $(BUILD)-release.log; exit 1; }

optimized: $(BUILD)-release/build.ninja  ## an optimized build in $(BUILD)-release, as images and packages contain it
	@ninja -C $(BUILD)-release --quiet

release: setup  ## a release in dist/, all but the push (VERSION=x.y.z URL=https://...)
	@[ -n "$(VERSION)" ] && [ -n "$(URL)" ] || { \
		echo 'usage: make release VERSION=x.y.z URL=https://... (the build alone: make optimized)' >&2; exit 2; }
	@scripts/release "$(VERSION)" --build $(BUILD) --url "$(URL)"

optimized-arm64: setup
	@scripts/setup $(FOR_ARM64)
	@[ -f $(BUILD)-release-arm64/build.ninja ] || \
		meson setup $(BUILD)-release-arm64 $(RELEASE) --cross-file "$$(scripts/fetch-arm64)/cross.ini" >/dev/null
	@ninja -C $(BUILD)-release-arm64 --quiet

images: optimized optimized-arm64  ## archives of the images without docker, in $(BUILD)-images, on amd64 for amd64 and arm64
	@SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}" python3 images/aliquot_images.py \
		--build $(BUILD)-release --cross $(BUILD)-release-arm64 "$$(scripts/fetch-arm64)/root" \
		--revision "$$(git describe --always --dirty --abbrev=40 --exclude='*')" --out $(BUILD)-images

packages: optimized optimized-arm64  ## packages for Debian, RPM and kubectl (krew), on amd64 for amd64 and arm64, and for helm, in $(BUILD)-packages
	@scripts/setup patchelf rpm
	@export SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}"; \
		scripts/make-packages --build $(BUILD)-release --out $(BUILD)-packages && \
		scripts/make-packages --build $(BUILD)-release-arm64 --sysroot "$$(scripts/fetch-arm64)/root" --out $(BUILD)-packages

install: all  ## install below PREFIX
	@meson install -C $(BUILD)

asan: setup  ## the tests in C under the address and undefined-behaviour sanitizers
	@python3 tests/run.py --build $(BUILD)-asan --sanitize address,undefined

tsan: setup  ## the tests in C under the thread sanitizer
	@python3 tests/run.py --build $(BUILD)-tsan --sanitize thread

fuzz:  ## every fuzz target under libFuzzer, SECONDS= each (default 60)
	@scripts/setup clang-14 libclang-rt-14-dev
	@scripts/fuzz $(BUILD)-fuzz $(or $(SECONDS),60)

analyze: all  ## static analysis: gcc -fanalyzer, clang-tidy, cppcheck
	@scripts/analyze $(BUILD)

format:  ## put the code in shape
	@scripts/format

check-format:  ## fail if it is not
	@scripts/format --check

clean:  ## remove build directories (the cache of cluster binaries stays)
	@rm -rf $(BUILD) $(BUILD)-release $(BUILD)-release-arm64 $(BUILD)-images $(BUILD)-packages $(BUILD)-arm64 $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-analyzer build-mutate
