#include "record/probed_process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "record/fake_probe.h"
#include "record/probe_folder.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

using test::FakeProbe;

struct Seen : TraceVisitor {
    std::vector<Record> records;
    std::vector<TraceBlock> blocks;
    void record(const TraceOrigin&, const Record& record, std::span<const Argument>) override { records.push_back(record); }
    void block(const TraceBlock& block) override { blocks.push_back(block); }
    [[nodiscard]] std::size_t of(RecordKind kind) const {
        return static_cast<std::size_t>(std::ranges::count(records, kind, &Record::kind));
    }
};

/// A training program under a fake probe and what `record` makes of it, on a clock of their own.
class Recorded : public ::testing::Test {
protected:
    Recorded() : probe_(folder_.path(), 4321) {
        auto made = TraceWriter::create(folder_ / kTraceName);
        trace_.emplace(std::move(made).value());
        auto opened = EventWriter::open(folder_ / "events.jsonl");
        events_.emplace(std::move(opened).value());
    }

    ProbedProcess attach(const ScheduleSettings& settings = {}) {
        auto reader = ProbeReader::open(probe_.path());
        EXPECT_TRUE(reader.ok());
        return ProbedProcess(std::move(reader).value(), {4321, 0, 0}, settings, now_);
    }

    void call(CallKind kind) {
        Record record;
        record.kind = RecordKind::kCall;
        record.what = static_cast<std::uint8_t>(kind);
        record.thread = 77;
        record.correlation = ++correlation_;
        record.begin = now_ + correlation_ % 1000;
        record.end = record.begin + 500;
        probe_.write(0, {record});
    }
    void step() {
        const ProbeMode before = mode_;
        mode_ = probe_.obey();
        if ((mode_ == ProbeMode::kFull) != (before == ProbeMode::kFull)) window(mode_ == ProbeMode::kFull);
        if (mode_ == ProbeMode::kFull)
            for (std::uint32_t kernel = 0; kernel < 20; ++kernel) {
                call(CallKind::kLaunch);
                Record work;
                work.kind = RecordKind::kWork;
                work.id = kernel;
                work.correlation = correlation_;
                work.begin = now_;
                work.end = now_ + 10;
                probe_.write(1, {work});
            }
        if (mode_ == ProbeMode::kFull) call(CallKind::kEventRecord);
        const auto counted = static_cast<CallKind>(probe_.header().control.pulse_call.load());
        const int times = mode_ == ProbeMode::kOff ? 0 : counted == CallKind::kEventRecord ? 1 : 20;
        for (int time = 0; time < times; ++time)
            if (probe_.count()) pulse();
        now_ += mode_ == ProbeMode::kFull ? step_ns_ + step_ns_ / 4 : step_ns_;
    }
    void pulse() {
        Record pulse;
        pulse.kind = RecordKind::kPulse;
        pulse.begin = now_;
        pulse.bytes = probe_.header().state.pulses.load();
        probe_.write(0, {pulse});
    }
    void window(bool begins) {
        Record window;
        window.kind = RecordKind::kWindow;
        window.flags = begins ? kWindowBegins : 0;
        window.begin = now_;
        probe_.write(2, {window});
    }
    void run(ProbedProcess& process, int steps, const RunBytes& bytes = {}) {
        for (int number = 0; number < steps; ++number) {
            step();
            if (now_ < tick_at_) continue;
            tick_at_ = now_ + 50'000'000;
            process.tick(now_, {bytes.taken + trace_->bytes(), bytes.tight}, *trace_, *events_);
        }
    }
    Seen read() {
        EXPECT_TRUE(trace_->flush().ok());
        const auto reader = TraceReader::open(folder_ / kTraceName);
        Seen seen;
        EXPECT_TRUE(reader->visit(seen).ok());
        notes_ = reader->notes();
        return seen;
    }
    [[nodiscard]] std::string events_text() const {
        std::ifstream in(folder_ / "events.jsonl");
        return {std::istreambuf_iterator<char>(in), {}};
    }

    test::TemporaryFolder folder_;
    FakeProbe probe_;
    std::optional<TraceWriter> trace_;
    std::optional<EventWriter> events_;
    std::uint64_t now_ = 1'000'000'000, tick_at_ = 0, step_ns_ = 8'000'000;
    std::uint32_t correlation_ = 0;
    ProbeMode mode_ = ProbeMode::kOff;
    std::vector<std::string> notes_;
};

TEST_F(Recorded, ThreeWindowsThenBlocksOfCountedSteps) {
    ProbedProcess process = attach();
    run(process, 150);
    EXPECT_GE(process.schedule().windows(), 2u);
    run(process, 850);
    process.finish(*trace_, *events_);
    EXPECT_EQ(process.schedule().windows(), 3u);
    EXPECT_EQ(process.schedule().order().pulse_call, CallKind::kEventRecord);
    EXPECT_EQ(process.main_thread(), 77u);
    EXPECT_NEAR(process.schedule().steps(), 1000, 25);
    const Seen seen = read();
    EXPECT_EQ(seen.of(RecordKind::kWindow), 6u);
    EXPECT_EQ(seen.of(RecordKind::kPulse), 0u) << "pulses are summed up";
    EXPECT_GE(seen.of(RecordKind::kWork), 20u * 100);
    EXPECT_LE(seen.of(RecordKind::kWork), 20u * 140);
    ASSERT_GE(seen.blocks.size(), 8u);
    for (const TraceBlock& block : seen.blocks) {
        EXPECT_NEAR(static_cast<double>(block.end - block.begin) / block.steps, 8e6, 1e3);
        EXPECT_EQ(block.pid, 4321u);
    }
    ASSERT_TRUE(process.schedule().window_cost());
    EXPECT_NEAR(*process.schedule().window_cost(), 0.2, 0.02);
    EXPECT_NE(events_text().find("window_begun"), std::string::npos);
    EXPECT_EQ(process.dropped(), 0u);
}

TEST_F(Recorded, TightBudgetKeepsWindowsAlone) {
    ProbedProcess process = attach();
    run(process, 600);
    ASSERT_EQ(process.schedule().windows(), 3u);
    const std::size_t before = read().records.size();
    for (int number = 0; number < 100; ++number) {
        call(CallKind::kAlloc);
        run(process, 1, {0, true});
    }
    EXPECT_EQ(read().records.size(), before);
    for (int number = 0; number < 20; ++number) {
        call(CallKind::kAlloc);
        run(process, 10);
    }
    EXPECT_GT(read().records.size(), before);
}

TEST_F(Recorded, FaultNamesWhoIsInTheWay) {
    ProbedProcess process = attach();
    probe_.header().state.fault.store(static_cast<std::uint32_t>(ProbeFault::kOtherClient));
    std::strcpy(probe_.header().state.incumbent, "another-profiler");
    run(process, 20);
    process.finish(*trace_, *events_);
    read();
    ASSERT_EQ(notes_.size(), 1u);
    EXPECT_NE(notes_[0].find("another-profiler"), std::string::npos) << notes_[0];
    EXPECT_NE(events_text().find("probe_fault"), std::string::npos);
}

TEST_F(Recorded, LostRecordsAreToldOf) {
    ProbedProcess process = attach();
    for (std::uint32_t number = 0; number < kLaneSlots + 50; ++number) call(CallKind::kLaunch);
    Record lost;
    lost.kind = RecordKind::kLost;
    lost.flags = kLostByCupti;
    lost.bytes = 7;
    probe_.write(5, {lost});
    process.tick(now_, {}, *trace_, *events_);
    EXPECT_EQ(process.dropped(), 57u);
    EXPECT_NE(events_text().find("records_dropped"), std::string::npos);
}

TEST(ProbeFolder, HandsEachMappingOutOnceAndGoesWithEverything) {
    const test::TemporaryFolder fallback;
    Path where;
    {
        auto folder = ProbeFolder::create(fallback.path());
        ASSERT_TRUE(folder.ok()) << folder.error().text();
        where = folder->path();
        EXPECT_TRUE(folder->look().empty());
        std::ofstream(where / "12.probe") << "half";
        std::ofstream(where / "words.probe") << "x";
        const FakeProbe probe(where, 99);
        auto found = folder->look();
        ASSERT_EQ(found.size(), 1u);
        EXPECT_EQ(found[0].pid, 99u);
        EXPECT_EQ(found[0].incarnation, 0u);
        EXPECT_TRUE(folder->look().empty());
        std::filesystem::copy(probe.path(), where / "99-1.probe");
        found = folder->look();
        ASSERT_EQ(found.size(), 1u);
        EXPECT_EQ(found[0].incarnation, 1u);
        ProbeFolder::remove(found[0].path);
        EXPECT_FALSE(std::filesystem::exists(where / "99-1.probe"));
        const auto mode = std::filesystem::status(where).permissions();
        EXPECT_EQ(mode & std::filesystem::perms::all, std::filesystem::perms::owner_all);
    }
    EXPECT_FALSE(std::filesystem::exists(where));
}

}  // namespace
}  // namespace millrace::record
