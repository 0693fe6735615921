// Limits of the system: what a run cannot have is a message with a status, never an abort.
#include <unistd.h>

#include <string>

#include "cli/folder.h"

namespace millrace::cli {
namespace {

class Limits : public InFolder {
protected:
    /// `train` below a limit of the shell's.
    Said below(const std::string& limit, const std::string& name, const std::vector<std::string>& more = {}) const {
        ChildOptions options;
        options.program = "/bin/sh";
        std::vector<std::string> words{"-c", limit + " && exec \"$@\"", "sh", (testing::program_folder() / "millrace").string()};
        for (const std::string& word : train_words(name, more)) words.push_back(word);
        return call(words, options);
    }
};

TEST_F(Limits, AddressSpaceThatIsTooSmallIsRefusedOrReported) {
    int trained = 0, refused = 0;
    for (int mebibytes = 40; mebibytes <= 640; mebibytes += 40) {
        const std::string name = "run" + std::to_string(mebibytes);
        const Said said = below("ulimit -v " + std::to_string(mebibytes << 10), name, {"--set", "train.steps=2"});
        // Too little for the program itself: its loader ends, or the system, before anything of ours has run.
        if (said.status == 127 || (said.status > 1000 && said.err.empty() && refused == 0)) continue;
        EXPECT_LE(said.status, 2) << mebibytes << " MiB: " << said.err;
        if (said.status == 0) {
            trained += 1;
            EXPECT_TRUE(std::filesystem::exists(folder_ / name / "checkpoints/last"));
        } else {
            refused += 1;
            EXPECT_NE(said.err.find("millrace: "), std::string::npos) << mebibytes << " MiB: " << said.err;
        }
    }
    EXPECT_GT(trained, 0);
    EXPECT_GT(refused, 0);
}

TEST_F(Limits, PlanKnowsTheAddressSpace) {
    const Said said = below("ulimit -v 1500000", "run", {"--set", "members=900", "--set", "train.batch=8"});
    expect_refusal(said, {"the plan does not fit", "ulimit -v leaves room for"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Limits, LargestVocabularyIsRefusedWithItsPlan) {
    std::filesystem::create_directory(folder_ / "text");
    for (const char* file : {"text/train.txt", "text/valid.txt", "text/test.txt"}) write(file, "a b c d e f g h i j k l");
    const Said said =
        below("ulimit -v 8000000", "run",
              {"--set", "model.name=transformer", "--set", "model.preset=debug", "--set", "data.path=" + path("text"), "--set",
               "data.length=2", "--set", "train.batch=2", "--set", "data.vocabulary=16777216"});
    expect_refusal(said, {"the plan does not fit", "parameters", "ulimit -v leaves room for"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Limits, ThreadsThatTheSystemDoesNotGiveAreAMessage) {
    // Stacks of 64 MiB for 1,000 threads have no room in 1 GiB.
    const Said said = below("ulimit -s 65536 && ulimit -v 1048576", "run", {"--set", "threads=1000"});
    expect_refusal(said, {"no more threads"}, 1);
}

TEST_F(Limits, AUserOfFewProcessesGetsAMessage) {
    std::filesystem::permissions(folder_, std::filesystem::perms(0777));
    // Root has no such limit, and not every shell knows ulimit -u.
    const std::string user = geteuid() == 0 ? " setpriv --reuid=65533 --regid=65533 --clear-groups" : "";
    const Said said = below("set -- prlimit --nproc=4" + user + " \"$@\"", "run", {"--set", "threads=8"});
    if (said.err.find("millrace: ") != 0 && said.err.find("setpriv") != std::string::npos) GTEST_SKIP() << said.err;
    expect_refusal(said, {"no more threads"}, 1);
}

TEST_F(Limits, FewDescriptorsAndASmallStackAreNoAbort) {
    for (const char* limit : {"ulimit -n 4", "ulimit -n 8", "ulimit -n 12", "ulimit -s 64", "ulimit -s 256"}) {
        const Said said = below(limit, std::string("run") + limit, {"--set", "train.steps=2"});
        if (said.err.find("error while loading shared libraries") != std::string::npos) continue;  // before we begin
        EXPECT_LE(said.status, 2) << limit << ": " << said.err;
        if (said.status != 0) expect_refusal(said, {}, said.status);
    }
}

TEST_F(Limits, LostOutputOfTrainingIsAFailedRun) {
    if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
    const Said said = train("run", {"--set", "train.steps=2"}, {0, {}, "/dev/full", false});
    expect_refusal(said, {"standard output is closed or full"}, 1);
    EXPECT_TRUE(std::filesystem::exists(folder_ / "run/checkpoints/last"));
}

}  // namespace
}  // namespace millrace::cli
