#include "diagnose/reading/timeline_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "diagnose/reading/call_index.h"
#include "diagnose/reading/machine_rows.h"
#include "diagnose/reading/recording_reader.h"

namespace millrace::diagnose {
namespace {

using base::Error;
using base::Result;
namespace fs = std::filesystem;

/// Traces in a folder that is no run, as torch.profiler.tensorboard_trace_handler leaves them.
Result<fs::path> trace_in(const fs::path& folder) {
    constexpr std::size_t kMost = 10'000;
    std::vector<fs::path> traces;
    std::error_code failed;
    std::size_t seen = 0;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end && seen < kMost;
         entry.increment(failed), ++seen) {
        const std::string name = entry->path().filename().string();
        if (name.ends_with(".trace.json") || name.ends_with(".trace.json.gz")) traces.push_back(entry->path());
    }
    if (failed) return Error{fmt::format("cannot be listed: {}", failed.message()), folder.string()};
    if (traces.empty())
        return Error{
            "is neither a run directory (it has no manifest.json) nor holds a trace of PyTorch's profiler (*.trace.json, "
            "*.trace.json.gz)",
            folder.string()};
    std::ranges::sort(traces);
    if (traces.size() > 1)
        return Error{
            fmt::format("holds {} traces; name one of them, such as {}", traces.size(), traces.back().filename().string()),
            folder.string()};
    return traces.front();
}

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

/// A run directory that `millrace train` wrote. It has no trace, so neither calls nor work: blocks with their speed and the
/// loader's wait (rows of kind `interval`), and samples of the machine. Exit status 4 when it has neither.
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

}  // namespace

Result<Timeline> read_timeline(const io::Path& path, const ReadProgress& progress) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (status.type() == fs::file_type::not_found) return Error{"does not exist", path.string()};
    if (failed) return Error{fmt::format("cannot be looked at: {}", failed.message()), path.string()};
    if (!fs::is_directory(status)) {
        if (path.filename() == record::kTraceName)
            return read_timeline(path.has_parent_path() ? path.parent_path() : ".", progress);
        return read_kineto(path, progress);
    }
    if (fs::exists(path / record::kTraceName, failed)) return read_recording(path, progress);
    if (fs::exists(path / "manifest.json", failed)) return read_training(path, progress);
    MILLRACE_LET(trace, trace_in(path));
    return read_kineto(trace, progress);
}

}  // namespace millrace::diagnose
