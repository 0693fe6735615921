#include "train/telemetry.h"

#include <gtest/gtest.h>

#include <latch>
#include <set>
#include <thread>

#include "fake_clock.h"
#include "record/metric_table.h"
#include "temporary_folder.h"
#include "train/loader_waits.h"
#include "train/metrics_thread.h"
#include "train/setup.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

/// A machine with one GPU whose readings are made up.
class FakeMachine final : public sense::Source {
public:
    FakeMachine() {
        facts_.gpus.resize(1);
        facts_.gpus[0].name = "Fake GPU";
        facts_.cores = 2;
        facts_.core_numbers = {0, 1};
    }
    [[nodiscard]] const sense::MachineFacts& facts() const override { return facts_; }
    void read(std::chrono::nanoseconds, sense::Sample& sample) noexcept override {
        sample = {sample.time, sample.wall, sample.sequence, sample.late, {}, {}, {}, {}, {}, {}};
        sample.gpus.resize(1);
        sample.gpus[0].utilization = 80;
        sample.gpus[0].memory_used_bytes = 12.0 * (1 << 30);
        sample.gpus[0].memory_total_bytes = 24.0 * (1 << 30);
        sample.gpus[0].energy_joules = joules_ += 1;
        sample.cpu.utilization = 45.25;
        sample.memory.used_bytes = 62.0 * (1 << 30);
        sample.memory.total_bytes = 64.0 * (1 << 30);
    }

private:
    sense::MachineFacts facts_;
    double joules_ = 0;
};

/// Resident data behind a loader that takes its time, by a clock that only it moves.
class SlowSource final : public data::BatchSource {
public:
    SlowSource(std::unique_ptr<data::BatchSource> inner, base::FakeClock& clock, std::uint64_t slow_step,
               std::uint64_t every = kFailing)
        : inner_(std::move(inner)), clock_(clock), slow_step_(slow_step), every_(every) {}
    [[nodiscard]] std::int32_t samples(data::Part part) const override { return inner_->samples(part); }
    [[nodiscard]] const data::Fields& fields() const override { return inner_->fields(); }
    base::Status declare(tape::Store& store) override { return inner_->declare(store); }
    base::Status upload(tape::Store& store) override { return inner_->upload(store); }
    base::Status await_rows(const data::RowsAhead& rows, const data::StepsDone&) override {
        if (rows.part != data::Part::train || rows.prefetch) return base::ok();
        const std::uint64_t step = rows.step;
        if (step == kFailing) return base::Error{"the disk is gone", "data", 1};
        const bool slow = step >= slow_step_ && (step - slow_step_) % every_ == 0;
        clock_.advance(slow ? std::chrono::milliseconds{80} : std::chrono::milliseconds{2});
        return base::ok();
    }
    std::vector<tensor::View> gather(tape::Builder& builder, data::Part part, std::int32_t rows,
                                     std::span<const data::Wanted> fields) override {
        return inner_->gather(builder, part, rows, fields);
    }
    static constexpr std::uint64_t kFailing = 1000;

private:
    std::unique_ptr<data::BatchSource> inner_;
    base::FakeClock& clock_;
    std::uint64_t slow_step_, every_;  ///< the first and the distance to the next
};

class TrainTelemetry : public TinyRun {
protected:
    record::MetricsLog rows(const std::string& below) const {
        auto log = record::read_metrics(folder_ / below);
        EXPECT_TRUE(log.ok()) << log.error().text();
        return log.ok() ? std::move(log).value() : record::MetricsLog{};
    }
    static std::vector<record::MetricsRow> of_kind(const record::MetricsLog& log, const std::string& kind) {
        std::vector<record::MetricsRow> found;
        for (const record::MetricsRow& row : log.rows)
            if (std::get<std::string>(*row.find("kind")) == kind) found.push_back(row);
        return found;
    }
    const std::vector<std::string> every_sink_{
        "telemetry.csv=true",      "telemetry.monitor_csv=true",   "telemetry.tensorboard=true", "telemetry.interval=5ms",
        "telemetry.components=on", "telemetry.components_every=5", "train.log_interval=1ms",     "members=2"};
};

TEST_F(TrainTelemetry, EveryKeyOfARunIsInTheTable) {
    std::vector<std::string> settings = every_sink_;
    settings.push_back("telemetry.prometheus_file=" + (folder_ / "metrics.prom").string());
    ASSERT_TRUE(run("a", settings).ok());
    std::set<std::string> kinds;
    for (const char* stream : {"a/metrics.jsonl", "a/samples.jsonl"})
        for (const record::MetricsRow& row : rows(stream).rows) {
            kinds.insert(std::get<std::string>(*row.find("kind")));
            for (const auto& [key, value] : row.values) {
                const bool known = key == "kind" || key == "time" || key == "step" || record::metric_of_key(key);
                EXPECT_TRUE(known) << stream << ": " << key;
            }
        }
    EXPECT_EQ(kinds, (std::set<std::string>{"components", "epoch", "interval", "sample", "test"}));
    for (const char* file : {"a/samples.csv", "a/gpu_stats.csv", "metrics.prom"})
        EXPECT_GT(std::filesystem::file_size(folder_ / file), 0u) << file;
    EXPECT_FALSE(std::filesystem::is_empty(folder_ / "a/tensorboard"));
}

TEST_F(TrainTelemetry, MeasuringChangesNoBit) {
    ASSERT_TRUE(run("off", {"telemetry.interval=0s", "members=2"}).ok());
    ASSERT_TRUE(run("on", every_sink_).ok());
    EXPECT_EQ(last("off", "member-001/model.safetensors"), last("on", "member-001/model.safetensors"));
    EXPECT_EQ(last("off", "member-000/optimizer.safetensors"), last("on", "member-000/optimizer.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "off/samples.jsonl"));
    EXPECT_FALSE(of_kind(rows("on/metrics.jsonl"), "components").empty());
}

TEST_F(TrainTelemetry, StepProgramIsTheSameWithSinksOnAndOff) {
    const auto off = set_up(recipe({"telemetry.interval=0s", "members=2"}), true), on = set_up(recipe(every_sink_), true);
    ASSERT_TRUE(off.ok() && on.ok());
    EXPECT_EQ(off->engine->step_listing(), on->engine->step_listing());
    EXPECT_NE(off->engine->step_listing().find("optimizer"), std::string::npos);
}

TEST_F(TrainTelemetry, MachineStandsInReportsAndRows) {
    TrainRequest request;
    request.out = folder_ / "gpu";
    request.machine = [] { return std::make_unique<FakeMachine>(); };
    const auto result = train(recipe({"telemetry.interval=1ms", "train.log_interval=1ms"}), request, {&observer_});
    ASSERT_TRUE(result.ok()) << result.error().text();
    ASSERT_EQ(observer_.epochs.size(), 2u);
    const PaceReport& pace = observer_.epochs[0].pace;
    ASSERT_GT(pace.machine.samples, 0u);
    EXPECT_EQ(record::machine_line(pace.machine.line),
              "GPU: 80% | VRAM:12.0/24.0GB(50.0%) | CPU: 45.2% | RAM:62.0/64.0GB(96.9%)");
    EXPECT_FALSE(pace.joules_per_sample.has_value()) << "the CPU trains: the GPU's energy is not this run's";
    ASSERT_TRUE(pace.step_ms_p50 && pace.step_ms_p99);
    EXPECT_GT(*pace.step_ms_p50, 0);
    EXPECT_GE(*pace.step_ms_p99, *pace.step_ms_p50);
    EXPECT_GT(pace.flops_per_second.value_or(0), 0);
    const auto epochs = of_kind(rows("gpu/metrics.jsonl"), "epoch");
    ASSERT_EQ(epochs.size(), 2u);
    EXPECT_EQ(epochs[0].number("gpu_utilization_percent"), 80);
    // The memory of the fake machine is at its edge: one warning per epoch, with a cause for programs.
    std::size_t warnings = 0;
    for (const record::MetricsRow& event : of_kind(rows("gpu/events.jsonl"), "warning"))
        warnings += std::get<std::string>(*event.find("cause")) == "ram_edge" ? 1 : 0;
    EXPECT_EQ(warnings, 2u);
}

TEST_F(TrainTelemetry, ResumedRunKeepsTheSamplesAndEventsOfTheFirstStart) {
    TrainRequest request;
    request.out = folder_ / "twice";
    request.machine = [] { return std::make_unique<FakeMachine>(); };
    ASSERT_TRUE(train(recipe({"telemetry.interval=1ms"}), request, {&observer_}).ok());
    const auto first = rows("twice/samples.jsonl").rows;
    ASSERT_GT(first.size(), 0u);
    request.resume = true;
    const auto resumed = train(recipe({"telemetry.interval=1ms", "train.epochs=3"}), request, {&observer_});
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    const auto both = rows("twice/samples.jsonl").rows;
    ASSERT_GT(both.size(), first.size());
    EXPECT_EQ(both[0].number("time"), first[0].number("time"));
    EXPECT_EQ(of_kind(rows("twice/events.jsonl"), "started").size(), 1u);
    EXPECT_EQ(of_kind(rows("twice/events.jsonl"), "resumed").size(), 1u);
}

TEST_F(TrainTelemetry, SlowStepIsASpikeWithWhatTheMachineDid) {
    base::FakeClock clock(std::chrono::seconds{1});
    TrainRequest request;
    request.out = folder_ / "slow";
    request.adapt_source = [&](std::unique_ptr<data::BatchSource> inner) {
        return std::make_unique<SlowSource>(std::move(inner), clock, 9);
    };
    const auto result = train(recipe({"telemetry.interval=0s"}), request, {&observer_}, clock);
    ASSERT_TRUE(result.ok()) << result.error().text();
    // 7 steps an epoch; the first step of all is not counted.
    ASSERT_EQ(observer_.epochs.size(), 2u);
    const LoaderReport &first = observer_.epochs[0].pace.loader, &second = observer_.epochs[1].pace.loader;
    EXPECT_EQ(first.wait_ms.count, 6u);
    EXPECT_EQ(first.wait_ms.maximum, 2);
    EXPECT_EQ(first.spikes, 0u);
    EXPECT_EQ(second.wait_ms.count, 7u);
    EXPECT_EQ(second.wait_ms.maximum, 80);
    EXPECT_EQ(second.wait_ms.median, 2);
    EXPECT_EQ(second.spikes, 1u);
    const auto spikes = of_kind(rows("slow/events.jsonl"), "loader_spike");
    ASSERT_EQ(spikes.size(), 1u);
    EXPECT_EQ(spikes[0].number("step"), 10);
    EXPECT_EQ(spikes[0].number("wait_ms"), 80);
}

TEST_F(TrainTelemetry, ManySlowStepsAreAWarningOfTheirEpoch) {
    base::FakeClock clock(std::chrono::seconds{1});
    TrainRequest request;
    request.out = folder_ / "slow";
    request.adapt_source = [&](std::unique_ptr<data::BatchSource> inner) {
        return std::make_unique<SlowSource>(std::move(inner), clock, 9, 4);
    };
    // 25 steps an epoch, counted from 0; step 9 and every fourth after it wait.
    const auto result = train(recipe({"telemetry.interval=0s", "train.batch=16"}), request, {&observer_}, clock);
    ASSERT_TRUE(result.ok()) << result.error().text();
    const LoaderReport& first = observer_.epochs.at(0).pace.loader;
    EXPECT_EQ(first.spikes, 4u);
    EXPECT_EQ(first.spike_spacing, 4);
    EXPECT_EQ(first.worst_ms.front(), 80);
    std::string text;
    for (const record::MetricsRow& event : of_kind(rows("slow/events.jsonl"), "warning"))
        if (std::get<std::string>(*event.find("cause")) == "loader_spikes" && event.number("epoch") == 1)
            text += std::get<std::string>(*event.find("text"));
    EXPECT_TRUE(
        text.starts_with("4 of 24 steps (17 %) waited more than 50 ms for their data, one every 4.0 steps, the worst 80, 80, "
                         "80, 80 ms;"))
        << text;
}

TEST_F(TrainTelemetry, ComponentTimesAreAboutTheStepAndCountInNoSpeed) {
    ASSERT_TRUE(run("c", {"telemetry.components=on", "telemetry.components_every=3", "telemetry.interval=0s"}).ok());
    const auto measured = of_kind(rows("c/metrics.jsonl"), "components");
    ASSERT_EQ(measured.size(), 5u);  // steps 2, 3, 6, 9, 12 of 14
    for (const record::MetricsRow& row : measured) {
        double sum = 0;
        for (const char* part : {"data", "forward", "loss", "backward", "optimizer"}) {
            const auto part_ms = row.number(std::string("component/") + part + "_ms");
            ASSERT_TRUE(part_ms) << part;
            EXPECT_GT(*part_ms, 0) << part;
            sum += *part_ms;
        }
        EXPECT_NEAR(sum, *row.number("component/step_ms"), 1e-6);
    }
    double steps = 0;
    for (const record::MetricsRow& row : of_kind(rows("c/metrics.jsonl"), "interval")) steps += *row.number("steps");
    EXPECT_EQ(steps, 14) << "their losses do count";
}

TEST_F(TrainTelemetry, SinkThatCannotOpenStopsTheRunBeforeItsFirstStep) {
    const auto result = run("p", {"telemetry.prometheus_file=" + (folder_ / "missing" / "m.prom").string()});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().exit_status, 2);
    EXPECT_NE(result.error().text().find("m.prom"), std::string::npos) << result.error().text();
}

TEST_F(TrainTelemetry, IntervalsTooShortToKeepAreRefused) {
    const auto refused = run("short", {"telemetry.interval=999us"});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 2);
    EXPECT_NE(refused.error().text().find("at least 1ms"), std::string::npos) << refused.error().text();
}

/// Takes five milliseconds for each of its first readings, by a clock that only it moves; then the clock stands still.
class SluggishMachine final : public sense::Source {
public:
    static constexpr int kSlowReadings = 24;

    SluggishMachine(base::FakeClock& clock, std::latch& done) : clock_(clock), done_(done) {}
    [[nodiscard]] const sense::MachineFacts& facts() const override { return facts_; }
    void read(std::chrono::nanoseconds, sense::Sample&) noexcept override {
        if (readings_++ < kSlowReadings)
            clock_.advance(std::chrono::milliseconds{5});
        else
            done_.count_down();
    }

private:
    sense::MachineFacts facts_;
    base::FakeClock& clock_;
    std::latch& done_;
    int readings_ = 0;
};

TEST_F(TrainTelemetry, MissedLooksAreSummedNotToldOneByOne) {
    {
        auto events = record::EventWriter::open(folder_ / "events.jsonl");
        ASSERT_TRUE(events.ok());
        TelemetrySettings settings;
        settings.interval = std::chrono::milliseconds{1};
        base::FakeClock clock;
        std::latch done(1);
        const auto telemetry =
            Telemetry::start(settings, folder_, std::make_unique<SluggishMachine>(clock, done), *events, clock);
        ASSERT_TRUE(telemetry.ok());
        done.wait();
    }
    double told = 0;
    const record::MetricsLog samples = rows("samples.jsonl"), events = rows("events.jsonl");
    for (const record::MetricsRow& row : of_kind(events, "samples_missed")) told += *row.number("missed");
    EXPECT_EQ(of_kind(events, "samples_missed").size(), 2u) << "at once, and the rest at the end";
    EXPECT_EQ(samples.rows.size(), SluggishMachine::kSlowReadings + 1u);
    EXPECT_EQ(told, SluggishMachine::kSlowReadings * 4) << "four of five ticks pass during a reading";
}

TEST(LoaderWaits, FirstStepIsLeftOutAndTheRestArriveInOrder) {
    LoaderWaits waits;
    EXPECT_FALSE(waits.add(std::chrono::seconds{9}));
    EXPECT_FALSE(waits.add(std::chrono::milliseconds{50}));
    EXPECT_TRUE(waits.add(std::chrono::milliseconds{51}));
    std::vector<long> seen;
    const auto take = [&](std::chrono::nanoseconds wait) { seen.push_back(wait.count() / 1000000); };
    waits.drain(take);
    waits.drain(take);
    EXPECT_EQ(seen, (std::vector<long>{50, 51}));
}

TEST(LoaderWaits, ThreadsMeetInTheRing) {
    LoaderWaits waits;
    constexpr int kCount = 200000;
    std::thread trainer([&] {
        for (int i = 0; i <= kCount; ++i) waits.add(std::chrono::nanoseconds{i});
    });
    std::int64_t last = 0, count = 0;
    const auto take = [&](std::chrono::nanoseconds wait) {
        EXPECT_GT(wait.count(), last);
        last = wait.count();
        ++count;
    };
    for (int i = 0; i < 1000; ++i) {
        waits.drain(take);
        std::this_thread::yield();
    }
    trainer.join();
    waits.drain(take);
    EXPECT_GT(count, 0);
    EXPECT_LE(count, kCount);
}

}  // namespace
}  // namespace millrace::train
