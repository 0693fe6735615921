"""tools/probe-leaves on the stand-ins for CUDA and CUPTI: which ends it calls bad; and what its guard does to memory that libcupti gives back."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")).resolve()
LOOP = ROOT / "tests/tools/made_up_loop.py"
NEEDED = ("libmillrace-probe.so", "libmock_cupti.so", "libmock_framework.so", "mock_cuda/libcuda.so.1")
COMPILER = shutil.which("cc") or shutil.which("gcc")

# Memory is libcupti's where this takes it.
LIBRARY = """
#include <stdlib.h>
#include <string.h>
void* take(size_t size) { return malloc(size); }
void* take_zeros(size_t size) { return calloc(1, size); }
void* take_more(void* memory, size_t size) { return realloc(memory, size); }
void* take_aligned(size_t alignment, size_t size) { void* memory; return posix_memalign(&memory, alignment, size) == 0 ? memory : 0; }
char* copy(const char* text) { return strdup(text); }
void give(void* memory) { free(memory); }
"""
# Exit status 5: something was not as it should be.
PROGRAM = """
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void *take(size_t), *take_zeros(size_t), *take_more(void*, size_t), *take_aligned(size_t, size_t);
char* copy(const char*);
void give(void*);
static void must(int holds) { if (!holds) exit(5); }
static void* behave(void* number) {
    unsigned seed = (unsigned)(uintptr_t)number;
    unsigned char* held[16] = {0};
    size_t size[16] = {0};
    for (int round = 0; round < 4000; ++round) {
        const int which = rand_r(&seed) % 16, how = rand_r(&seed) % 6;
        const size_t wanted = rand_r(&seed) % (round % 100 == 0 ? 2000000 : 6000);
        const size_t alignment = (size_t)8 << rand_r(&seed) % 11;
        for (size_t i = 0; i < size[which]; ++i) must(held[which][i] == which);
        if (held[which] != NULL && how < 3) {
            held[which] = how == 0 ? realloc(held[which], wanted + 1) : take_more(held[which], wanted + 1);
            for (size_t i = 0; i < size[which] && i < wanted; ++i) must(held[which][i] == which);
            size[which] = wanted + 1;
        } else {
            how == 3 ? free(held[which]) : give(held[which]);
            held[which] = how == 0 ? malloc(wanted) : how == 1 ? take_zeros(wanted) : how == 2 ? take_aligned(alignment, wanted) : take(wanted);
            must(held[which] != NULL && (uintptr_t)held[which] % (how == 2 ? alignment : 16) == 0);
            for (size_t i = 0; how == 1 && i < wanted; ++i) must(held[which][i] == 0);
            size[which] = wanted;
        }
        memset(held[which], which, size[which]);
    }
    char* text = copy("text");
    must(strcmp(text, "text") == 0);
    free(text);
    return NULL;
}
int main(int count, char** words) {
    const char* how = count > 1 ? words[1] : "";
    if (strcmp(how, "behave") == 0) {
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, behave, (void*)(i + 1));
        for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
        return 0;
    }
    if (strcmp(how, "crowd") == 0) {
        for (int i = 0; i < 60000; ++i) must(take_zeros(40) != NULL);
        return 0;
    }
    char* volatile memory = strcmp(how, "plain") == 0 ? malloc(96) : take(96);
    memset(memory, 1, 96);
    if (strcmp(how, "behind") == 0) memory[96] = 1;
    give(memory);
    if (strcmp(how, "write") == 0) memory[50] = 1;
    if (strcmp(how, "twice") == 0) give(memory);
    for (int i = 0; strcmp(how, "write") == 0 && i < 20000; ++i) give(take(10));
    printf("%02x\\n", (unsigned char)memory[50]);
    return 0;
}
"""


@unittest.skipUnless(COMPILER, "no C compiler (cc)")
class Guard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = folder = pathlib.Path(holder.name)
        (folder / "library.c").write_text(LIBRARY)
        (folder / "program.c").write_text(PROGRAM)
        cls.compile("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-shared", "-fPIC", "-o", "guard.so", ROOT / "tests/probe/leaving/guard.c")
        cls.compile("-fno-builtin", "-shared", "-fPIC", "-o", "libcupti_made_up.so", "library.c")
        cls.compile("-w", "-o", "program", "program.c", "-pthread", "-Wl,-rpath,$ORIGIN", "-L.", "-l:libcupti_made_up.so")

    @classmethod
    def compile(cls, *words):
        subprocess.run([COMPILER, "-O1", *map(str, words)], cwd=cls.folder, check=True)

    def watched(self, watch, how):
        return subprocess.run([self.folder / "program", how], env={**os.environ, "LD_PRELOAD": str(self.folder / "guard.so"), "MILLRACE_GUARD": watch},
                              capture_output=True, text=True, errors="replace", check=False)

    def test_a_program_that_behaves_notices_nothing(self):
        for watch in ("poison", "fence", "none"):
            done = self.watched(watch, "behave")
            self.assertEqual(done.returncode, 0, watch + done.stderr)
            self.assertRegex(done.stderr, "^$" if watch == "none" else r"^guarded [1-9]\d{3,} pieces\n$")

    def test_more_pieces_than_there_are_fences_come_from_the_c_library(self):
        done = self.watched("fence", "crowd")
        self.assertEqual((done.returncode, done.stderr), (0, "guarded 25000 pieces\n"))

    def test_memory_that_was_freed_holds_the_pattern_under_poison(self):
        self.assertEqual(self.watched("poison", "read").stdout, "a5\n")
        for how, complaint in (("write", "written after it was freed"), ("twice", "freed twice")):
            done = self.watched("poison", how)
            self.assertEqual(done.returncode, -signal.SIGABRT, how)
            self.assertIn(f"guard: memory of libcupti {complaint}, at 0x", done.stderr)

    def test_memory_that_was_freed_is_not_there_under_fence(self):
        for how in ("read", "write", "twice", "behind"):
            done = self.watched("fence", how)
            self.assertEqual(done.returncode, -signal.SIGSEGV, how)
            self.assertRegex(done.stderr, r"^guard: signal 11 at 0x[0-9a-f]+, memory of libcupti that is freed, or behind its end, from\n")

    def test_memory_of_others_is_left_alone(self):
        for watch in ("poison", "fence"):
            done = self.watched(watch, "plain")
            self.assertEqual(done.returncode, 0, done.stderr)


@unittest.skipUnless(COMPILER, "no C compiler (cc)")
@unittest.skipUnless(all((BUILD / name).exists() for name in NEEDED), f"{BUILD} has no probe with stand-ins")
class Leaves(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "libcupti.so").symlink_to(BUILD / "libmock_cupti.so")  # by this name the guard knows it

    def leaves(self, end, *words, status):
        """What the script says, and what it keeps."""
        command = [sys.executable, ROOT / "tools/probe-leaves", "--library", BUILD / NEEDED[0], "--loop", f"{sys.executable} {LOOP} {end}", "--out",
                   self.folder / "kept.json", "--patience", "10", *words]
        environment = {**os.environ, "MILLRACE_BUILD": str(BUILD), "MILLRACE_CUPTI": str(self.folder / "libcupti.so")}
        done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
        said, kept = done.stdout + done.stderr, self.folder / "kept.json"
        self.assertEqual(done.returncode, status, said)
        return said, json.loads(kept.read_text()) if kept.exists() else None

    def test_processes_that_end_well_are_counted(self):
        said, kept = self.leaves("well", "--processes", "4", "--at-once", "3", "--only", "threads one, watch (perturb|fence)$", status=0)
        self.assertRegex(said, r"(?m)^threads +watch +signals +processes +it went +it stayed +lost count +ended badly$")
        self.assertRegex(said, r"(?m)^one +perturb +2 +2 +0 +0 +0$")
        self.assertRegex(said, r"(?m)^one +fence +1 +1 +0 +0 +0$")
        self.assertRegex(said, r"(?m)^windows alone +perturb +1 +0 +0$")
        self.assertRegex(said, r"(?m)^all +4 +3 +0 +0 +0$")
        self.assertNotIn("nothing was watched", said)
        self.assertEqual(kept["counts"], {"processes": 4, "it went": 3, "it stayed": 0, "lost count": 0, "ended badly": 0})
        self.assertGreater(next(one["guarded"] for one in kept["processes"] if one["watch"] == "fence"), 0)

    def test_signals_and_threads_do_no_harm(self):
        said, kept = self.leaves("well", "--processes", "3", "--at-once", "2", "--only", "not led, watch (none|poison), stopped", status=0)
        self.assertEqual([one["bad"] for one in kept["processes"]], [""] * 3, said)

    def test_a_crash_after_the_leave_is_named(self):
        said, kept = self.leaves("crash", "--processes", "1", "--only", "one, watch poison$", status=1)
        self.assertIn("ended badly: threads one, watch poison: killed by SIGSEGV", said)
        self.assertRegex(said, r"(?m)^one +poison +1 +1 +0 +0 +1$")
        process = kept["processes"][0]
        self.assertEqual((process["status"], process["went"]), (-signal.SIGSEGV, True))
        self.assertRegex("\n".join(process["errors"]), "guard: signal 11 at .*, from\n")
        self.assertIn("CUPTI is gone", process["log"][-1])

    def test_other_bad_ends_are_told_apart(self):
        for end, why in (("hang", r"no end within 0\.5 s"), ("wrong", r"checksum \d+ \d+"), ("status", "exit status 7"), ("complain", r"said 'malloc\(\)'")):
            said, kept = self.leaves(end, "--processes", "1", *("--patience", "0.5") * (end == "hang"), status=1)
            self.assertRegex(kept["processes"][0]["bad"], f"^{why}$")
            self.assertRegex(said, f"(?m)^ended badly: threads one, watch none: {why}$")

    def test_a_cupti_that_stays_is_counted_with_the_reason(self):
        os.environ["MOCK_CUPTI_FAIL"] = "finalize=15"
        self.addCleanup(os.environ.pop, "MOCK_CUPTI_FAIL")
        said, _ = self.leaves("well", "--processes", "1", status=0)
        self.assertRegex(said, r"(?m)^one +none +1 +0 +1 +0 +0$")
        self.assertIn("stayed: 1: no moment came, or it refused", said)

    def test_nothing_begins_that_would_not_end_in_time(self):
        said, kept = self.leaves("well", "--processes", "50", "--minutes", "0.1", status=0)
        self.assertEqual(len(kept["processes"]), 1, said)

    def test_what_is_missing_is_named(self):
        for words, why in ((["--library", "/nowhere/probe.so"], "/nowhere/probe.so does not exist"), (["--only", "four"], "no combination has such a name"),
                           (["--loop", "false"], "the loop does not work here: exit status 1")):
            said, kept = self.leaves("well", "--processes", "1", *words, status=2)
            self.assertIn(why, said)
            self.assertIsNone(kept)


if __name__ == "__main__":
    unittest.main()
