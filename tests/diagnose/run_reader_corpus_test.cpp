#include <gtest/gtest.h>

#include "fuzz/run_reader_target.h"
#include "places.h"

namespace millrace::fuzz {
namespace {

// The target aborts on what must not be; every input that ever did is in the corpus.
TEST(RunReaderCorpus, EveryInputIsReadWithoutABrokenPromise) {
    const auto corpus = testing::source_root() / "tests/fuzz/corpus";
    if (!std::filesystem::is_directory(corpus)) GTEST_SKIP() << corpus << " is not on this machine";
    int inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
        const auto bytes = io::read_text(entry.path());
        ASSERT_TRUE(bytes.ok()) << bytes.error().text();
        read_run_bytes(*bytes);
        ++inputs;
    }
    EXPECT_GE(inputs, 10);
}

TEST(RunReaderCorpus, TheWholeRunOfTheCorpusIsFoundWhole) {
    const auto path = testing::source_root() / "tests/fuzz/corpus/whole-run";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not on this machine";
    const auto bytes = io::read_text(path);
    const RunFiles files = split(*bytes);
    const auto manifest = record::parse_manifest(files.manifest(), "manifest.json");
    ASSERT_TRUE(manifest.ok()) << manifest.error().text();
    EXPECT_EQ(manifest->resumed.size(), 1u);
    EXPECT_EQ(diagnose::parse_stream(files.metrics()).total, 3u);
    EXPECT_EQ(diagnose::parse_stream(files.samples()).total, 1u);
    EXPECT_EQ(diagnose::parse_stream(files.events()).total, 3u);
    EXPECT_TRUE(io::parse_checkpoint_state(std::string(files.state()), "state.json").ok());
}

}  // namespace
}  // namespace millrace::fuzz
