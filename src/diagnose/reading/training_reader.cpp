#include "diagnose/reading/training_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "diagnose/reading/call_index.h"
#include "diagnose/reading/machine_rows.h"
#include "diagnose/reading/run_reader.h"

namespace millrace::diagnose {

namespace {

using base::Error;
using base::Result;

constexpr double kLatestSecond = 1e10;  ///< some 300 years of seconds since 1970

std::optional<double> positive(const record::MetricsRow& row, std::string_view key) {
    const auto value = row.number(key);
    return value && std::isfinite(*value) && *value > 0 ? value : std::nullopt;
}

/// An interval's steps as a block; nothing where the row does not say how many or how fast.
std::optional<Block> block_of(const record::MetricsRow& row, const std::function<Time(double)>& time_of) {
    const record::MetricValue* kind = row.find("kind");
    const auto time = positive(row, "time"), steps = positive(row, "steps"), speed = positive(row, "steps_per_second");
    if (kind == nullptr || *kind != record::MetricValue(std::string("interval")) || !time || !steps || !speed)
        return std::nullopt;
    if (*time > kLatestSecond || *steps / *speed > 1e7) return std::nullopt;
    Block block;
    block.end = time_of(*time);
    block.begin = block.end - static_cast<Time>(*steps / *speed * 1e9);
    block.steps = *steps;
    const auto wait = row.number("loader_wait_ms_mean");
    if (wait && std::isfinite(*wait) && *wait >= 0) block.loader_wait_ms = wait;
    return block;
}

/// N of "cuda:N NVIDIA H200"; 0 otherwise.
std::uint32_t gpu_of(const record::Manifest& manifest) {
    const std::string_view device = manifest.device;
    std::uint32_t number = 0;
    if (device.starts_with("cuda:")) std::from_chars(device.data() + 5, device.data() + device.size(), number);
    return number;
}

/// Seconds since 1970 at the first row of the run: the timeline's origin.
double first_second(const RunContents& run) {
    for (const RunStream* stream : {&run.metrics, &run.samples})
        for (const record::MetricsRow& row : stream->rows)
            if (const auto time = positive(row, "time"); time && *time < kLatestSecond) return *time;
    return 0;
}

}  // namespace

Result<Timeline> read_training(const io::Path& folder, const ReadProgress& progress) {
    MILLRACE_LET(run, read_run(folder));
    if (progress) progress(0.9);
    Timeline timeline;
    timeline.source = Source::kTraining;
    timeline.title = title_of(run.manifest);
    timeline.device_name = device_name_of(run.manifest);
    timeline.names.emplace_back();
    timeline.stacks.emplace_back();
    timeline.processors = processors_of(run.samples);
    const double start = first_second(run);
    const auto time_of = [start](double wall) { return static_cast<Time>((wall - start) * 1e9); };
    for (const record::MetricsRow& row : run.metrics.rows)
        if (const auto block = block_of(row, time_of)) timeline.blocks.push_back(*block);
    timeline.machine = machine_samples(run.samples, gpu_of(run.manifest), time_of);
    sort_timeline(timeline);
    if (timeline.blocks.empty() && timeline.machine.empty())
        return Error{"holds neither a recording nor rows of training: the run ended before its first", folder.string(), 4};
    timeline.remarks.emplace_back(
        "a run of `millrace train` has no trace: causes below a step's own figures were not looked for (`millrace record -- "
        "millrace train ...` would see them)");
    add_run_remarks(run, timeline);
    if (progress) progress(1);
    return timeline;
}

}  // namespace millrace::diagnose
