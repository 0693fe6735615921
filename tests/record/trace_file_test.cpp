#include "record/trace_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "diagnose/reading/trace_reader.h"
#include "io/packing.h"
#include "record/probe_records.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

namespace fs = std::filesystem;

class TraceFile : public ::testing::Test {
protected:
    [[nodiscard]] io::Path path() const { return folder_ / kTraceName; }
    TraceWriter writer() const {
        fs::remove(path());
        auto made = TraceWriter::create(path());
        EXPECT_TRUE(made.ok()) << made.error().text();
        return std::move(made).value();
    }
    [[nodiscard]] std::string content() const {
        std::ifstream in(path(), std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    void replace(const std::string& bytes) const { std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes; }

    test::TemporaryFolder folder_;
};

struct SeenTrace : diagnose::TraceVisitor {
    struct One {
        TraceOrigin origin;
        Record record;
        std::vector<Argument> arguments;
    };
    std::vector<One> records;
    std::vector<TraceSample> samples;
    std::vector<TraceBlock> blocks;
    void record(const TraceOrigin& origin, const Record& record, std::span<const Argument> arguments) override {
        records.push_back({origin, record, {arguments.begin(), arguments.end()}});
    }
    void sample(const TraceSample& sample) override { samples.push_back(sample); }
    void block(const TraceBlock& block) override { blocks.push_back(block); }
};

Record trace_call(std::uint64_t begin, std::uint32_t id = 0, std::uint32_t site = 0) {
    Record record;
    record.kind = RecordKind::kCall;
    record.what = static_cast<std::uint8_t>(CallKind::kLaunch);
    record.begin = begin;
    record.end = begin + 5000;
    record.correlation = static_cast<std::uint32_t>(begin / 10000);
    record.id = id;
    record.site = site;
    return record;
}

void add_parts(std::vector<Record>& slots, const void* from, std::size_t bytes) {
    const std::size_t at = slots.size();
    slots.resize(at + (bytes + sizeof(Record) - 1) / sizeof(Record));
    if (bytes > 0) std::memcpy(&slots[at], from, bytes);
}

void add_text(std::vector<Record>& slots, std::uint32_t id, std::string_view text) {
    Record record;
    record.kind = RecordKind::kText;
    record.id = id;
    record.bytes = text.size();
    slots.push_back(record);
    add_parts(slots, text.data(), text.size());
}

void add_site(std::vector<Record>& slots, std::uint32_t id, const std::vector<SiteFrame>& frames) {
    Record record;
    record.kind = RecordKind::kSite;
    record.id = id;
    record.count = static_cast<std::uint16_t>(frames.size());
    slots.push_back(record);
    add_parts(slots, frames.data(), frames.size() * sizeof(SiteFrame));
}

void add_arguments(std::vector<Record>& slots, std::uint32_t correlation, const std::vector<Argument>& arguments) {
    Record record;
    record.kind = RecordKind::kArguments;
    record.correlation = correlation;
    record.count = static_cast<std::uint16_t>(arguments.size());
    slots.push_back(record);
    add_parts(slots, arguments.data(), arguments.size() * sizeof(Argument));
}

TEST_F(TraceFile, RecordsComeBackInOrderWithPartsResolved) {
    const TraceOrigin first{100, 0, 3}, other{100, 0, 4}, later{100, 1, 3};
    {
        TraceWriter trace = writer();
        std::vector<Record> slots{trace_call(10000, 7, 9)};
        add_arguments(slots, 1, {{0x7f00, 0}, {0x7f10, 8}, {0, 0x1234}, {5, 24}, {6, 32}});
        ASSERT_TRUE(trace.records(first, slots).ok());
        slots = {trace_call(20000)};
        add_text(slots, 7, "cudaLaunchKernel");  // another lane defines what the first one used
        add_text(slots, 1, "train.py");
        add_text(slots, 2, std::string(64, 'f'));  // fills its slot to the last byte
        add_text(slots, 3, "");
        add_site(slots, 9, {{1, 2, 42, 0}, {1, 3, 7, 1}, {1, 2, 0, 0}, {1, 2, 1, 0}, {99, 2, 1, 0}});
        ASSERT_TRUE(trace.records(other, slots).ok());
        slots.clear();
        add_text(slots, 7, "of the program executed later");
        ASSERT_TRUE(trace.records(later, slots).ok());
        ASSERT_TRUE(trace.records(first, std::vector{trace_call(30000)}).ok());
    }
    const auto reader = diagnose::TraceReader::open(path());
    ASSERT_TRUE(reader.ok()) << reader.error().text();
    EXPECT_EQ(reader->damage(), diagnose::TraceDamage{});
    EXPECT_EQ(reader->text(first, 7), "cudaLaunchKernel");
    EXPECT_EQ(reader->text(later, 7), "of the program executed later");
    EXPECT_EQ(reader->text(first, 8), "");
    const auto site = reader->site(first, 9);
    ASSERT_EQ(site.size(), 5u);
    EXPECT_EQ(site[0], (TraceFrame{"train.py", std::string(64, 'f'), 42, false}));
    EXPECT_EQ(site[1], (TraceFrame{"train.py", "", 7, true}));
    EXPECT_EQ(site[4].file, "");
    EXPECT_TRUE(reader->site(later, 9).empty());

    SeenTrace seen;
    ASSERT_TRUE(reader->visit(seen).ok());
    ASSERT_EQ(seen.records.size(), 4u);
    std::vector<std::uint64_t> lane;
    for (const auto& one : seen.records)
        if (one.origin.lane == 3 && one.record.kind == RecordKind::kCall) lane.push_back(one.record.begin);
    EXPECT_EQ(lane, (std::vector<std::uint64_t>{10000, 30000}));
    ASSERT_EQ(seen.records[1].arguments.size(), 5u);
    EXPECT_EQ(seen.records[1].arguments[2].index, 0x1234u);
    EXPECT_EQ(seen.records[1].arguments[4].value, 6u);
}

TEST_F(TraceFile, SamplesBlocksProcessesAndClocksComeBack) {
    {
        TraceWriter trace = writer();
        const std::vector<TraceFrame> stack{{"loader.py", "__next__", 12, false}, {"train.py", "<module>", 3, false}};
        const std::uint32_t number = trace.stack(stack), wait = trace.name("futex");
        EXPECT_EQ(trace.stack(stack), number);
        EXPECT_EQ(trace.name("futex"), wait);
        EXPECT_EQ(trace.stack({}), 0u);
        EXPECT_EQ(trace.name(""), 0u);
        for (std::uint64_t at = 0; at < 5000; ++at) ASSERT_TRUE(trace.sample({at * 10'000'000, 5, 6, number, wait, 'S'}).ok());
        ASSERT_TRUE(trace.block({1000, 2000, 12.5, 5, 3, CallKind::kGraphLaunch}).ok());
        ASSERT_TRUE(trace.process({5, 4, 0, false, 17, 0, "python train.py"}).ok());
        ASSERT_TRUE(trace.process({9, 5, 0, false, 18, 0, "worker"}).ok());
        ASSERT_TRUE(trace.process({5, 4, 6, true, 17, 99, "python train.py"}).ok());
        ASSERT_TRUE(trace.clock({1'000'000'000, 50.0}).ok());
        ASSERT_TRUE(trace.clock({11'000'000'000, 61.0}).ok());
        ASSERT_TRUE(trace.note("no CUPTI").ok());
    }
    const auto reader = diagnose::TraceReader::open(path());
    ASSERT_TRUE(reader.ok());
    SeenTrace seen;
    ASSERT_TRUE(reader->visit(seen).ok());
    ASSERT_EQ(seen.samples.size(), 5000u);
    EXPECT_EQ(seen.samples[4999].time, 49'990'000'000u);
    EXPECT_EQ(seen.samples[17].state, 'S');
    EXPECT_EQ(reader->stack(seen.samples[17].stack).at(0).function, "__next__");
    EXPECT_EQ(reader->name(seen.samples[17].wait), "futex");
    ASSERT_EQ(seen.blocks.size(), 1u);
    EXPECT_EQ(seen.blocks[0].steps, 12.5);
    EXPECT_EQ(seen.blocks[0].pid, 5u);
    EXPECT_EQ(seen.blocks[0].call, CallKind::kGraphLaunch);
    EXPECT_EQ(seen.blocks[0].calls_per_step, 3u);
    ASSERT_EQ(reader->processes().size(), 2u);
    EXPECT_TRUE(reader->processes()[0].has_gpu);
    EXPECT_EQ(reader->processes()[0].ended, 99u);
    EXPECT_EQ(reader->processes()[1].command, "worker");
    EXPECT_EQ(reader->notes(), (std::vector<std::string>{"no CUPTI"}));
    EXPECT_DOUBLE_EQ(reader->wall(2'000'000'000), 51.0);
    EXPECT_DOUBLE_EQ(reader->wall(12'000'000'000), 62.0);
}

TEST_F(TraceFile, ManyRecordsAreSmall) {
    constexpr std::size_t kCount = 100'003;
    {
        TraceWriter trace = writer();
        std::vector<Record> slots;
        for (std::size_t at = 0; at < kCount; ++at) {
            slots.push_back(trace_call(1'000'000'000'000 + at * 10007 + at * at % 997, static_cast<std::uint32_t>(at % 37)));
            if (slots.size() == 777) {
                ASSERT_TRUE(trace.records({1, 0, 0}, slots).ok());
                slots.clear();
            }
        }
        ASSERT_TRUE(trace.records({1, 0, 0}, slots).ok());
        ASSERT_TRUE(trace.flush().ok());
        EXPECT_EQ(trace.bytes(), fs::file_size(path()));
        EXPECT_TRUE(!io::have_zstd() || trace.bytes() < kCount * sizeof(Record) / 8) << trace.bytes();
    }
    const auto reader = diagnose::TraceReader::open(path());
    ASSERT_TRUE(reader.ok());
    SeenTrace seen;
    ASSERT_TRUE(reader->visit(seen).ok());
    ASSERT_EQ(seen.records.size(), kCount);
    EXPECT_EQ(seen.records[kCount - 1].record.begin,
              1'000'000'000'000 + (kCount - 1) * 10007 + (kCount - 1) * (kCount - 1) % 997);
}

TEST_F(TraceFile, TornTailIsCountedAndEverythingBeforeItRead) {
    {
        TraceWriter trace = writer();
        ASSERT_TRUE(trace.note("first").ok());
        ASSERT_TRUE(trace.note("second").ok());
    }
    const std::string whole = content();
    std::size_t firsts = 0, boths = 0;
    for (std::size_t size = kTraceMagic.size(); size <= whole.size(); ++size) {
        replace(whole.substr(0, size));
        const auto reader = diagnose::TraceReader::open(path());
        ASSERT_TRUE(reader.ok()) << size;
        EXPECT_EQ(reader->damage().bad_frames, 0u);
        if (reader->notes().size() == 1) ++firsts;
        if (reader->notes().size() == 2) ++boths;
        if (size >= whole.size() - 1) {
            EXPECT_EQ(reader->damage().torn_bytes > 0, size < whole.size());
        }
    }
    EXPECT_GT(firsts, 10u);
    EXPECT_EQ(boths, 1u);
    for (std::size_t size = 0; size < kTraceMagic.size(); ++size) {
        replace(whole.substr(0, size));
        EXPECT_FALSE(diagnose::TraceReader::open(path()).ok());
    }
}

TEST_F(TraceFile, FlippedBytesNeverPassForContent) {
    {
        TraceWriter trace = writer();
        std::vector<Record> slots{trace_call(1), trace_call(2)};
        add_text(slots, 1, "name");
        ASSERT_TRUE(trace.records({1, 0, 0}, slots).ok());
        trace.stack(std::vector<TraceFrame>{{"a", "b", 1, false}});
    }
    const std::string whole = content();
    for (std::size_t at = kTraceMagic.size(); at < whole.size(); ++at) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
        replace(bytes);
        const auto reader = diagnose::TraceReader::open(path());
        ASSERT_TRUE(reader.ok());
        EXPECT_GT(reader->damage().bad_frames + reader->damage().torn_bytes, 0u) << at;
        SeenTrace seen;
        ASSERT_TRUE(reader->visit(seen).ok());
        EXPECT_TRUE(seen.records.empty() || seen.records.size() == 2);
    }
}

TEST_F(TraceFile, FramesWithFalseContentAreCountedNotBelieved) {
    std::string bytes(kTraceMagic);
    const auto add = [&](FrameKind kind, const std::vector<std::uint32_t>& words) {
        const auto frame = pack_frame(kind, std::as_bytes(std::span(words)));
        bytes.append(reinterpret_cast<const char*>(frame.data()), frame.size());
    };
    add(FrameKind::kRecords, {1, 0, 1, 2, 3});      // not whole slots
    add(FrameKind::kRecords, {1});                  // no head
    add(FrameKind::kName, {1, 0xffffffff});         // a text longer than the frame
    add(FrameKind::kStack, {1, 0x7fffffff});        // more frames than it holds
    add(FrameKind::kStack, {1, 3, 0, 0, 0, 0});     // fewer frames than it says
    add(FrameKind::kProcess, {1, 2});               // cut
    add(FrameKind::kClock, {0, 0, 0, 0x7ff80000});  // a time that is no number
    add(FrameKind::kSamples, {1, 2, 3});            // not whole rows
    add(static_cast<FrameKind>(200), {1, 2, 3});    // of a later version
    std::vector<std::uint32_t> slot(2 + 16);
    slot[0] = 1;
    slot[2] = 200;  // a kind of record that nobody has
    const auto spread = [&](std::vector<std::uint32_t> words) {
        std::string content(reinterpret_cast<const char*>(words.data()), 8);
        spread_rows(std::as_bytes(std::span(words)).subspan(8), sizeof(Record), content);
        const auto frame = pack_frame(FrameKind::kRecords, io::bytes_of(content));
        bytes.append(reinterpret_cast<const char*>(frame.data()), frame.size());
    };
    spread(slot);
    slot[2] = static_cast<std::uint32_t>(RecordKind::kSite) | 0xffffu << 16;  // wrong place of count, still within one slot
    slot[3] = 0xffff0000u;                                                    // count: more frames than anybody writes
    spread(slot);
    slot[2] = static_cast<std::uint32_t>(RecordKind::kText);
    slot[2 + 12] = 65;  // bytes: two slots, which are not there
    spread(slot);
    replace(bytes);
    const auto reader = diagnose::TraceReader::open(path());
    ASSERT_TRUE(reader.ok()) << reader.error().text();
    EXPECT_EQ(reader->damage().bad_frames, 11u);
    EXPECT_EQ(reader->damage().unknown_frames, 1u);
    EXPECT_EQ(reader->damage().torn_bytes, 0u);
    SeenTrace seen;
    ASSERT_TRUE(reader->visit(seen).ok());
    EXPECT_TRUE(seen.records.empty());
}

TEST_F(TraceFile, DictionariesStopAtTheirLimits) {
    {
        TraceWriter trace = writer();
        for (int at = 0; at < 100; ++at) trace.name("a name of some length, number " + std::to_string(at));
    }
    const auto few = diagnose::TraceReader::open(path(), {.text_bytes = 1u << 20, .entries = 10});
    ASSERT_TRUE(few.ok());
    EXPECT_EQ(few->damage().forgotten, 90u);
    const auto small = diagnose::TraceReader::open(path(), {.text_bytes = 100, .entries = 1000});
    ASSERT_TRUE(small.ok());
    EXPECT_EQ(small->damage().forgotten, 97u);
}

TEST_F(TraceFile, ExistingFileIsNotTouched) {
    replace("precious");
    EXPECT_FALSE(TraceWriter::create(path()).ok());
    EXPECT_EQ(content(), "precious");
    EXPECT_FALSE(diagnose::TraceReader::open(path()).ok());
    EXPECT_FALSE(diagnose::TraceReader::open(folder_ / ".").ok());
    EXPECT_FALSE(diagnose::TraceReader::open(folder_ / "missing").ok());
}

TEST(RecordParts, PartsAreBounded) {
    Record record;
    EXPECT_FALSE(parts_behind(record));
    record.kind = RecordKind::kText;
    for (const auto& [bytes, slots] : {std::pair{0u, 0u}, {1u, 1u}, {64u, 1u}, {65u, 2u}, {4096u, 64u}}) {
        record.bytes = bytes;
        EXPECT_EQ(parts_behind(record), slots);
    }
    record.bytes = kMaxTextBytes + 1;
    EXPECT_FALSE(parts_behind(record));
    record.bytes = ~std::uint64_t{0};
    EXPECT_FALSE(parts_behind(record));
    record.kind = RecordKind::kSite;
    record.count = kMaxSiteFrames;
    EXPECT_EQ(parts_behind(record), 16u);
    record.count = kMaxSiteFrames + 1;
    EXPECT_FALSE(parts_behind(record));
}

}  // namespace
}  // namespace millrace::record
