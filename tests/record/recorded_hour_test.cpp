#include "record/recorded_program.h"

namespace millrace::record {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000, kHour = 3600 * kSecond;
constexpr std::uint64_t kHourTick = 50'000'000, kSampling = 10'000'000;
/// Rows of the machine, as far as their own budget goes: 4 MB and 1,500 bytes a second.
constexpr double kMachineAllowance = 4e6, kMachineRate = 1500;

class RecordedHour : public RecordedProgram {
protected:
    /// Steps and ticks as `record` makes them, with samples of `threads` threads at 100 Hz, for an hour of the fake clock.
    void run_hour(ProbedProcess& process, const ScheduleSettings& settings, int threads) {
        const std::uint64_t start = now_;
        std::uint64_t tick_at = 0, sample_at = now_, clock_at = 0;
        std::vector<std::uint32_t> stacks;
        for (std::uint32_t line = 1; line <= 40; ++line)
            stacks.push_back(
                trace_->stack(std::vector<TraceFrame>{{"train.py", "step", line, false}, {"train.py", "main", 90, false}}));
        while (now_ - start < kHour) {
            step();
            ++steps_;
            if (now_ < tick_at) continue;
            tick_at = now_ + kHourTick;
            const double elapsed = static_cast<double>(now_ - start) * 1e-9;
            other_bytes_ = kMachineAllowance + kMachineRate * elapsed;
            const RunBytes bytes = run_bytes(settings, trace_->bytes() + static_cast<std::uint64_t>(other_bytes_),
                                             std::chrono::nanoseconds{static_cast<std::int64_t>(now_ - start)});
            process.tick(now_, bytes, *trace_, *events_);
            for (; sample_at < now_; sample_at += kSampling) {
                if (bytes.tight && !process.schedule().in_window()) continue;
                for (int thread = 0; thread < threads; ++thread)
                    ASSERT_TRUE(trace_
                                    ->sample({sample_at + static_cast<std::uint64_t>(thread) * 10'000 + noise(), 4321,
                                              static_cast<std::uint32_t>(4321 + thread), stacks[noise() % stacks.size()],
                                              trace_->name("futex"), 'S'})
                                    .ok());
            }
            if (now_ - clock_at < kSecond) continue;
            clock_at = now_;
            ASSERT_TRUE(trace_->flush().ok());
        }
        process.finish(now_, *trace_, *events_);
        ASSERT_TRUE(trace_->flush().ok());
    }
    [[nodiscard]] double size_of(const char* name) const {
        return static_cast<double>(std::filesystem::file_size(folder_ / name));
    }

    double steps_ = 0, other_bytes_ = 0;
};

TEST_F(RecordedHour, OfAThousandStepsASecondStaysBelowAHundredMegabytes) {
    step_ns_ = 1'000'000;
    kernels_ = 60;
    noise_ = 4000;
    const ScheduleSettings settings;
    ProbedProcess process = attach(settings);
    run_hour(process, settings, 4);
    const double trace = size_of(kTraceName), all = trace + size_of("events.jsonl") + other_bytes_;
    std::printf("%.2f million steps, %llu windows, %llu records; trace.bin %.1f MB, events.jsonl %.1f MB, all %.1f MB\n",
                steps_ * 1e-6, static_cast<unsigned long long>(process.schedule().windows()),
                static_cast<unsigned long long>(process.records()), trace * 1e-6, size_of("events.jsonl") * 1e-6, all * 1e-6);
    EXPECT_EQ(trace, static_cast<double>(trace_->bytes()));
    EXPECT_LT(all, 100e6);
    EXPECT_GT(trace, 10e6) << "the budget is there to be used";
    EXPECT_GT(steps_, 3.5e6);
    EXPECT_NEAR(process.steps() / steps_, 1, 0.01);
    EXPECT_EQ(process.dropped(), 0u);
    const auto cost = process.schedule().cost(std::chrono::nanoseconds{static_cast<std::int64_t>(now_)});
    ASSERT_TRUE(cost);
    EXPECT_LT(*cost, 0.011);

    const auto reader = diagnose::TraceReader::open(folder_ / kTraceName);
    ASSERT_TRUE(reader.ok()) << reader.error().text();
    EXPECT_EQ(reader->damage(), diagnose::TraceDamage{});
    struct Sum : diagnose::TraceVisitor {
        std::uint64_t marks = 0, work = 0, newest = 0;
        double block_steps = 0, block_time = 0;
        void record(const TraceOrigin&, const Record& record, std::span<const Argument>) override {
            marks += record.kind == RecordKind::kWindow ? 1 : 0;
            work += record.kind == RecordKind::kWork ? 1 : 0;
            newest = std::max(newest, record.begin);
        }
        void block(const TraceBlock& block) override {
            block_steps += block.steps;
            block_time += static_cast<double>(block.end - block.begin);
        }
    } sum;
    ASSERT_TRUE(reader->visit(sum).ok());
    EXPECT_GE(sum.marks, 2 * 100u);
    EXPECT_GE(sum.work, 100u * 10 * 60);
    EXPECT_GT(sum.newest, now_ - kHour / 10) << "windows come to the end";
    EXPECT_NEAR(sum.block_time / sum.block_steps, 1e6, 1e3);
    EXPECT_GT(sum.block_time, 0.9 * static_cast<double>(kHour)) << "the speed of the whole hour is known";
}

}  // namespace
}  // namespace millrace::record
