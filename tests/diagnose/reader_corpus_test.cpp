#include <gtest/gtest.h>

#include "fuzz/kineto_reader_target.h"
#include "fuzz/python_source_target.h"
#include "fuzz/recording_target.h"
#include "places.h"
#include "temporary_folder.h"

namespace millrace::fuzz {
namespace {

/// Hands each input of a corpus to `use`. The targets abort on what must not be; every input that ever did is in the corpus.
void for_each_input(const char* corpus, int least, const std::function<void(std::string_view)>& use) {
    const auto folder = testing::source_root() / "tests/fuzz" / corpus;
    if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << folder << " is not on this machine";
    int inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const auto bytes = io::read_text(entry.path());
        ASSERT_TRUE(bytes.ok()) << bytes.error().text();
        use(*bytes);
        ++inputs;
    }
    EXPECT_GE(inputs, least);
}

TEST(ReaderCorpus, SourcesAreReadWithoutABrokenPromise) { for_each_input("corpus-python", 10, read_python_bytes); }

TEST(ReaderCorpus, TracesAreReadWithoutABrokenPromise) { for_each_input("corpus-kineto", 12, read_kineto_bytes); }

TEST(ReaderCorpus, EveryPrefixOfATraceIsReadWithoutABrokenPromise) {
    const auto path = testing::source_root() / "tests/fuzz/corpus-kineto/own";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not on this machine";
    const std::string bytes = *io::read_text(path);
    for (std::size_t length = 0; length < bytes.size(); length += 3) read_kineto_bytes(std::string_view(bytes).substr(0, length));
}

TEST(ReaderCorpus, RecordingsAreReadWithoutABrokenPromise) {
    const test::TemporaryFolder folder;
    for_each_input("corpus-recording", 10, [&](std::string_view input) { read_recording_bytes(input, folder.path()); });
}

TEST(ReaderCorpus, TheWholeRecordingOfTheCorpusIsFoundWhole) {
    const auto path = testing::source_root() / "tests/fuzz/corpus-recording/whole";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not on this machine";
    const test::TemporaryFolder folder;
    read_recording_bytes(*io::read_text(path), folder.path());
    const auto timeline = diagnose::read_timeline(folder.path());
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    EXPECT_EQ(timeline->calls.size(), 4u);
    EXPECT_EQ(timeline->work.size(), 3u);  // and one of a kind that nobody writes any more, which is passed over
    EXPECT_EQ(timeline->samples.size(), 1u);
    EXPECT_EQ(timeline->machine.size(), 1u);
    EXPECT_EQ(timeline->windows.size(), 1u);
    EXPECT_EQ(timeline->stacks[timeline->calls[0].stack].size(), 2u);
}

}  // namespace
}  // namespace millrace::fuzz
