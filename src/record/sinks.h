#pragma once
// The forms of output. Names and units come from the table of metrics. What is written reaches the system row by row (Prometheus
// apart), so a reader beside us and a crash find whole rows. Starting one fails when its file or port cannot be had.

#include <memory>
#include <string>

#include "base/clock.h"
#include "io/file.h"
#include "record/sink.h"
#include "sense/machine.h"

namespace millrace::record {

/// Samples, one row each: time (seconds since 1970), then every metric of the table that the machine can have (cores and GPUs by
/// number), empty where nothing was read. The columns are fixed by the facts when the file begins; those of one GPU are there,
/// empty, even when there is none. Replaces the file.
base::Result<std::unique_ptr<Sink>> csv_sink(const io::Path& path, const sense::MachineFacts& facts);

/// Samples in the eleven columns of the original monitor, one row per GPU and sample; without a GPU one row per sample with the
/// GPU fields empty: timestamp (local time), gpu_index, gpu_name, utilization_gpu_%, memory_used_mb, memory_total_mb (both MiB,
/// as the driver's own tool calls them), memory_usage_%, power_draw_w, power_limit_w, power_usage_%, temperature_c. What was not
/// read is empty, never 0. Replaces the file.
base::Result<std::unique_ptr<Sink>> monitor_csv_sink(const io::Path& path, const sense::MachineFacts& facts);

enum class FileStart {
    kReplace,  ///< what the file held is gone
    kAppend,   ///< goes on at the end; a torn last line is closed off
};

/// Every row as one JSON object per line: {"kind", "time", "step", key: value, ...}; what is not finite is null. `path` "-" is
/// the standard output. kAppend is for samples.jsonl of a run: a resumed run goes on.
base::Result<std::unique_ptr<Sink>> json_lines_sink(const io::Path& path, FileStart start = FileStart::kReplace);

/// Scalars for TensorBoard: `folder`/events.out.tfevents.<unix>.<host>.<pid>; the folder is created. Tags of samples are the keys
/// ("gpu0/power_watts"), those of training rows have the row's kind before them ("epoch/validation_loss"), so that means over an
/// interval and over an epoch are two curves. Samples are put at the step of the newest training row; before the first one, and
/// when nothing is trained, at the number of their tick.
base::Result<std::unique_ptr<Sink>> tensorboard_sink(const io::Path& folder);

/// The newest value of every metric as Prometheus text, replaced as a whole at most once a second and on flush.
base::Result<std::unique_ptr<Sink>> prometheus_file_sink(const io::Path& path, const sense::MachineFacts& facts,
                                                         const base::Clock& clock = base::SteadyClock::shared());

/// The same on http://<address>:<port>/metrics until the sink goes. `address` is numeric or "localhost"; empty is 127.0.0.1. Port
/// 0 takes a free one; the name says which.
base::Result<std::unique_ptr<Sink>> prometheus_port_sink(const std::string& address, int port, const sense::MachineFacts& facts);

}  // namespace millrace::record
