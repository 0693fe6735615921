# Two commands: `make demo` and `make test`. Everything else is a shorthand for a preset or a script in tools/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test build install package bench gpu-bundle gpu-test doctor-check format lint docs asan tsan fuzz clean setup

JOBS ?= $(shell nproc)
TESTS_AT_ONCE ?= $(shell expr $(JOBS) + 1)  # many wait: two cores take 9 min 16 s with three at once, 11 min 35 s with two
FUZZ_SECONDS ?= 600
export OMP_WAIT_POLICY := PASSIVE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing
	@tools/setup
	@[ -z "$(ALSO)" ] || tools/setup $(ALSO) || echo "setup: no Open MPI, so nothing is trained or tested over several processes"

build: setup ## build build/millrace, tests and benchmarks, with CUDA where its compiler is
	@cmake --preset release -Wno-dev -DMILLRACE_CUDA=$(or $(MILLRACE_CUDA),AUTO)
	@cmake --build --preset release -j $(JOBS)

demo: setup ## train energy flow on built-in pairs of sentences and print how many answers it finds
	@cmake --preset release -Wno-dev -DMILLRACE_CUDA=$(or $(MILLRACE_CUDA),GPU)
	@cmake --build --preset release -j $(JOBS) --target millrace
	@tools/demo

test asan tsan: ALSO := --mpi
test: build ## build and run all tests; GPU tests run when there is a GPU
	@tools/setup --browser || echo "test: no Chromium, so pages are not opened in a browser"
	@tools/setup --servers || echo "test: no PostgreSQL or Slurm, so studies are not tested on servers"
	@rm -f build/Testing/first.log; ctest --preset release -j $(TESTS_AT_ONCE); status=$$?; \
	if [ $$status -ne 0 ] && mv build/Testing/Temporary/LastTest.log build/Testing/first.log; then \
	echo "== what failed, again, one program at a time"; ctest --preset release --rerun-failed; status=$$?; fi; \
	tools/test-summary build || exit 1; exit $$status

asan: setup ## all tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --preset asan -Wno-dev
	@cmake --build --preset asan -j $(JOBS)
	@ctest --preset asan -j $(JOBS); status=$$?; tools/test-summary build-asan || exit 1; exit $$status

tsan: setup ## all tests under ThreadSanitizer
	@cmake --preset tsan -Wno-dev
	@cmake --build --preset tsan -j $(JOBS)
	@ctest --preset tsan -j $(JOBS); status=$$?; tools/test-summary build-tsan || exit 1; exit $$status

fuzz: setup ## look for inputs that break the readers of runs, recordings, traces, sources, sound, pictures, arrays and tables, for FUZZ_SECONDS (600) each
	@tools/setup --fuzz
	@cmake --preset fuzz -Wno-dev
	@cmake --build --preset fuzz -j $(JOBS)
	@$(call fuzz_target,run_reader,corpus,4096)
	@$(call fuzz_target,kineto_reader,corpus-kineto,8192)
	@$(call fuzz_target,recording,corpus-recording,8192)
	@$(call fuzz_target,python_source,corpus-python,2048)
	@$(call fuzz_target,sound,corpus-sound,4096)
	@$(call fuzz_target,picture,corpus-picture,4096)
	@$(call fuzz_target,array,corpus-array,4096)
	@$(call fuzz_target,table,corpus-table,1024)

# Target, its corpus, longest input.
fuzz_target = mkdir -p build-fuzz/$(2) && cd build-fuzz && ./$(1)_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=$(3) -timeout=10 \
	-rss_limit_mb=2048 -print_final_stats=1 -dict=../tests/fuzz/$(1).dict $(2) ../tests/fuzz/$(2)

docs: build ## write docs/metrics.md anew from the table of metrics
	@build/metrics_doc docs/metrics.md

bench: build ## measure against the peers on this machine
	@tools/setup --bench
	@build/millrace bench

gpu-bundle: build ## pack everything a CUDA machine without our packages needs
	@tools/gpu-bundle

gpu-test: ## run tests and benchmarks on this machine's GPU
	@tools/gpu-check

doctor-check: build ## try the doctor on programs with a known illness, on this machine's GPU with PyTorch; goes on where it stopped; PROGRAMS=DIR: others' programs, made sick (tools/inject)
	@tools/doctor-check $(if $(PROGRAMS),--programs "$(PROGRAMS)")

format: ## format all sources in place
	@tools/setup --lint
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

install: build ## install program, library and headers below PREFIX (/usr/local)
	@cmake --install build --prefix $(or $(PREFIX),/usr/local)

package: setup ## pack what `make install` installs as a .deb for this system, in dist/
	@tools/setup --package
	@cmake --preset release -Wno-dev -DMILLRACE_CUDA=$(or $(MILLRACE_CUDA),AUTO)
	@cmake --build --preset release -j $(JOBS) --target millrace
	@cpack --config build/CPackConfig.cmake -B build/package
	@mkdir -p dist && mv build/package/*.deb dist/ && ls dist/*.deb

# clang-tidy goes over the sources as they are compiled, most of them in a folder's unity: headers are read once per folder. The sources that
# stand in for an absent library are compiled on no machine that has it, so they are named.
lint: setup ## check the arrows between folders, the format, and clang-tidy's findings
	@tools/setup --lint
	@tools/check-house
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format --dry-run -Werror
	@cmake --preset release -B build-lint -Wno-dev -DMILLRACE_UNITY=ON -DMILLRACE_CUDA=$(or $(MILLRACE_CUDA),AUTO)
	@(grep -o '"file": "[^"]*"' build-lint/compile_commands.json | cut -d'"' -f4 | grep -v -e '\.cu$$' -e /tests/; \
		git ls-files 'src/*_absent.cpp' 'src/ops/nocuda/*.cpp') | xargs -P $(JOBS) -n 2 clang-tidy -p build-lint --quiet \
		--checks=-bugprone-suspicious-include \
		--extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument --extra-arg=-Wno-unknown-pragmas

clean: ## remove the build folders; data and runs stay
	@rm -rf build build-debug build-asan build-tsan build-fuzz build-lint build-gpu build-x86_64 build-aarch64 build-fresh-* dist
