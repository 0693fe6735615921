#include "report/sample_export.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "report/doctor_words.h"

namespace millrace::report {
namespace {

using diagnose::Timeline;
using Json = nlohmann::json;

struct SampleSink : io::ByteSink {
    std::string text;
    base::Status write(io::Bytes bytes) override {
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return base::ok();
    }
};

std::string written(const Timeline& timeline, base::Status (*write)(const Timeline&, io::ByteSink&)) {
    SampleSink sink;
    EXPECT_TRUE(write(timeline, sink).ok());
    return sink.text;
}

constexpr diagnose::Time kMs = 1'000'000;

/// Two threads of one process and one of another; a stack that lasts for two samples, and one without frames.
Timeline sampled() {
    Timeline timeline;
    timeline.title = "python train.py";
    timeline.names = {"", "futex"};
    timeline.stacks = {{},
                       {{"/home/ada/model.py", 7, "forward", false}, {"/home/ada/train.py", 40, "main", false}},
                       {{"/home/ada/train.py", 41, "main", false}},
                       {{"libfast.so", 4660, "multiply", true}}};
    timeline.processes = {{9, 1, "python train.py", true, 9}};
    timeline.samples = {{100 * kMs, 9, 9, 'R', 1, 0},  {100 * kMs, 9, 11, 'S', 3, 0}, {110 * kMs, 9, 9, 'R', 1, 0},
                        {120 * kMs, 9, 9, 'S', 2, 1},  {125 * kMs, 9, 9, 'R', 1, 0},  {150 * kMs, 9, 11, 'S', 3, 0},
                        {160 * kMs, 12, 12, 'S', 0, 0}};
    return timeline;
}

/// What speedscope's schema asks for of a file with sampled profiles.
void expect_speedscope(const Json& json) {
    EXPECT_EQ(json.at("$schema"), "https://www.speedscope.app/file-format-schema.json");
    const Json& frames = json.at("shared").at("frames");
    ASSERT_TRUE(frames.is_array());
    for (const Json& frame : frames) {
        EXPECT_TRUE(frame.at("name").is_string());
        EXPECT_GT(frame.value("line", 1), 0);
    }
    for (const Json& profile : json.at("profiles")) {
        EXPECT_EQ(profile.at("type"), "sampled");
        EXPECT_EQ(profile.at("unit"), "nanoseconds");
        EXPECT_TRUE(profile.at("name").is_string());
        ASSERT_EQ(profile.at("samples").size(), profile.at("weights").size());
        std::int64_t sum = 0;
        for (const Json& weight : profile["weights"]) sum += weight.get<std::int64_t>();
        EXPECT_EQ(profile.at("endValue").get<std::int64_t>() - profile.at("startValue").get<std::int64_t>(), sum);
        for (const Json& sample : profile["samples"]) {
            EXPECT_FALSE(sample.empty());
            for (const Json& index : sample) EXPECT_LT(index.get<std::size_t>(), frames.size());
        }
    }
}

TEST(SampleExport, SpeedscopeGetsAProfileForEachThread) {
    const Json json = base::json_or_throw(written(sampled(), write_speedscope));
    expect_speedscope(json);
    ASSERT_EQ(json["profiles"].size(), 3u);
    const Json& main = json["profiles"][0];
    EXPECT_EQ(main["name"], "python train.py (9), thread 9");
    EXPECT_EQ(main["weights"], Json({20 * kMs, 5 * kMs, 10 * kMs})) << "equal neighbours are one; the last lasts a usual look";
    const auto frame = [&](std::size_t sample, std::size_t at) {
        return json["shared"]["frames"][main["samples"][sample][at].get<std::size_t>()];
    };
    EXPECT_EQ(frame(0, 0), (Json{{"name", "main"}, {"file", "/home/ada/train.py"}, {"line", 40}})) << "outermost first";
    EXPECT_EQ(frame(0, 1)["name"], "forward");
    EXPECT_EQ(frame(1, 1)["name"], "[futex]");
    EXPECT_EQ(main["samples"][0], main["samples"][2]) << "equal frames are shared";
    EXPECT_FALSE(json["shared"]["frames"][json["profiles"][1]["samples"][0][0].get<std::size_t>()].contains("line"))
        << "of native code it is an offset";
    EXPECT_EQ(json["profiles"][2]["name"], "process (12), thread 12");
}

TEST(SampleExport, CollapsedStacksHaveALineForEach) {
    EXPECT_EQ(written(sampled(), write_collapsed),
              "python train.py (9);thread 9;main (train.py:40);forward (model.py:7) 30000\n"
              "python train.py (9);thread 9;main (train.py:41);[futex] 5000\n"
              "python train.py (9);thread 11;multiply (libfast.so) 60000\n"
              "process (12);thread 12;[no frames] 10000\n");
}

TEST(SampleExport, HostileNamesBreakNeitherForm) {
    Timeline timeline = sampled();
    const std::string hostile = std::string("a;b\n\"</script>\\\x1b[31m\xff\xc3 12\r") + '\0' + "end";
    timeline.processes[0].command = hostile;
    timeline.names[1] = hostile;
    timeline.title = hostile;
    for (diagnose::Stack& stack : timeline.stacks)
        for (diagnose::Frame& frame : stack) frame.file = frame.function = hostile;
    const std::string speedscope = written(timeline, write_speedscope), collapsed = written(timeline, write_collapsed);
    for (const std::string& text : {speedscope, collapsed})
        for (const char byte : text) EXPECT_TRUE(byte == '\n' || static_cast<unsigned char>(byte) >= 0x20) << text;
    expect_speedscope(base::json_or_throw(speedscope));
    std::istringstream lines(collapsed);
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
        const std::size_t space = line.rfind(' ');
        ASSERT_NE(space, std::string::npos) << line;
        EXPECT_EQ(line.find_first_not_of("0123456789", space + 1), std::string::npos) << line;
        EXPECT_LE(std::ranges::count(line, ';'), 4) << line;
    }
    EXPECT_EQ(count, 4u);
}

TEST(SampleExport, WithoutSamplesThereIsNoProfile) {
    const Json json = base::json_or_throw(written({}, write_speedscope));
    expect_speedscope(json);
    EXPECT_TRUE(json["profiles"].empty());
    EXPECT_EQ(written({}, write_collapsed), "");
}

TEST(SampleExport, StacksAndNamesThatAreNotThereAreNoFrames) {
    Timeline timeline;
    timeline.samples = {{5, 1, 1, 'R', 77, 88}};
    expect_speedscope(base::json_or_throw(written(timeline, write_speedscope)));
    EXPECT_EQ(written(timeline, write_collapsed), "process (1);thread 1;[no frames] 10000\n");
}

}  // namespace
}  // namespace millrace::report
