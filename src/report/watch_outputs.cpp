#include "report/watch_outputs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "io/file.h"
#include "record/sinks.h"

namespace millrace::report {
namespace {

using record::Sink;
using Sinks = std::vector<std::unique_ptr<Sink>>;

/// The plot replaces a file as a whole, so it is the folder that must be writable.
base::Status check_plot(const std::string& path) {
    MILLRACE_TRY(io::check_replaceable(path));
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
        return base::Error{std::string("cannot write the plot there: ") + std::strerror(errno), path};
    return base::ok();
}

base::Status add(Sinks& sinks, base::Result<std::unique_ptr<Sink>> opened) {
    if (!opened.ok()) return opened.error();
    sinks.push_back(std::move(opened).value());
    return base::ok();
}

}  // namespace

base::Result<Sinks> open_outputs(const WatchSettings& settings, const sense::MachineFacts& facts) {
    Sinks sinks;
    const io::NamedFile files[] = {{"--csv", settings.csv},
                                   {"--monitor-csv", settings.monitor_csv},
                                   {"--plot", settings.plot},
                                   {"--prometheus-file", settings.prometheus_file}};
    MILLRACE_TRY(io::check_apart(files));
    if (!settings.plot.empty()) MILLRACE_TRY(check_plot(settings.plot));
    if (!settings.csv.empty()) MILLRACE_TRY(add(sinks, record::csv_sink(settings.csv, facts)));
    if (!settings.monitor_csv.empty()) MILLRACE_TRY(add(sinks, record::monitor_csv_sink(settings.monitor_csv, facts)));
    if (!settings.tensorboard.empty()) MILLRACE_TRY(add(sinks, record::tensorboard_sink(settings.tensorboard)));
    if (!settings.prometheus_file.empty())
        MILLRACE_TRY(add(sinks, record::prometheus_file_sink(settings.prometheus_file, facts)));
    if (settings.prometheus_port)
        MILLRACE_TRY(add(sinks, record::prometheus_port_sink(settings.prometheus_address, *settings.prometheus_port, facts)));
    if (settings.json) MILLRACE_TRY(add(sinks, record::json_lines_sink("-")));
    return sinks;
}

}  // namespace millrace::report
