#pragma once
// The forms of output. Each creates or replaces its own file; names and units come from the table of metrics.

#include <memory>
#include <string>

#include "record/file.h"
#include "record/sink.h"
#include "sense/machine.h"

namespace millrace::record {

/// Samples, one row each: time, then every metric of the table that the machine can have (cores and GPUs by number), empty where
/// nothing was read. The columns are fixed by the facts when the file begins.
Result<std::unique_ptr<Sink>> csv_sink(const Path& path, const sense::MachineFacts& facts);

/// Samples in the eleven columns of the original monitor, one row per GPU and sample; without a GPU one row per sample with the
/// GPU fields empty: timestamp, gpu_index, gpu_name, utilization_gpu_%, memory_used_mb, memory_total_mb, memory_usage_%,
/// power_draw_w, power_limit_w, power_usage_%, temperature_c.
Result<std::unique_ptr<Sink>> monitor_csv_sink(const Path& path, const sense::MachineFacts& facts);

/// Every row as one JSON object per line: {"kind", "time", "step", key: value, ...}. `path` "-" is the standard output.
Result<std::unique_ptr<Sink>> json_lines_sink(const Path& path);

/// Scalars for TensorBoard: `folder`/events.out.tfevents.<unix>.<host>.<pid>. Samples are put at the step of the newest training
/// row.
Result<std::unique_ptr<Sink>> tensorboard_sink(const Path& folder);

/// The newest value of every metric as Prometheus text, replaced as a whole at most once a second and on flush.
Result<std::unique_ptr<Sink>> prometheus_file_sink(const Path& path, const sense::MachineFacts& facts);

/// The same on http://<address>:<port>/metrics until the sink goes. Port 0 takes a free one; the name says which.
Result<std::unique_ptr<Sink>> prometheus_port_sink(const std::string& address, int port, const sense::MachineFacts& facts);

}  // namespace millrace::record
