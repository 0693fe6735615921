// Traces of PyTorch's profiler that were packed with gzip.

#include <gtest/gtest.h>

#include <algorithm>

#include "diagnose/reading/kineto_reader.h"
#include "io/packing.h"
#include "places.h"
#include "temporary_folder.h"

namespace millrace::diagnose {
namespace {

class PackedTrace : public ::testing::Test {
protected:
    void SetUp() override {
        if (!io::have_gzip()) GTEST_SKIP() << "built without zlib";
    }
    std::string pack(std::string_view text) {
        const auto written = io::write_atomically(folder_ / "packed", [&](io::FileWriter& file) -> base::Status {
            const auto sink = io::pack_gzip(file);
            for (; !text.empty(); text.remove_prefix(std::min<std::size_t>(text.size(), 777)))
                MILLRACE_TRY(sink->write(io::bytes_of(text.substr(0, 777))));
            return sink->finish();
        });
        EXPECT_TRUE(written.ok());
        return *io::read_text(folder_ / "packed");
    }
    base::Result<Timeline> read_packed(std::string_view bytes) {
        EXPECT_TRUE(io::write_atomically(folder_ / "trace.json.gz", bytes).ok());
        return read_kineto(folder_ / "trace.json.gz", [&](double share) {
            EXPECT_GE(share, progress_);
            progress_ = share;
        });
    }
    static bool is_remarked(const Timeline& timeline, std::string_view part) {
        return std::ranges::any_of(timeline.remarks,
                                   [&](const std::string& text) { return text.find(part) != std::string::npos; });
    }
    const io::Path golden_ = millrace::testing::source_root() / "tests/goldens/kineto/with_stack.json";
    test::TemporaryFolder folder_;
    double progress_ = 0;
};

TEST_F(PackedTrace, IsReadLikeAPlainOne) {
    const auto timeline = read_packed(pack(*io::read_text(golden_)));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    const auto plain = read_kineto(golden_);
    ASSERT_TRUE(plain.ok()) << plain.error().text();
    EXPECT_EQ(timeline->calls.size(), plain->calls.size());
    EXPECT_EQ(progress_, 1);
}

TEST_F(PackedTrace, InSeveralPartsIsOne) {
    const std::string text =
        R"({"schemaVersion":1,"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":3,"ts":106,"dur":2.25,"args":{"device":0}}]})";
    const auto timeline = read_packed(pack(text.substr(0, 50)) + pack(text.substr(50)) + std::string(3, '\0'));
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    EXPECT_EQ(timeline->work.size(), 1u);
}

TEST_F(PackedTrace, CutOrDamagedIsReadAsFarAsItGoes) {
    std::string bytes = pack(*io::read_text(golden_));
    const auto cut = read_packed(std::string_view(bytes).substr(0, bytes.size() / 2));
    ASSERT_TRUE(cut.ok()) << cut.error().text();
    EXPECT_TRUE(is_remarked(*cut, "it was cut"));
    progress_ = 0;
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
    bytes[bytes.size() / 2 + 1] = static_cast<char>(bytes[bytes.size() / 2 + 1] ^ 0x55);
    const auto damaged = read_packed(bytes);
    // What lies behind the damage may come out as anything: broken JSON is an error then, else a remark.
    if (damaged.ok())
        EXPECT_TRUE(is_remarked(*damaged, "damaged"));
    else
        EXPECT_NE(damaged.error().message.find("broken"), std::string::npos);
}

}  // namespace
}  // namespace millrace::diagnose
