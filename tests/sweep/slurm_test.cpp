#include "sweep/slurm.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "temporary_folder.h"

namespace millrace::sweep {
namespace {

std::string refused(std::string_view text) {
    const auto options = parse_slurm_options(text);
    if (options.ok()) return "taken";
    EXPECT_EQ(options.error().exit_status, 2);
    return options.error().text();
}

bool has_part(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A program below `folder`.
std::string program_in(const test::TemporaryFolder& folder, const std::string& name, const std::string& text) {
    const std::filesystem::path file = folder / name;
    std::ofstream(file) << text;
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file.string();
}

/// The exit status of a script, run as Slurm would run it.
int run_script(const test::TemporaryFolder& folder, const std::string& script, const std::string& before = "") {
    const std::string file = program_in(folder, "script.sh", script);
    const int status = std::system((before + " PATH=" + folder.path().string() +
                                    ":$PATH SLURM_ARRAY_JOB_ID=12 SLURM_ARRAY_TASK_ID=3 bash '" + file + "' > /dev/null")
                                       .c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SlurmOptions, BecomeLinesOfAScript) {
    const SlurmOptions options = parse_slurm_options("  partition=gpu gres=gpu:1\tarray=0-7%4 time=1:00:00 ").value();
    const std::string script = slurm_script(options, {"/opt/mill race", "sweep", "it's.toml"});
    for (const char* line :
         {"#!/bin/bash\n#SBATCH", "\n#SBATCH --partition=gpu\n", "\n#SBATCH --gres=gpu:1\n", "\n#SBATCH --array=0-7%4\n",
          "\n#SBATCH --time=1:00:00\n", "\n#SBATCH --signal=B:USR1@60\n", "\n#SBATCH --requeue\n",
          "\n#SBATCH --output=slurm-%A_%a.out\n", "\n'/opt/mill race' 'sweep' 'it'\\''s.toml' &\n",
          "scontrol requeue \"${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\""})
        EXPECT_TRUE(has_part(script, line)) << line;
    const std::string single = slurm_script(parse_slurm_options("output=a.txt job-name=b").value(), {"true"});
    EXPECT_TRUE(has_part(single, "scontrol requeue \"${SLURM_JOB_ID}\""));
    EXPECT_TRUE(has_part(single, "--output=a.txt\n"));
    EXPECT_FALSE(has_part(single, "slurm-%"));
    EXPECT_FALSE(has_part(single, "millrace-sweep"));
}

TEST(SlurmOptions, AreRefusedWithWhatWouldBeRight) {
    EXPECT_TRUE(
        has_part(refused("partion=gpu"), "--slurm: unknown word 'partion', did you mean 'partition'?; known are account, array"));
    EXPECT_TRUE(has_part(refused("--partition=gpu"), "unknown word '--partition'"));
    EXPECT_TRUE(has_part(refused("nodes=2"), "unknown word 'nodes'"));
    EXPECT_TRUE(has_part(refused("partition"), "'partition' has no value; write partition=VALUE"));
    EXPECT_TRUE(has_part(refused("partition="), "has no value"));
    EXPECT_TRUE(has_part(refused("qos=a qos=b"), "'qos' is there twice"));
    EXPECT_TRUE(has_part(refused("array=eight"), "array=0-7%4"));
    EXPECT_TRUE(has_part(refused("array=0-7%"), "array=0-7%4"));
    EXPECT_TRUE(has_part(refused("time=1h"), "time=1:00:00"));
    EXPECT_TRUE(has_part(refused("time=2"), "at least 3 minutes"));
    EXPECT_TRUE(has_part(refused("output=$(id)"), "'output' has a value with quotes"));
    EXPECT_TRUE(has_part(refused("job-name=a\nb"), "'job-name' has a value with quotes"));
    for (const char* fine : {"", "array=1,3-5:2%2", "time=3", "time=2:60", "time=1-0", "time=1-12:30", "time=0-0:3:0", "mem=64G"})
        EXPECT_EQ(refused(fine), "taken") << fine;
}

TEST(SlurmScript, EndsAsItsWorkerDoesAndRequeuesAfter75) {
    const test::TemporaryFolder folder;
    const std::string requeued = (folder / "requeued").string();
    program_in(folder, "scontrol", "#!/bin/sh\necho \"$@\" >> " + requeued + "\n");
    const SlurmOptions options = parse_slurm_options("array=0-3").value();
    for (const int status : {0, 3, 143})
        EXPECT_EQ(run_script(folder, slurm_script(options, {"sh", "-c", "exit " + std::to_string(status)})), status);
    EXPECT_FALSE(std::filesystem::exists(requeued));
    EXPECT_EQ(run_script(folder, slurm_script(options, {"sh", "-c", "exit 75"})), 0);
    std::string line;
    std::getline(std::ifstream(requeued) >> std::ws, line);
    EXPECT_EQ(line, "requeue 12_3");
    // The signal goes through the script to the worker, which says how it ends.
    const std::string worker = "trap 'exit 75' USR1; kill -USR1 $PPID; for i in $(seq 500); do sleep 0.02; done";
    EXPECT_EQ(run_script(folder, slurm_script(options, {"bash", "-c", worker})), 0);
    std::ifstream both(requeued);
    EXPECT_EQ(std::count(std::istreambuf_iterator<char>(both), {}, '\n'), 2);
    const std::string ended = "trap 'exit 143' TERM; kill -TERM $PPID; for i in $(seq 500); do sleep 0.02; done";
    EXPECT_EQ(run_script(folder, slurm_script(options, {"bash", "-c", ended})), 143);
}

/// Runs the script of a training run in `folder` with a stand-in for srun that is `text` with its arguments in "$@".
int run_ranks(const test::TemporaryFolder& folder, const std::string& text, const std::string& plugins = "pmix_v4") {
    program_in(folder, "srun",
               "#!/bin/bash\n[ \"$1\" = --mpi=list ] && { echo MPI plugin types: " + plugins + " >&2; exit 0; }\n" +
                   "echo \"$@\" >> " + (folder / "words").string() + "\n" + text + "\n");
    program_in(folder, "scontrol", "#!/bin/sh\necho \"$@\" >> " + (folder / "requeued").string() + "\n");
    program_in(folder, "scancel", "#!/bin/sh\necho \"$@\" >> " + (folder / "cancelled").string() + "\n");
    const SlurmOptions options = parse_slurm_options("nodes=2", true).value();
    return run_script(folder, slurm_script(options, {"/opt/millrace", "train"}, {"--init", "a b"}, folder / "run"),
                      "SLURM_JOB_ID=7");
}

std::string text_of(const std::filesystem::path& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(SlurmScript, OfRanksResumesWhatHasBegun) {
    const test::TemporaryFolder folder;
    EXPECT_EQ(run_ranks(folder, "exit 0"), 0);
    std::filesystem::create_directory(folder / "run");
    EXPECT_EQ(run_ranks(folder, "exit 3"), 3);
    std::ofstream(folder / "run" / "manifest.json") << "{}";
    EXPECT_EQ(run_ranks(folder, "exit 143"), 143);
    const std::string start = "--mpi=pmix --kill-on-bad-exit=1 /opt/millrace train ";
    EXPECT_EQ(text_of(folder / "words"), start + "--init a b\n" + start + "--init a b\n" + start + "--resume\n");
    EXPECT_FALSE(std::filesystem::exists(folder / "requeued"));
}

TEST(SlurmScript, OfRanksStopsThemBeforeTheLimitAndRunsAgain) {
    const test::TemporaryFolder folder;
    const std::string waits =
        "for i in $(seq 500); do sleep 0.02; [ ! -e " + (folder / "cancelled").string() + " ] || exit 143; done";
    EXPECT_EQ(run_ranks(folder, "kill -USR1 $PPID; " + waits), 0);
    EXPECT_EQ(text_of(folder / "cancelled"), "--signal=TERM 7\n");
    EXPECT_EQ(text_of(folder / "requeued"), "requeue 7\n");
    std::filesystem::remove(folder / "cancelled");
    // It came to its end all the same.
    EXPECT_EQ(run_ranks(folder, "kill -USR1 $PPID; sleep 0.1; exit 0"), 0);
    // A cancelled job: its ranks have the signal from Slurm.
    EXPECT_EQ(run_ranks(folder, "kill -TERM $PPID; sleep 0.1; exit 143"), 143);
    EXPECT_EQ(text_of(folder / "requeued"), "requeue 7\n");
    // A rank that waited in vain for another one.
    EXPECT_EQ(run_ranks(folder, "exit 75"), 0);
    EXPECT_EQ(text_of(folder / "requeued"), "requeue 7\nrequeue 7\n");
}

TEST(SlurmScript, OfRanksNeedsPmix) {
    const test::TemporaryFolder folder;
    EXPECT_EQ(run_ranks(folder, "exit 0", "pmi2 none"), 2);
    EXPECT_FALSE(std::filesystem::exists(folder / "words"));
}

TEST(SlurmOptions, OfRanksHaveNodesAndNoArray) {
    EXPECT_TRUE(parse_slurm_options("nodes=2 ntasks-per-node=8 gpus-per-node=8 time=8:00:00", true).ok());
    const auto array = parse_slurm_options("array=0-3", true);
    ASSERT_FALSE(array.ok());
    EXPECT_TRUE(has_part(array.error().text(), "--slurm: unknown word 'array'"));
    EXPECT_TRUE(has_part(slurm_script({}, {}, {}, "out"), "--job-name=millrace-train\n"));
}

TEST(SlurmScript, IsPrintedWhereThereIsNoSbatch) {
    const test::TemporaryFolder folder;
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", folder.path().c_str(), 1);
    const auto absent = submit_slurm_script("#!/bin/bash\n", folder / "a.sbatch");
    program_in(folder, "sbatch", "#!/bin/sh\nexit 4\n");
    const auto failed = submit_slurm_script("#!/bin/bash\n", folder / "b.sbatch");
    ::setenv("PATH", path.c_str(), 1);
    ASSERT_TRUE(absent.ok());
    EXPECT_FALSE(absent.value());
    EXPECT_TRUE(std::filesystem::exists(folder / "a.sbatch"));
    ASSERT_FALSE(failed.ok());
    EXPECT_TRUE(has_part(failed.error().text(), "sbatch ended with 4"));
}

/// tests/tools/slurm_test.py runs this with a cluster of its own: submits MILLRACE_SLURM_WORKER, a program, with the options in
/// MILLRACE_SLURM, as the ranks of a run in MILLRACE_SLURM_RUN where that is set. By itself it submits to a stand-in for sbatch.
TEST(SlurmScript, SubmitsToACluster) {
    const char *words = std::getenv("MILLRACE_SLURM"), *worker = std::getenv("MILLRACE_SLURM_WORKER"),
               *run = std::getenv("MILLRACE_SLURM_RUN");
    const test::TemporaryFolder folder;
    const std::vector<std::string> command{worker != nullptr ? worker : "true"};
    const SlurmOptions options = parse_slurm_options(words != nullptr ? words : "array=0-1", run != nullptr).value();
    const std::string path = std::getenv("PATH"),
                      script = run != nullptr ? slurm_script(options, command, {}, run) : slurm_script(options, command);
    if (words == nullptr) {
        program_in(folder, "sbatch", "#!/bin/sh\ncp \"$1\" \"$1.seen\"\n");
        ::setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
    }
    const auto submitted = submit_slurm_script(script, folder / "job.sbatch");
    ::setenv("PATH", path.c_str(), 1);
    ASSERT_TRUE(submitted.ok()) << submitted.error().text();
    EXPECT_TRUE(submitted.value());
    if (words != nullptr) return;
    std::ifstream seen(folder / "job.sbatch.seen");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(seen), {}), script);
}

}  // namespace
}  // namespace millrace::sweep
