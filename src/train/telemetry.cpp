#include "train/telemetry.h"

#include <fmt/format.h>

#include "base/log.h"
#include "record/sinks.h"

namespace millrace::train {
namespace {

/// A machine too slow for the interval misses samples all the time; one event for each would outgrow the samples.
constexpr std::chrono::seconds kMissedPause{10};

/// Lets samples through and nothing else: rows of training are in metrics.jsonl already.
class SamplesAlone final : public record::Sink {
public:
    explicit SamplesAlone(std::unique_ptr<record::Sink> inner) : inner_(std::move(inner)) {}
    [[nodiscard]] std::string name() const override { return inner_->name(); }
    base::Status write(const record::SinkRow& row) override {
        return row.kind == record::RowKind::kSample ? inner_->write(row) : base::ok();
    }
    base::Status flush() override { return inner_->flush(); }

private:
    std::unique_ptr<record::Sink> inner_;
};

using Sinks = std::vector<std::unique_ptr<record::Sink>>;

base::Result<Sinks> open_sinks(const TelemetrySettings& settings, const io::Path& run, const sense::Source* source) {
    Sinks sinks;
    const sense::MachineFacts facts = source != nullptr ? source->facts() : sense::MachineFacts{};
    if (source != nullptr) {
        MILLRACE_LET(samples, record::json_lines_sink(run / "samples.jsonl"));
        sinks.push_back(std::make_unique<SamplesAlone>(std::move(samples)));
        if (settings.csv) MILLRACE_SET(sinks.emplace_back(), record::csv_sink(run / "samples.csv", facts));
        if (settings.monitor_csv) MILLRACE_SET(sinks.emplace_back(), record::monitor_csv_sink(run / "gpu_stats.csv", facts));
    }
    if (settings.tensorboard) MILLRACE_SET(sinks.emplace_back(), record::tensorboard_sink(run / "tensorboard"));
    if (!settings.prometheus_file.empty())
        MILLRACE_SET(sinks.emplace_back(), record::prometheus_file_sink(settings.prometheus_file, facts));
    if (settings.prometheus_port > 0)
        MILLRACE_SET(sinks.emplace_back(), record::prometheus_port_sink("127.0.0.1", settings.prometheus_port, facts));
    return sinks;
}

/// Numbers of a row as points; words have no place in a sink.
std::optional<double> number_of(const record::MetricValue& value) {
    if (const auto* real = std::get_if<double>(&value)) return *real;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1.0 : 0.0;
    return std::nullopt;
}

}  // namespace

MachineReport machine_report(const record::SampleSummary& summary) {
    MachineReport report;
    report.samples = summary.samples();
    if (report.samples == 0) return report;
    const auto value_of = [&summary](double record::Statistics::*field) {
        return [&summary, field](std::string_view metric, int index = -1) {
            const std::optional<record::Statistics> found = summary.of(metric, index);
            return found ? std::optional((*found).*field) : std::nullopt;
        };
    };
    const auto mean_of = value_of(&record::Statistics::mean), peak_of = value_of(&record::Statistics::maximum);
    record::MachineLineValues::Gpu gpu{mean_of("gpu/utilization_percent", 0), mean_of("gpu/memory_used_bytes", 0),
                                       mean_of("gpu/memory_total_bytes", 0)};
    if (gpu.utilization_percent || gpu.memory_used_bytes) report.line.gpus.push_back(gpu);
    report.line.cpu_percent = mean_of("cpu/utilization_percent");
    report.line.ram_used_bytes = mean_of("ram/used_bytes");
    report.line.ram_total_bytes = mean_of("ram/total_bytes");
    // The driver's figure is of a window of its own, which short runs and pauses throw off; the counters cover the samples
    // exactly.
    report.resident_percent = mean_of("gpu/graphics_active_percent", 0);
    if (!report.resident_percent) report.resident_percent = gpu.utilization_percent;
    report.sm_active_percent = mean_of("gpu/sm_active_percent", 0);
    report.tensor_active_percent = mean_of("gpu/tensor_active_percent", 0);
    report.dram_active_percent = mean_of("gpu/dram_active_percent", 0);
    report.vram_peak_bytes = peak_of("gpu/memory_used_bytes", 0);
    report.ram_peak_bytes = peak_of("ram/used_bytes");
    report.gpu_joules = summary.joules(0);
    report.seconds = summary.seconds();
    report.power_watts = mean_of("gpu/power_watts", 0);
    if (summary.of("gpu/throttle_reasons", 0)) report.throttled_share = summary.throttled_share(0);
    report.throttle_reasons = sense::throttle_text(summary.throttled(0));
    return report;
}

Telemetry::Telemetry(record::EventWriter& events, std::unique_ptr<sense::Source> source)
    : events_(events), source_(std::move(source)), lost_(source_ ? source_->facts().gpus.size() : 0) {}

base::Result<std::unique_ptr<Telemetry>> Telemetry::start(const TelemetrySettings& settings, const io::Path& run,
                                                          std::unique_ptr<sense::Source> source, record::EventWriter& events,
                                                          const base::Clock& clock) {
    std::unique_ptr<Telemetry> telemetry(new Telemetry(events, std::move(source)));
    MILLRACE_LET(sinks, open_sinks(settings, run, telemetry->source_.get()));
    telemetry->sinks_ = std::make_unique<record::SinkThread>(std::move(sinks));
    if (telemetry->source_)
        telemetry->sampler_ = std::make_unique<sense::Sampler>(
            *telemetry->source_, settings.interval,
            [raw = telemetry.get()](const sense::Sample& sample) { raw->receive(sample); }, clock);
    return telemetry;
}

Telemetry::~Telemetry() {
    if (sampler_) sampler_->stop();
    if (!sinks_) return;
    report_missed();
    sinks_->drain();
    for (const std::string& failure : sinks_->failed()) (void)events_.append("sink_failed", failure);
    if (const std::uint64_t dropped = sinks_->dropped(); dropped > 0)
        (void)events_.append("rows_dropped", fmt::format("{} rows found the sinks too slow", dropped),
                             {{"dropped", static_cast<std::int64_t>(dropped)}});
}

void Telemetry::receive(const sense::Sample& sample) {
    std::vector<std::size_t> newly_lost;
    {
        const std::lock_guard lock(mutex_);
        if (sequence_) missed_ += sample.sequence - *sequence_ - 1;
        sequence_ = sample.sequence;
        interval_.add(sample);
        epoch_.add(sample);
        for (std::size_t i = 0; i < sample.gpus.size() && i < lost_.size(); ++i)
            if (sample.gpus[i].lost && !lost_[i]) {
                lost_[i] = true;
                newly_lost.push_back(i);
            }
        newest_ = sample;
    }
    sinks_->post({record::RowKind::kSample, sample.wall, std::nullopt, record::points_of(sample)});
    // An event that could not be written must not disturb the sampling.
    if (missed_ > 0 && (!missed_reported_ || sample.time - *missed_reported_ >= kMissedPause)) {
        missed_reported_ = sample.time;
        report_missed();
    }
    for (const std::size_t i : newly_lost) {
        MILLRACE_LOG(warn, "GPU {} no longer answers", i);
        (void)events_.append("gpu_lost", fmt::format("GPU {} no longer answers", i), {{"gpu", static_cast<std::int64_t>(i)}});
    }
}

void Telemetry::report_missed() {
    if (missed_ == 0) return;
    (void)events_.append("samples_missed", fmt::format("{} looks at the machine were missed", missed_),
                         {{"missed", static_cast<std::int64_t>(missed_)}});
    missed_ = 0;
}

void Telemetry::add_machine(PaceReport& pace, MachineReport machine, double samples_per_second) const {
    if (on_gpu_ && machine.gpu_joules && machine.seconds > 0 && samples_per_second > 0)
        pace.joules_per_sample = *machine.gpu_joules / machine.seconds / samples_per_second;
    pace.machine = std::move(machine);
}

void Telemetry::on_interval(IntervalReport& report) {
    record::SampleSummary taken;
    {
        const std::lock_guard lock(mutex_);
        std::swap(taken, interval_);
    }
    add_machine(report.pace, machine_report(taken), report.recent_samples);
}

MachineReport Telemetry::epoch() {
    record::SampleSummary copy;
    {
        const std::lock_guard lock(mutex_);
        if (epoch_.samples() < kFewestSamples) return {};
        copy = epoch_;
    }
    return machine_report(copy);
}

void Telemetry::on_epoch_begin() {
    const std::lock_guard lock(mutex_);
    if (epoch_.samples() >= kFewestSamples) epoch_.clear();
}

std::string Telemetry::newest_text() const {
    const std::lock_guard lock(mutex_);
    if (!newest_) return {};
    std::string text = record::machine_line(record::machine_line_values(*newest_));
    const auto add_rate = [&text](const char* name, const std::optional<double>& rate) {
        if (rate) text += fmt::format(" | {} {:.1f} MB/s", name, *rate / 1e6);
    };
    add_rate("disk reads", newest_->disk.read_bytes_per_second);
    add_rate("writes", newest_->disk.write_bytes_per_second);
    if (newest_->cpu.load_1m) text += fmt::format(" | load {:.1f}", *newest_->cpu.load_1m);
    return text;
}

void Telemetry::post(record::RowKind kind, const std::vector<record::Metric>& row) {
    record::SinkRow out;
    out.kind = kind;
    for (const auto& [key, value] : row) {
        const std::optional<double> number = number_of(value);
        if (!number) continue;
        if (key == "time")
            out.time = *number;
        else if (key == "step")
            out.step = static_cast<std::uint64_t>(*number);
        else if (const auto metric = record::metric_of_key(key))
            out.points.push_back({metric->first, metric->second, *number});
    }
    sinks_->post(std::move(out));
}

}  // namespace millrace::train
