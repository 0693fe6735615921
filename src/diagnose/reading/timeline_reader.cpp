#include "diagnose/reading/timeline_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "diagnose/reading/recording_reader.h"
#include "diagnose/reading/training_reader.h"

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
