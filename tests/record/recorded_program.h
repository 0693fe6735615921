#pragma once
// A program that trains under a fake probe, recorded into real files on a clock of its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/reading/trace_reader.h"
#include "record/fake_probe.h"
#include "record/probed_process.h"
#include "temporary_folder.h"

namespace millrace::record {

struct Seen : diagnose::TraceVisitor {
    std::vector<Record> records;
    std::vector<TraceBlock> blocks;
    void record(const TraceOrigin&, const Record& record, std::span<const Argument>) override { records.push_back(record); }
    void block(const TraceBlock& block) override { blocks.push_back(block); }
    [[nodiscard]] std::size_t of(RecordKind kind) const {
        return static_cast<std::size_t>(std::ranges::count(records, kind, &Record::kind));
    }
};

/// A training program under a fake probe and what `record` makes of it, on a clock of their own.
class RecordedProgram : public ::testing::Test {
protected:
    RecordedProgram() : probe_(folder_.path(), 4321) {
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

    std::uint64_t noise() {
        if (noise_ == 0) return 0;
        random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
        return random_ % noise_;
    }
    void call(CallKind kind) {
        Record record;
        record.kind = RecordKind::kCall;
        record.what = static_cast<std::uint8_t>(kind);
        record.thread = 77;
        record.correlation = ++correlation_;
        record.begin = std::max(now_, returned_) + noise();
        record.end = returned_ = record.begin + 500 + noise();
        probe_.write(0, {record});
    }
    void step() {
        const ProbeMode before = mode_;
        mode_ = probe_.obey();
        if ((mode_ == ProbeMode::kFull) != (before == ProbeMode::kFull)) window(mode_ == ProbeMode::kFull);
        if (mode_ == ProbeMode::kFull)
            for (std::uint32_t kernel = 0; kernel < kernels_; ++kernel) {
                call(CallKind::kLaunch);
                Record work;
                work.kind = RecordKind::kWork;
                work.id = kernel;
                work.correlation = correlation_;
                work.begin = now_ + kernel * step_ns_ / kernels_ + noise();
                work.end = work.begin + 10 + noise();
                probe_.write(1, {work});
            }
        if (mode_ == ProbeMode::kFull && marks_) call(CallKind::kEventRecord);
        const auto counted = static_cast<CallKind>(probe_.header().control.pulse_call.load());
        const int times = mode_ == ProbeMode::kOff || counted == CallKind::kOther ? 0
                          : counted == CallKind::kEventRecord                     ? 1
                                                                                  : static_cast<int>(kernels_);
        for (int time = 0; time < times; ++time)
            if (probe_.count()) pulse(counted);
        now_ += mode_ == ProbeMode::kFull ? step_ns_ + step_ns_ / 4 : step_ns_;
    }
    void pulse(CallKind call) {
        Record pulse;
        pulse.kind = RecordKind::kPulse;
        pulse.count = static_cast<std::uint16_t>(call);
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
        const auto reader = diagnose::TraceReader::open(folder_ / kTraceName);
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
    test::FakeProbe probe_;
    std::optional<TraceWriter> trace_;
    std::optional<EventWriter> events_;
    std::uint64_t now_ = 1'000'000'000, tick_at_ = 0, returned_ = 0, step_ns_ = 8'000'000;
    std::uint32_t correlation_ = 0, kernels_ = 20;
    bool marks_ = true;                                     ///< records an event in every step
    std::uint64_t noise_ = 0, random_ = 88172645463325252;  ///< times vary by up to so many ns, as those of real programs do
    ProbeMode mode_ = ProbeMode::kOff;
    std::vector<std::string> notes_;
};

}  // namespace millrace::record
